//! The settings of all layers, from a file, from the environment or as a preset; and the documented
//! stack built of them.
//!
//! [`Settings`] has a section for each layer, with serde. [`Settings::with_env`] applies
//! environment variables over it, [`Settings::check`] refuses contradictions, and
//! [`Settings::stack`] builds the stack.
//!
//! # Example
//!
//! ```toml
//! toml = "1"
//! tower-toolcall = { path = "../tower-toolcall", features = ["settings"] } # a clone
//! ```
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ToolCall, settings::Settings,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let file = r#"
//!     [timeout]
//!     default = "10s"
//!
//!     [circuit_breaker]
//!     threshold = 3
//!     window = "2m"
//!
//!     [tools.import]
//!     timeout = "45s"
//!     replay_safe = false
//! "#;
//! let settings: Settings = toml::from_str(file)?;
//! let settings = settings.with_env()?; // TOOLCALL_TIMEOUT, for example
//!
//! let stack = settings.stack().build()?;
//! let breakers = stack.circuit_breaker();
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("sunny")
//! });
//! let tools =
//!     ServiceBuilder::new().layer(stack).service(tool);
//! assert_eq!(
//!     tools.oneshot(ToolCall::new("weather")).await?,
//!     "sunny"
//! );
//! // That of `weather`, and that of `import`, which is known from the file.
//! assert_eq!(breakers.len(), 2);
//! # Ok(()) }
//! ```
//!
//! Return [`AnyError`](crate::AnyError) from `main`: it prints an error of the file with its place,
//! in lines. A `Box<dyn Error>` prints the fields of the parser's error in one line.
//!
//! A preset, and what no file can say:
//!
//! ```
//! use tower_toolcall::{ReplaySafety, tool_metrics::Metrics, settings::Settings};
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let metrics = Metrics::new();
//! let mut settings = Settings::agent_loop();
//! settings.retry.attempts = 2;
//! let stack = settings
//!     .stack()
//!     .with_metrics(&metrics)
//!     .with_replay_safety(|call| match call.is_named("pay") {
//!         true => ReplaySafety::Unsafe,
//!         false => ReplaySafety::Unknown,
//!     })
//!     .build()?;
//! # let _ = stack; Ok(()) }
//! ```
//!
//! Hooks, checks and layers of your own:
//!
//! ```
//! # #[cfg(feature = "otel")] {
//! use tower::{ServiceBuilder, limit::ConcurrencyLimitLayer, service_fn};
//! use tower_toolcall::{
//!     BoxError, ToolCall,
//!     check::{CheckLayer, check_fn},
//!     otel::LangfuseHooks,
//!     settings::{Place, Settings},
//! };
//!
//! # fn main() -> Result<(), BoxError> {
//! let check = check_fn(|_call, answer: &String| match answer.is_empty() {
//!     true => Err("the answer is empty".into()),
//!     false => Ok(()),
//! });
//! let stack = Settings::http_proxy()
//!     .stack()
//!     // For MCP tools: LangfuseHooks::new(McpHooks::new()).
//!     .with_hooks(LangfuseHooks::default())
//!     .with_layer(Place::Call, CheckLayer::new(check))
//!     .with_layer(Place::Attempt, ConcurrencyLimitLayer::new(8))
//!     .build()?;
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, BoxError>("sunny".to_owned()) });
//! let tools = ServiceBuilder::new().layer(stack).service(tool);
//! # let _ = tools; Ok(()) }
//! # main().unwrap() }
//! ```
//!
//! [`examples/settings.toml`][file] is a file with every key, [`.env.example`][env] an environment
//! with every variable. `cargo run --features settings --example settings` reads both.
//!
//! [file]: https://docs.rs/crate/tower-toolcall/latest/source/examples/settings.toml
//! [env]: https://docs.rs/crate/tower-toolcall/latest/source/.env.example
//!
//! # Presets
//!
//! - [`default`](Preset::Default): timeout 30 s, 3 attempts; rate limit: waits, 30 s without a
//!   hint; breaker: 5 in a row, open for 60 s.
//! - [`agent_library`](Settings::agent_library): timeout 5 s, 1 attempt; rate limit: waits, 10 s;
//!   breaker: off; sequence 30 s, batch 60 s, reserve 500 ms, slow from 80 % on.
//! - [`agent_loop`](Settings::agent_loop): timeout 30 s, 3 attempts; rate limit: waits, 30 s;
//!   breaker: off; limits inferred from texts hold others back.
//! - [`gateway`](Settings::gateway): timeout 60 s, 1 attempt; rate limit: refuses immediately;
//!   breaker: 5 in a row within 300 s, open for 60 s.
//! - [`http_proxy`](Settings::http_proxy): timeout 30 s, 1 attempt; rate limit: refuses
//!   immediately; breaker: 5 in a row, open for 30 s, 3 probes, per server; a tool without a server
//!   has its own breaker; wrong arguments are `Argument validation failed: ..`.
//!
//! No preset assumes that a tool may run twice. Declare it yourself with
//! `retry.assume_replay_safe = true`, or better with `tools.x.replay_safe = true` for each tool
//! that only reads.
//!
//! Everything else has its default, and each part is a setting: `circuit_breaker.enabled = true`
//! gives an agent loop a breaker. Settings begin with a preset. The program ([`Settings::preset`]),
//! a file or `TOOLCALL_PRESET` names it; the variable takes precedence. Then come the file's
//! values, then those of variables:
//!
//! ```
//! use tower_toolcall::settings::Settings;
//!
//! # fn main() -> Result<(), tower_toolcall::BoxError> {
//! let file: Settings = toml::from_str("preset = \"gateway\"\n[retry]\nattempts = 2")?;
//! assert_eq!((file.timeout.default.as_secs(), file.retry.attempts), (60, 2));
//!
//! let settings = file.with_env_from([("TOOLCALL_PRESET", "agent_library")])?;
//! assert_eq!((settings.timeout.default.as_secs(), settings.retry.attempts), (5, 2));
//! # Ok(()) }
//! ```
//!
//! # Details
//!
//! ## Order
//!
//! A call's own values take precedence over settings for its tool, and those over settings for all
//! tools. A variable takes precedence over a file, and a file over the [preset](#presets).
//! [`StackLayer`] is, from the outside in: sanitize, [identity](StackBuilder::with_identity),
//! trace, metrics, repeat guard, validate (with schemas), policy (if `[policy]` is not empty),
//! [once and cache](StackBuilder::with_layer), quota (with `quota.units`),
//! [fit and check](StackBuilder::with_layer), deadline, retry, the spans of attempts
//! (`trace.attempts`), rate limit, health, concurrency limit (with `concurrency.max`), circuit
//! breaker, timeout, catch panic. A [`ToolResultLayer`](crate::result::ToolResultLayer) goes around
//! it. A disabled layer is a [`Switch`](crate::switch::Switch) that is off. Layers of your own go
//! to a [`Place`].
//!
//! ## Variables
//!
//! Unset or blank: unchanged. Durations have a unit (`500ms`, `30s`, `1m30s`); a number without one
//! is seconds. Both hold for files as well. A list has commas between its words. `none` unsets a
//! setting, and empties a list. [`VARIABLES`] is this list, with the key in a file and its default.
//! Keys are the names of the layers' methods, where there is one for the setting alone:
//! `with_open_for` of the circuit breaker is `circuit_breaker.open_for`. A tool's timeout may also
//! be `timeout_ms`, in milliseconds.
//!
//! An unknown variable with the prefix `TOOLCALL_` is an error that names the nearest. Other
//! variables are not read, except five that an MCP gateway may have already:
//!
//! | alias | of |
//! |---|---|
//! | `TOOL_TIMEOUT` | `TOOLCALL_TIMEOUT` |
//! | `TOOL_CIRCUIT_BREAKER_ENABLED` | `TOOLCALL_CIRCUIT_BREAKER_ENABLED` |
//! | `TOOL_CIRCUIT_BREAKER_THRESHOLD` | `TOOLCALL_CIRCUIT_BREAKER_THRESHOLD` |
//! | `TOOL_CIRCUIT_BREAKER_RESET` | `TOOLCALL_CIRCUIT_BREAKER_RESET` |
//! | `TOOL_CIRCUIT_BREAKER_WINDOW` | `TOOLCALL_CIRCUIT_BREAKER_WINDOW` |
//!
//! A variable that is given twice, by its name or its alias, with different values is an error.
//!
//! `TOOLCALL_TOKEN_CLIENT_SECRET` is not a setting or a key of a file. It has the client secret of
//! [`token`](TokenSettings), and takes precedence over `token.client_secret_file`.
//!
#![doc = include_str!("variables.md")]
//!
//! ## Errors
//!
//! A [`ConfigError`](crate::ConfigError) names the variable if the setting came from one, else its
//! key (`tools.import.timeout`, `tools."a.b".timeout`) and, if variables were set, the variable for
//! that key. Each layer checks its own settings, a disabled layer too. The stack also refuses these
//! settings, with both numbers in the text. *Not set* says how a default gives way instead:
//!
//! - `circuit_breaker.window_calls`: set together with `window`. Not set: the `window` of a preset
//!   does not apply.
//! - `circuit_breaker.reported_failures`: true while the `key` is `server`.
//! - `sequence.reserve`: not shorter than `sequence.budget`. Not set: a tenth of it.
//! - `deadline.reserve`, `parallel.budget`: a reserve that is not shorter than the budget. Every
//!   call of a batch would be skipped. Not set: the reserve is a tenth of the budget.
//! - `retry.cap`: shorter than `retry.base`. Not set: as long.
//! - `poll.cap`: shorter than `poll.interval`. Not set: as long.
//! - `rate_limit.default_cooldown`: longer than `rate_limit.max_wait`, where calls wait. Not set:
//!   the longest wait is as long, or the cooldown is not waited for.
//! - `rate_limit.default_cooldown`: longer than `rate_limit.max_cooldown`. Not set: the longest
//!   shared cooldown is as long.
//! - `retry.base`, `rate_limit.default_cooldown`: too long to end within a budget (of deadline,
//!   sequence or batch), where calls wait. Not set: not waited for.
//! - `token.client_secret`: always. A secret is in a file of its own, `token.client_secret_file`,
//!   or in `TOOLCALL_TOKEN_CLIENT_SECRET`.
//! - `token.client_id`, `token.client_secret_file`: missing where there is a `token.endpoint` (the
//!   second one unless `TOOLCALL_TOKEN_CLIENT_SECRET` is set, or `token.auth` is `public`, where it
//!   is refused).
//! - `tools.*.audience`: set without `token.endpoint`.
//! - `tools.*.scopes`: set for a tool without an `audience`.
//! - `policy.ask`: set for a stack without `with_approver`.
//! - a pattern of `policy.ask`, `policy.allow`: covered by an earlier pattern with another effect,
//!   in the order `deny`, `ask`, `allow`.
//! - `cache.tools`: set without `cache.ttl`.
//! - a tool's name: empty.
//! - any duration: longer than a year, a cooldown and `repeat_guard.window` than a day, or zero
//!   where nothing would work.
//!
//! A random wait counts with its shortest time. A disabled layer contradicts no other.
//!
//! ## Warnings
//!
//! A setting that works but looks wrong is a warning: [`Settings::warnings`] returns them, and
//! [`StackBuilder::build`] emits each as the event `tool.settings`, at WARN.
//!
//! A key causes a warning if it is as said here:
//!
//! - `circuit_breaker.window`: not longer than the longest attempt: two timeouts never fall into
//!   one window (where one failure opens a breaker, it may be). Not set: `threshold` times that
//!   attempt, if so many timeouts one after the other do not fit into it.
//! - `circuit_breaker.slow_call`: longer than the longest attempt.
//! - `circuit_breaker.probe_wait`: not zero, and there is a `concurrency.max`: a waiting call holds
//!   a permit.
//! - `timeout.idle_timeout`: not shorter than the longest attempt.
//! - `tools.*.attempts`: there, and `retry.enabled` is false.
//! - `tools.*.repair`: true, and arguments are not checked.
//! - `tools.*.repeat_guard`: true, and `repeat_guard.enabled` is false.
//!
//! The longest attempt is the longest timeout of any tool, or `deadline.budget` if that is shorter.
//! A call may set a longer one.
//!
//! ## Missing keys
//!
//! - `http.timeout`: `timeout.default`, `tools.x.timeout`: an HTTP tool is a tool
//! - `http.connect_timeout`, `http.follow_redirects`: the HTTP client's: it comes from the program
//!   (`ReqwestClient::new` makes one without a connect timeout that follows no redirect)
//! - `http.max_response`: `http.max_bytes`
//! - `validate.max_errors`: nowhere: an error has the first five validation errors, and a model
//!   reads three of them. That is enough for its next try, and bounds the work for hostile
//!   arguments
//! - `token.client_secret`: the file `token.client_secret_file`, or the variable
//!   `TOOLCALL_TOKEN_CLIENT_SECRET`
//! - `token.max_ttl`, `token.max_tokens`: `token.max_lifetime`, `token.max_keys`
//! - `poll.attempts`, `poll.deadline`: `poll.polls`, `poll.budget`
//! - **a variable for one tool**: `tools.x` in a file, or `settings.tools` in code.
//!   `TOOLCALL_TIMEOUT` is `timeout.default`: a tool with a timeout of its own keeps it
//! - `base`, `cap`, breaker settings of `tools.x`: nowhere: they are for all tools. In code
//!   [`RetryPolicy::with_tool`](crate::retry::RetryPolicy::with_tool)
//! - `method`, `url`, `headers`, `body`, `mode` and `poll` of `tools.x`: a file of the tool's own:
//!   `ToolManifest` of the crate `tower-toolcall-http`. Settings say what an operator decides about
//!   a tool, not what it sends
//!
//! ## Defaults give way
//!
//! Only explicit settings contradict each other: those of a file, of a variable, or in code with
//! another value than the preset's. If one of the two is a default of the preset or the crate, it
//! gives way, as the last column says. So `[deadline] budget = "10s"` alone is a valid file: a wait
//! that does not fit into a budget is never begun, and after a rate limit of 30 s the caller gets
//! the error immediately, with its `retry_after`. Timeouts and budgets never give way, because
//! callers rely on them: a setting that would need longer ones is refused.
//!
//! [`Settings::explain`] prints the effective settings and their reasons: a value that gave way has
//! the previous value and the setting that it contradicted. Print it at the start of a program.
//!
//! A key counts as set by a file or a variable even if the program restores the preset's value
//! afterwards.
//!
//! An unknown key is an error that names the nearest. The error of a variable quotes its value only
//! if it is short, and redacted. The error of a file is the parser's, which may show the line. It
//! has several lines: print it directly, because [`AnyError`](crate::AnyError) joins them.
//!
//! ## Names of tools
//!
//! The names of `[tools.x]` and `cache.tools`, and the patterns of `policy`, are of tools. If the
//! stack has a table of all tools ([`with_identity`](StackBuilder::with_identity), with a router
//! for example), a name or pattern without a tool is an error of [`StackBuilder::build`] that names
//! the nearest. A router has all tools once the list of each of its servers was read.
//!
//! Without such a table a layer emits the event `tool.unmatched` at WARN after 1,000 calls, with
//! the names that matched none of them. [`StackLayer::tool_names`] has them at any time.
//!
//! ## Unchecked input
//!
//! Variables without the [prefix](#variables): `TOOL_TIMOUT` is not read.
//!
//! ## Sections that other crates read
//!
//! A file has all settings of a program, and so has the check. These sections are read by a
//! function of the crate that needs them. It takes `&Settings`, and its errors name the key or the
//! variable.
//!
//! | section | is read by |
//! |---|---|
//! | `[http]` | `HttpTool::with_settings` of `tower-toolcall-http` |
//! | `[poll]` | [`Settings::poll_layer`], `ToolManifest::poll_layer_with` of the same crate |
//! | `[token]` | `token::layer_from_settings` of `tower-toolcall-http` |
//! | `[shared]` | `SharedState::from_settings` of `tower-toolcall-redis` |

mod base;
mod batch;
mod check;
mod circuit_breaker;
mod duration;
mod explain;
mod key;
mod layers;
mod names;
mod preset;
mod retry;
mod sections;
mod server_url;
mod stack;
mod text;
mod token;
mod tools;
mod variables;
mod whole;

pub use self::{
    key::KeyBy,
    preset::Preset,
    sections::*,
    server_url::ServerUrl,
    stack::{Below, Own, Place, Stack, StackBuilder, StackLayer},
    token::TokenAuth,
    tools::ToolSettings,
    variables::Variable,
};
