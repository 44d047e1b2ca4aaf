//! Tools as files.

mod file;
mod folder;
pub(crate) mod job;

use http::{HeaderName, Method, header::CONTENT_TYPE};
use serde_json::Value;

use self::file::{File, Headers, Mode};
use super::{HttpTool, template::IDEMPOTENCY_KEY};
use crate::refuse_if;
use tower_toolcall::{ConfigError, ReplaySafety};

/// The default draft of schemas in manifests.
#[cfg(feature = "mcp")]
const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// The stored form of an HTTP tool: JSON with a name, a schema of the arguments, and the request of
/// a call.
///
/// ```
/// # #[cfg(feature = "mcp")] {
/// use tower_toolcall_http::ToolManifest;
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
/// - `name`: the tool's name
/// - `description`: what it does, for models
/// - `input_schema`: the JSON Schema of its arguments: checked before anything is sent. Templates
///   may name its properties only
/// - `source_path`: where it came from; not used here
/// - `execution_profile.mode`: `sync_http` (the default; also `sync`) or `async_poll`, in small or
///   capital letters
/// - `.method`: `GET`, `POST` (the default), `PUT`, `PATCH`, `DELETE`, `HEAD` or `OPTIONS`, in
///   small or capital letters
/// - `.url_template`, `.body_template`: templates of an [`HttpTool`]; the body is JSON
/// - `.headers_template`: a JSON object of names and templates, or the text of one: it is parsed
///   first, so that no value adds a header. [Keys of the operator](crate#keys-of-the-operator) are
///   no part of it
/// - `.required_audience`, `.required_scopes`: for whom the tool's token has to be, and with which
///   scopes. A header that names `upstream_token` needs an audience
/// - `.kept_headers`: names of headers of answers that [are kept](HttpTool::with_kept_header)
/// - `.result_field_path`, `.error_field_path`: JSONPaths of the [result](HttpTool::with_result) of
///   a 2xx, and of the [reason](HttpTool::with_error) of a failure in one
/// - `.replay_safe`: whether a call may run twice; by default the method says it, and for
///   `async_poll` it is unknown
/// - `.poll_config.pending_statuses`: statuses by which a job goes on, for example `[202]`: any 2xx
///   but 200. Without `status_field_path` any other 2xx is the result; without a URL below, a
///   tool's own request by GET is sent again
/// - `.poll_config.status_url_header`: the header, for example `Location`, with the URL that is
///   asked; a relative one is resolved, and another host's is refused
/// - `.poll_config.status_url_template`: the URL to poll, by GET with the same headers, except
///   those of the body and of the idempotency key. A variable that is not a property of the schema
///   (without a schema: not in the URL above) is the field of that name in the answer that has
///   started the job; at least one is required
/// - `.poll_config.job_values`: names and JSONPaths of such values, where they are other fields;
///   they take precedence over arguments
/// - `.poll_config.status_field_path`, `result_field_path`, `error_field_path`: JSONPaths, with or
///   without `$`; of the state (`$.status`), the result and the reason
/// - `.poll_config.completed_values`, `failed_values`: states that end a job; `["completed"]` and
///   `["failed"]` by default
/// - `.poll_config.interval_seconds`, `backoff_multiplier`, `max_interval_seconds`, `max_attempts`:
///   as [`PollLayer`](tower_toolcall::poll::PollLayer) has them: 1, 1.5, 30, 60. Also
///   `initial_interval_seconds`, `poll_interval_seconds`, `max_poll_attempts`
///
/// Any other field is an error; `null` is a field that is not there.
#[derive(Clone, Debug)]
pub struct ToolManifest {
    file: File,
    passes_subject: bool,
}

impl ToolManifest {
    /// Lets headers name `upstream_token` although no audience is required. The code that puts an
    /// [`UpstreamToken`](tower_toolcall::call::UpstreamToken) on calls then chooses the token: a
    /// caller's own token would be sent to the tool unchanged.
    #[must_use]
    pub fn pass_subject_without_audience(mut self) -> Self {
        self.passes_subject = true;
        self
    }

    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the description of the tool, for models.
    pub fn description(&self) -> Option<&str> {
        self.file.description.as_deref()
    }

    /// Returns the JSON Schema of the arguments.
    pub fn input_schema(&self) -> Option<&Value> {
        self.file.input_schema.as_ref()
    }

    /// Returns the audience that the tool's token must have.
    pub fn required_audience(&self) -> Option<&str> {
        self.file.execution_profile.required_audience.as_deref()
    }

    /// Returns the scopes that the tool's token has to have.
    pub fn required_scopes(&self) -> &[String] {
        let scopes = self.file.execution_profile.required_scopes.as_deref();
        scopes.unwrap_or_default()
    }

    /// Returns the place that the manifest came from.
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

    /// Returns the tool that sends its requests.
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
        let no_object = || refuse("is not a JSON object of names and templates".to_owned());
        let fields = match &self.file.execution_profile.headers_template {
            None => return Ok(Vec::new()),
            Some(Headers::Text(text)) if text.trim().is_empty() => return Ok(Vec::new()),
            Some(Headers::Text(text)) => serde_json::from_str(text).map_err(|_| no_object())?,
            Some(Headers::Fields(fields)) => fields.clone(),
            Some(Headers::Other(_)) => return Err(no_object()),
        };
        fields.into_texts(str::to_ascii_lowercase).map_err(refuse)
    }

    /// Returns the tool's definition, for a list of MCP: its schema, and by `replay_safe` or its
    /// method whether it only reads (GET, HEAD, OPTIONS) or may be repeated (PUT, DELETE). A job
    /// that was started twice runs twice, whatever the method. A schema that does not say of which
    /// draft it is gets the `$schema` of draft 7, as MCP's default is another one.
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
            is_one && may_repeat.unwrap_or(profile.mode() == Mode::Sync)
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
