//! The scripted model, and what it refuses.

use serde_json::{Value, json};
use tower_toolcall::result::ToolResult;
use tower_toolcall_turn::{Format, Names, ToolDefinition, Turn};

use crate::{FORMATS, dialect, kit::run, script::Script};

const ALL: [Format; 5] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Gemini,
    Format::Bedrock,
];

#[tokio::test(flavor = "multi_thread")]
async fn the_loop_ends_in_each_format() {
    let ended = FORMATS.map(|format| run(format, &[]));
    for (format, ended) in FORMATS
        .iter()
        .zip(futures_util::future::join_all(ended).await)
    {
        let said = ended.said;
        assert!(ended.is_success, "{format}: {said}");
        for text in [
            "calls at once",
            "TOOL_NOT_FOUND",
            "TOOL_TIMEOUT",
            "server  search_archive  is told to stop",
            "span    sign_in         success",
            "[REDACTED]",
            r#""user" is a required"#,
            "TOOL_REPEATED",
            "500 guests are imported",
        ] {
            assert!(said.contains(text), "{format}: no {text} in {said}");
        }
        // Where arguments are objects, they cannot be broken off.
        let has_text = format.starts_with("openai");
        assert_eq!(said.contains("not valid JSON"), has_text);
        let calls = if has_text { 14 } else { 13 };
        // T-3: one provider pauses turns.
        let pauses = format == &"anthropic";
        assert_eq!(said.contains("the model pauses"), pauses, "{said}");
        let turns = if pauses { 8 } else { 7 };
        let summary = format!(
            "{turns} turns, {calls} calls, {calls} ids answered; refused by the provider: 0"
        );
        assert!(said.contains(&summary), "{format}: {said}");
        assert!(!said.contains("hunter2"), "{format}: {said}");
        let widest = said.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{format}: {said}");
    }
}

#[tokio::test]
async fn a_wrong_word_is_told_with_the_right_ones() {
    let ended = run("claude", &[]).await;
    assert!(!ended.is_success);
    let said = ended.said;
    assert!(
        said.contains("'claude'") && said.contains("anthropic"),
        "{said}"
    );
}

/// The first request.
fn request(format: Format, messages: &[Value]) -> Value {
    let schema = serde_json::Map::new();
    let tools = [
        "sign_in",
        "weather",
        "book_table",
        "search_archive",
        "import_guests",
        "open_report",
    ];
    let tools = tools.map(|name| ToolDefinition::new(name, &schema));
    let list = format.tools(&Names::default(), tools);
    dialect::request(format, &list, messages)
}

/// What the script says to an answer with the results of its first calls, after `spoil` has been at
/// the messages.
fn answer(format: Format, spoil: impl FnOnce(&mut Vec<Value>)) -> anyhow::Result<Value> {
    let mut script = Script::new(format);
    let mut messages = vec![dialect::user(format, dialect::TASK)];
    let response = script.answer(&request(format, &messages))?;
    let turn = Turn::read(format, &response)?;
    // All are cancelled, which no call of the script's waits for.
    messages.extend(
        turn.answer(Vec::<ToolResult<String>>::new())
            .into_messages(),
    );
    spoil(&mut messages);
    script.answer(&request(format, &messages))
}

/// The list that has the results.
fn results(format: Format, messages: &mut Vec<Value>) -> &mut Vec<Value> {
    let key = match format {
        Format::OpenAiChat | Format::OpenAiResponses => return messages,
        Format::Gemini => "parts",
        _ => "content",
    };
    messages.last_mut().unwrap()[key].as_array_mut().unwrap()
}

/// A provider that took everything would prove nothing.
#[test]
fn a_conversation_that_no_provider_takes_is_refused() {
    for format in ALL {
        let refused = |spoil: &dyn Fn(&mut Vec<Value>)| {
            let error = answer(format, |messages| spoil(messages)).unwrap_err();
            format!("{error:#}")
        };
        let lost = refused(&|messages| drop(results(format, messages).pop()));
        assert!(lost.contains("the calls are"), "{format:?}: {lost}");
        let twice = refused(&|messages| {
            let list = results(format, messages);
            list.push(list.last().unwrap().clone());
        });
        assert!(twice.contains("the calls are"), "{format:?}: {twice}");
        let swapped = refused(&|messages| {
            let list = results(format, messages);
            let last = list.len() - 1;
            list.swap(last, last - 1);
        });
        assert!(swapped.contains("the calls are"), "{format:?}: {swapped}");
        let forgotten = refused(&|messages| drop(messages.remove(1)));
        assert!(forgotten.contains("has changed"), "{format:?}: {forgotten}");
        let all = refused(&|messages| results(format, messages).clear());
        assert!(!all.is_empty(), "{format:?}");
        let text = refused(&|messages| messages.push(dialect::user(format, "And?")));
        assert!(!text.contains("misread"), "{format:?}: {text}");
        // As it is, the script only wonders about what it reads.
        let as_it_is = format!("{:#}", answer(format, |_| ()).unwrap_err());
        assert!(as_it_is.contains("misread"), "{format:?}: {as_it_is}");
    }
}

#[test]
fn a_request_without_the_tools_is_refused() {
    for format in ALL {
        let messages = [dialect::user(format, dialect::TASK)];
        let request = dialect::request(format, &json!([]), &messages);
        let error = Script::new(format).answer(&request).unwrap_err();
        assert!(error.to_string().contains("not among the tools"), "{error}");
    }
}
