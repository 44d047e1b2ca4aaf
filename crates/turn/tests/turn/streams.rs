//! A stream gives the calls that the whole response gives.

use proptest::prelude::*;
use serde_json::{Value, json};
use tower_toolcall_turn::{Assembler, Format, Turn};

use crate::kit::{FORMATS, Written, response, stream};

/// Names, ids and arguments.
fn calls(turn: &Turn) -> Vec<(String, String, Value)> {
    let of = |call: tower_toolcall::ToolCall| {
        let id = call.id().expect("an id").to_owned();
        (call.tool().to_owned(), id, call.arguments().clone().into())
    };
    turn.calls().map(of).collect()
}

fn assembled<'a>(format: Format, chunks: impl IntoIterator<Item = &'a Value>) -> Turn {
    let mut assembler = Assembler::new(format);
    for chunk in chunks {
        assembler.push(chunk).expect("small");
    }
    assembler.finish().expect("a turn")
}

/// What there is of a stream that breaks off somewhere gives only calls that the whole response
/// gives.
fn gives_no_half_call(
    format: Format,
    written: &[Written],
    chunks: &[Value],
    at: usize,
) -> Result<(), TestCaseError> {
    let whole = calls(&Turn::read(format, &response(format, written)).expect("a turn"));
    for call in calls(&assembled(format, &chunks[..at % chunks.len()])) {
        prop_assert!(whole.contains(&call), "{:?}", call);
    }
    Ok(())
}

const STREAMED_AT_ONCE: [Format; 4] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Bedrock,
];

/// The stream of two calls, with their fragments in turn.
fn mixed(format: Format, written: &[Written; 2]) -> Vec<Value> {
    let [first, second] = written.each_ref().map(|call| {
        let number = written.iter().position(|other| std::ptr::eq(other, call));
        let number = number.expect("one of them");
        let mut chunks = stream(format, written);
        let end = chunks.pop();
        let of = |chunk: &Value| {
            let places = [
                "/choices/0/delta/tool_calls/0/index",
                "/output_index",
                "/index",
                "/contentBlockStart/contentBlockIndex",
                "/contentBlockDelta/contentBlockIndex",
                "/contentBlockStop/contentBlockIndex",
            ];
            places.iter().find_map(|at| chunk.pointer(at)?.as_u64())
        };
        chunks.retain(|chunk| of(chunk) == Some(number as u64));
        (chunks, end)
    });
    let mut all = Vec::new();
    for n in 0..first.0.len().max(second.0.len()) {
        all.extend(first.0.get(n).cloned());
        all.extend(second.0.get(n).cloned());
    }
    all.extend(first.1);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_cut_at_each_character_gives_the_same_calls(
        texts in prop::collection::vec(prop_oneof![
            Just(""), Just("{}"), Just(r#"{"a":"ä€😀\"\\ \u00e4"}"#), Just(r#"{"a": [1, {"b": null}]}"#), Just(r#"{"a":"#), Just("[]"),
        ], 0..6),
        custom in any::<u8>(),
        nulls in any::<u8>(),
    ) {
        let written: Vec<_> = texts.iter().enumerate().map(|(n, text)| {
            let call = Written::new(&format!("id_{n}"), "f", text);
            let call = if custom >> n & 1 == 1 { call.custom() } else { call };
            if nulls >> n & 1 == 1 { call.with_nulls() } else { call }
        }).collect();
        for format in FORMATS {
            let whole = Turn::read(format, &response(format, &written)).unwrap();
            let turn = assembled(format, &stream(format, &written));
            prop_assert_eq!(turn.len(), whole.len());
            prop_assert_eq!(calls(&turn), calls(&whole));
            prop_assert_eq!(turn.invalid().count(), whole.invalid().count());
        }
    }

    /// A stream that breaks off anywhere gives only calls that the whole one gives, each with all
    /// of its arguments.
    #[test]
    fn a_stream_that_breaks_off_gives_no_half_call(at in 0..400_usize) {
        let written = [
            Written::new("id_0", "f", r#"{"a":{"b":"ä"}}"#),
            Written::new("id_1", "f", r#"{"c":[1,2,3]}"#),
            Written::new("id_2", "f", "{}"),
            Written::new("id_3", "f", "print(1) and more").custom(),
            Written::new("id_4", "f", "print(2) and more").custom(),
        ];
        for format in FORMATS {
            gives_no_half_call(format, &written, &stream(format, &written), at)?;
        }
    }

    /// Nor does one whose calls are streamed at once.
    #[test]
    fn a_mixed_stream_that_breaks_off_gives_no_half_call(at in 0..400_usize) {
        let written = [
            Written::new("id_0", "f", r#"{"a":{"b":"ä"}}"#),
            Written::new("id_1", "f", r#"{"c":[1,2,3]}"#),
        ];
        for format in STREAMED_AT_ONCE {
            gives_no_half_call(format, &written, &mixed(format, &written), at)?;
        }
    }

    /// A text does not show its end, and what comes last need not be what was cut.
    #[test]
    fn a_mixed_stream_that_breaks_off_gives_no_half_text(at in 0..400_usize) {
        let written = [
            Written::new("id_0", "f", "print(1) and more").custom(),
            Written::new("id_1", "f", "print(2)").custom(),
        ];
        for format in [Format::OpenAiChat, Format::OpenAiResponses] {
            gives_no_half_call(format, &written, &mixed(format, &written), at)?;
        }
    }
}

/// Fragments of parallel calls come in any order, as their numbers and ids say.
#[test]
fn calls_that_are_streamed_at_once_are_kept_apart() {
    let written = [
        Written::new("id_0", "f", r#"{"a":1}"#),
        Written::new("id_1", "g", r#"{"b":2}"#),
    ];
    for format in STREAMED_AT_ONCE {
        let whole = calls(&Turn::read(format, &response(format, &written)).unwrap());
        let turn = assembled(format, &mixed(format, &written));
        assert_eq!(calls(&turn), whole, "{format:?}");
    }
}

/// What was lost may have been in any of the calls, and what is left of one may look whole.
#[test]
fn a_stream_with_a_chunk_that_is_refused_runs_no_call() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let written = [
        Written::new("id_0", "f", r#"{"a":"bc"}"#),
        Written::new("id_1", "g", r#"{"d":1}"#),
    ];
    for format in STREAMED_AT_ONCE {
        let mut chunks = stream(format, &written);
        let lost = chunks
            .iter()
            .position(|chunk| chunk.to_string().contains("\"b\""));
        chunks[lost.expect("a fragment")]["extra"] = deep.clone();
        let mut assembler = Assembler::new(format);
        let refused = chunks.iter().filter(|chunk| assembler.push(chunk).is_err());
        assert_eq!(refused.count(), 1);
        let turn = assembler.finish().unwrap();
        assert_eq!(
            (turn.is_cut(), turn.calls().count(), turn.len()),
            (true, 0, 2),
            "{format:?}"
        );
    }
}
