//! Whatever a tool answers, it has no more characters than the limit once it is shortened.
//!
//! The input is a text, and JSON. Its length chooses the limit.

use serde_json::Value;
use tower_toolcall::{
    ModelText,
    fit::{Cut, Shorten},
};

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    for max in [0, data.len() % 97, data.len() / 2] {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            shortens(value, max);
        }
        shortens(text.clone(), max);
    }
}

fn shortens<T: Shorten + ModelText + std::fmt::Debug>(mut answer: T, max: usize) {
    if answer.fits(max) {
        return;
    }
    let whole = answer.model_text().into_owned();
    answer
        .shorten(&Cut::of(max))
        .expect("text and JSON can be cut");
    let left = answer.model_text().into_owned();
    assert!(
        left.chars().count() <= max,
        "{} of {max}: {left}",
        left.chars().count()
    );
    assert!(answer.fits(max), "{answer:?}");
    assert_ne!(left, whole);
}
