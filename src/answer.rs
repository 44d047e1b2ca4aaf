//! A tool's answer as the model reads it ([`ModelText`]), and as observers see it ([`Answer`]): its
//! size, and a view of it to be redacted.

mod known;

use std::{any::Any, borrow::Cow, fmt, io, iter, sync::Arc};

use serde::Serialize;
use serde_json::Value;

pub(crate) use self::known::{Form, PARSED, Text, asks_for_input, form_of, hash_any, input_of};
pub use self::known::{Kept, KnownAnswer, hash_json, register};
use crate::text::{
    Grouped,
    limited::{self, LEVELS},
    plain, prefix,
};

/// An answer as text for the model, as the tool gave it: not redacted, of any length.
///
/// A string passes unchanged, a number as it is written, other JSON compactly, `null` and `()` are
/// the empty string. The crate `tower-toolcall-mcp` implements it for MCP's results: texts are
/// joined by line feeds, and a line stands for an image, a sound or a file: `[image left out:
/// image/png, 67,500 bytes]`.
///
/// [`ToolResult::model_text`](crate::ToolResult::model_text) has the text for failed calls too.
pub trait ModelText {
    /// Returns the text that the model reads.
    fn model_text(&self) -> Cow<'_, str>;

    /// Returns the same with its images, for providers that take images in results. Default: the
    /// text alone.
    fn model_parts(&self) -> Vec<ModelPart<'_>> {
        vec![ModelPart::Text(self.model_text())]
    }
}

/// A part of an answer for a model.
#[derive(Clone)]
#[non_exhaustive]
pub enum ModelPart<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// An image.
    Image {
        /// The type that its source declares: `image/png`, for example.
        mime_type: &'a str,
        /// Its bytes in Base64.
        base64: &'a str,
    },
}

impl<'a> ModelPart<'a> {
    /// Returns the text, or the line that stands for an image where no image can be sent.
    pub fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Image { mime_type, base64 } => left_out_base64("image", mime_type, base64).into(),
        }
    }
}

/// Shows sizes, never what it says.
impl fmt::Debug for ModelPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Image { base64, .. } => write!(f, "Image({} bytes of Base64)", base64.len()),
        }
    }
}

/// Returns the line that stands for data in Base64, as [`left_out_bytes`] has it.
pub fn left_out_base64(what: &str, mime_type: &str, base64: &str) -> String {
    let digits = base64.trim_end_matches('=').len();
    left_out_bytes(what, mime_type, digits / 4 * 3 + digits % 4 * 3 / 4)
}

/// Returns the line that stands for data that are not text: `[body left out: image/png, 12 bytes]`.
/// Of the type 64 characters are shown.
pub fn left_out_bytes(what: &str, mime_type: &str, bytes: usize) -> String {
    let bytes = Grouped(bytes);
    let mime_type: String = prefix(mime_type, 64).0.chars().map(plain).collect();
    format!("[{what} left out: {mime_type}, {bytes} bytes]")
}

/// Returns the value with a line in the place of each string that is data in Base64: a data URL, a
/// member of an object with a media type, or text that begins as a picture or a PDF does. `None` if
/// there is none. For a [`ModelText`] of answers that have JSON.
pub fn without_data(value: &Value) -> Option<Value> {
    let mut copy = value.clone();
    let mut found = false;
    let mut left = vec![&mut copy];
    while let Some(value) = left.pop() {
        let mime_type = MIME_TYPES.iter().find_map(|key| value.get(*key)?.as_str());
        let mime_type = mime_type.filter(|of| !of.starts_with("text/"));
        let mime_type = mime_type.map(str::to_owned);
        let children: Vec<&mut Value> = match value {
            Value::Array(items) => items.iter_mut().collect(),
            Value::Object(map) => map.values_mut().collect(),
            single => vec![single],
        };
        for child in children {
            match child {
                Value::String(text) => {
                    if let Some(line) = data_line(text, mime_type.as_deref()) {
                        (*text, found) = (line, true);
                    }
                }
                Value::Array(_) | Value::Object(_) => left.push(child),
                _ => {}
            }
        }
    }
    found.then_some(copy)
}

/// Keys of a media type.
const MIME_TYPES: [&str; 4] = ["mimeType", "mime_type", "mediaType", "media_type"];

/// How Base64 of common files begins.
const BEGINNINGS: [(&str, &str); 5] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", "application/pdf"),
];

/// Returns the media type of a file, by how it begins.
pub(crate) fn type_of(base64: &str) -> Option<&'static str> {
    let found = BEGINNINGS
        .iter()
        .find(|(begin, _)| base64.starts_with(begin));
    found.map(|(_, mime_type)| *mime_type)
}

/// Returns whether a text is Base64 as RFC 4648 has it, without line breaks.
pub(crate) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_');
    !digits.is_empty() && text.len() - digits.len() <= 2 && digits.bytes().all(is_digit)
}

fn data_line(text: &str, mime_type: Option<&str>) -> Option<String> {
    const LEAST: usize = 256;
    let url = text
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let (mime_type, base64) = match url {
        Some(found) => found,
        None => (mime_type.or_else(|| type_of(text))?, text),
    };
    let is_data = base64.len() >= LEAST && is_base64(base64);
    is_data.then(|| left_out_base64("data", mime_type, base64))
}

impl ModelText for str {
    fn model_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl ModelText for () {
    fn model_text(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
}

impl ModelText for Value {
    fn model_text(&self) -> Cow<'_, str> {
        match self {
            Self::Null => Cow::Borrowed(""),
            Self::String(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }
}

/// Numbers and truth values, as JSON has them.
macro_rules! scalar {
    ($($scalar:ty)*) => {$(
        impl ModelText for $scalar {
            fn model_text(&self) -> Cow<'_, str> {
                Cow::Owned(self.to_string())
            }
        }
    )*};
}

scalar!(bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

/// Of a reference or a smart pointer: what it points to.
macro_rules! pointer {
    ($({$($params:tt)*} $pointer:ty),*) => {$(
        impl<$($params)*> ModelText for $pointer {
            fn model_text(&self) -> Cow<'_, str> {
                (**self).model_text()
            }

            fn model_parts(&self) -> Vec<ModelPart<'_>> {
                (**self).model_parts()
            }
        }
    )*};
}

pointer!({} String, {T: ModelText + ?Sized} &T, {T: ModelText + ?Sized} Box<T>);
pointer!({T: ModelText + ?Sized} Arc<T>, {T: ModelText + ToOwned + ?Sized} Cow<'_, T>);

/// A tool's answer as an observer sees it. Whoever prints it redacts it first.
#[derive(Clone)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// Text, as the model reads it.
    Text(&'a str),
    /// JSON.
    Json(Cow<'a, Value>),
}

impl<'a> Answer<'a> {
    /// Keeps the answer of a usual type: text, JSON, `()`. `None` for any other.
    pub fn of_usual(answer: &'a dyn Any) -> Option<Self> {
        if let Some(json) = answer.downcast_ref::<Value>() {
            return Some(Self::Json(Cow::Borrowed(json)));
        }
        if answer.is::<()>() {
            return Some(Self::Json(Cow::Owned(Value::Null)));
        }
        let text = answer
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| answer.downcast_ref::<&'static str>().copied())
            .or_else(|| answer.downcast_ref::<Box<str>>().map(|s| &**s))
            .or_else(|| answer.downcast_ref::<Arc<str>>().map(|s| &**s))
            .or_else(|| answer.downcast_ref::<Cow<'static, str>>().map(|s| &**s))?;
        Some(Self::Text(text))
    }

    /// Keeps any answer that can be serialised, by way of a copy, without what lies deeper than
    /// JSON parsers go. `None` if it cannot be written as JSON.
    pub fn of<T: Serialize + ?Sized>(answer: &T) -> Option<Self> {
        let json = limited::collect(answer, LEVELS, usize::MAX).ok()?;
        Some(Self::Json(Cow::Owned(json)))
    }

    /// Returns how many bytes it has as compact JSON.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => leaf_bytes(text),
            Self::Json(json) => value_bytes(json),
        }
    }
}

/// Shows the size, never what it says.
impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} bytes)", self.bytes())
    }
}

/// Returns how many bytes `value` has as compact JSON. Stops at `max` bytes, so the work is
/// bounded, and allocates nothing. For tool services that bound what they send and keep.
///
/// # Errors
///
/// If it has more than `max` bytes ([`is_io`](serde_json::Error::is_io)), cannot be written as
/// JSON, or has more levels than parsers take. Make an error of your own of it: `?` would take it
/// for an error in the arguments of a call.
pub fn json_bytes<T: Serialize + ?Sized>(value: &T, max: u64) -> serde_json::Result<u64> {
    json_size(value, max, <[u8]>::len)
}

/// Returns the size of a value as JSON, in characters.
pub(crate) fn json_chars<T: Serialize + ?Sized>(value: &T, max: u64) -> serde_json::Result<u64> {
    // All bytes of UTF-8 but those that continue a character.
    let begins = |byte: &&u8| **byte & 0xC0 != 0x80;
    json_size(value, max, |bytes| bytes.iter().filter(begins).count())
}

fn json_size<T: Serialize + ?Sized>(
    value: &T,
    max: u64,
    size: impl Fn(&[u8]) -> usize,
) -> serde_json::Result<u64> {
    struct Room<F>(u64, F);
    impl<F: Fn(&[u8]) -> usize> io::Write for Room<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.0.checked_sub((self.1)(bytes) as u64);
            self.0 = left.ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut room = Room(max, size);
    limited::write(&mut room, value, LEVELS)?;
    Ok(max - room.0)
}

fn leaf_bytes<T: Serialize + ?Sized>(leaf: &T) -> u64 {
    json_bytes(leaf, u64::MAX).unwrap_or(0)
}

/// Returns the bytes of a value of any depth.
fn value_bytes(value: &Value) -> u64 {
    // Two brackets, and a comma after each member but the last.
    let frame = |members: usize| 2 + members.saturating_sub(1) as u64;
    let bytes = values_of(value).map(|value| match value {
        Value::Array(items) => frame(items.len()),
        Value::Object(map) => {
            let keys: u64 = map.keys().map(|key| leaf_bytes(key) + 1).sum();
            frame(map.len()) + keys
        }
        leaf => leaf_bytes(leaf),
    });
    bytes.sum()
}

/// Returns a value and all that are in it, without recursion: a deep one would take it too far.
pub(crate) fn values_of(value: &Value) -> impl Iterator<Item = &Value> {
    let mut left = vec![value];
    iter::from_fn(move || {
        let value = left.pop()?;
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.values()),
            _ => {}
        }
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_size_is_that_of_the_compact_json() {
        for value in [
            json!(null),
            json!("a\n\"ä\u{1}"),
            json!([]),
            json!({}),
            json!({ "a": [1, 2.5, true, null, { "b\t": "c" }], "d": {} }),
        ] {
            let expected = value.to_string().len() as u64;
            assert_eq!(Answer::Json(Cow::Borrowed(&value)).bytes(), expected);
            assert_eq!(json_bytes(&value, 1000).unwrap(), expected);
            let chars = value.to_string().chars().count() as u64;
            assert_eq!(json_chars(&value, 1000).unwrap(), chars);
        }
        assert_eq!(Answer::Text("a\n").bytes(), 5);
    }

    #[test]
    fn an_answer_of_ten_thousand_levels_is_measured() {
        let mut deep = json!(1);
        for _ in 0..10_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(Answer::Json(Cow::Borrowed(&deep)).bytes(), 20_001);
        crate::call::dismantle(deep);
    }

    #[test]
    fn measuring_stops_at_the_limit() {
        assert_eq!(json_bytes("abc", 5).unwrap(), 5);
        assert!(json_bytes("abc", 4).unwrap_err().is_io());
    }

    /// Rule 9.
    #[test]
    fn an_answer_does_not_show_what_it_says() {
        let secret = "api_key=s3cr3t-canary".to_owned();
        let shown = format!("{:?}", Answer::of_usual(&secret));
        assert_eq!(shown, "Some(Answer(23 bytes))");
    }

    /// X5: answers that are not a text of MCP's.
    #[test]
    fn answers_become_text_for_the_model() {
        assert_eq!("as it is\n".model_text(), "as it is\n");
        assert_eq!(Arc::<str>::from("shared").model_text(), "shared");
        assert_eq!(Cow::Borrowed("borrowed").model_text(), "borrowed");
        assert_eq!(json!("as it is\n").model_text(), "as it is\n");
        assert_eq!(json!(null).model_text(), "");
        assert_eq!(().model_text(), "");
        assert_eq!(
            (12_u8.model_text(), (-0.5).model_text()),
            ("12".into(), "-0.5".into())
        );
        assert_eq!(json!({ "a": [1, "b"] }).model_text(), r#"{"a":[1,"b"]}"#);
    }

    #[test]
    fn usual_answers_are_known_by_their_type() {
        let bytes = |answer: Option<Answer<'_>>| answer.map(|a| a.bytes());
        assert_eq!(bytes(Answer::of_usual(&"ab")), Some(4));
        assert_eq!(bytes(Answer::of_usual(&"ab".to_owned())), Some(4));
        assert_eq!(bytes(Answer::of_usual(&json!([1]))), Some(3));
        assert_eq!(bytes(Answer::of_usual(&())), Some(4));
        assert_eq!(bytes(Answer::of_usual(&7_u8)), None);
        assert_eq!(bytes(Answer::of(&[7_u8])), Some(3));
    }
}
