//! A server with the tools of the conformance suite, as its descriptions have them.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorData,
        InputRequiredResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
        ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::sleep;

const NAMES: [&str; 21] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_logging_tool",
    "test_missing_capability",
    "test_streaming_elicitation",
];

pub(super) fn tools() -> Vec<Tool> {
    let schema = json!({ "type": "object" }).as_object().cloned().unwrap();
    let schema = Arc::new(schema);
    let tool = |name| {
        Tool::new(
            name,
            "A tool of the conformance suite.",
            Arc::clone(&schema),
        )
    };
    NAMES.map(tool).into()
}

#[derive(Clone)]
pub(super) struct Fixture;

/// One pixel, and no sound.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

fn content(blocks: Value) -> Result<CallToolResponse, ErrorData> {
    let result: CallToolResult = serde_json::from_value(json!({ "content": blocks })).unwrap();
    Ok(result.into())
}

fn text(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    content(json!([{ "type": "text", "text": text.into() }]))
}

fn asks(requests: Value, state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    let result: InputRequiredResult = serde_json::from_value(result).unwrap();
    Ok(CallToolResponse::InputRequired(result))
}

/// A question to the user, for one property.
fn question(message: &str, property: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { property: { "type": kind } }, "required": [property] });
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
}

fn prompt(text: &str) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

async fn run(
    params: CallToolRequestParams,
    cx: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": "test://embedded-resource", "mimeType": kind, "text": text } });
    let given = params.input_responses.as_ref().map(|given| json!(given));
    let given = |name: &str| given.as_ref().and_then(|given| given.get(name).cloned());
    let state = params.request_state.as_deref();
    match &*params.name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => content(json!([image])),
        "test_audio_content" => {
            content(json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]))
        }
        "test_embedded_resource" => content(json!([resource(
            "text/plain",
            "This is an embedded resource content."
        )])),
        "test_multiple_content_types" => content(json!([
            { "type": "text", "text": "Multiple content types test:" },
            image,
            resource("application/json", r#"{"test":"data","value":123}"#),
        ])),
        "test_error_handling" => {
            let said = "This tool intentionally returns an error for testing";
            let result = json!({ "isError": true, "content": [{ "type": "text", "text": said }] });
            let result: CallToolResult = serde_json::from_value(result).unwrap();
            Ok(result.into())
        }
        "test_tool_with_progress" => {
            for step in [0.0, 50.0, 100.0] {
                if let Some(token) = cx.meta.get_progress_token() {
                    let told = ProgressNotificationParam::new(token, step).with_total(100.0);
                    let _ = cx.peer.notify_progress(told).await;
                }
                sleep(Duration::from_millis(150)).await;
            }
            text("done")
        }
        // It has nothing to log unless it is asked to.
        "test_logging_tool" => text("done"),
        // What the gateway's client has declared.
        "test_input_required_result_capabilities" => {
            let can = cx.client_capabilities().unwrap_or_default();
            let mut requests = json!({});
            if can.elicitation.is_some() {
                requests["user_name"] = question("What is your name?", "name", "string");
            }
            if can.sampling.is_some() {
                requests["greeting"] = prompt("Generate a greeting");
            }
            asks(requests, None)
        }
        "test_missing_capability" => {
            let can = cx.client_capabilities().unwrap_or_default();
            let mut needs = ClientCapabilities::default();
            needs.sampling = Some(Default::default());
            match can.sampling {
                Some(_) => text("done"),
                None => Err(ErrorData::missing_required_client_capability(needs)),
            }
        }
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            let name = given("user_name")
                .and_then(|user| user["content"]["name"].as_str().map(str::to_owned));
            match name {
                Some(name) => text(format!("Hello, {name}!")),
                None => asks(
                    json!({ "user_name": question("What is your name?", "name", "string") }),
                    None,
                ),
            }
        }
        "test_input_required_result_sampling" => match given("capital_question") {
            Some(answer) => text(answer.to_string()),
            None => asks(
                json!({ "capital_question": prompt("What is the capital of France?") }),
                None,
            ),
        },
        "test_input_required_result_list_roots" => match given("client_roots") {
            Some(answer) => text(answer.to_string()),
            None => asks(json!({ "client_roots": roots() }), None),
        },
        "test_input_required_result_request_state" => match (given("confirm"), state) {
            (Some(_), Some("state")) => text("state-ok"),
            _ => asks(
                json!({ "confirm": question("Please confirm", "ok", "boolean") }),
                Some("state"),
            ),
        },
        "test_input_required_result_multiple_inputs" => {
            let all = [given("user_name"), given("greeting"), given("client_roots")];
            match (all, state) {
                ([Some(_), Some(_), Some(_)], Some("state")) => text("done"),
                _ => asks(
                    json!({
                        "user_name": question("What is your name?", "name", "string"),
                        "greeting": prompt("Generate a greeting"),
                        "client_roots": roots(),
                    }),
                    Some("state"),
                ),
            }
        }
        "test_input_required_result_multi_round" => match (given("step1"), given("step2"), state) {
            (_, Some(_), Some("round-2")) => text("done"),
            (Some(_), _, Some("round-1")) => asks(
                json!({ "step2": question("Step 2: What is your favorite color?", "color", "string") }),
                Some("round-2"),
            ),
            _ => asks(
                json!({ "step1": question("Step 1: What is your name?", "name", "string") }),
                Some("round-1"),
            ),
        },
        "test_input_required_result_tampered_state" => match state {
            Some("sealed") => text("done"),
            Some(_) => Err(ErrorData::invalid_params(
                "the state was tampered with",
                None,
            )),
            None => asks(
                json!({ "confirm": question("Please confirm", "ok", "boolean") }),
                Some("sealed"),
            ),
        },
        _ => Err(ErrorData::invalid_params(
            "not without a client that can be asked",
            None,
        )),
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        run(params, cx).await
    }
}
