use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{self, CONTENT_TYPE},
    uri::Authority,
};
use serde_json::Value;

use super::{
    job::Asked,
    path::Path,
    service::HttpService,
    template::{MAX_BYTES, Scope, Sketch, TOKEN, Templates, encoded},
};
use crate::refuse_if;
use tower_toolcall::{
    ConfigError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    call::UpstreamToken,
    redact::{Rules, is_sensitive_key},
    validate::{Draft, Schema, Validation},
};

/// How many bytes an answer may have, unless set otherwise: 1 MiB.
pub const MAX_ANSWER: usize = 1 << 20;

/// Headers, kept headers and fields of forms of one tool; more are refused.
const MAX_PARTS: usize = 64;

/// Headers that belong to the connection, or that the client writes.
const CLIENTS_OWN: &[HeaderName] = &[
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// An HTTP endpoint as a tool: method, and templates of the URL, the headers and the body. See the
/// [crate docs](crate) for an example.
///
/// # Clone
///
/// A clone copies the templates' sources; services share them.
#[derive(Clone)]
#[must_use]
pub struct HttpTool {
    method: Method,
    /// Scheme and authority: `https://api.example.com`.
    pub(super) origin: String,
    pub(super) host: Arc<str>,
    pub(super) templates: Templates,
    /// The properties of the arguments' schema, if there is one.
    known: Option<BTreeSet<String>>,
    headers: Vec<(HeaderName, String)>,
    /// Those with nothing of the caller's in their values.
    own_headers: Vec<HeaderName>,
    payload: Payload,
    /// Names, each with whether a model may not read the value.
    pub(super) kept: Vec<(HeaderName, bool)>,
    pub(super) max_bytes: Option<usize>,
    replay: ReplaySafety,
    bare_key: bool,
    pub(super) result: Option<Path>,
    pub(super) error: Option<Path>,
    schema: Option<Schema>,
}

#[derive(Clone)]
enum Payload {
    None,
    Json,
    /// Encoded names, and the parts of their values.
    Form(Vec<(String, String)>),
}

impl HttpTool {
    /// Makes a tool that sends requests of this method to the URL that the template gives.
    ///
    /// Scheme, host and port are literal: no template may stand before the first `/` of the path.
    /// `#` is refused.
    ///
    /// # Errors
    ///
    /// `method`: CONNECT and TRACE are the client's own. `url`, with the reason.
    pub fn new(method: Method, url: impl Into<String>) -> Result<Self, ConfigError> {
        let own = matches!(method, Method::CONNECT | Method::TRACE);
        refuse_if(own, "method", "is the client's own")?;
        let url = url.into();
        let (origin, host) = origin(&url)?;
        refuse_environment("url", &url)?;
        let replay = match method {
            // PUT and DELETE are idempotent (RFC 9110, section 9.2.2).
            Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE => {
                ReplaySafety::Safe
            }
            _ => ReplaySafety::Unknown,
        };
        let mut tool = Self {
            method,
            origin,
            host,
            templates: Templates::default(),
            known: None,
            headers: Vec::new(),
            own_headers: Vec::new(),
            payload: Payload::None,
            kept: Vec::new(),
            max_bytes: None,
            replay,
            bare_key: false,
            result: None,
            error: None,
            schema: None,
        };
        let sketch = tool.add("url", url)?;
        sketch.check_url(&tool.origin)?;
        tool.refuse_token("url")?;
        Ok(tool)
    }

    /// Adds a header: a literal name, and the template of its value. A header without a value is
    /// not sent if the template leaves it out (`{% if etag is defined %}{{ etag }}{% endif %}`); an
    /// argument that leaves it empty is refused.
    ///
    /// The meaning of `;`, `,` and quotes in a value is the template's business: an argument may
    /// have them.
    ///
    /// # Errors
    ///
    /// The header by its name: it has `${..}`, or the name of a secret and an argument that no
    /// [schema](Self::with_input_schema) set before declares (see [keys of the
    /// operator](crate#keys-of-the-operator)); it is the client's own (`Host`, `Content-Length`,
    /// `Accept-Encoding` and the like), comes twice, is not a line of visible ASCII, or has a
    /// template that does not compile, or is empty or fails with any arguments; more than 64
    /// headers.
    pub fn with_header(self, name: &str, template: impl Into<String>) -> Result<Self, ConfigError> {
        let tool = self.add_header(name, template.into())?;
        let is_secret = is_sensitive_key(name) && tool.known.is_none();
        if let Some((_, part)) = tool.headers.last().filter(|_| is_secret)
            && let Some(argument) = tool.templates.names(part).first()
        {
            let reason = format!("has `{argument}`, which is not a declared argument: {KEYS}");
            return Err(ConfigError::new(part.clone(), reason));
        }
        Ok(tool)
    }

    /// Adds a header that may name undeclared arguments.
    pub(super) fn add_header(mut self, name: &str, template: String) -> Result<Self, ConfigError> {
        let part = format!("header {}", name.to_ascii_lowercase());
        let refuse = |reason: &'static str| ConfigError::new(part.clone(), reason);
        let header =
            HeaderName::try_from(name).map_err(|_| refuse("is not the name of a header"))?;
        if CLIENTS_OWN.contains(&header)
            || matches!(header.as_str(), "keep-alive" | "proxy-connection")
        {
            return Err(refuse("is the client's own"));
        }
        if self.headers.iter().any(|(other, _)| *other == header) {
            return Err(refuse("comes twice"));
        }
        if self.headers.len() >= MAX_PARTS {
            return Err(refuse("is one more than a tool may have"));
        }
        if !template.chars().all(|c| matches!(c, ' '..='~' | '\t')) {
            return Err(refuse("is not a line of visible ASCII"));
        }
        refuse_environment(&part, &template)?;
        self.add(&part, template)?.check_header(&part)?;
        if self.templates.is_own(&part) && header != IDEMPOTENCY_KEY {
            self.own_headers.push(header.clone());
        }
        self.headers.push((header, part));
        Ok(self)
    }

    /// Sets the template of a JSON body. Its structure is the template's: a value never adds to it.
    /// `Content-Type` is `application/json`, unless a header sets it.
    ///
    /// # Errors
    ///
    /// `body`: the method has none (GET, HEAD, OPTIONS), there is one already, or the template does
    /// not compile or can be no JSON. What the body of a DELETE means is the server's choice (RFC
    /// 9110, section 9.3.5).
    pub fn with_body(mut self, template: impl Into<String>) -> Result<Self, ConfigError> {
        self.check_payload()?;
        self.add("body", template.into())?.check_json("body")?;
        self.refuse_token("body")?;
        self.payload = Payload::Json;
        Ok(self)
    }

    /// Sets a form as the body (`application/x-www-form-urlencoded`): literal names, and templates
    /// of the values. A form that becomes longer than 16 MiB is refused.
    ///
    /// # Errors
    ///
    /// `body`, or the field by its name, likewise; more than 64 fields.
    pub fn with_form<'n, T: Into<String>>(
        mut self,
        fields: impl IntoIterator<Item = (&'n str, T)>,
    ) -> Result<Self, ConfigError> {
        self.check_payload()?;
        let mut form = Vec::new();
        for (name, template) in fields {
            let part = format!("field {name}");
            refuse_if(form.len() >= MAX_PARTS, "body", "has more than 64 fields")?;
            if form.iter().any(|(_, other)| *other == part) {
                return Err(ConfigError::new(part, "comes twice"));
            }
            self.add(&part, template.into())?.check_field(&part)?;
            self.refuse_token(&part)?;
            form.push((encoded(name), part));
        }
        self.payload = Payload::Form(form);
        Ok(self)
    }

    /// Sets the JSON Schema of the arguments. Arguments that do not fit it are `InvalidInput`, and
    /// nothing is sent.
    ///
    /// Also checks that templates use only arguments that are in the `properties` of the schema,
    /// templates added later too. A schema without `properties` allows all. Slices (`a[:9]`), the
    /// arguments of `{% filter %}` and names that the template sets itself are not checked.
    ///
    /// # Errors
    ///
    /// The part with the unknown argument. `input_schema`, if it is not a schema.
    pub fn with_input_schema(mut self, schema: &Value) -> Result<Self, ConfigError> {
        let compiled = Schema::compile_trusted(schema, Draft::Draft7);
        self.schema = Some(compiled.map_err(|error| error.with_field("input_schema"))?);
        let properties = schema.get("properties").and_then(Value::as_object);
        self.known = properties.map(|properties| properties.keys().cloned().collect());
        self.check_arguments()?;
        Ok(self)
    }

    /// Sets whether arguments are checked against the [schema](Self::with_input_schema) before
    /// anything is sent. Default: they are, unless the call is marked `Validation::Off`.
    pub fn with_validation(mut self, checks: bool) -> Self {
        self.schema = self.schema.filter(|_| checks);
        self
    }

    /// Sets how many bytes an answer may have. Default: [`MAX_ANSWER`]; of a request for a
    /// [job](super::HttpJob) what the tool has that started it.
    ///
    /// # Errors
    ///
    /// `max_bytes`: 0.
    pub fn with_max_bytes(mut self, bytes: usize) -> Result<Self, ConfigError> {
        refuse_if(bytes == 0, "max_bytes", "is not above 0")?;
        self.max_bytes = Some(bytes);
        Ok(self)
    }

    /// Keeps this header of answers, for [`HttpAnswer::headers`](super::HttpAnswer::headers).
    /// Default: none.
    ///
    /// A model reads it after the body, for example `Link` with the address of the next page. The
    /// lines of all kept headers have at most 1,000 characters: the longest ones are left out, with
    /// a note. A header with a [sensitive name](tower_toolcall::redact::is_sensitive_key), such as
    /// `Set-Cookie`, is not shown to a model. A router of JSON values passes the body alone.
    ///
    /// # Errors
    ///
    /// `kept_header`: more than 64.
    pub fn with_kept_header(self, name: HeaderName) -> Result<Self, ConfigError> {
        let is_hidden = is_sensitive_key(name.as_str());
        self.keep(name, is_hidden)
    }

    /// Keeps a header. A hidden one is for the program only.
    pub(super) fn keep(mut self, name: HeaderName, is_hidden: bool) -> Result<Self, ConfigError> {
        if !self.kept.iter().any(|(kept, _)| *kept == name) {
            let full = self.kept.len() >= MAX_PARTS;
            refuse_if(full, "kept_header", "is one more than a tool may keep")?;
            self.kept.push((name, is_hidden));
        }
        Ok(self)
    }

    /// Sets which part of a 2xx is the result: a JSONPath (RFC 9535), with or without `$.` at its
    /// beginning. The first value that it finds is the [body](super::HttpAnswer::body) of the
    /// answer. Default: all of it. The functions `match` and `search` are not supported.
    ///
    /// An answer without such a value, or that is not JSON, is [`Reported`](ErrorKind::Reported),
    /// and kept [behind the error](super::HttpAnswer::of_error).
    ///
    /// # Errors
    ///
    /// `result`: no JSONPath.
    pub fn with_result(mut self, path: &str) -> Result<Self, ConfigError> {
        self.result = Some(Path::parse("result", path)?);
        Ok(self)
    }

    /// Sets where in a 2xx the reason of a failure stands: a JSONPath. An answer in which it finds
    /// anything but `null`, `false` or an empty value is [`Reported`](ErrorKind::Reported) with
    /// that text. Default: nowhere.
    ///
    /// Slack answers a failed request with 200 and `error`, GraphQL with 200 and
    /// `errors[0].message`.
    ///
    /// # Errors
    ///
    /// `error`: no JSONPath.
    pub fn with_error(mut self, path: &str) -> Result<Self, ConfigError> {
        self.error = Some(Path::parse("error", path)?);
        Ok(self)
    }

    /// Lets undefined variables print nothing, as templates written for Jinja2's defaults expect.
    /// Default: they are errors.
    ///
    /// Undefined variables remain errors in the path of the URL, where the body would not be valid
    /// JSON without them, and in nested lookups (`a.b` without `a`). A header that names
    /// `upstream_token` still refuses a call without a token.
    pub fn with_empty_undefined(mut self) -> Self {
        self.templates.print_undefined();
        self
    }

    /// Declares whether calls may run twice. Default: by the method; `Safe` for GET, HEAD, OPTIONS,
    /// PUT and DELETE, else `Unknown`.
    pub fn with_replay_safety(mut self, replay: ReplaySafety) -> Self {
        self.replay = replay;
        self
    }

    /// Sends the idempotency key without quotes. Default: a structured string
    /// (draft-ietf-httpapi-idempotency-key-header-07).
    pub fn with_bare_idempotency_key(mut self) -> Self {
        self.bare_key = true;
        self
    }

    /// Returns the replay safety of calls. Outer layers do not see it: declare it to them by
    /// [`RetryPolicy::with_replay_safety`](tower_toolcall::retry::RetryPolicy::with_replay_safety)
    /// or an [`Identity`](tower_toolcall::Identity).
    pub fn replay_safety(&self) -> ReplaySafety {
        self.replay
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the host, and the port if the URL has one: what the tool's calls name as their
    /// server in spans.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the tool service that sends the tool's requests through `client`.
    ///
    /// The client is any `Service<http::Request<B>>` with `B: From<Bytes>`: reqwest's through
    /// `ReqwestClient` (feature `reqwest`), hyper-util's with `http_body_util::Full<Bytes>`,
    /// either of them below tower-http's layers.
    pub fn client<C, B>(self, client: C) -> HttpService<C, B> {
        HttpService::new(Arc::new(self), client)
    }

    /// The kept ones of an answer's headers.
    pub(super) fn kept(&self, headers: &HeaderMap) -> HeaderMap {
        let kept = self.kept.iter().flat_map(|(name, is_hidden)| {
            headers.get_all(name).into_iter().map(|value| {
                let mut value = value.clone();
                value.set_sensitive(*is_hidden);
                (name.clone(), value)
            })
        });
        kept.collect()
    }

    fn add(&mut self, part: &str, template: String) -> Result<Sketch, ConfigError> {
        let sketch = self.templates.add(part, template)?;
        self.check_arguments()?;
        Ok(sketch)
    }

    /// Returns whether a header names the token.
    pub(super) fn names_token(&self) -> bool {
        let mut parts = self.headers.iter().map(|(_, part)| part);
        parts.any(|part| self.templates.has_token(part))
    }

    /// Returns whether a header names this variable.
    pub(super) fn names_in_headers(&self, variable: &str) -> bool {
        let mut parts = self.headers.iter().map(|(_, part)| part);
        parts.any(|part| self.templates.variables(part).contains(variable))
    }

    fn check_arguments(&self) -> Result<(), ConfigError> {
        match &self.known {
            Some(known) => self.templates.check_arguments(known),
            None => Ok(()),
        }
    }

    fn refuse_token(&self, part: &str) -> Result<(), ConfigError> {
        match self.templates.has_token(part) {
            true => Err(ConfigError::new(
                part.to_owned(),
                format!("uses `{TOKEN}`, which is for headers only"),
            )),
            false => Ok(()),
        }
    }

    fn check_payload(&self) -> Result<(), ConfigError> {
        let bodiless = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        refuse_if(bodiless, "body", format!("is none of {}", self.method))?;
        let second = !matches!(self.payload, Payload::None);
        refuse_if(second, "body", "is there already")
    }

    /// The request of a call.
    pub(super) fn request(&self, call: &ToolCall) -> Result<Request<Bytes>, ToolError> {
        self.validate(call)?;
        let scope = Scope::new(call);
        let (body, content_type) = self.payload(&scope)?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = match Asked::of(call).and_then(Asked::location) {
            Some(path) => {
                let url = Some(path).filter(|path| !path.is_empty());
                let url = url.and_then(|path| format!("{}{path}", self.origin).parse().ok());
                url.ok_or_else(|| ToolError::unusable("the job's location is not a URL"))?
            }
            None => self.templates.url(&scope, &self.origin)?,
        };
        let headers = request.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, part) in &self.headers {
            if let Some(mut value) = self.templates.header(part, &scope)? {
                let has_token = self.templates.has_token(part);
                value.set_sensitive(has_token || is_sensitive_key(name.as_str()));
                headers.insert(name, value);
            }
        }
        if let Some(key) = self.idempotency_key(call)
            && !headers.contains_key(IDEMPOTENCY_KEY)
        {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        Ok(request)
    }

    /// Returns the secrets of a request: all, and those that the caller must not know.
    pub(super) fn secrets(&self, call: &ToolCall, headers: &HeaderMap) -> (Rules, Rules) {
        let token = call.extensions().get().map(UpstreamToken::expose);
        let mut own = Rules::new().with_secrets(token);
        let mut all = own.clone();
        for (name, part) in &self.headers {
            let value = headers.get(name).filter(|value| value.is_sensitive());
            let Some(value) = value.and_then(|value| value.to_str().ok()) else {
                continue;
            };
            let is_sure = self.templates.has_token(part);
            all = all.with_secrets_of_header(name.as_str(), value, is_sure);
            if self.own_headers.contains(name) {
                own = own.with_secrets_of_header(name.as_str(), value, is_sure);
            }
        }
        (all, own)
    }

    /// Hides what the schema calls secrets.
    pub(super) fn hide_secrets(&self, call: &mut ToolCall) {
        if let Some(schema) = &self.schema {
            schema.hide_secrets(call);
        }
    }

    fn validate(&self, call: &ToolCall) -> Result<(), ToolError> {
        let is_off = call.extensions().get() == Some(&Validation::Off);
        let arguments = call.arguments_value();
        match self.schema.as_ref().filter(|_| !is_off) {
            Some(schema) if !schema.is_valid(arguments) => {
                Err(schema.errors(arguments).refusal(None))
            }
            _ => Ok(()),
        }
    }

    fn payload(&self, scope: &Scope) -> Result<(Bytes, Option<&'static str>), ToolError> {
        Ok(match &self.payload {
            Payload::None => (Bytes::new(), None),
            Payload::Json => {
                let json = self.templates.json("body", scope)?;
                (json.into(), Some("application/json"))
            }
            Payload::Form(fields) => {
                let mut form = String::new();
                for (name, part) in fields {
                    let between = if form.is_empty() { "" } else { "&" };
                    form.extend([between, name, "=", &self.templates.field(part, scope)?]);
                    if form.len() > MAX_BYTES {
                        let text = "the arguments are too large for the form";
                        return Err(ToolError::refusal(ErrorKind::InvalidInput, text));
                    }
                }
                (form.into(), Some("application/x-www-form-urlencoded"))
            }
        })
    }

    /// That of a call which may be sent again, if a repetition would do something.
    fn idempotency_key(&self, call: &ToolCall) -> Option<HeaderValue> {
        if matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return None;
        }
        let key = call.idempotency_key()?;
        let text = match self.bare_key {
            true => key.to_string(),
            false => format!("\"{key}\""),
        };
        HeaderValue::try_from(text).ok()
    }
}

/// Shows no template: one may have a key in it.
impl std::fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTool")
            .field("method", &self.method)
            .field("origin", &self.origin)
            .field("replay_safety", &self.replay)
            .field("max_bytes", &self.max_bytes.unwrap_or(MAX_ANSWER))
            .field("empty_undefined", &self.templates.prints_undefined())
            .field("bare_idempotency_key", &self.bare_key)
            .finish_non_exhaustive()
    }
}

/// Where to read of keys that no caller has.
const KEYS: &str = "see \"Keys of the operator\" in the docs of `http_tool`";

/// Refuses `${X}`, which would be sent as it is.
fn refuse_environment(part: &str, template: &str) -> Result<(), ConfigError> {
    let is_one = |rest: &str| !rest.starts_with(['{', '%', '#']);
    match template.split("${").skip(1).any(is_one) {
        true => Err(ConfigError::new(
            part.to_owned(),
            format!("has `${{..}}`: variables of the environment are not read; {KEYS}"),
        )),
        false => Ok(()),
    }
}

/// Adds the trace context. Not the baggage: it is meant for services of the same owner.
#[cfg(feature = "otel")]
pub(super) fn propagate(headers: &mut HeaderMap) {
    const CONTEXT: [&str; 2] = ["traceparent", "tracestate"];
    if CONTEXT.iter().any(|name| headers.contains_key(*name)) {
        return;
    }
    let mut all = HeaderMap::new();
    tower_toolcall::otel::inject_headers(&mut all);
    for name in CONTEXT {
        if let Some(value) = all.remove(name) {
            headers.insert(name, value);
        }
    }
}

/// Scheme and authority of a URL's template, and the authority alone.
fn origin(url: &str) -> Result<(String, Arc<str>), ConfigError> {
    let refuse = |reason: &'static str| Err(ConfigError::new("url", reason));
    let schemes = ["https://", "http://"];
    let Some(scheme) = schemes.into_iter().find(|scheme| url.starts_with(scheme)) else {
        return refuse("does not begin with `https://` or `http://`");
    };
    let host = url[scheme.len()..].split('/').next().unwrap_or_default();
    let is_literal = !host.contains(['{', '@', '?', '%']);
    let Some(authority) = host.parse::<Authority>().ok().filter(|_| is_literal) else {
        return refuse("has no literal host before its path");
    };
    if authority.host() != host && authority.port_u16().is_none_or(|port| port == 0) {
        return refuse("has a port that is not a number from 1 to 65535");
    }
    if url.contains('#') {
        return refuse("has a `#`: fragments are not sent");
    }
    if url.contains(|c: char| c.is_control() || c == '\\') {
        return refuse("has a backslash, or a control character");
    }
    Ok((format!("{scheme}{host}"), host.into()))
}
