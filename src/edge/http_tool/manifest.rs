//! Tools as files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    io::Read,
    path::Path as FilePath,
    time::Duration,
};

use http::{HeaderName, Method, StatusCode, header::CONTENT_TYPE};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::{HttpJob, HttpTool, job::word, template::IDEMPOTENCY_KEY};
use crate::{
    call::ReplaySafety,
    config::{ConfigError, refuse_if},
    edge::reader::Reader,
    event::event,
    kit::backoff::{Backoff, MAX_DELAY},
    poll::PollLayer,
};

/// The methods of tools.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
];

/// The longest file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// What the schemas of manifests are of, if they do not say otherwise.
#[cfg(feature = "mcp")]
const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// The most files of a folder.
const MAX_FILES: usize = 1000;

/// The most files that are not read and are named.
const MAX_NAMED: usize = 10;

/// An HTTP tool as it is stored: JSON with a name, a schema of the arguments, and what is sent for
/// a call.
///
/// ```
/// # #[cfg(feature = "mcp")] {
/// use tower_toolcall::http_tool::ToolManifest;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let manifest: ToolManifest = serde_json::from_str(r#"{
///     "name": "deliver",
///     "description": "Delivers an order.",
///     "input_schema": {
///         "type": "object",
///         "properties": { "shop": { "type": "string" } },
///         "required": ["shop"]
///     },
///     "execution_profile": {
///         "mode": "async_poll",
///         "method": "POST",
///         "url_template": "https://api.pizzeria.com/shops/{{ shop }}/deliveries",
///         "headers_template": "{\"X-Request-ID\": \"{{ request_id }}\"}",
///         "body_template": "{\"asap\": true}",
///         "poll_config": {
///             "status_url_template": "https://api.pizzeria.com/deliveries/{{ delivery_id }}",
///             "status_field_path": "$.state",
///             "completed_values": ["delivered"],
///             "failed_values": ["lost"],
///             "result_field_path": "$.report"
///         }
///     }
/// }"#)?;
///
/// let tool = manifest.tool()?;
/// let jobs = manifest.poll_layer()?.expect("its mode is `async_poll`");
/// assert_eq!(manifest.definition().name, "deliver");
/// # let _ = (tool, jobs); Ok(()) }
/// # main().unwrap() }
/// ```
///
/// | field | is |
/// |---|---|
/// | `name` | the tool's name |
/// | `description` | what it does, for models |
/// | `input_schema` | the JSON Schema of its arguments: checked before anything is sent. Templates may name its properties only |
/// | `source_path` | where it came from; not used here |
/// | `execution_profile.mode` | `sync_http` (the default; also `sync`) or `async_poll`, in small or capital letters |
/// | `.method` | `GET`, `POST` (the default), `PUT`, `PATCH`, `DELETE`, `HEAD` or `OPTIONS`, in small or capital letters |
/// | `.url_template`, `.body_template` | templates of an [`HttpTool`]; the body is JSON |
/// | `.headers_template` | a JSON object of names and templates, or the text of one: it is parsed first, so that no value adds a header |
/// | | [Keys of the operator](super#keys-of-the-operator) are no part of it |
/// | `.required_audience`, `.required_scopes` | for whom the tool's token has to be, and with which scopes. A header that names `upstream_token` needs an audience |
/// | `.kept_headers` | names of headers of answers that [are kept](HttpTool::with_kept_header) |
/// | `.result_field_path`, `.error_field_path` | JSONPaths of the [result](HttpTool::with_result) of a 2xx, and of the [reason](HttpTool::with_error) of a failure in one |
/// | `.replay_safe` | whether a call may run twice; by default the method says it, and for `async_poll` it is unknown |
/// | `.poll_config.pending_statuses` | statuses by which a job goes on, for example `[202]`: any 2xx but 200. Without `status_field_path` any other 2xx is the result; without a URL below, a tool's own request by GET is sent again |
/// | `.poll_config.status_url_header` | the header, for example `Location`, with the URL that is asked; it has to be on the tool's host |
/// | `.poll_config.status_url_template` | the URL that is asked, by GET with the same headers, but for those of the body and of the idempotency key. A variable that is no property of the schema (without a schema: not in the URL above) is the field of that name in the answer that has started the job; there has to be one |
/// | `.poll_config.job_values` | names and JSONPaths of such values, where they are other fields; they go before arguments |
/// | `.poll_config.status_field_path`, `result_field_path`, `error_field_path` | JSONPaths, with or without `$`; of the state (`$.status`), the result and the reason |
/// | `.poll_config.completed_values`, `failed_values` | states that end a job; `["completed"]` and `["failed"]` by default |
/// | `.poll_config.interval_seconds`, `backoff_multiplier`, `max_interval_seconds`, `max_attempts` | as [`PollLayer`] has them: 1, 1.5, 30, 60. Also `initial_interval_seconds`, `poll_interval_seconds`, `max_poll_attempts` |
///
/// Any other field is an error; `null` is a field that is not there.
#[derive(Clone, Debug)]
pub struct ToolManifest {
    file: File,
    passes_subject: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: Option<String>,
    input_schema: Option<Value>,
    source_path: Option<String>,
    execution_profile: Profile,
}

impl<'de> Deserialize<'de> for ToolManifest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let file = File::deserialize(Reader::new(from))?;
        let passes_subject = false;
        Ok(Self {
            file,
            passes_subject,
        })
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    mode: Option<Mode>,
    method: Option<String>,
    url_template: String,
    headers_template: Option<Headers>,
    body_template: Option<String>,
    required_audience: Option<String>,
    required_scopes: Option<Vec<String>>,
    kept_headers: Option<Vec<String>>,
    result_field_path: Option<String>,
    error_field_path: Option<String>,
    replay_safe: Option<bool>,
    poll_config: Option<PollConfig>,
    source_path: Option<String>,
}

crate::text::debug_fields! {
    /// Shows no template: one may have a key in it.
    {} |this| Profile { mode: this.mode, method: this.method, .. }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Mode {
    #[serde(
        rename = "sync_http",
        alias = "SYNC_HTTP",
        alias = "sync",
        alias = "SYNC"
    )]
    Sync,
    #[serde(rename = "async_poll", alias = "ASYNC_POLL")]
    Poll,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Headers {
    Text(String),
    Fields(Fields),
    Other(IgnoredAny),
}

/// The fields of a JSON object in their order, also those that come twice.
#[derive(Clone)]
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Visit)
    }
}

/// An object of texts, in which no name comes twice.
fn each_once<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let Some(Fields(fields)) = Option::deserialize(from)? else {
        return Ok(None);
    };
    let mut all = BTreeMap::new();
    for (name, value) in fields {
        let Value::String(text) = value else {
            return Err(D::Error::custom(format!("`{name}` is no text")));
        };
        if all.insert(name.clone(), text).is_some() {
            return Err(D::Error::custom(format!("`{name}` comes twice")));
        }
    }
    Ok(Some(all))
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PollConfig {
    status_url_template: Option<String>,
    status_url_header: Option<String>,
    pending_statuses: Option<Vec<u16>>,
    status_field_path: Option<String>,
    result_field_path: Option<String>,
    error_field_path: Option<String>,
    #[serde(default, deserialize_with = "each_once")]
    job_values: Option<BTreeMap<String, String>>,
    completed_values: Option<Vec<Value>>,
    failed_values: Option<Vec<Value>>,
    #[serde(alias = "initial_interval_seconds", alias = "poll_interval_seconds")]
    interval_seconds: Option<f64>,
    backoff_multiplier: Option<f64>,
    max_interval_seconds: Option<f64>,
    #[serde(alias = "max_poll_attempts")]
    max_attempts: Option<u32>,
}

/// What holds where a manifest says nothing.
pub(crate) struct Schedule {
    pub(crate) interval: Duration,
    pub(crate) factor: f64,
    /// The longest interval, unless the first one is longer.
    pub(crate) cap: Duration,
    pub(crate) polls: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            factor: 1.5,
            cap: Duration::from_secs(30),
            polls: 60,
        }
    }
}

impl PollConfig {
    fn layer(
        &self,
        all: &Schedule,
        layer: impl FnOnce() -> Result<PollLayer<HttpJob>, ConfigError>,
    ) -> Result<PollLayer<HttpJob>, ConfigError> {
        let seconds = |field: &'static str, n: Option<f64>, default: Duration| match n {
            None => Ok(default),
            Some(n) if n > MAX_DELAY.as_secs_f64() => Err(ConfigError::new(
                field,
                format!("{n} s is longer than a year"),
            )),
            Some(n) => Duration::try_from_secs_f64(n)
                .map_err(|_| ConfigError::new(field, format!("{n} is no time in seconds"))),
        };
        let base = seconds("interval_seconds", self.interval_seconds, all.interval)?;
        let longest = self.max_interval_seconds;
        let cap = seconds("max_interval_seconds", longest, all.cap.max(base))?;
        refuse_if(
            cap < base,
            "max_interval_seconds",
            "is shorter than the interval",
        )?;
        let factor = self.backoff_multiplier.unwrap_or(all.factor);
        let interval = Backoff::exponential(base, factor).map_err(|e| match e.field() {
            "base" => e.with_field("interval_seconds"),
            _ => e.with_field("backoff_multiplier"),
        })?;
        let layer = layer()?.with_interval(interval.with_cap(cap));
        let layer = layer.map_err(|e| e.with_field("interval_seconds"))?;
        let layer = layer.with_polls(self.max_attempts.unwrap_or(all.polls));
        layer.map_err(|e| e.with_field("max_attempts"))
    }
}

/// States, as texts.
fn states(
    field: &'static str,
    states: Option<&[Value]>,
    default: &str,
) -> Result<Vec<String>, ConfigError> {
    let Some(states) = states else {
        return Ok(vec![default.to_owned()]);
    };
    let words = states.iter().map(|state| {
        let is_no_state = || ConfigError::new(field, format!("{state} is no state"));
        word(state).ok_or_else(is_no_state)
    });
    words.collect()
}

impl Profile {
    fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Sync)
    }

    fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("POST")
    }

    fn known_method(&self) -> Result<Method, ConfigError> {
        let name = self.method();
        let is_it = |method: &&Method| method.as_str().eq_ignore_ascii_case(name);
        METHODS.iter().find(is_it).cloned().ok_or_else(|| {
            let known = METHODS.each_ref().map(Method::as_str).join("`, `");
            ConfigError::new("method", format!("`{name}` is none of `{known}`"))
        })
    }
}

impl ToolManifest {
    /// Returns the manifests of a folder, by the names of their files: all that end in `.json`.
    /// They are checked. The event `tool.settings` reports at WARN that there are none, and each
    /// of up to ten files that are not read, unless it is hidden or ends in `.md`. Of more files it
    /// has the number.
    ///
    /// # Errors
    ///
    /// The file, with the reason: it cannot be read, has more than 1 MiB, or is no manifest of a
    /// tool that can work; two files with one name of a tool; more than 1,000 files.
    pub fn read_dir(folder: impl AsRef<FilePath>) -> Result<Vec<Self>, ConfigError> {
        let folder = folder.as_ref();
        let unread = |error: std::io::Error| {
            ConfigError::new(
                folder.display().to_string(),
                format!("cannot be read: {error}"),
            )
        };
        let (mut files, mut others) = (Vec::new(), 0);
        for entry in fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let ends_in = |end| {
                let extension = path.extension();
                extension.is_some_and(|extension| extension.eq_ignore_ascii_case(end))
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // A pipe of that name would be waited for.
            if !path.is_file() || name.starts_with('.') || ends_in("md") {
                continue;
            }
            if !ends_in("json") {
                others += 1;
                if others <= MAX_NAMED {
                    event!(WARN SETTINGS, SETTING = path.display().to_string(),
                        REASON = "is not read: a tool is a file that ends in `.json`");
                }
                continue;
            }
            files.push(path);
            if files.len() > MAX_FILES {
                let folder = folder.display().to_string();
                return Err(ConfigError::new(folder, "has more than 1,000 files"));
            }
        }
        files.sort();
        if others > MAX_NAMED {
            event!(WARN SETTINGS, SETTING = folder.display().to_string(),
                REASON = format!("has {others} files that are not read"));
        }
        if files.is_empty() {
            event!(WARN SETTINGS, SETTING = folder.display().to_string(),
                REASON = "has no file that ends in `.json`: no tool is read");
        }
        let mut names = BTreeSet::new();
        let read = files.iter().map(|path| {
            let of_file = |reason: String| ConfigError::new(path.display().to_string(), reason);
            let manifest = read(path).map_err(of_file)?;
            // Whether the token may go without an audience is asked when the tool is made.
            let lenient = manifest.clone().pass_subject_without_audience();
            let checked = lenient.tool().and_then(|_| lenient.poll_layer());
            checked.map_err(|e| of_file(format!("`{}`: {}", e.field(), e.reason())))?;
            match names.insert(manifest.name().to_owned()) {
                true => Ok(manifest),
                false => Err(of_file(format!(
                    "`{}` is another file's tool",
                    manifest.name()
                ))),
            }
        });
        read.collect()
    }

    /// Lets headers name `upstream_token` although no audience is required. The code that puts an
    /// [`UpstreamToken`](crate::token::UpstreamToken) on calls then decides whose it is: a caller's
    /// own token would be sent to the tool as it is.
    #[must_use]
    pub fn pass_subject_without_audience(mut self) -> Self {
        self.passes_subject = true;
        self
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// What it does, for models.
    pub fn description(&self) -> Option<&str> {
        self.file.description.as_deref()
    }

    /// The JSON Schema of the arguments.
    pub fn input_schema(&self) -> Option<&Value> {
        self.file.input_schema.as_ref()
    }

    /// For whom the tool's token has to be.
    pub fn required_audience(&self) -> Option<&str> {
        self.file.execution_profile.required_audience.as_deref()
    }

    /// The scopes that the tool's token has to have.
    pub fn required_scopes(&self) -> &[String] {
        let scopes = self.file.execution_profile.required_scopes.as_deref();
        scopes.unwrap_or_default()
    }

    /// Where it came from.
    pub fn source_path(&self) -> Option<&str> {
        let of_profile = self.file.execution_profile.source_path.as_deref();
        self.file.source_path.as_deref().or(of_profile)
    }

    /// How it runs, in the manifest's word.
    #[cfg(feature = "otel")]
    pub(crate) fn mode(&self) -> &'static str {
        match self.file.execution_profile.mode() {
            Mode::Sync => "sync_http",
            Mode::Poll => "async_poll",
        }
    }

    /// The tool that sends its requests.
    ///
    /// # Errors
    ///
    /// The part of it that cannot work; `required_audience`, if it is missing and a header names
    /// the token.
    pub fn tool(&self) -> Result<HttpTool, ConfigError> {
        self.to_tool().map_err(|error| self.naming(error))
    }

    /// Adds the tool's name to an error. It stands behind the reason, because a name in front of
    /// it may look like the key of a secret.
    fn naming(&self, error: ConfigError) -> ConfigError {
        let reason = format!("{} (tool `{}`)", error.reason(), self.name());
        ConfigError::new(error.field().to_owned(), reason)
    }

    fn to_tool(&self) -> Result<HttpTool, ConfigError> {
        let profile = &self.file.execution_profile;
        refuse_if(self.name().is_empty(), "name", "is empty")?;
        let audience = self.required_audience();
        refuse_if(audience == Some(""), "required_audience", "is empty")?;
        let method = profile.known_method()?;
        let mut tool = self.request(method, &profile.url_template, true)?;
        if profile.mode() == Mode::Poll {
            // A job that is started twice runs twice.
            tool = tool.with_replay_safety(ReplaySafety::Unknown);
        }
        if let Some(is_safe) = profile.replay_safe {
            tool = tool.with_replay_safety(match is_safe {
                true => ReplaySafety::Safe,
                false => ReplaySafety::Unsafe,
            });
        }
        let location = profile
            .poll_config
            .as_ref()
            .and_then(|poll| poll.status_url_header.as_ref());
        for name in profile.kept_headers.iter().flatten() {
            tool = tool.with_kept_header(header_name("kept_headers", name)?)?;
        }
        if let Some(name) = location {
            tool = tool.keep(header_name("status_url_header", name)?, true)?;
        }
        let [result, error] = [&profile.result_field_path, &profile.error_field_path];
        tool = with_path(tool, result, "result_field_path", HttpTool::with_result)?;
        tool = with_path(tool, error, "error_field_path", HttpTool::with_error)?;
        let body = profile.body_template.as_deref();
        match body.filter(|body| !body.trim().is_empty()) {
            Some(body) => tool.with_body(body),
            None => Ok(tool),
        }
    }

    /// A request with the manifest's headers. That of a job has no body, and no idempotency key: it
    /// is the key of the request that starts the job.
    fn request(&self, method: Method, url: &str, has_body: bool) -> Result<HttpTool, ConfigError> {
        let mut tool = HttpTool::new(method.clone(), url)?;
        // What headers may name is checked against it.
        if let Some(schema) = self.file.input_schema.as_ref().filter(|_| has_body) {
            tool = tool.with_input_schema(schema)?;
        }
        for (name, template) in self.headers()? {
            let is_type = name.eq_ignore_ascii_case(CONTENT_TYPE.as_str());
            if is_type && !template.contains("json") {
                return Err(ConfigError::new("headers_template", "the body is JSON"));
            }
            if has_body {
                tool = tool.with_header(&name, template)?;
                continue;
            }
            let alone = HttpTool::new(method.clone(), url)?.add_header(&name, template.clone())?;
            if !is_type && !alone.names_in_headers(IDEMPOTENCY_KEY) {
                tool = tool.add_header(&name, template)?;
            }
        }
        let has_audience = self.required_audience().is_some() || self.passes_subject;
        let lacks = tool.names_token() && !has_audience;
        refuse_if(
            lacks,
            "required_audience",
            "is missing, and a header names `upstream_token`",
        )?;
        Ok(tool)
    }

    fn headers(&self) -> Result<Vec<(String, String)>, ConfigError> {
        let refuse = |reason: String| ConfigError::new("headers_template", reason);
        let no_object = || refuse("is no JSON object of names and templates".to_owned());
        let fields = match &self.file.execution_profile.headers_template {
            None => return Ok(Vec::new()),
            Some(Headers::Text(text)) if text.trim().is_empty() => return Ok(Vec::new()),
            Some(Headers::Text(text)) => serde_json::from_str(text).map_err(|_| no_object())?,
            Some(Headers::Fields(fields)) => fields.clone(),
            Some(Headers::Other(_)) => return Err(no_object()),
        };
        let mut names = BTreeSet::new();
        let headers = fields.0.into_iter().map(|(name, template)| {
            let Value::String(template) = template else {
                return Err(refuse(format!("`{name}` is no text")));
            };
            match names.insert(name.to_ascii_lowercase()) {
                true => Ok((name, template)),
                false => Err(refuse(format!("`{name}` comes twice"))),
            }
        });
        headers.collect()
    }

    /// What its jobs are: `None` unless its mode is `async_poll`.
    ///
    /// # Errors
    ///
    /// `poll_config`, if it is missing, or the part of it that cannot work.
    pub fn job(&self) -> Result<Option<HttpJob>, ConfigError> {
        self.to_job().map_err(|error| self.naming(error))
    }

    fn to_job(&self) -> Result<Option<HttpJob>, ConfigError> {
        let profile = &self.file.execution_profile;
        let config = match (&profile.poll_config, profile.mode()) {
            (None, Mode::Sync) => return Ok(None),
            (Some(_), Mode::Sync) => {
                return Err(ConfigError::new(
                    "poll_config",
                    "is there, and the mode is `sync_http`",
                ));
            }
            (Some(config), Mode::Poll) => config,
            (None, Mode::Poll) => return Err(ConfigError::new("poll_config", "is missing")),
        };
        let in_config = |part: &'static str| move |e: ConfigError| e.with_field(part);
        refuse_if(
            profile.result_field_path.is_some(),
            "result_field_path",
            "belongs into `poll_config`, where the mode is `async_poll`",
        )?;
        let pending = config.pending_statuses.iter().flatten().map(|n| {
            let refuse = |reason| ConfigError::new("pending_statuses", reason);
            let status = StatusCode::from_u16(*n).ok().filter(StatusCode::is_success);
            match status.ok_or_else(|| refuse(format!("{n} is not a 2xx")))? {
                StatusCode::OK => Err(refuse(
                    "200 is the status of a result: a job has another one, for example 202"
                        .to_owned(),
                )),
                status => Ok(status),
            }
        });
        let pending: Vec<StatusCode> = pending.collect::<Result<_, _>>()?;
        // The tool's own URL is asked again, or one of its host.
        let (url, is_own) = match (&config.status_url_template, &config.status_url_header) {
            (Some(url), None) => (url, false),
            (None, Some(_)) => (&profile.url_template, true),
            // By its URL alone, another request would ask for the job of another call.
            (None, None) if !pending.is_empty() && profile.method().eq_ignore_ascii_case("GET") => {
                (&profile.url_template, true)
            }
            (None, None) => return Err(ConfigError::new("status_url_template", "is missing")),
            (Some(_), Some(_)) => {
                let reason = "is there, and `status_url_template` too";
                return Err(ConfigError::new("status_url_header", reason));
            }
        };
        let status = self.request(Method::GET, url, false);
        let status = status.map_err(in_config("status_url_template"))?;
        // Never those of headers: a caller could name another's job.
        let schema = self.file.input_schema.as_ref();
        let properties = schema.and_then(|schema| schema.get("properties"));
        let none = BTreeMap::new();
        let named = config.job_values.as_ref().unwrap_or(&none);
        let mut names = status.names_of_url();
        // A value that is nowhere in it tells no job from another.
        if let Some(unused) = named.keys().find(|name| !names.contains(*name)) {
            let reason = format!("`{unused}` is not in the `status_url_template`");
            return Err(ConfigError::new("job_values", reason));
        }
        match properties {
            Some(all) => names.retain(|name| all.get(name).is_none()),
            None => {
                let arguments = self.to_tool()?.names_of_url();
                names.retain(|name| !arguments.contains(name));
            }
        }
        // A value that names a job is a text, a number or a boolean.
        let variables = status.variables_of_url();
        let is_part = |name: &&String| {
            let path = name.split_once('.');
            path.is_some_and(|(top, _)| names.contains(top) || named.contains_key(top))
        };
        if let Some(part) = variables.iter().find(is_part) {
            let reason = format!(
                "`{part}` is within a value of the job: use a name without a dot, and give its path in `job_values`"
            );
            return Err(ConfigError::new("status_url_template", reason));
        }
        names.retain(|name| !named.contains_key(name));
        let is_same_for_all = names.is_empty() && named.is_empty() && !is_own;
        refuse_if(
            is_same_for_all,
            "status_url_template",
            "names no value of the job",
        )?;
        let [completed, failed] = [
            ("completed_values", &config.completed_values, "completed"),
            ("failed_values", &config.failed_values, "failed"),
        ]
        .map(|(field, values, default)| states(field, values.as_deref(), default));
        let state = config.status_field_path.as_deref();
        let job = match state {
            None if !pending.is_empty() => HttpJob::by_status(status),
            state => HttpJob::new(status, state.unwrap_or("$.status"), completed?, failed?),
        };
        let mut job = job.map_err(|e| match e.field() {
            "state" => e.with_field("status_field_path"),
            _ => e.with_field("completed_values"),
        })?;
        job = job.with_pending(pending);
        if let Some(name) = &config.status_url_header {
            job = job.with_location(header_name("status_url_header", name)?);
        }
        for name in &names {
            job = job.with_value(name, &format!("$[{}]", Value::from(name.as_str())))?;
        }
        for (name, path) in named {
            job = job
                .with_value(name, path)
                .map_err(in_config("job_values"))?;
        }
        let [result, error] = [&config.result_field_path, &config.error_field_path];
        job = with_path(job, result, "result_field_path", HttpJob::with_result)?;
        job = with_path(job, error, "error_field_path", HttpJob::with_error)?;
        Ok(Some(job))
    }

    /// The layer that waits for its jobs: `None` unless its mode is `async_poll`. For
    /// `ServiceBuilder::option_layer`, above the layers for single requests.
    ///
    /// # Errors
    ///
    /// `poll_config`, or the part of it that cannot work.
    pub fn poll_layer(&self) -> Result<Option<PollLayer<HttpJob>>, ConfigError> {
        self.poll_layer_over(&Schedule::default(), |job| Ok(PollLayer::new(job)))
    }

    /// The same where other numbers, and all else of the layer, hold unless the manifest has its
    /// own.
    pub(crate) fn poll_layer_over(
        &self,
        all: &Schedule,
        layer: impl FnOnce(HttpJob) -> Result<PollLayer<HttpJob>, ConfigError>,
    ) -> Result<Option<PollLayer<HttpJob>>, ConfigError> {
        let (Some(job), Some(config)) = (self.job()?, &self.file.execution_profile.poll_config)
        else {
            return Ok(None);
        };
        let layer = config.layer(all, || layer(job));
        layer.map(Some).map_err(|error| self.naming(error))
    }

    /// The tool's definition, for a list of MCP: its schema, and by `replay_safe` or its method
    /// whether it only reads (GET, HEAD, OPTIONS) or may be repeated (PUT, DELETE). A job that was
    /// started twice runs twice, whatever the method. A schema that does not say of which draft it
    /// is gets the `$schema` of draft 7, as MCP's default is another one.
    #[cfg(feature = "mcp")]
    pub fn definition(&self) -> rmcp::model::Tool {
        use rmcp::model::{Tool, ToolAnnotations};

        let mut schema = match &self.file.input_schema {
            Some(Value::Object(schema)) => schema.clone(),
            _ => serde_json::Map::from_iter([("type".to_owned(), "object".into())]),
        };
        schema.entry("$schema").or_insert_with(|| DRAFT_7.into());
        let profile = &self.file.execution_profile;
        let may_repeat = profile.replay_safe;
        let is = |names: &[&str]| {
            let is_one = names
                .iter()
                .any(|name| profile.method().eq_ignore_ascii_case(name));
            is_one && (profile.mode() == Mode::Sync || may_repeat == Some(true))
        };
        // What is not known is not said: of a POST nothing.
        let mut annotations = ToolAnnotations::new();
        if is(&["GET", "HEAD", "OPTIONS"]) {
            annotations = annotations.read_only(true);
        } else if may_repeat.unwrap_or_else(|| is(&["PUT", "DELETE"])) {
            annotations = annotations.idempotent(true);
        }
        let mut tool = Tool::new_with_raw(
            self.file.name.clone(),
            self.file.description.clone().map(Into::into),
            std::sync::Arc::new(schema),
        );
        tool.annotations = Some(annotations);
        tool
    }
}

/// Sets a path, if there is one; an error names its field.
fn with_path<T>(
    of: T,
    path: &Option<String>,
    field: &'static str,
    set: impl FnOnce(T, &str) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let Some(path) = path else { return Ok(of) };
    set(of, path).map_err(|e| e.with_field(field))
}

fn header_name(field: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    let refuse = |_| ConfigError::new(field, format!("`{name}` is not the name of a header"));
    HeaderName::try_from(name).map_err(refuse)
}

fn read(path: &FilePath) -> Result<ToolManifest, String> {
    let file = fs::File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    read.map_err(|e| format!("cannot be read: {e}"))?;
    if text.len() as u64 > MAX_FILE {
        return Err("has more than 1 MiB".to_owned());
    }
    serde_json::from_str(&text).map_err(|e| format!("is no manifest: {e}"))
}
