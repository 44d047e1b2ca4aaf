//! A stream gives the calls that the whole response gives.

use proptest::prelude::*;
use serde_json::Value;
use tower_toolcall::turn::{Assembler, Format, Turn};

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_cut_at_each_character_gives_the_same_calls(
        texts in prop::collection::vec(prop_oneof![
            Just(""), Just("{}"), Just(r#"{"a":"ä€😀\"\\ \u00e4"}"#), Just(r#"{"a": [1, {"b": null}]}"#), Just(r#"{"a":"#), Just("[]"),
        ], 0..6),
    ) {
        let written: Vec<_> = texts.iter().enumerate()
            .map(|(n, text)| Written::new(&format!("id_{n}"), "f", text)).collect();
        for format in FORMATS {
            let whole = Turn::read(format, &response(format, &written)).unwrap();
            let turn = assembled(format, &stream(format, &written));
            prop_assert_eq!(turn.len(), whole.len());
            prop_assert_eq!(calls(&turn), calls(&whole));
            prop_assert_eq!(turn.invalid().count(), whole.invalid().count());
        }
    }

    /// A stream that breaks off anywhere gives only calls that the whole one gives, each with all of its arguments.
    #[test]
    fn a_stream_that_breaks_off_gives_no_half_call(at in 0..400_usize) {
        let written = [
            Written::new("id_0", "f", r#"{"a":{"b":"ä"}}"#),
            Written::new("id_1", "f", r#"{"c":[1,2,3]}"#),
            Written::new("id_2", "f", "{}"),
        ];
        for format in FORMATS {
            let whole = calls(&Turn::read(format, &response(format, &written)).unwrap());
            let chunks = stream(format, &written);
            let turn = assembled(format, &chunks[..at % chunks.len()]);
            for call in calls(&turn) {
                prop_assert!(whole.contains(&call), "{:?}", call);
            }
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
    for format in [
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Anthropic,
        Format::Bedrock,
    ] {
        let whole = calls(&Turn::read(format, &response(format, &written)).unwrap());
        let all = stream(format, &written);
        let half = (all.len() - 1) / 2;
        let (first, second) = all[..all.len() - 1].split_at(half);
        let mixed = first.iter().zip(second).flat_map(|(a, b)| [a, b]);
        let turn = assembled(format, mixed.chain(all.last()));
        assert_eq!(calls(&turn), whole, "{format:?}");
    }
}
