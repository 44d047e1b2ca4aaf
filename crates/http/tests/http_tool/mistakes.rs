//! Mistakes of operators and models, and how they are told.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use http::Method;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    AnyError, ConfigError, ErrorKind, ServiceBuilderExt as _, ToolCall, ToolError,
};
use tower_toolcall_http::{HttpTool, ToolManifest};

use crate::kit::{Server, Warnings, answered_by, call, full, no_arguments, says};

/// Names of headers that have secrets.
const SECRET: [&str; 6] = [
    "authorization",
    "x-api-key",
    "cookie",
    "x-auth-token",
    "proxy-authentication",
    "password",
];

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, SeqCst);
        let name = format!("http-tool-mistakes-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn of(manifest: &Value) -> Self {
        let folder = Self::new();
        fs::write(folder.0.join("tool.json"), manifest.to_string()).unwrap();
        folder
    }

    /// The error of the folder, as a program prints it whose `main` returns it.
    fn error(&self) -> String {
        let error = ToolManifest::read_dir(&self.0).unwrap_err();
        format!("{:?}", AnyError::from(error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn manifest(name: &str, profile: Value) -> Value {
    let mut profile = profile;
    if profile["url_template"].is_null() {
        profile["url_template"] = "https://api.example.com/{{ city }}".into();
    }
    json!({
        "name": name,
        "input_schema": { "type": "object", "properties": { "city": { "type": "string" } } },
        "execution_profile": profile,
    })
}

fn parsed(manifest: &Value) -> ToolManifest {
    serde_json::from_value(manifest.clone()).unwrap()
}

fn tool() -> HttpTool {
    let schema = json!({ "properties": { "city": { "type": "string" } } });
    HttpTool::new(Method::GET, "https://api.example.com/{{ city }}")
        .and_then(|tool| tool.with_input_schema(&schema))
        .unwrap()
}

/// Stumble 11: `header authorization: [REDACTED]`, for every header that has a secret.
#[test]
fn the_reason_why_a_secret_header_cannot_work_is_printed() {
    for name in SECRET {
        for (template, reason) in [
            ("Bearer {{ env.X }}", "`env`"),
            ("{{ city | nope }}", "the filter `nope`"),
            ("{{ city.upper() }}", "the method `upper`"),
            ("{{ city", "is not a template"),
            ("\u{e9}", "is not a line of visible ASCII"),
            ("Bearer ${API_KEY}", "environment"),
        ] {
            let error = tool().with_header(name, template).unwrap_err();
            let shown = format!("{:?}", AnyError::from(error));
            assert!(shown.contains(reason), "{name}: {shown}");
            assert!(!shown.contains("REDACTED"), "{name}: {shown}");
            let profile = json!({ "headers_template": { (name): template } });
            let shown = Folder::of(&manifest("get_token", profile)).error();
            assert!(shown.contains(reason), "{name}: {shown}");
            assert!(!shown.contains("REDACTED"), "{name}: {shown}");
        }
        let twice = json!({ "headers_template": format!(r#"{{"{name}": "a", "{name}": "b"}}"#) });
        let shown = Folder::of(&manifest("get_token", twice)).error();
        assert!(shown.contains("comes twice"), "{shown}");
    }
}

/// Stumble 12: in a header, and in a URL.
#[test]
fn a_variable_of_the_environment_is_refused() {
    let refused = |error: ConfigError, field: &str| {
        assert_eq!(error.field(), field);
        assert!(error.reason().contains("environment"), "{error}");
    };
    for template in ["Bearer ${API_KEY}", "${API_KEY}"] {
        let error = tool().with_header("authorization", template).unwrap_err();
        refused(error, "header authorization");
        refused(
            tool().with_header("x-shop", template).unwrap_err(),
            "header x-shop",
        );
    }
    let url = "https://api.example.com/?key=${API_KEY}";
    refused(HttpTool::new(Method::GET, url).unwrap_err(), "url");
    // An amount of money.
    assert!(tool().with_header("x-price", "${{ city }}").is_ok());
}

/// Stumble 12: with a schema, without one, and before it.
#[test]
fn an_undeclared_variable_in_a_secret_header_is_refused() {
    for name in SECRET {
        for template in ["Bearer {{ env.X }}", "{{ api_key }}"] {
            let bare = HttpTool::new(Method::GET, "https://api.example.com/").unwrap();
            let error = bare.clone().with_header(name, template).unwrap_err();
            assert_eq!(error.field(), format!("header {name}"));
            assert!(error.reason().contains("argument"), "{error}");
            // Any other header may have any argument.
            assert!(bare.with_header("x-shop", template).is_ok());
            let mut json = manifest(
                "weather",
                json!({ "headers_template": { (name): template } }),
            );
            json["input_schema"] = Value::Null;
            let error = parsed(&json).tool().unwrap_err();
            assert_eq!(error.field(), format!("header {name}"));
        }
        assert!(tool().with_header(name, "{{ city }}").is_ok());
        assert!(
            tool()
                .with_header(name, "{{ request_id }} {{ upstream_token }}")
                .is_ok()
        );
    }
}

/// Stumble 12: a job is asked for with the same headers.
#[test]
fn a_declared_argument_may_stand_in_a_secret_header_of_a_job() {
    let json = manifest(
        "deliver",
        json!({
            "mode": "async_poll",
            "headers_template": { "x-api-key": "{{ city }}" },
            "poll_config": {
                "status_url_template": "https://api.example.com/jobs/{{ id }}",
                "status_field_path": "state",
            },
        }),
    );
    let manifest = parsed(&json);
    assert!(manifest.tool().is_ok());
    assert!(manifest.poll_layer().unwrap().is_some());
}

/// Stumble 13: a tool that is built of a file, and the jobs of one.
#[test]
fn an_error_of_a_manifest_names_its_tool() {
    let of = |profile: Value| parsed(&manifest("get_token", profile));
    let url = of(json!({ "url_template": "api.example.com" })).tool();
    let token = of(json!({ "headers_template": { "x-a": "{{ upstream_token }}" } })).tool();
    let poll = of(json!({ "mode": "async_poll" }));
    let errors = [
        (url.unwrap_err(), "url"),
        (token.unwrap_err(), "required_audience"),
        (poll.job().unwrap_err(), "poll_config"),
        (poll.poll_layer().unwrap_err(), "poll_config"),
    ];
    for (error, field) in errors {
        assert_eq!(error.field(), field);
        let shown = format!("{:?}", AnyError::from(error));
        assert!(shown.contains("`get_token`"), "{shown}");
        assert!(!shown.contains("REDACTED"), "{shown}");
    }
    let shown = Folder::of(&manifest("get_token", json!({ "mode": "async_poll" }))).error();
    for part in ["tool.json", "`get_token`", "poll_config"] {
        assert_eq!(shown.matches(part).count(), 1, "{shown}");
    }
}

/// Stumble 14: 404 and 410, as 409 and 422.
#[tokio::test]
async fn a_model_reads_what_the_upstream_says_of_a_thing_that_is_not_there() {
    for status in [404, 410, 409, 422] {
        for body in [
            r#"{"message": "No order 7; the open ones are 8 and 9"}"#,
            "No order 7; the open ones are 8 and 9",
        ] {
            let leaf = says(tool(), status, body);
            let error = leaf.send(json!({ "city": "Rome" })).await.unwrap_err();
            let text = error.model_message();
            assert!(text.contains("the open ones are 8 and 9"), "{text}");
        }
    }
    let leaf = says(tool(), 404, "");
    let error = leaf.send(json!({ "city": "Rome" })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.is_recoverable());
}

/// 46: other arguments do not change what is redirected, and a form that was taken is often
/// redirected.
#[tokio::test]
async fn a_redirected_call_is_not_the_models_mistake() {
    for status in [301, 302, 303, 307, 308, 304] {
        let leaf = answered_by(tool(), move |_| {
            let answer = http::Response::builder().status(status);
            answer.header("location", "/x").body(full("")).unwrap()
        });
        let error = leaf.send(json!({ "city": "Rome" })).await.unwrap_err();
        let text = error.model_message();
        assert!(text.contains("its answer is unusable"), "{status}: {text}");
        assert!(!text.contains("change it"), "{status}: {text}");
    }
}

/// Returns how many attempts a call had, and its error.
async fn attempts(tool: HttpTool, call: ToolCall) -> (u32, ToolError) {
    let server = Server::start(|_, _| http::Response::new(full("1"))).await;
    let stack = ServiceBuilder::new()
        .tool_result()
        .tool(tool.client::<_, bytes::Bytes>(tower_toolcall_http::ReqwestClient::new().unwrap()));
    let Ok(result) = stack.oneshot(call).await;
    assert_eq!(server.count(), 0);
    (result.attempts(), result.error().unwrap().clone())
}

/// Stumble 14: an argument is missing, or cannot stand where it is put.
#[tokio::test]
async fn a_call_that_made_no_request_has_no_attempt() {
    let open = || HttpTool::new(Method::GET, "https://api.example.com/{{ city }}").unwrap();
    let ended = |(attempts, error): (u32, ToolError), kind| {
        assert_eq!((attempts, error.kind()), (0, kind), "{error}");
        error
    };
    let missing = ended(
        attempts(open(), call(no_arguments())).await,
        ErrorKind::InvalidInput,
    );
    assert!(missing.model_message().contains("`city` is missing"));
    ended(
        attempts(open(), call(json!({ "city": "a/b" }))).await,
        ErrorKind::InvalidInput,
    );
}

/// The number of tools in a folder, and the warnings.
fn warned(folder: &Folder) -> (usize, Vec<String>) {
    let (warnings, _guard) = Warnings::heard();
    let count = ToolManifest::read_dir(&folder.0).unwrap().len();
    (count, warnings.take())
}

/// Stumble 15: an empty folder, and one whose files are of another kind.
#[test]
fn a_folder_without_tools_is_a_warning() {
    let empty = Folder::new();
    let other = Folder::new();
    fs::write(other.0.join("tool.yaml"), "name: weather").unwrap();
    for folder in [&empty, &other] {
        let (count, warnings) = warned(folder);
        let [.., warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        let name = folder.0.display().to_string();
        assert!(count == 0 && warning.contains(&name), "{warning}");
    }
    let one = Folder::of(&manifest("weather", json!({ "method": "GET" })));
    assert_eq!(warned(&one), (1, vec![]));
}

/// Stumble A3: a file beside the tools that may be meant as one is named.
#[test]
fn a_file_of_a_folder_that_is_not_read_is_a_warning() {
    for (name, is_warned) in [
        ("pay.toml", true),
        ("pay.json.txt", true),
        ("pay", true),
        ("README.md", false),
        (".DS_Store", false),
    ] {
        let folder = Folder::of(&manifest("weather", json!({ "method": "GET" })));
        fs::write(folder.0.join(name), "name = 'pay'").unwrap();
        let (count, warnings) = warned(&folder);
        assert_eq!(
            (count, warnings.len()),
            (1, usize::from(is_warned)),
            "{name}"
        );
        assert!(
            warnings.iter().all(|text| text.contains(name)),
            "{warnings:?}"
        );
    }
    let upper = Folder::new();
    let tool = manifest("weather", json!({ "method": "GET" })).to_string();
    fs::write(upper.0.join("WEATHER.JSON"), tool).unwrap();
    assert_eq!(warned(&upper), (1, vec![]));
}

/// Stumble A3: a folder full of other files, as of logs.
#[test]
fn the_warnings_of_files_that_are_not_read_are_bounded() {
    let folder = Folder::of(&manifest("weather", json!({ "method": "GET" })));
    for nth in 0..30 {
        fs::write(folder.0.join(format!("{nth}.log")), "").unwrap();
    }
    let (count, warnings) = warned(&folder);
    assert_eq!((count, warnings.len()), (1, 11), "{warnings:?}");
    assert!(warnings[10].contains("30 files"), "{warnings:?}");
}

/// Stumble A3: fields with a closed set of values, or a range.
#[test]
fn a_value_that_a_field_cannot_have_is_refused() {
    let poll = |field: &str, value: Value| {
        let mut config = json!({
            "status_url_template": "https://api.example.com/jobs/{{ id }}",
            "status_field_path": "state",
        });
        config[field] = value;
        json!({ "mode": "async_poll", "poll_config": config })
    };
    let method = |method: &str| json!({ "method": method });
    let factor = "backoff_multiplier";
    for (profile, parts) in [
        (method("FETCH"), "`method`|`FETCH`|`PATCH`"),
        (method("CONNECT"), "`method`|`CONNECT`|`GET`"),
        (poll("pending_statuses", json!([202, 200])), "200|202"),
        (poll("pending_statuses", json!([404])), "404|2xx"),
        (poll("interval_seconds", json!(1e9)), "1000000000|a year"),
        (
            poll("max_interval_seconds", json!(1e9)),
            "1000000000|a year",
        ),
        (poll(factor, json!(1e6)), "1000000|1000"),
        (poll(factor, json!(0.5)), "0.5|1"),
        (
            json!({ "required_audience": "" }),
            "`required_audience`|empty",
        ),
    ] {
        let polled = profile["poll_config"].as_object();
        let field = polled.into_iter().flat_map(|config| config.keys());
        let field = field
            .filter(|key| !key.starts_with("status_"))
            .map(|key| format!("`{key}`"));
        let shown = Folder::of(&manifest("weather", profile.clone())).error();
        for part in parts.split('|').map(str::to_owned).chain(field) {
            assert!(shown.contains(&part), "{part}: {shown}");
        }
    }
    let lower = manifest("weather", json!({ "method": "get" }));
    assert_eq!(warned(&Folder::of(&lower)), (1, vec![]));
}

/// Stumble A3: the error of a value of another type names its key, in plain words.
#[test]
fn a_value_of_another_type_names_its_key() {
    let shown = |profile: Value| Folder::of(&manifest("weather", profile)).error();
    let poll = |config: Value| json!({ "mode": "async_poll", "poll_config": config });
    let scopes = |scopes: &str| json!({ "required_scopes": scopes });
    // It may be a secret.
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(4));
    let profiles = [
        poll(json!({ "interval_seconds": "2s" })),
        poll(json!({ "max_attempts": -1 })),
        json!({ "replay_safe": "yes" }),
        json!({ "kept_headers": ["etag", 7] }),
        scopes("read"),
        scopes(&secret),
        json!({ "url_tmplate": "x" }),
        json!({ "mode": "async" }),
    ];
    let texts = "\
`2s` is not a number for `interval_seconds`
`max_attempts`: `-1` is not a whole number from 0 to 4,294,967,295
`yes` is not a boolean for `replay_safe`
`kept_headers`: `7` is not a string
`read` is not a list for `required_scopes`
a value of 52 characters is not a list for `required_scopes`
unknown key `url_tmplate`; did you mean `url_template`?
`mode`: unknown value `async`; did you mean";
    assert_eq!(texts.lines().count(), profiles.len());
    for (profile, text) in profiles.into_iter().zip(texts.lines()) {
        let shown = shown(profile);
        assert!(shown.contains(text), "{shown}");
        assert!(shown.contains("tool.json"), "{shown}");
    }
}

/// 46: a template that fails with any arguments is refused as its folder is read.
#[test]
fn a_template_that_no_arguments_can_mend_is_refused() {
    let url = |path: &str| json!({ "url_template": format!("https://api.example.com/{path}") });
    let header = |value: &str| json!({ "headers_template": { "x-shop": value } });
    let body = |text: &str| json!({ "body_template": text });
    #[rustfmt::skip]
    let mistakes = [
        (url("{{ 1/0 }}"), "url", "line 1"),
        (url("{{ city }}/{{ none }}"), "url", "line 1"),
        (url("{{ city[0]() }}"), "url", "not a function (line 1)"),
        (header("{{ 1/0 }}"), "header x-shop", "line 1"),
        (header("v{{ none }}"), "header x-shop", "line 1"),
        (header("{{ city }} {{ none }}"), "header x-shop", "line 1"),
        (header("{{ (city | upper)() }}"), "header x-shop", "line 1"),
        (header("{{ '' }}"), "header x-shop", "empty"),
        (header("{% if false %}x{% endif %}"), "header x-shop", "empty"),
        (header(""), "header x-shop", "empty"),
        (body("[{{ city }},\n\"{{ none }}\"]"), "body", "line 2"),
        (body("[1,\n{{ 7 % 0 }}]"), "body", "line 2"),
        (body("[{% if city %}\n{{ city }}{% endif %}\n{{ 1 // 0 }}]"), "body", "line 3"),
        (body("[{% for c in city %}\n{{ c() }}{% endfor %}]"), "body", "`c`"),
        (body("[{% for c in city %}\n{{ c.x[0]() }}{% endfor %}]"), "body", "line 2"),
        (body("[{% if city is defined %}\n{{ (city)() }}{% endif %}]"), "body", "line 2"),
        (body("[\n{{ 'a' + 1 }}]"), "body", "line 2"),
        (body("[\n{{ 'a'() }}]"), "body", "line 2"),
        (body("{{ uuid()() }}"), "body", "line 1"),
        (body("{% if false %}{}{% endif %}"), "body", "is not JSON"),
        (body("{# none #}"), "body", "is not JSON"),
    ];
    for (profile, field, why) in mistakes {
        let shown = Folder::of(&manifest("weather", profile.clone())).error();
        for part in [&*format!("`{field}`"), why, "tool.json", "`weather`"] {
            assert!(shown.contains(part), "{profile}: {part}: {shown}");
        }
    }
}

/// 46: fields of a form, and the URL that is asked for a job.
#[test]
fn the_templates_of_forms_and_jobs_are_tried_as_others() {
    let form = |template: &str| {
        let tool = HttpTool::new(Method::POST, "https://api.example.com/").unwrap();
        tool.with_form([("a", template)])
    };
    for template in ["{{ 1/0 }}", "{{ none }}", "{{ a }}{{ [] }}", "{{ a[0]() }}"] {
        assert_eq!(form(template).unwrap_err().field(), "field a", "{template}");
    }
    for template in [
        "",
        "{{ a }}",
        "{{ '' }}",
        "{{ none if a is defined else 1 }}",
    ] {
        assert!(form(template).is_ok(), "{template}");
    }
    let profile = json!({
        "mode": "async_poll",
        "poll_config": {
            "status_url_template": "https://api.example.com/jobs/{{ 1/0 }}",
            "status_field_path": "state",
        },
    });
    let shown = Folder::of(&manifest("weather", profile)).error();
    assert!(shown.contains("line 1"), "{shown}");
}

/// 46: comparisons and sorting of values of which only the call knows the type.
#[test]
fn a_template_that_orders_its_arguments_is_taken() {
    let schema =
        json!({ "type": "object", "properties": { "city": {}, "a": {}, "b": {}, "list": {} } });
    for text in [
        "[{{ a > b }}]",
        "[{{ a <= {} }}]",
        "[{{ a == b }}, {{ a.x != b.x }}, {{ a in [b] }}]",
        "[{{ [a, b] | sort | length }}]",
        "[{{ [a, b] | min == a }}, {{ [a, b] | unique | length }}]",
        "[{{ list | sort(attribute='x') | length }}, {{ list < [a] }}]",
        "[{{ {'k': a} > {'k': b} }}]",
    ] {
        let mut json = manifest("weather", json!({ "body_template": text }));
        json["input_schema"] = schema.clone();
        let tool = parsed(&json).tool();
        assert!(tool.is_ok(), "{text}: {:?}", tool.err());
    }
}

/// 46: conditions, defaults, loops over lists that may be empty, and branches that fail with some
/// arguments.
#[test]
fn a_template_that_works_with_some_arguments_is_taken() {
    let header = |value: &str| json!({ "headers_template": { "x-shop": value } });
    let body = |text: &str| json!({ "body_template": text });
    let schema = json!({
        "type": "object",
        "properties": { "city": {}, "list": {}, "n": {}, "uuid": {}, "range": {} },
    });
    for profile in [
        header("{% if city %}{{ city }}{% endif %}"),
        header("{% if city is defined %}a{% else %}{{ none }}{% endif %}"),
        header("{{ city | default('') }}"),
        header("{{ city or none }}"),
        header("{{ none if city else 'x' }}"),
        header("{{ none or 'x' }}"),
        header("{{ none | default('x', true) }}"),
        header("{% for c in list %}{{ c }}{% endfor %}"),
        header("{% for c in [] %}{{ 1/0 }}{% endfor %}x"),
        header("{% set a = none %}{{ a or 'x' }}"),
        header("{% set a %}{{ none }}{% endset %}x"),
        header("{{ range }}"),
        body("{{ none }}"),
        body("[{{ none }}, \"a\"]"),
        body("{\"a\": {{ none }}, \"b\": {{ city }}}"),
        body("[{% for c in list %}{{ c.a }}{% if not loop.last %},{% endif %}{% endfor %}]"),
        body(
            "[{% for c in list %}{{ loop.cycle('1', '2') }}{% if not loop.last %},{% endif %}{% endfor %}]",
        ),
        body("[{% if n %}{{ 1 // 0 }}{% endif %}]"),
        body(
            "[{% if n is defined %}{% set a | replace('=', '') %}1{% endset %}{{ 1 // 0 }}{% endif %}]",
        ),
        body("[{{ 6 // n }}, {{ n % n }}, {{ n ** 2 }}]"),
        body(
            "[{% for k, v in city | items %}{{ k }}{% if not loop.last %},{% endif %}{% endfor %}]",
        ),
        body("[{{ city[0] }}, {{ city['a'].b[:2] | length }}, {{ range(3)[1] }}]"),
        body("{{ range(n) | list }}"),
        body("{% if false %}{{ 1/0 }}{% endif %}{}"),
        body("{{ {}.a | default(1) }}"),
        body("{{ dict(a=1) }}"),
        body("{% set uuid = 'x' %}[{{ uuid }}]"),
    ] {
        let mut json = manifest("weather", profile.clone());
        json["input_schema"] = schema.clone();
        let tool = parsed(&json).tool();
        assert!(tool.is_ok(), "{profile}: {:?}", tool.err());
    }
}
