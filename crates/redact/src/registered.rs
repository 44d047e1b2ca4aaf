//! Values that were sent as secrets: hidden wherever they come back, without a name or a form.

use std::{borrow::Cow, cmp::Reverse, sync::Arc};

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Map, Value};

use crate::escapes::{Escapes, unescaped};
use crate::keys::{holds, is_sure};
use crate::rules::{BUILT_IN, Rules};
use crate::text::{bytes::*, is_opaque, value::SCHEMES};
use crate::{REDACTED, TRUNCATED, filter::suspicious, shown::numbers};

/// A shorter value, in bytes, is not registered: it may be a part of ordinary words.
const MIN: usize = 8;

/// Values, and their bytes together. With more, no text is shown.
const MAX: usize = 64;
const MAX_BYTES: usize = 64 * 1024;

/// The parts in which a text is searched for values with escapes.
const PART: usize = 128 * 1024;

/// Escapes inside escapes: `%2526`.
const MAX_LEVELS: usize = 3;

/// How many bytes an escape of a byte takes: `\\\\u0022`.
const MAX_ESCAPE: usize = 10;

/// The shortest beginning of a value that is hidden at the end of a text that was cut.
const MIN_CUT: usize = 4;

/// The registered values of rules. A clone is one reference count.
#[derive(Clone)]
pub(super) struct Registered(Option<Arc<Values>>);

#[derive(Clone, Default)]
struct Values {
    /// The longest first.
    all: Vec<Box<str>>,
    /// The values as they are in a text without escapes, and without escapes of their own.
    forms: Vec<Box<str>>,
    /// A value has a blank, a `+` or a line end.
    is_spaced: bool,
    is_full: bool,
}

impl Registered {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn add(&mut self, value: &str) {
        let value = value.trim();
        let covers = |of: &Arc<Values>| of.is_full || of.all.iter().any(|v| **v == *value);
        let is_mark = REDACTED.contains(value) || TRUNCATED.contains(value);
        if value.len() < MIN || is_mark || self.0.as_ref().is_some_and(covers) {
            return;
        }
        let values = Arc::make_mut(self.0.get_or_insert_default());
        let bytes: usize = values.all.iter().map(|value| value.len()).sum();
        if values.all.len() == MAX || bytes + value.len() > MAX_BYTES {
            *values = Values::default();
            values.is_full = true;
            return;
        }
        let at = values.all.partition_point(|v| v.len() > value.len());
        values.all.insert(at, value.into());
        values.is_spaced |= value.has_of(" +\n\r");
        let mut form = unescaped(value, Escapes::None).0;
        for _ in 0..=MAX_LEVELS {
            if form.len() < MIN || values.forms.iter().any(|known| **known == form) {
                break;
            }
            values.forms.push(form.as_str().into());
            form = unescaped(&form, Escapes::All).0;
        }
        if let Some((scheme, rest)) = value.cut(" ")
            && SCHEMES.has(scheme)
        {
            self.add(rest);
        }
    }

    pub(super) fn longest(&self) -> usize {
        self.0.as_ref().map_or(0, |values| values.longest())
    }

    /// Returns a text without the values, as they are or with escapes.
    pub(super) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(values) = self.0.as_deref().filter(|_| text.len() >= MIN) else {
            return Cow::Borrowed(text);
        };
        if values.is_full && text != REDACTED {
            return Cow::Owned(REDACTED.to_owned());
        }
        let mut places = Vec::new();
        values.each_level(text, |plain, forms, at| {
            for form in forms {
                let all = plain.match_indices(&**form);
                places.extend(all.map(|(start, form)| at(start)..at(start + form.len())));
            }
        });
        // In order; of those at one place, the longest first.
        places.sort_unstable_by_key(|place| (place.start, Reverse(place.end)));
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        // In JSON, a string takes the place of a number that has a value in it.
        let (json, string) = (is_json(text), format!("\"{REDACTED}\""));
        let mut all = numbers(text).take_while(|_| json).peekable();
        let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
        for place in places {
            while all.next_if(|number| number.end < place.end).is_some() {}
            let number = all.peek().filter(|number| number.start <= place.start);
            let mark = number.map_or(REDACTED, |_| &*string);
            let place = number.cloned().unwrap_or(place);
            if place.start >= copied {
                out.extend([&text[copied..place.start], mark]);
            }
            copied = copied.max(place.end);
        }
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }

    /// Returns where the beginning of a value stands at the end of a text that was cut, maybe
    /// within an escape.
    pub(super) fn cut_at(&self, head: &str) -> Option<usize> {
        let near = floor(head, head.len().saturating_sub(self.longest()));
        let mut first = None;
        let values = self.0.as_deref()?;
        values.each_level(&head[near..], |plain, forms, at| {
            let signs = plain.rmatch_indices(['%', '\\', '&']).map(|(at, _)| at);
            let ends = signs.take_while(|end| end + MAX_ESCAPE > plain.len());
            for end in ends.chain([plain.len()]) {
                let head = &plain[..end];
                let begins = |form: &str| {
                    let mut lens = (MIN_CUT..form.len()).rev();
                    lens.find(|len| form.get(..*len).is_some_and(|part| head.ends_with(part)))
                };
                let longest = forms.iter().filter_map(|form| begins(form)).max();
                let place = longest.map(|len| near + at(end - len));
                first = place.into_iter().chain(first).min();
            }
        });
        first
    }
}

impl Values {
    /// Shows `look` a text and the forms that values have in it; then its parts with ever less
    /// escapes, the forms in that, and where its bytes stood before.
    fn each_level(
        &self,
        text: &str,
        mut look: impl FnMut(&str, &[Box<str>], &dyn Fn(usize) -> usize),
    ) {
        look(text, &self.all, &|at| at);
        let signs = if self.is_spaced { "%\\&+\n\r" } else { "%\\&" };
        for start in (0..text.len()).step_by(PART) {
            let end = floor(text, start + PART + self.longest());
            let start = floor(text, start);
            let mut plain = text[start..end].to_owned();
            let mut origin: Vec<usize> = (start..=end).collect();
            for _ in 0..MAX_LEVELS {
                if !plain.has_of(signs) {
                    break;
                }
                let (next, places) = unescaped(&plain, Escapes::All);
                if next == plain {
                    break;
                }
                origin = places.into_iter().map(|at| origin[at]).collect();
                look(&next, &self.forms, &|at| origin[at]);
                plain = next;
            }
        }
    }

    /// Returns how many bytes of a text the longest value takes, with escapes.
    fn longest(&self) -> usize {
        MAX_ESCAPE * self.all.first().map_or(0, |value| value.len())
    }
}

/// Returns whether a text is an object or an array of JSON, or several values that begin with one.
fn is_json(text: &str) -> bool {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    text.trim_start().starts_of("{[") && values.all(|value| value.is_ok())
}

/// Returns the text of a value that may be registered.
fn text_of(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(&**text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
    .filter(|text| text.len() >= MIN)
}

impl Rules {
    /// Hides these values in every text and view, in any context: for example a token that a server
    /// repeats in its answer.
    ///
    /// They are found unescaped, with the escapes of JSON, URLs and HTML, and in Base64 of 24
    /// digits and more. Values of less than 8 bytes are ignored. All others count, ordinary words
    /// and numbers too: a password `administrator` is hidden in every sentence.
    ///
    /// At most 64 values of 64 KiB together are kept. With more, texts are hidden as a whole.
    /// [`explain`](Self::explain) does not list these values.
    ///
    /// ```
    /// use toolcall_redact::Rules;
    ///
    /// let rules = Rules::new().with_secrets(["marmalade7x"]);
    /// assert_eq!(rules.redact_text("no user marmalade7x"), "no user [REDACTED]");
    /// ```
    #[must_use]
    pub fn with_secrets<'v>(mut self, values: impl IntoIterator<Item = &'v str>) -> Self {
        values.into_iter().for_each(|value| self.1.add(value));
        self
    }

    /// Adds the secrets of other rules.
    #[must_use]
    pub fn with_secrets_of(mut self, other: &Self) -> Self {
        let Some(more) = other.1.0.as_ref().filter(|_| !self.1.is(&other.1)) else {
            return self;
        };
        if self.1.is_empty() {
            self.1 = other.1.clone();
            return self;
        }
        more.all.iter().for_each(|value| self.1.add(value));
        if let Some(values) = self.1.0.as_mut().filter(|_| more.is_full) {
            Arc::make_mut(values).is_full = true;
        }
        self
    }

    /// Hides the values under keys of an object that are surely those of secrets (`password`,
    /// `access_token`, own ones), and under other [sensitive keys](Self::is_sensitive_key) those
    /// that look random.
    #[must_use]
    pub fn with_secrets_in(self, object: &Map<String, Value>) -> Self {
        let rules = self.clone();
        let may_be_own = |key: &str| {
            let mut own = rules.custom().sensitive.iter();
            own.any(|word| holds(key, word))
        };
        let is_named = |key: &str| (suspicious(key) || may_be_own(key)) && rules.announces(key);
        let is_secret =
            |key: &str, value: &str| is_sure(key) || !BUILT_IN.announces(key) || is_opaque(value);
        self.with_members(object, |_| false, is_named, is_secret)
    }

    /// Hides the values under these keys of an object, and all that is inside them.
    #[must_use]
    pub fn with_secrets_under(
        self,
        object: &Map<String, Value>,
        is_secret: impl Fn(&str) -> bool,
    ) -> Self {
        self.with_members(object, &is_secret, &is_secret, |_, _| true)
    }

    /// Adds the secret members of an object. If `takes_all` accepts a key, the values inside its
    /// object count under the same key. `is_named` decides before a value becomes a text,
    /// `is_secret` decides by key and text.
    fn with_members<'v>(
        mut self,
        object: &'v Map<String, Value>,
        takes_all: impl Fn(&str) -> bool,
        is_named: impl Fn(&str) -> bool,
        is_secret: impl Fn(&str, &str) -> bool,
    ) -> Self {
        let mut rest = Vec::new();
        let mut visit = |rest: &mut Vec<_>, key: &'v str, value: &'v Value| match value {
            Value::Array(_) | Value::Object(_) => rest.push((key, value)),
            value => {
                let named = is_named(key).then(|| text_of(value)).flatten();
                if let Some(text) = named.filter(|text| is_secret(key, text)) {
                    self.1.add(&text);
                }
            }
        };
        for (key, value) in object {
            visit(&mut rest, key.as_str(), value);
        }
        // Without recursion: arguments may be nested in any depth.
        while let Some((key, value)) = rest.pop() {
            match value {
                Value::Array(items) => items.iter().for_each(|item| visit(&mut rest, key, item)),
                Value::Object(members) => members.iter().for_each(|(own, value)| {
                    visit(&mut rest, if takes_all(key) { key } else { own }, value);
                }),
                _ => {}
            }
        }
        self
    }

    /// Removes all added secrets, for rules that outlive their call.
    #[must_use]
    pub fn forget_secrets(mut self) -> Self {
        self.1 = Registered::NONE;
        self
    }

    /// Returns whether only secrets were added to the built-in rules.
    pub fn are_built_in(&self) -> bool {
        self.0.is_none()
    }

    /// Returns a text without the [secrets that were added](Self::with_secrets), and otherwise as
    /// it is.
    pub fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.1.hide(text)
    }

    /// Replaces the secrets in all keys, strings and numbers of a value.
    pub fn hide_secrets(&self, value: &mut Value) {
        if self.1.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(hidden) = self.1.hide(text) {
                    *text = hidden;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_secrets(item)),
            Value::Object(members) => {
                let is_secret = |key: &String| matches!(self.1.hide(key), Cow::Owned(_));
                if members.keys().any(is_secret) {
                    let all = std::mem::take(members).into_iter();
                    let all = all.map(|(key, value)| (self.1.hide(&key).into_owned(), value));
                    *members = all.collect();
                }
                members.values_mut().for_each(|it| self.hide_secrets(it));
            }
            Value::Number(number) if matches!(self.1.hide(&number.to_string()), Cow::Owned(_)) => {
                *value = REDACTED.into();
            }
            _ => {}
        }
    }
}
