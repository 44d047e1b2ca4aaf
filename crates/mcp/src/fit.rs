//! MCP's results, shortened for a model.

use std::borrow::Cow;

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;
use tower_toolcall::{
    answer::{ModelText, without_data},
    error::AnyError,
    fit::{Cut, Shorten},
};

use super::answer::{McpAnswer, image, json, part, text_of};

/// The most characters that an image counts as, beside those that its bytes make more: about 1,000
/// units of a model.
const IMAGE: usize = 4_000;

/// How many characters are kept for the line of each image that may not fit.
const LINE: usize = 120;

/// Text blocks, and the texts of embedded resources, are cut as one text.
///
/// An image counts as 4,000 characters, or as a 50th of its Base64 if that is more. Images that do
/// not fit beside the texts, or half of them, become a line each. Other blocks pass, and do not
/// count.
///
/// Structured content has the same limit, and shares it with a text that does not carry the same.
/// If it is too long, data in Base64 in it become lines. If it is too long then, it is dropped
/// where the text carries the same, and the mark says so; otherwise the result cannot be shortened.
/// If it is short enough, it takes the place of a text that carries the same and is too long.
///
/// Clients that hold servers to the output schema of a tool may refuse a result without structured
/// content.
///
/// An answer that asks for input or names a task always fits.
impl Shorten for McpAnswer {
    fn fits(&self, max_chars: usize) -> bool {
        self.result().is_none_or(|result| fits(result, max_chars))
    }

    fn whole(&self) -> Cow<'_, str> {
        let Some(result) = self.result() else {
            return json(self);
        };
        let structured = result.structured_content.as_ref();
        let has_data = structured.is_some_and(|json| without_data(json).is_some());
        match has_data || result.content.iter().any(|block| text(block).is_none()) {
            true => json(result),
            false => text_of(result),
        }
    }

    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
        self.result_mut()
            .map_or(Ok(()), |result| shorten(result, cut))
    }
}

fn fits(result: &CallToolResult, max_chars: usize) -> bool {
    let images = result.content.iter().filter_map(image).map(cost).sum();
    let Some(mut left) = max_chars.checked_sub(images) else {
        return false;
    };
    for (i, text) in result.content.iter().filter_map(text).enumerate() {
        let chars = usize::from(i > 0) + text.chars().count();
        match left.checked_sub(chars) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    let structured = result.structured_content.as_ref();
    structured.is_none_or(|json| {
        let is_carried = || json.fits(max_chars) && carries(&result.content, json);
        json.fits(left.saturating_sub(1)) || is_carried()
    })
}

fn shorten(result: &mut CallToolResult, cut: &Cut) -> Result<(), AnyError> {
    let (mut cut, mut room) = (cut.clone(), cut.max_chars());
    let carried = result.structured_content.as_ref();
    let carried = carried.is_some_and(|json| carries(&result.content, json));
    if let Some(json) = result
        .structured_content
        .as_mut()
        .filter(|json| !json.fits(room))
        && let Some(lines) = without_data(json)
    {
        *json = lines;
    }
    let structured = result.structured_content.as_ref();
    let found = structured.map(|json| (json.fits(room), carried));
    let mut texts: Vec<_> = result.content.iter_mut().filter_map(text_mut).collect();
    match (structured, found) {
        (_, Some((false, false))) => {
            return Err("its structured content is in no text block".into());
        }
        (_, Some((false, true))) => {
            result.structured_content = None;
            cut = cut.with_missing("the structured content");
        }
        // Its compact form lacks nothing.
        (Some(json), Some((true, true))) => {
            texts.iter_mut().for_each(|text| text.clear());
            if let Some(first) = texts.first_mut() {
                **first = json.model_text().into_owned();
            }
        }
        // The model reads both.
        (Some(json), _) => {
            let chars = json.model_text().chars().count();
            room = room.saturating_sub(chars + usize::from(!texts.is_empty()));
        }
        _ => {}
    }
    let texts = result.content.iter().filter_map(text);
    let chars: usize = texts.map(|text| text.chars().count() + 1).sum();
    let images = keep_images(&mut result.content, room - chars.min(room / 2));
    let mut texts: Vec<_> = result.content.iter_mut().filter_map(text_mut).collect();
    cut.texts_within(room - images, &mut texts);
    result
        .content
        .retain(|block| text(block).is_none_or(|text| !text.is_empty()));
    Ok(())
}

/// Keeps the images for which there is room, from the first one on, and makes lines of the others.
/// Returns what the kept ones cost.
fn keep_images(content: &mut [ContentBlock], room: usize) -> usize {
    let (mut left, mut kept) = (room, 0);
    let mut after = content.iter().filter_map(image).count();
    for block in content {
        let Some(cost) = image(block).map(cost) else {
            continue;
        };
        after -= 1;
        if left >= cost + after * LINE {
            (left, kept) = (left - cost, kept + cost);
        } else {
            left = left.saturating_sub(LINE);
            *block = ContentBlock::text(part(block).into_text());
        }
    }
    kept
}

/// How many characters an image counts as.
fn cost((_, base64): (&str, &str)) -> usize {
    IMAGE.max(base64.len() / 50)
}

fn text(block: &ContentBlock) -> Option<&String> {
    match block {
        ContentBlock::Text(block) => Some(&block.text),
        ContentBlock::Resource(block) => match &block.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn text_mut(block: &mut ContentBlock) -> Option<&mut String> {
    match block {
        ContentBlock::Text(block) => Some(&mut block.text),
        ContentBlock::Resource(block) => match &mut block.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether the texts say what the structured content says: one of them as JSON; or
/// FastMCP's `{"result": ..}`, which wraps other values than objects, as a text, or as a list with
/// a text for each item.
pub(super) fn carries(content: &[ContentBlock], structured: &Value) -> bool {
    let texts: Vec<_> = content.iter().filter_map(text).collect();
    let any = |json| texts.iter().any(|text| is(text, json));
    let wrapped = structured.as_object().filter(|object| object.len() == 1);
    let wrapped = wrapped.and_then(|object| object.get("result"));
    any(structured)
        || wrapped.is_some_and(|result| {
            let each = |items: &Vec<Value>| {
                items.len() == texts.len() && texts.iter().zip(items).all(|(t, item)| is(t, item))
            };
            any(result) || result.as_array().is_some_and(each)
        })
}

fn is(text: &str, json: &Value) -> bool {
    match json.as_str() {
        Some(string) if string == text => true,
        _ => serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *json),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    use super::*;
    use tower_toolcall::{BoxError, ErrorKind, ToolCall, ToolError, fit::FitLayer};

    async fn fit(result: CallToolResult, max: usize) -> Result<CallToolResult, ToolError> {
        let tool = service_fn(move |_: ToolCall| {
            let answer = McpAnswer::from(result.clone());
            async { Ok::<_, BoxError>(answer) }
        });
        let tools = ServiceBuilder::new()
            .layer(FitLayer::new(max))
            .service(tool);
        let answer = tools.oneshot(ToolCall::new("t")).await?;
        Ok(answer.result().cloned().unwrap())
    }

    fn blocks(texts: &[&str]) -> Vec<ContentBlock> {
        texts.iter().map(|text| ContentBlock::text(*text)).collect()
    }

    fn texts(result: &CallToolResult) -> Vec<&str> {
        let texts = result.content.iter().filter_map(text);
        texts.map(String::as_str).collect()
    }

    #[tokio::test]
    async fn text_blocks_are_cut_as_one_text() {
        let long = "x".repeat(200);
        let result = CallToolResult::error(blocks(&["first", &long, &long, &long, "last"]));
        let short = fit(result.clone(), 300).await.unwrap();
        let [first, second, last @ ..] = &*texts(&short) else {
            panic!("{short:?}")
        };
        assert_eq!(*first, "first");
        assert!(second.contains("x\n[... 3"), "{second}");
        assert_eq!(last.last(), Some(&"last"));
        assert!(text_of(&short).chars().count() <= 300);
        assert_eq!(short.is_error, Some(true));
        // Five blocks are joined by four line feeds.
        let whole = 5 + 600 + 4 + 4;
        assert_eq!(fit(result.clone(), whole).await.unwrap(), result);
        assert_ne!(fit(result.clone(), whole - 1).await.unwrap(), result);
    }

    #[tokio::test]
    async fn other_blocks_pass_and_embedded_text_is_cut() {
        let sound = ContentBlock::audio("aGk=".repeat(1_000), "audio/wav");
        let file = ResourceContents::text("x".repeat(1_000), "file:///log");
        let content = vec![sound.clone(), ContentBlock::resource(file)];
        let short = fit(CallToolResult::success(content), 200).await.unwrap();
        assert_eq!(short.content[0], sound);
        assert!(texts(&short)[0].contains(" of 1,000 characters left out"));
        assert!(texts(&short)[0].len() <= 200);
    }

    /// As Python servers write it, and those that are built with our router.
    #[tokio::test]
    async fn structured_content_is_dropped_if_a_text_carries_the_same() {
        let long = "x".repeat(1_000);
        for (structured, content) in [
            (
                json!({ "a": [long] }),
                vec![serde_json::to_string_pretty(&json!({ "a": [long] })).unwrap()],
            ),
            (json!({ "result": long }), vec![long.clone()]),
            (
                json!({ "result": [long, 1] }),
                vec![long.clone(), "1".to_owned()],
            ),
            (json!({ "result": [long] }), vec![json!([long]).to_string()]),
        ] {
            let content = content.iter().map(ContentBlock::text);
            let mut result = CallToolResult::success(content.collect());
            result.structured_content = Some(structured);
            let short = fit(result, 300).await.unwrap();
            assert_eq!(short.structured_content, None);
            let mark = "characters left out, and the structured content; ask for less]";
            assert!(text_of(&short).contains(mark), "{short:?}");
            assert!(text_of(&short).len() <= 300);
        }
    }

    #[tokio::test]
    async fn structured_content_that_is_in_no_text_cannot_be_shortened() {
        for content in [vec![], blocks(&["see the structured content"])] {
            let mut result = CallToolResult::success(content);
            result.structured_content = Some(json!({ "result": "x".repeat(1_000) }));
            let error = fit(result, 300).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reported);
            assert!(error.message().contains("in no text block"), "{error}");
        }
    }

    /// The shortened result lacks nothing else.
    #[test]
    fn the_whole_of_a_result_lacks_nothing() {
        let whole = |structured| {
            let mut result = CallToolResult::success(blocks(&["see the graph"]));
            result.structured_content = structured;
            McpAnswer::from(result).whole().into_owned()
        };
        assert_eq!(whole(None), "see the graph");
        let carried = json!({ "result": "see the graph" });
        assert_eq!(whole(Some(carried)), "see the graph");
        let both = whole(Some(json!({ "nodes": [1] })));
        assert!(both.contains(r#"{"nodes":[1]}"#));
        assert!(both.contains("see the graph"));
    }

    /// A client reads one or the other.
    #[tokio::test]
    async fn short_structured_content_stays_beside_a_text_that_is_cut() {
        let mut result = CallToolResult::success(blocks(&[&"x".repeat(1_000)]));
        result.structured_content = Some(json!({ "rows": 1_000 }));
        let short = fit(result.clone(), 300).await.unwrap();
        assert_eq!(short.structured_content, result.structured_content);
        assert!(texts(&short)[0].contains("characters left out; ask"));
    }
}
