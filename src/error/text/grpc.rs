//! gRPC codes in text, by their names: those of grpc-go, Python, Java, .NET, tonic, Ruby, Dart and
//! Node.js.

use http::StatusCode;

use crate::error::ErrorKind;

/// The marks before a name, and what follows it: grpc-go, Python (C#'s `HttpStatusCode.` too),
/// Java, .NET, tonic from 0.14, its `Debug`, tonic before 0.14, Ruby, Dart.
const MARKS: &[(&str, &str)] = &[
    ("rpc error: code = ", ""),
    ("StatusCode.", ""),
    ("StatusRuntimeException: ", ""),
    ("StatusException: ", ""),
    ("Status(StatusCode=", ""),
    ("code: '", "'"),
    ("Status { code: ", ""),
    ("Status{code=", ", description="),
    ("status: ", ", message: "),
    ("GRPC::", ""),
    ("codeName: ", ""),
];

/// In the order of their numbers, without marks.
#[rustfmt::skip]
const NAMES: [&str; 17] = [
    "ok", "cancelled", "unknown", "invalidargument", "deadlineexceeded", "notfound",
    "alreadyexists", "permissiondenied", "resourceexhausted", "failedprecondition", "aborted",
    "outofrange", "unimplemented", "internal", "unavailable", "dataloss", "unauthenticated",
];

/// The texts that tonic writes since 0.14, in the order of the numbers.
const DESCRIPTIONS: [&str; 17] = [
    "The operation completed successfully",
    "The operation was cancelled",
    "Unknown error",
    "Client specified an invalid argument",
    "Deadline expired before operation could complete",
    "Some requested entity was not found",
    "Some entity that we attempted to create already exists",
    "The caller does not have permission to execute the specified operation",
    "Some resource has been exhausted",
    "The system is not in a state required for the operation's execution",
    "The operation was aborted",
    "Operation was attempted past the valid range",
    "Operation is not implemented or not supported",
    "Internal error",
    "The service is currently unavailable",
    "Unrecoverable data loss or corruption",
    "The request does not have valid authentication credentials",
];

/// `UNKNOWN` has no meaning of its own: the description may have one.
const UNKNOWN: i32 = 2;

/// Returns the kind and the status of the first code in the text.
pub(super) fn classify(text: &str) -> Option<(ErrorKind, Option<StatusCode>)> {
    let code = marked(text).or_else(|| numbered(text))?;
    let kind = ErrorKind::from_grpc_code(code).filter(|_| code != UNKNOWN)?;
    // The peer's resource, not the tool: gRPC's own table maps the code to 404.
    let status = match code {
        5 => Some(StatusCode::NOT_FOUND),
        6 => Some(StatusCode::CONFLICT),
        _ => None,
    };
    Some((kind, status))
}

/// The first code that stands behind a mark.
fn marked(text: &str) -> Option<i32> {
    // Most texts have not even the first letters of one.
    let begins = |word: &[u8]| {
        MARKS
            .iter()
            .any(|(mark, _)| mark.as_bytes().starts_with(word))
    };
    if !text.as_bytes().windows(6).any(begins) {
        return None;
    }
    let marked = MARKS.iter().filter_map(|(mark, end)| {
        let at = text.find(mark)? + mark.len();
        let (code, rest) = code(&text[at..])?;
        rest.starts_with(end).then_some((at, code))
    });
    Some(marked.min()?.1)
}

/// `14 UNAVAILABLE: No connection established`, as Node.js has it at the beginning.
fn numbered(text: &str) -> Option<i32> {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    let (number, rest) = text.split_once(' ')?;
    let number: i32 = number.parse().ok()?;
    (rest.contains(": ") && code(rest)?.0 == number).then_some(number)
}

/// Returns the code at the beginning of the text, by its name or description, perhaps in quotes,
/// and the rest of the text.
fn code(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start_matches(['\\', '"']);
    let described = |what: &&str| text.starts_with(*what);
    let (at, len) = match DESCRIPTIONS.iter().position(described) {
        Some(at) => (at, DESCRIPTIONS[at].len()),
        None => {
            let is_name = |c: char| c.is_ascii_alphabetic() || c == '_';
            let len = text.find(|c| !is_name(c)).unwrap_or(text.len());
            let name = text[..len.min(24)].to_ascii_lowercase().replace('_', "");
            let name = name.replace("canceled", "cancelled");
            (NAMES.iter().position(|known| *known == name)?, len)
        }
    };
    Some((i32::try_from(at).ok()?, &text[len..]))
}
