//! What the texts of other runtimes mean.

use tonic::{Code, Status};
use tower_toolcall::{ErrorKind, ToolError};

fn kind(text: impl Into<String>) -> ErrorKind {
    ToolError::from_box(text.into().into()).kind()
}

const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// K-4: the texts of .NET and of tonic 0.14 name the code that grpc-go's text names.
#[test]
fn the_code_of_a_grpc_error_is_read_in_the_words_of_each_runtime() {
    for code in CODES {
        let expected = kind(format!("rpc error: code = {code:?} desc = no such row"));
        let status = Status::new(code, "no such row");
        for text in [
            format!("Status(StatusCode=\"{code:?}\", Detail=\"no such row\")"),
            format!("Grpc.Core.RpcException: Status(StatusCode={code:?}, Detail=\"no such row\")"),
            status.to_string(),
            // Of the same kind: with context, escaped, as `Debug`, of older versions, of other
            // languages.
            format!("reading the ledger: {status}"),
            format!("{:?}", status.to_string()),
            format!(
                "{:?}",
                format!("Status(StatusCode=\"{code:?}\", Detail=\"\")")
            ),
            format!("{status:?}"),
            format!("status: {code:?}, message: \"no such row\", details: []"),
            format!("GRPC::{code:?}: no such row"),
            format!("Status{{code={code:?}, description=no such row, cause=null}}"),
            format!("gRPC Error (code: 9, codeName: {code:?}, message: no such row)"),
        ] {
            assert_eq!(kind(&*text), expected, "{text}");
        }
    }
}

/// K-4: a word that is a code's name elsewhere is none.
#[test]
fn a_word_that_is_not_marked_as_a_grpc_code_is_none() {
    for text in [
        "status: unavailable in your region",
        "code: 'x' is unavailable",
        "StatusCode=\"Unavailable\" is not a number",
        "GRPC::Core is unavailable",
    ] {
        assert_eq!(kind(text), ErrorKind::Failed, "{text}");
    }
}

/// K-5: the name of a setting is not an event.
#[test]
fn the_name_of_a_setting_is_not_an_event() {
    for text in [
        "invalid value for parameter connect_timeout",
        "could not parse read_timeout",
        "timeout_ms=abc is not a number",
        "retry_limit must be at most 10; retry after 5 seconds",
        // Of the same kind
        "config.yaml: unknown key readTimeout",
        "unrecognized arguments: --connect-timeout",
        "KeyError: 'connect_timeout'",
        "NameError: name 'read_timeout' is not defined",
        "got an unexpected keyword argument 'timeout_seconds'",
        "json: cannot unmarshal string into Go struct field Config.read_timeout of type int",
        "{\"idle_timeout_secs\": 30, \"error\": \"checksum mismatch\"}",
        "the environment variable READ_TIMEOUT is empty",
        "unknown field ConnectTimeout",
        "bad rate_limit_per_minute: -3",
        "could not apply rateLimitBurst",
        "no such column: rate_limit",
        "you are not allowed to change rate limits",
    ] {
        assert_eq!(kind(text), ErrorKind::Failed, "{text}");
    }
}

/// K-5: the name of an error is an event, in the same spelling.
#[test]
fn the_name_of_an_error_is_an_event() {
    for (text, expected) in [
        (
            "{\"error\": {\"code\": \"connect_timeout\"}}",
            ErrorKind::Timeout,
        ),
        ("{\"type\":\"request_timeout_error\"}", ErrorKind::Timeout),
        ("upstream_request_timeout", ErrorKind::Timeout),
        ("the call failed with read_timeout", ErrorKind::Timeout),
        ("the server's read_timeout expired", ErrorKind::Timeout),
        ("httpx.ConnectTimeout", ErrorKind::Timeout),
        ("raised ReadTimeout after the upload", ErrorKind::Timeout),
        ("deployment FUNCTION_INVOCATION_TIMEOUT", ErrorKind::Timeout),
        ("code: UND_ERR_CONNECT_TIMEOUT", ErrorKind::Timeout),
        ("rate_limit", ErrorKind::RateLimited),
        (
            "{\"code\": \"user_rate_limit_exceeded\"}",
            ErrorKind::RateLimited,
        ),
        (
            "tokens_limit reached, retry after 5 seconds",
            ErrorKind::RateLimited,
        ),
        ("RateLimitError: slow down", ErrorKind::RateLimited),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}
