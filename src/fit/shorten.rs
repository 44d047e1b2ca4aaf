use std::borrow::Cow;

use serde_json::Value;

use super::Cut;
use crate::{
    answer::{ModelText, json_chars, without_data},
    error::AnyError,
};

/// An answer that can be made shorter for a model.
///
/// ```
/// use std::borrow::Cow;
/// use tower_toolcall::{AnyError, ModelText, fit::{Cut, Shorten}};
///
/// /// A page, and where the next one begins.
/// struct Page {
///     text: String,
///     next: u32,
/// }
///
/// impl ModelText for Page {
///     fn model_text(&self) -> Cow<'_, str> {
///         Cow::Borrowed(&self.text)
///     }
/// }
///
/// impl Shorten for Page {
///     fn fits(&self, max_chars: usize) -> bool {
///         self.text.fits(max_chars)
///     }
///
///     fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
///         self.text.shorten(cut)
///     }
/// }
/// ```
pub trait Shorten: ModelText {
    /// Returns whether the model would read no more than so many characters. This should neither
    /// allocate nor look at much more than these.
    fn fits(&self, max_chars: usize) -> bool;

    /// Returns the whole answer as a text, for a hook that [keeps](super::FitLayer::with_keep) it.
    /// Default: what the model would have read.
    fn whole(&self) -> Cow<'_, str> {
        self.model_text()
    }

    /// Shortens an answer that does not fit.
    ///
    /// # Errors
    ///
    /// Why it cannot be shortened.
    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError>;
}

impl Shorten for String {
    fn fits(&self, max_chars: usize) -> bool {
        fits(self, max_chars)
    }

    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
        cut.text(self);
        Ok(())
    }
}

impl Shorten for Cow<'_, str> {
    fn fits(&self, max_chars: usize) -> bool {
        fits(self, max_chars)
    }

    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
        cut.text(self.to_mut());
        Ok(())
    }
}

impl Shorten for Value {
    fn fits(&self, max_chars: usize) -> bool {
        match self {
            Self::Null => true,
            Self::String(text) => text.fits(max_chars),
            other => json_chars(other, max_chars as u64).is_ok(),
        }
    }

    /// Returns nothing of JSON that is nested deeper than parsers go.
    fn whole(&self) -> Cow<'_, str> {
        match json_chars(self, u64::MAX) {
            Ok(_) => self.model_text(),
            Err(_) => Cow::Borrowed(""),
        }
    }

    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
        if let Self::String(text) = self {
            return text.shorten(cut);
        }
        let chars = usize::try_from(json_chars(self, u64::MAX)?)?;
        // Half a picture is none.
        if let Some(lines) = without_data(self) {
            *self = lines;
            return match self.fits(cut.max_chars()) {
                true => Ok(()),
                false => self.shorten(cut),
            };
        }
        let Some(max) = longest_string(self, chars, cut) else {
            let mut whole = self.to_string();
            cut.text(&mut whole);
            *self = Self::String(whole);
            return Ok(());
        };
        strings(self, |text| cut.within(max, &mut [text], in_json));
        Ok(())
    }
}

/// Returns the length to which all strings have to be cut so that the whole of `chars` fits, if
/// that leaves something of each beside its mark.
fn longest_string(value: &mut Value, chars: usize, cut: &Cut) -> Option<usize> {
    let least = 2 * cut.mark_cost(chars, in_json);
    let mut long = Vec::new();
    strings(value, |text| {
        let cost = text.chars().map(in_json).sum::<usize>();
        if cost > least {
            long.push(cost);
        }
    });
    let others = chars - long.iter().sum::<usize>();
    let mut room = cut.max_chars().checked_sub(others)?;
    long.sort_unstable();
    for (i, cost) in long.iter().enumerate() {
        let share = room / (long.len() - i);
        if *cost > share {
            return Some(share).filter(|share| *share >= least);
        }
        room -= cost;
    }
    None
}

/// Returns how many characters one character takes in a JSON string.
fn in_json(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => 6,
        _ => 1,
    }
}

/// Visits all strings of a value except keys, without recursion.
fn strings(value: &mut Value, mut each: impl FnMut(&mut String)) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => each(text),
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.values_mut()),
            _ => {}
        }
    }
}

fn fits(text: &str, max_chars: usize) -> bool {
    // A character has four bytes at most.
    text.len() <= max_chars || text.len() / 4 <= max_chars && text.chars().count() <= max_chars
}

/// Types without text to cut always fit.
macro_rules! fits {
    ($($type:ty)*) => {$(
        impl Shorten for $type {
            fn fits(&self, _: usize) -> bool {
                true
            }

            fn shorten(&mut self, _: &Cut) -> Result<(), AnyError> {
                Ok(())
            }
        }
    )*};
}

fits!(() bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);
