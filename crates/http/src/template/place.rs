//! Puts values in at their places.

use http::{HeaderValue, Uri};
use percent_encoding::utf8_percent_encode;

use super::{
    Fault,
    json::{self, Broken},
    marks::{Marked, Piece, Slot},
};
use crate::body::ENCODED;

/// The longest URL, in bytes.
const MAX_URL: usize = 16 << 10;

/// The longest value of a header, in bytes.
const MAX_HEADER: usize = 16 << 10;

/// Returns a URL with the scheme and authority of `origin`.
pub(super) fn url(marked: &Marked, origin: &str) -> Result<Uri, Fault> {
    let mut out = String::with_capacity(marked.capacity());
    let mut in_query = false;
    for piece in marked.pieces() {
        match piece? {
            Piece::Words(words) if !words.is_ascii() => {
                return Err(Fault::Template("has words that are not ASCII"));
            }
            Piece::Words(words) => {
                in_query |= words.contains('?');
                out.push_str(words);
            }
            Piece::Value(..) if ends_in_escape(&out) => {
                return Err(Fault::Template("has a value behind a `%`"));
            }
            // A request of another resource, else.
            Piece::Value(_, Slot::Nothing) if !in_query => return Err(Fault::Undefined),
            Piece::Value(n, Slot::Path(path)) if !in_query => {
                let mut between = "";
                for segment in path.split('/') {
                    out.push_str(between);
                    out.push_str(&encoded_segment(n, segment)?);
                    between = "/";
                }
            }
            Piece::Value(n, Slot::Segment(text)) if !in_query => {
                out.push_str(&encoded_whole(n, text)?);
            }
            Piece::Value(n, slot) => {
                let text = slot.plain().ok_or(Fault::Value(Some(n), NOT_PLAIN))?;
                match in_query {
                    true => out.extend(utf8_percent_encode(text, ENCODED)),
                    false => out.push_str(&encoded_segment(n, text)?),
                }
            }
        }
        if out.len() > MAX_URL {
            return Err(Fault::TooMuch);
        }
    }
    let path = out.strip_prefix(origin);
    let path = path.ok_or(Fault::Template("has another host than its own"))?;
    let path = path.split('?').next().unwrap_or_default();
    if path.split('/').any(is_dots) {
        return Err(Fault::Value(None, "would be `.` or `..` in a path"));
    }
    let uri: Uri = out
        .parse()
        .map_err(|_| Fault::Template("is not a URL when its values are in"))?;
    let same = uri.scheme_str().zip(uri.authority());
    match same.is_some_and(|(scheme, host)| format!("{scheme}://{host}") == origin) {
        true => Ok(uri),
        false => Err(Fault::Template("has another host than its own")),
    }
}

const NOT_PLAIN: &str = "is not a text, number or boolean";

fn encoded_segment(n: usize, text: &str) -> Result<String, Fault> {
    let foreign = |c: char| matches!(c, '/' | '\\') || c.is_control();
    let why = match text {
        "" => "is empty, in a path",
        _ if text.contains(foreign) => "has a slash or a control character, in a segment of a path",
        _ => return Ok(utf8_percent_encode(text, ENCODED).to_string()),
    };
    Err(Fault::Value(Some(n), why))
}

/// One segment, with its slashes encoded. A server that decodes them first must not be led to
/// another place.
fn encoded_whole(n: usize, text: &str) -> Result<String, Fault> {
    let why = match text {
        "" => "is empty, in a path",
        _ if text.contains(char::is_control) => "has a control character, in a segment of a path",
        _ if text.split(['/', '\\']).any(is_dots) => "has `.` or `..` between slashes",
        _ => return Ok(encoded(text)),
    };
    Err(Fault::Value(Some(n), why))
}

/// Returns whether a text ends in the beginning of a percent-encoded byte.
fn ends_in_escape(text: &str) -> bool {
    let end = text.as_bytes();
    end.ends_with(b"%") || end.len() > 1 && end[end.len() - 2] == b'%'
}

/// Returns whether a segment is `.` or `..`, also percent-encoded: clients take it out, with what
/// stands before it.
fn is_dots(segment: &str) -> bool {
    let dots = segment.replace("%2e", ".").replace("%2E", ".");
    matches!(&*dots, "." | "..")
}

/// A header's value; none where nothing was rendered.
pub(super) fn header(marked: &Marked) -> Result<Option<HeaderValue>, Fault> {
    let (text, last) = plain(marked, is_in_header)?;
    if text.len() > MAX_HEADER {
        return Err(Fault::TooMuch);
    }
    if text.trim_matches([' ', '\t']).is_empty() {
        // Taking a condition off the request is the template's business, and no value's.
        return match last {
            Some(n) => Err(Fault::Value(Some(n), "leaves the header empty")),
            None => Ok(None),
        };
    }
    let value = HeaderValue::from_str(&text);
    let value = value.map_err(|_| Fault::Template("is not a header's value"))?;
    Ok(Some(value))
}

fn is_in_header(c: char) -> bool {
    matches!(c, ' '..='~' | '\t')
}

/// Returns whether a token can be a header's value, or a part of one.
pub(super) fn is_token(token: &str) -> bool {
    (1..=MAX_HEADER).contains(&token.len()) && token.chars().all(is_in_header)
}

/// A field of a form, encoded.
pub(super) fn field(marked: &Marked) -> Result<String, Fault> {
    let (text, _) = plain(marked, |_| true)?;
    Ok(utf8_percent_encode(&text, ENCODED).to_string())
}

/// Returns a percent-encoded name that is not a template.
pub(in super::super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

/// Returns a text with plain values of characters that `fits` accepts, and the number of the last
/// printed value.
fn plain(marked: &Marked, fits: fn(char) -> bool) -> Result<(String, Option<usize>), Fault> {
    let mut out = String::with_capacity(marked.capacity());
    let mut last = None;
    for piece in marked.pieces() {
        match piece? {
            Piece::Words(words) => out.push_str(words),
            Piece::Value(_, Slot::Nothing) => {}
            Piece::Value(n, slot) => {
                last = Some(n);
                let text = slot.plain().ok_or(Fault::Value(Some(n), NOT_PLAIN))?;
                if !text.chars().all(fits) {
                    return Err(Fault::Value(Some(n), "cannot be in a header"));
                }
                out.push_str(text);
            }
        }
    }
    Ok((out, last))
}

/// Where in a JSON text something stands.
#[derive(Clone, Copy, PartialEq)]
enum Json {
    Outside,
    InString,
    /// Behind a backslash.
    InEscape,
    /// In `\u`: so many digits are missing.
    InHex(u8),
}

impl Json {
    fn after(self, c: char) -> Self {
        match (self, c) {
            (Self::Outside, '"') => Self::InString,
            (Self::InString, '"') => Self::Outside,
            (Self::InString, '\\') => Self::InEscape,
            (Self::InEscape, 'u') => Self::InHex(4),
            (Self::InEscape | Self::InHex(1), _) => Self::InString,
            (Self::InHex(n), _) => Self::InHex(n - 1),
            (place, _) => place,
        }
    }
}

/// Returns a JSON text with the structure of the template.
pub(super) fn json(marked: &Marked) -> Result<String, Fault> {
    let mut out = String::with_capacity(marked.capacity() + marked.capacity() / 8);
    let mut place = Json::Outside;
    for piece in marked.pieces() {
        match piece? {
            Piece::Words(words) => {
                place = words.chars().fold(place, Json::after);
                out.push_str(words);
            }
            Piece::Value(n, slot) => put(&mut out, place, n, slot)?,
        }
    }
    json::check(&out).map_err(|broken| fault(broken, marked))?;
    Ok(out)
}

/// Who has broken the JSON: a value, or the template.
#[cold]
fn fault(broken: Broken, marked: &Marked) -> Fault {
    let value_or_template = |is_it: fn(&Slot) -> bool, why| match marked.has(is_it) {
        true => Fault::Value(None, why),
        false => Fault::Template(why),
    };
    match broken {
        Broken::Syntax if marked.has(|slot| matches!(slot, Slot::Nothing)) => Fault::Undefined,
        Broken::Syntax => Fault::Template("is not JSON when its values are in"),
        Broken::Nesting => {
            value_or_template(|slot| matches!(slot, Slot::Json(_)), "nests too deeply")
        }
        Broken::Repeats => value_or_template(|_| true, "repeats a key"),
    }
}

fn put(out: &mut String, place: Json, n: usize, slot: &Slot) -> Result<(), Fault> {
    let quoted = |text: &str| {
        serde_json::to_string(text).map_err(|_| Fault::Value(Some(n), "cannot be written as JSON"))
    };
    match (slot, place) {
        (_, Json::InEscape | Json::InHex(_)) => {
            return Err(Fault::Template("has a value behind a backslash"));
        }
        (Slot::Path(_) | Slot::Segment(_), _) => {
            let why = "has `path` or `segment` outside of a URL's path";
            return Err(Fault::Template(why));
        }
        (Slot::Null, Json::InString) => return Err(Fault::Value(Some(n), "is null in a string")),
        (Slot::Nothing, _) => {}
        (Slot::Text(text), Json::Outside) => out.push_str(&quoted(text)?),
        (Slot::Text(text) | Slot::Json(text), Json::InString) => {
            let quoted = quoted(text)?;
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
        (Slot::Scalar(_), _) | (Slot::Json(_) | Slot::Null, Json::Outside) => {
            out.push_str(slot.text());
        }
    }
    Ok(())
}
