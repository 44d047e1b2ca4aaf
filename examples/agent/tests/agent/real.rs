//! Servers that play a provider: what they are sent, and what becomes of their answers.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    dialect,
    kit::{Ended, KEY, Played, run},
};

/// As OpenAI sent it: see the file.
fn recorded() -> String {
    let fixture =
        include_str!("../../../../crates/turn/tests/turn/fixtures/openai_chat_parallel.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    fixture["response"].to_string()
}

async fn with_key(words: &str, key: &str, played: &Played) -> Ended {
    let ended = run(
        words,
        &[
            (key, KEY),
            ("AGENT_URL", &played.url),
            ("AGENT_MODEL", "some-model"),
        ],
    )
    .await;
    assert!(!ended.said.contains(KEY), "{}", ended.said);
    ended
}

#[tokio::test]
async fn a_recorded_turn_is_answered_and_the_model_ends() {
    let end = json!({ "choices": [{ "message": { "content": "There are no such tools." }, "finish_reason": "stop" }] });
    let played = Played::start(vec![(200, recorded()), (200, end.to_string())]).await;
    let ended = with_key("", "OPENAI_API_KEY", &played).await;
    assert!(ended.is_success, "{}", ended.said);
    for text in [
        "some-model at 127.0.0.1",
        "2 calls at once",
        "Tool 'GetWeatherArgs' does not exist",
        "There are no such tools.",
        "2 turns, 2 calls, 2 ids answered",
    ] {
        assert!(ended.said.contains(text), "no {text} in {}", ended.said);
    }

    let asked = played.asked();
    assert_eq!(asked.len(), 2);
    for asked in &asked {
        assert_eq!(asked.path, "/v1/chat/completions");
        assert_eq!(asked.headers["authorization"], format!("Bearer {KEY}"));
        assert_eq!(asked.body["model"], "some-model");
        let tools = asked.body["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 6);
        let weather = tools.iter().map(|tool| &tool["function"]);
        let weather = weather.clone().find(|tool| tool["name"] == "weather");
        let weather = weather.unwrap();
        assert_eq!(weather["description"], "The weather in a city");
        assert_eq!(weather["parameters"]["required"], json!(["city"]));
    }
    let messages = asked[1].body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
    let calls = messages[1]["tool_calls"].as_array().unwrap();
    for (call, result) in calls.iter().zip(&messages[2..]) {
        assert_eq!(call["id"], result["tool_call_id"]);
    }
}

/// The address, the header with the key, and what only this provider asks for.
#[tokio::test]
async fn each_provider_is_spoken_to_as_it_asks() {
    let cases = [
        (
            "openai-responses",
            "OPENAI_API_KEY",
            "authorization",
            "/v1/responses",
        ),
        (
            "anthropic",
            "ANTHROPIC_API_KEY",
            "x-api-key",
            "/v1/messages",
        ),
        (
            "gemini",
            "GEMINI_API_KEY",
            "x-goog-api-key",
            "/v1beta/models/some-model:generateContent",
        ),
        (
            "bedrock",
            "AWS_BEARER_TOKEN_BEDROCK",
            "authorization",
            "/model/some-model/converse",
        ),
    ];
    for (word, key, header, path) in cases {
        let format = crate::agent::format(word).unwrap();
        let call = dialect::Call {
            id: dialect::id(format, 1, "weather"),
            tool: "weather",
            arguments: r#"{"city":"Oslo"}"#,
        };
        let (turn, _) = dialect::say_calls(format, &[&call]);
        let (end, _) = dialect::say_text(format, "It is cold.");
        let played = Played::start(vec![(200, turn.to_string()), (200, end.to_string())]).await;
        let ended = with_key(word, key, &played).await;
        assert!(ended.is_success, "{word}: {}", ended.said);
        assert!(ended.said.contains("It is cold."), "{word}: {}", ended.said);

        let asked = played.asked();
        let [first, second] = &asked[..] else {
            panic!("{word}: {asked:?}")
        };
        assert_eq!(first.path, path);
        let sent = first.headers[header].to_str().unwrap();
        assert_eq!(sent.trim_start_matches("Bearer "), KEY);
        let is_anthropic = word == "anthropic";
        assert_eq!(
            first.headers.contains_key("anthropic-version"),
            is_anthropic
        );
        assert_eq!(first.body.get("max_tokens").is_some(), is_anthropic);
        assert_eq!(dialect::tool_names(format, &first.body).len(), 6);
        assert!(second.body.to_string().contains("12 degrees"), "{word}");
    }
}

#[tokio::test]
async fn a_refusal_is_shown_and_ends_the_program() {
    let body = json!({ "error": { "message": format!("Incorrect API key provided: {KEY}."), "type": "invalid_request_error" } });
    let played = Played::start(vec![(400, body.to_string())]).await;
    let ended = with_key("", "OPENAI_API_KEY", &played).await;
    assert!(!ended.is_success);
    let text = "answers 400 Bad Request: Incorrect API key provided: [REDACTED].";
    assert!(ended.said.contains(text), "{}", ended.said);
    assert_eq!(played.asked().len(), 1);
}

/// A proxy's page, for example.
#[tokio::test]
async fn an_answer_that_is_no_json_is_shown_in_part() {
    let page = format!("<h1>Bad gateway</h1>\x1b[2J {KEY} {}", "x".repeat(100_000));
    for status in [502, 200] {
        let played = Played::start(vec![(status, page.clone())]).await;
        let ended = with_key("anthropic", "ANTHROPIC_API_KEY", &played).await;
        assert!(!ended.is_success);
        assert!(ended.said.contains("Bad gateway"), "{}", ended.said);
        assert!(ended.said.len() < 3000 && !ended.said.contains('\x1b'));
    }
}

/// Errors come with status 200 from some.
#[tokio::test]
async fn json_that_is_no_turn_ends_the_program() {
    let body = json!({ "error": { "message": "no credits" } });
    let played = Played::start(vec![(200, body.to_string())]).await;
    let ended = with_key("", "OPENAI_API_KEY", &played).await;
    assert!(!ended.is_success);
    assert!(ended.said.contains("no credits"), "{}", ended.said);
}

#[tokio::test]
async fn a_model_that_never_ends_is_ended() {
    let played = Played::start(vec![(200, recorded())]).await;
    let ended = with_key("openai-chat", "OPENAI_API_KEY", &played).await;
    assert!(!ended.is_success);
    assert!(
        ended.said.contains("has not ended after 12 turns"),
        "{}",
        ended.said
    );
    assert_eq!(played.asked().len(), 12);
}

/// Most providers refuse a conversation that the model has ended, and Converse two messages of the
/// user's.
#[tokio::test]
async fn a_model_that_was_cut_off_is_asked_to_go_on() {
    for (word, at, reason) in [
        ("openai-chat", "/choices/0/finish_reason", "length"),
        ("openai-responses", "/status", "incomplete"),
        ("anthropic", "/stop_reason", "max_tokens"),
        ("gemini", "/candidates/0/finishReason", "MAX_TOKENS"),
        ("bedrock", "/stopReason", "max_tokens"),
    ] {
        let format = crate::agent::format(word).unwrap();
        let (mut cut, _) = dialect::say_text(format, "It is");
        *cut.pointer_mut(at).unwrap() = reason.into();
        let (mut silent, _) = dialect::say_text(format, "");
        *silent.pointer_mut(at).unwrap() = reason.into();
        let (end, _) = dialect::say_text(format, "cold.");
        let answers = [silent, cut, end].map(|answer| (200, answer.to_string()));
        let played = Played::start(answers.to_vec()).await;
        let ended = run(word, &[("AGENT_URL", &played.url)]).await;
        assert!(ended.is_success, "{word}: {}", ended.said);
        assert!(ended.said.contains("the model breaks off"), "{word}");

        let messages = |n: usize| played.asked()[n].body[dialect::messages_key(format)].clone();
        let roles = |messages: Value| -> Vec<String> {
            let list = messages.as_array().unwrap().iter();
            list.map(|m| m["role"].as_str().unwrap().to_owned())
                .collect()
        };
        let model = if word == "gemini" {
            "model"
        } else {
            "assistant"
        };
        if word != "openai-chat" && word != "openai-responses" {
            assert_eq!(roles(messages(1)), ["user"], "{word}");
            assert_eq!(roles(messages(2)), ["user", model, "user"], "{word}");
        }
        assert_eq!(roles(messages(2)).last().unwrap(), "user", "{word}");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_told_as_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.read_u8().await?;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\"";
        stream.write_all(head.as_bytes()).await?;
        stream.shutdown().await
    });
    let ended = run("", &[("AGENT_URL", &url), ("OPENAI_API_KEY", KEY)]).await;
    assert!(!ended.is_success);
    assert!(ended.said.contains("breaks off"), "{}", ended.said);
}

/// It may have read a page of a stranger's.
#[tokio::test]
async fn what_a_model_writes_moves_no_terminal_and_breaks_no_line() {
    let evil = "\x1b[2J\u{202e}\u{9b}2J";
    let name = format!("{}{evil}hunter2{}", "x".repeat(20), "y".repeat(200));
    let arguments = json!({ evil: evil, "b": "z".repeat(2000) }).to_string();
    let calls = [(name.as_str(), arguments.as_str()), (evil, "{"), ("", evil)];
    let calls: Value = (calls.iter().enumerate())
        .map(|(n, (name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "id": n.to_string(), "type": "function", "function": function })
        })
        .collect();
    let turn = json!({ "choices": [{ "message": { "content": evil, "tool_calls": calls }, "finish_reason": "tool_calls" }] });
    let end = json!({ "choices": [{ "message": { "content": format!("{evil} done {evil}") }, "finish_reason": "stop" }] });
    let played = Played::start(vec![(200, turn.to_string()), (200, end.to_string())]).await;
    let ended = with_key("", "OPENAI_API_KEY", &played).await;
    assert!(ended.is_success, "{}", ended.said);
    assert!(ended.said.contains("done"), "{}", ended.said);
    assert!(!ended.said.contains("hunter2"), "{}", ended.said);
    for hidden in ['\x1b', '\u{202e}', '\u{9b}'] {
        assert!(!ended.said.contains(hidden), "{:?}", ended.said);
    }
}

#[tokio::test]
async fn a_server_of_ones_own_needs_no_key() {
    let end = json!({ "choices": [{ "message": { "content": "Hello." } }] });
    let played = Played::start(vec![(200, end.to_string())]).await;
    let ended = run("", &[("AGENT_URL", &played.url)]).await;
    assert!(ended.is_success, "{}", ended.said);
    assert!(!played.asked()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_with_its_address() {
    let url = "http://127.0.0.1:9";
    let ended = run("", &[("AGENT_URL", url), ("OPENAI_API_KEY", KEY)]).await;
    assert!(!ended.is_success);
    assert!(
        ended.said.contains("127.0.0.1:9 cannot be reached"),
        "{}",
        ended.said
    );
    assert!(!ended.said.contains(KEY));
}

/// A key alone must not make a person pay who wants to see the script.
#[tokio::test]
async fn the_script_is_played_although_there_is_a_key() {
    let ended = run("script", &[("OPENAI_API_KEY", KEY)]).await;
    assert!(ended.is_success, "{}", ended.said);
    assert!(
        ended.said.contains("The model is a script"),
        "{}",
        ended.said
    );
}
