//! What is not text in an MCP server's answer, as each provider takes it.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{BoxError, ModelText, ToolCall, batch::Parallel, fit::FitLayer};
use tower_toolcall_mcp::{McpAnswer, McpClassifier};
use tower_toolcall_turn::{Format, Turn};

use crate::kit::FORMATS;

/// A picture of 90 KB in Base64.
fn png() -> String {
    format!("iVBORw0KGgo{}", "A".repeat(119_989))
}

/// A model's call of `shot`.
fn asked(format: Format) -> Turn {
    let response = match format {
        Format::OpenAiChat => json!({ "role": "assistant", "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "shot", "arguments": "{}" } },
        ] }),
        Format::OpenAiResponses => json!([
            { "type": "function_call", "call_id": "a", "name": "shot", "arguments": "{}" },
        ]),
        Format::Anthropic => json!({ "content": [
            { "type": "tool_use", "id": "a", "name": "shot", "input": {} },
        ] }),
        Format::Gemini => json!({ "role": "model", "parts": [
            { "functionCall": { "name": "shot", "args": {} } },
        ] }),
        _ => {
            json!({ "content": [{ "toolUse": { "toolUseId": "a", "name": "shot", "input": {} } }] })
        }
    };
    Turn::read(format, &response).unwrap()
}

/// What goes to the provider for an answer of an MCP server.
async fn sent(format: Format, answer: CallToolResult) -> Value {
    let shot = service_fn(move |_: ToolCall| {
        let answer = McpAnswer::from(answer.clone());
        async { Ok::<_, BoxError>(answer) }
    });
    let tools = ServiceBuilder::new()
        .layer(FitLayer::new(40_000))
        .service(shot);
    let reply = asked(format)
        .run(&Parallel::new(tools).with_classifier(McpClassifier::new()))
        .await;
    let [only] = reply.results() else {
        panic!("{reply:?}")
    };
    let result = match format {
        Format::OpenAiChat | Format::OpenAiResponses => only,
        Format::Gemini => &only["parts"][0],
        _ => &only["content"][0],
    };
    result.clone()
}

/// T-1: a picture is the provider's own block where a result may have one, and a line elsewhere.
#[tokio::test]
async fn a_picture_is_a_block_of_the_provider() {
    let png = png();
    let answer = || {
        CallToolResult::success(vec![
            ContentBlock::text("the page"),
            ContentBlock::image(&*png, "image/png"),
        ])
    };
    let line = "the page\n[image left out: image/png, 90,000 bytes]";
    let chat = sent(Format::OpenAiChat, answer()).await;
    assert_eq!(chat["content"], line);
    let responses = sent(Format::OpenAiResponses, answer()).await;
    assert_eq!(
        responses["output"],
        json!([
            { "type": "input_text", "text": "the page" },
            { "type": "input_image", "image_url": format!("data:image/png;base64,{png}") },
        ])
    );
    let anthropic = sent(Format::Anthropic, answer()).await;
    assert_eq!(
        anthropic["content"],
        json!([
            { "type": "text", "text": "the page" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": png } },
        ])
    );
    let gemini = sent(Format::Gemini, answer()).await;
    assert_eq!(
        gemini["functionResponse"],
        json!({
            "name": "shot",
            "response": { "output": "the page" },
            "parts": [{ "inlineData": { "mimeType": "image/png", "data": png } }],
        })
    );
    let bedrock = sent(Format::Bedrock, answer()).await;
    assert_eq!(
        bedrock["toolResult"]["content"],
        json!([
            { "text": "the page" },
            { "image": { "format": "png", "source": { "bytes": png } } },
        ])
    );
}

/// T-1: sounds, files, links, pictures that a provider refuses, and pictures in other places: no
/// Base64 is text.
#[tokio::test]
async fn what_is_not_text_is_a_line_in_each_format() {
    let data = "QUJD".repeat(30_000);
    let blob = |mime_type: &str| {
        ContentBlock::resource(ResourceContents::BlobResourceContents {
            uri: "file:///a".into(),
            mime_type: Some(mime_type.into()),
            blob: data.clone(),
            meta: None,
        })
    };
    let mut structured = CallToolResult::success(Vec::new());
    structured.structured_content = Some(json!({
        "title": "chart",
        "image": { "data": png(), "mimeType": "image/png" },
        "thumb": format!("data:image/jpeg;base64,{}", png()),
        "list": [png()],
    }));
    let one = |block| CallToolResult::success(vec![block]);
    let mut failed = one(ContentBlock::image(png(), "image/png"));
    failed.is_error = Some(true);
    let mut link = Resource::new("https://example.com/a.pdf", "report");
    link.mime_type = Some("application/pdf".into());
    link.size = Some(1_234);
    for (answer, line) in [
        (
            one(ContentBlock::audio(&*data, "audio/wav")),
            "[audio left out: audio/wav, 90,000 bytes]",
        ),
        (
            one(blob("application/zip")),
            "[resource left out: application/zip, 90,000 bytes]",
        ),
        (
            one(ContentBlock::image(&*data, "image/tiff")),
            "[image left out: image/tiff, 90,000 bytes]",
        ),
        (
            one(ContentBlock::image(format!("{data}\n"), "image/png")),
            "[image left out: image/png, 90,000 bytes]",
        ),
        (
            one(ContentBlock::ResourceLink(link)),
            "[link to a resource: report, application/pdf, 1234 bytes, https://example.com/a.pdf]",
        ),
        // Anthropic takes nothing but text in a failure.
        (failed, "[image left out: image/png, 90,000 bytes]"),
        (structured, "[data left out: image/png, 90,000 bytes]"),
    ] {
        for format in FORMATS {
            let text = sent(format, answer.clone()).await.to_string();
            assert!(text.contains(line), "{format:?}: {text:.300}");
            assert!(text.len() < 1_000, "{format:?}: {text:.300}");
        }
        assert!(McpAnswer::from(answer).model_text().contains(line));
    }
}

/// T-1: an embedded resource that is a picture is one.
#[tokio::test]
async fn a_picture_in_a_resource_is_a_block_too() {
    let file = ResourceContents::BlobResourceContents {
        uri: "file:///a.jpg".into(),
        mime_type: Some("image/jpeg".into()),
        blob: "/9j/AAAA".into(),
        meta: None,
    };
    let answer = CallToolResult::success(vec![ContentBlock::resource(file)]);
    let result = sent(Format::Anthropic, answer).await;
    assert_eq!(result["content"][0]["source"]["media_type"], "image/jpeg");
    assert_eq!(result["content"][0]["source"]["data"], "/9j/AAAA");
}

/// T-1: providers refuse a picture of another type than it is said to be, and each later request
/// with it.
#[tokio::test]
async fn the_type_of_a_picture_is_the_one_that_its_bytes_show() {
    let answer = CallToolResult::success(vec![ContentBlock::image("/9j/AAAA", "image/png")]);
    let result = sent(Format::Anthropic, answer).await;
    assert_eq!(result["content"][0]["source"]["media_type"], "image/jpeg");
}

/// T-1: providers refuse those as well: a page of errors, and the alphabet of URLs.
#[tokio::test]
async fn what_no_provider_reads_as_a_picture_is_a_line() {
    for data in ["PGh0bWw+", "_9j_AAAA", "/9j/AA-_"] {
        for format in FORMATS {
            let answer = CallToolResult::success(vec![ContentBlock::image(data, "image/png")]);
            let text = sent(format, answer).await.to_string();
            assert!(
                text.contains("[image left out: image/png, "),
                "{format:?}: {text}"
            );
        }
    }
}

/// T-1: pictures count, and one that does not fit is a line: no Base64 is cut.
#[tokio::test]
async fn pictures_that_do_not_fit_are_lines() {
    let blocks = (0..12).map(|_| ContentBlock::image(png(), "image/png"));
    let result = sent(Format::Anthropic, CallToolResult::success(blocks.collect())).await;
    let blocks = result["content"].as_array().unwrap();
    let pictures = blocks.iter().filter(|block| block["type"] == "image");
    assert_eq!((pictures.count(), blocks.len()), (9, 12));
    assert_eq!(
        blocks[11]["text"],
        "[image left out: image/png, 90,000 bytes]"
    );

    let huge = format!("iVBORw0KGgo{}", "A".repeat(2_999_989));
    let text = ContentBlock::text("x".repeat(30_000));
    let answer = vec![text, ContentBlock::image(huge, "image/png")];
    let result = sent(Format::Anthropic, CallToolResult::success(answer)).await;
    let text = result["content"].as_str().unwrap();
    assert!(text.ends_with("[image left out: image/png, 2,250,000 bytes]"));
    assert!(text.len() < 40_000);
}

/// T-3: a paused turn is not the model's last word, and goes on without a word of the user.
#[test]
fn a_paused_turn_is_cut_and_goes_back_as_it_is() {
    let thought = json!([
        { "type": "text", "text": "Let me look." },
        { "type": "thinking", "thinking": "..", "signature": "c2ln" },
    ]);
    // The provider's own tools cause most pauses.
    let searched = json!([
        { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } },
        { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] },
    ]);
    for content in [thought, searched] {
        goes_back_paused(&content);
    }
}

fn goes_back_paused(content: &Value) {
    let read = |reason| {
        let response = json!({ "stop_reason": reason, "content": content });
        Turn::read(Format::Anthropic, &response).unwrap()
    };
    let paused = read("pause_turn");
    assert_eq!((paused.is_cut(), paused.is_paused()), (true, true));
    let reply = paused.answer(Vec::<tower_toolcall::ToolResult<String>>::new());
    assert_eq!(reply.said()[0]["content"], *content);
    for reason in ["max_tokens", "end_turn", "refusal"] {
        assert!(!read(reason).is_paused(), "{reason}");
    }
}
