//! gRPC codes in text, by their names: those of grpc-go, Python, Java, and Node.js.

use http::StatusCode;

use crate::error::ErrorKind;

/// The marks before a name: grpc-go, Python (C#'s `HttpStatusCode.` too), Java.
const MARKS: &[&str] = &[
    "rpc error: code = ",
    "StatusCode.",
    "StatusRuntimeException: ",
    "StatusException: ",
];

/// In the order of their numbers, without marks.
#[rustfmt::skip]
const NAMES: [&str; 17] = [
    "ok", "cancelled", "unknown", "invalidargument", "deadlineexceeded", "notfound",
    "alreadyexists", "permissiondenied", "resourceexhausted", "failedprecondition", "aborted",
    "outofrange", "unimplemented", "internal", "unavailable", "dataloss", "unauthenticated",
];

/// `UNKNOWN` has no meaning of its own: the description may have one.
const UNKNOWN: i32 = 2;

/// What the first code that the text names means.
pub(super) fn classify(text: &str) -> Option<(ErrorKind, Option<StatusCode>)> {
    let code = marked(text).or_else(|| numbered(text))?;
    let kind = ErrorKind::from_grpc_code(code).filter(|_| code != UNKNOWN)?;
    // The peer's, not the tool: gRPC's own table makes a 404 of it.
    Some((kind, (code == 5).then_some(StatusCode::NOT_FOUND)))
}

/// The first code that stands behind a mark.
fn marked(text: &str) -> Option<i32> {
    // Most texts have not even the beginning of one.
    let begins = |word: &[u8]| matches!(word, b"rpc er" | b"Status");
    if !text.as_bytes().windows(6).any(begins) {
        return None;
    }
    let marked = MARKS.iter().filter_map(|mark| {
        let at = text.find(mark)? + mark.len();
        Some((at, code(&text[at..])?))
    });
    Some(marked.min()?.1)
}

/// `14 UNAVAILABLE: No connection established`, as Node.js has it at the beginning.
fn numbered(text: &str) -> Option<i32> {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    let (number, rest) = text.split_once(' ')?;
    let number: i32 = number.parse().ok()?;
    (rest.contains(": ") && code(rest)? == number).then_some(number)
}

/// The code whose name the text begins with.
fn code(text: &str) -> Option<i32> {
    let is_name = |c: &char| c.is_ascii_alphabetic() || *c == '_';
    let name = text.chars().take_while(is_name).take(24);
    let name: String = name.filter(|c| *c != '_').collect();
    let name = name.to_ascii_lowercase().replace("canceled", "cancelled");
    let at = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(at).ok()
}
