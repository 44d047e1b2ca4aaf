//! The names of events, and of the fields of events and spans: all of them, and nowhere else.
//!
//! They are part of the public interface: names to search for in a log store do not change with a
//! patch release.

/// Names of events. The name is the event's message as well.
pub mod event {
    /// A call begins. DEBUG.
    pub const START: &str = "tool.start";
    /// A call has its answer. INFO.
    pub const SUCCESS: &str = "tool.success";
    /// A call failed, panicked, or was answered with a reported error. ERROR, WARN or INFO, by its
    /// kind.
    pub const FAILURE: &str = "tool.failure";
    /// A call was refused by a layer of ours, or by a bridge. INFO.
    pub const REJECTED: &str = "tool.rejected";
    /// A policy has decided about a call: asked for or approved it, INFO; else DEBUG. Or it has a
    /// rule that can never decide, WARN.
    pub const POLICY: &str = "tool.policy";
    /// A call's attempts are used up. ERROR.
    pub const EXHAUSTED: &str = "tool.exhausted";
    /// A call met its timeout or its deadline. WARN.
    pub const TIMEOUT: &str = "tool.timeout";
    /// A call took more than its fraction of the timeout; it may have succeeded. WARN.
    pub const SLOW: &str = "tool.slow";
    /// A call failed and is sent again. WARN.
    pub const RETRY: &str = "tool.retry";
    /// A call failed, and is not sent again although a retry might help. WARN.
    pub const RETRY_REFUSED: &str = "tool.retry_refused";
    /// A rate limit was met. WARN.
    pub const RATE_LIMITED: &str = "tool.rate_limited";
    /// A call waits: until a cooldown is over. DEBUG.
    pub const WAITING: &str = "tool.waiting";
    /// A call was not started: no time was left. WARN.
    pub const SKIPPED: &str = "tool.skipped";
    /// A circuit breaker changed its state. WARN.
    pub const BREAKER: &str = "tool.breaker";
    /// A breaker refuses the calls of one principal alone, or does so no longer. WARN.
    pub const BREAKER_PRINCIPAL: &str = "tool.breaker.principal";
    /// A server has become available, degraded or unavailable. WARN.
    pub const HEALTH: &str = "tool.health";
    /// A call was cancelled, or dropped unfinished. INFO.
    pub const CANCELLED: &str = "tool.cancelled";
    /// A sequence of calls has ended. INFO.
    pub const SEQUENCE: &str = "tool.sequence";
    /// A keyed layer has forgotten keys, to make room for others. DEBUG.
    pub const EVICTED: &str = "tool.evicted";
    /// A store between processes cannot be reached, WARN, or can be again, INFO.
    pub const STORE: &str = "tool.store";
    /// A server's list of tools has changed and could not be read, so the old one stands; or it
    /// names a page twice, and ends there. WARN.
    pub const STALE_LIST: &str = "tool.stale_list";
    /// A message of an MCP peer was too large and was dropped, or has ended the connection. WARN.
    pub const MESSAGE_DROPPED: &str = "tool.message_dropped";
    /// A tool of a list has a name that was made for a model, and another tool's name comes to the
    /// same. WARN.
    pub const NAME_COLLISION: &str = "tool.name_collision";
    /// Schemas of a list are not looked at, or not as a whole. WARN.
    pub const SCHEMA: &str = "tool.schema";
    /// An answer does not fit its tool's output schema, and is handed on all the same. WARN.
    pub const INVALID_OUTPUT: &str = "tool.invalid_output";
    /// The arguments of a call did not fit its tool's schema, and were changed so that they do.
    /// DEBUG.
    pub const REPAIRED: &str = "tool.repaired";
    /// An answer was too long for the model, and was shortened. DEBUG.
    pub const SHORTENED: &str = "tool.shortened";
    /// A call has succeeded again and again, with nothing new in between. WARN.
    pub const REPEATED: &str = "tool.repeated";
    /// A layer can do nothing for a call, because something is not known of it. WARN, once for each
    /// layer and reason.
    pub const INERT: &str = "tool.inert";
    /// Names or patterns that a layer was given have matched no call of the first 1,000. WARN, once
    /// for each layer value.
    pub const UNMATCHED: &str = "tool.unmatched";
    /// A setting works, but looks wrong: once for each stack that is built of it. Or a folder of
    /// tools has none. WARN.
    pub const SETTINGS: &str = "tool.settings";
    /// A call has the answer that an earlier call has got, and was not sent. DEBUG.
    pub const REUSED: &str = "tool.reused";
    /// A request of an HTTP tool is about to be sent. DEBUG.
    pub const HTTP_REQUEST: &str = "tool.http_request";
    /// An HTTP tool has its answer, of whatever status. DEBUG.
    pub const HTTP_RESPONSE: &str = "tool.http_response";
    /// The layer accepts an incomplete answer of an identity provider, or sends a caller's own
    /// token to a tool. WARN.
    pub const TOKEN: &str = "tool.token";
    /// A connection to a server was made, the first one or another one. INFO.
    pub const CONNECTED: &str = "tool.connected";
    /// A call has found that the connection to its server is lost. WARN.
    pub const DISCONNECTED: &str = "tool.disconnected";
    /// A connection to a server could not be made. WARN.
    pub const CONNECT_FAILED: &str = "tool.connect_failed";
}

/// Fields of events.
pub mod field {
    /// The tool's name.
    pub const TOOL: &str = "tool";
    /// The server's name.
    pub const SERVER: &str = "server";
    /// The call's id.
    pub const CALL_ID: &str = "call_id";
    /// The trace id that the caller gave the call.
    pub const TRACE_ID: &str = "trace_id";
    /// The code of the error, for example `TOOL_TIMEOUT`.
    pub const CODE: &str = "code";
    /// The error's message for developers, redacted.
    pub const ERROR: &str = "error";
    /// The upstream's HTTP status.
    pub const STATUS: &str = "status";
    /// How long the call took, in milliseconds.
    pub const DURATION_MS: &str = "duration_ms";
    /// How many attempts were sent, at a call or at a connection.
    pub const ATTEMPTS: &str = "attempts";
    /// `true` where the end of a call is that of an earlier call, and nothing was sent.
    pub const REUSED: &str = "reused";
    /// How many there may be, if a layer repeats calls.
    pub const MAX_ATTEMPTS: &str = "max_attempts";
    /// Which attempt it was, from 1.
    pub const ATTEMPT: &str = "attempt";
    /// The timeout in force, in milliseconds; of a call that begins, its own.
    pub const TIMEOUT_MS: &str = "timeout_ms";
    /// The timeout before a deadline shortened it, in milliseconds.
    pub const CONFIGURED_TIMEOUT_MS: &str = "configured_timeout_ms";
    /// The answer's size as JSON, in bytes.
    pub const OUTPUT_BYTES: &str = "output_bytes";
    /// How many characters an answer may have.
    pub const MAX_CHARS: &str = "max_chars";
    /// The time until the call's deadline, in milliseconds.
    pub const DEADLINE_MS: &str = "deadline_ms";
    /// The id of the agent that makes the call.
    pub const AGENT_ID: &str = "agent_id";
    /// The principal for whom alone a breaker changed its state: the kind of its id and the id,
    /// redacted.
    pub const PRINCIPAL: &str = "principal";
    /// When a refused call may come back, in milliseconds.
    pub const RETRY_AFTER_MS: &str = "retry_after_ms";
    /// How long is waited, in milliseconds.
    pub const DELAY_MS: &str = "delay_ms";
    /// The server gave the delay (a hint).
    pub const HINTED: &str = "hinted";
    /// Why a call is not sent again.
    pub const REFUSED: &str = "refused";
    /// The state that a breaker or a server left.
    pub const FROM: &str = "from";
    /// The state that it has now.
    pub const TO: &str = "to";
    /// Why it changed; of a server, why it is not available; of a layer, why it can do nothing.
    pub const REASON: &str = "reason";
    /// How often it has changed.
    pub const GENERATION: &str = "generation";
    /// How many calls a breaker had counted, or a sequence has; how often a call was repeated, the
    /// first time included.
    pub const CALLS: &str = "calls";
    /// How many of a sequence's calls succeeded.
    pub const SUCCEEDED: &str = "succeeded";
    /// How many failed, except those that ran out of time or were given up.
    pub const FAILED: &str = "failed";
    /// How many were started and did not end in time.
    pub const TIMED_OUT: &str = "timed_out";
    /// How many were not started, because no time was left.
    pub const SKIPPED: &str = "skipped";
    /// How many were given up.
    pub const CANCELLED: &str = "cancelled";
    /// The time that they had together, in milliseconds.
    pub const BUDGET_MS: &str = "budget_ms";
    /// How many of a breaker's calls had failed, or of a server's in a row.
    pub const FAILURES: &str = "failures";
    /// How many of them were slow.
    pub const SLOW_CALLS: &str = "slow_calls";
    /// For how long it is open, in milliseconds.
    pub const OPEN_MS: &str = "open_ms";
    /// The method of a request.
    pub const METHOD: &str = "method";
    /// Its URL, redacted, without the values of the query.
    pub const URL: &str = "url";
    /// The names of the headers of a request or an answer.
    pub const HEADERS: &str = "headers";
    /// The body, redacted, at most 500 characters.
    pub const BODY: &str = "body";
    /// How many keys were forgotten.
    pub const KEYS: &str = "keys";
    /// The number of keys that are kept.
    pub const KEPT: &str = "kept";
    /// How many tools a list has.
    pub const TOOLS: &str = "tools";
    /// How many of them have a schema that is not looked at, or not as a whole.
    pub const UNCHECKED: &str = "unchecked";
    /// Where arguments were changed.
    pub const PATHS: &str = "paths";
    /// Which layer had the answer of an earlier call, or can do nothing for a call.
    pub const LAYER: &str = "layer";
    /// Names of tools, or patterns for them, separated by commas.
    pub const NAMES: &str = "names";
    /// The key of a setting, or the variable that has set it.
    pub const SETTING: &str = "setting";
    /// The advice for the user of a layer.
    pub const HELP: &str = "help";
    /// The decision of a policy: the name of a [`PolicyOutcome`](crate::event::PolicyOutcome).
    pub const DECISION: &str = "decision";
    /// The pattern of the rule that has decided; none if no rule is for the call.
    pub const RULE: &str = "rule";
}

/// Fields of spans: OpenTelemetry's (semantic conventions for generative AI, in development), and
/// `tool.*` where there is none.
pub mod span {
    /// The name of the span that a call has.
    pub const CALL: &str = "execute_tool";
    /// The name of the span that an attempt has.
    pub const ATTEMPT: &str = "tool_attempt";
    /// The name of the span in which a connection to a server is made. It belongs to no call, and
    /// lasts as long as the connection.
    pub const CONNECTION: &str = "tool_connection";
    /// The name of the span that a request of an HTTP tool has. DEBUG.
    pub const HTTP: &str = "http_request";

    /// The span's name for exporters: `execute_tool {name}`.
    pub const OTEL_NAME: &str = "otel.name";
    /// `internal`; of an HTTP request `client`.
    pub const OTEL_KIND: &str = "otel.kind";
    /// `ERROR`, or not there: after a success, and where the caller has cancelled.
    pub const OTEL_STATUS_CODE: &str = "otel.status_code";
    /// The error's message for developers, redacted.
    pub const OTEL_STATUS_DESCRIPTION: &str = "otel.status_description";
    /// `execute_tool`.
    pub const OPERATION_NAME: &str = "gen_ai.operation.name";
    /// The tool's name.
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    /// The call's id.
    pub const CALL_ID: &str = "gen_ai.tool.call.id";
    /// `function`.
    pub const TOOL_TYPE: &str = "gen_ai.tool.type";
    /// The arguments, redacted, as JSON.
    pub const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    /// The answer, redacted, as JSON or text, if it was asked for.
    pub const RESULT: &str = "gen_ai.tool.call.result";
    /// The kind of the error; few values.
    pub const ERROR_TYPE: &str = "error.type";
    /// The session id that the caller gave the call, in OpenTelemetry's words.
    pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
    /// As above, in the spans of attempts too.
    pub const SESSION_ID: &str = "session.id";
    /// The arguments, redacted, as JSON, in the span of an attempt.
    pub const ATTEMPT_ARGUMENTS: &str = "tool.arguments";
    /// The answer, redacted, as JSON or text, in the span of an attempt.
    pub const ATTEMPT_RESULT: &str = "tool.result";
    /// The tool's name, in the span of an attempt.
    pub const TOOL: &str = "tool.name";
    /// The server's name.
    pub const SERVER: &str = "tool.server";
    /// The call's id, in the span of an attempt.
    pub const ATTEMPT_CALL_ID: &str = "tool.call_id";
    /// The id of the agent that makes the call.
    pub const AGENT_ID: &str = "gen_ai.agent.id";
    /// The trace id that the caller gave the call.
    pub const TRACE_ID: &str = "tool.trace_id";
    /// Which attempt it is, from 1; in the span of an attempt.
    pub const ATTEMPT_NUMBER: &str = "tool.attempt";
    /// How many attempts were sent: 0 for a call that was only refused.
    pub const ATTEMPTS: &str = "tool.attempts";
    /// How many there may be, if a layer repeats calls.
    pub const MAX_ATTEMPTS: &str = "tool.max_attempts";
    /// How long it took, in milliseconds.
    pub const DURATION_MS: &str = "tool.duration_ms";
    /// How much of that was spent waiting for another attempt, in milliseconds.
    pub const WAITED_MS: &str = "tool.waited_ms";
    /// The timeout in force, in milliseconds.
    pub const TIMEOUT_MS: &str = "tool.timeout_ms";
    /// The timeout before a deadline shortened it, in milliseconds.
    pub const CONFIGURED_TIMEOUT_MS: &str = "tool.configured_timeout_ms";
    /// The code of the error.
    pub const ERROR_CODE: &str = "tool.error_code";
    /// The call took more than its fraction of the timeout.
    pub const SLOW: &str = "tool.slow";
    /// How it ended: the name of a [`CallOutcome`](crate::event::CallOutcome).
    pub const OUTCOME: &str = "tool.outcome";
    /// The call succeeded.
    pub const SUCCESS: &str = "tool.success";
    /// The answer's size as JSON, in bytes.
    pub const OUTPUT_BYTES: &str = "tool.output_bytes";
    /// The method of an HTTP request.
    pub const METHOD: &str = "http.request.method";
    /// The template of its path, as the operator wrote it: no value of a call.
    pub const URL_TEMPLATE: &str = "url.template";
    /// The host to which it is sent.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// The port there.
    pub const SERVER_PORT: &str = "server.port";
    /// The status of the answer.
    pub const STATUS_CODE: &str = "http.response.status_code";
}
