//! The capabilities of the client of a call: what a tool's server may ask it for.

use rmcp::model::{
    ClientCapabilities, ContextInclusion, ElicitRequestParams, ErrorCode, ErrorData, InputRequest,
    InputRequests, TASKS_EXTENSION_ID,
};
use serde_json::{Map, Value, json};

/// Returns the capabilities that a gateway can offer for its client.
pub(crate) fn relayed(mut can: ClientCapabilities, tasks: bool) -> ClientCapabilities {
    can.experimental = None;
    if let Some(extensions) = &mut can.extensions {
        extensions.retain(|name, _| tasks && name == TASKS_EXTENSION_ID);
    }
    can.extensions.take_if(|extensions| extensions.is_empty());
    can
}

/// Returns whether the client has declared forms. In the revision that knew only forms, an absent
/// field means forms.
pub(crate) fn has_forms(can: &ClientCapabilities) -> bool {
    let offered = can.elicitation.as_ref();
    offered.is_some_and(|offered| offered.form.is_some() || offered.url.is_none())
}

/// Checks that a client has declared all that these requests need.
///
/// # Errors
///
/// The error for the client, which names what it lacks.
pub(crate) fn check(requests: &InputRequests, can: &ClientCapabilities) -> Result<(), ErrorData> {
    let mut needed = json!({});
    for request in requests.values() {
        match request {
            InputRequest::Elicitation(asks) => {
                let by_url = matches!(
                    asks.params,
                    ElicitRequestParams::UrlElicitationParams { .. }
                );
                needed["elicitation"][if by_url { "url" } else { "form" }] = json!({});
            }
            #[expect(deprecated, reason = "servers may still ask for samples")]
            InputRequest::CreateMessage(asks) => {
                let (asks, sampling) = (&asks.params, &mut needed["sampling"]);
                if sampling.is_null() {
                    *sampling = json!({});
                }
                if asks.tools.is_some() || asks.tool_choice.is_some() {
                    sampling["tools"] = json!({});
                }
                let context = asks.include_context.as_ref();
                if context.is_some_and(|it| *it != ContextInclusion::None) {
                    sampling["context"] = json!({});
                }
            }
            _ => needed["roots"] = json!({}),
        }
    }
    missing(&needed, can).map_or(Ok(()), |missing| {
        let data = json!({ "requiredCapabilities": missing });
        let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
        Err(ErrorData::new(
            code,
            "Missing required client capability",
            Some(data),
        ))
    })
}

/// Returns whether an error of a tool's server is about capabilities that the client lacks.
pub(crate) fn is_lacking(error: &ErrorData, can: &ClientCapabilities) -> bool {
    let required = error
        .data
        .as_ref()
        .and_then(|data| data.get("requiredCapabilities"));
    required.is_some_and(|required| missing(required, can).is_some())
}

fn missing(needed: &Value, can: &ClientCapabilities) -> Option<Value> {
    let mut declared = json!(can);
    if has_forms(can) {
        declared["elicitation"]["form"] = json!({});
    }
    without(needed, &declared)
}

/// Returns the members of an object that another one does not have.
fn without(needed: &Value, declared: &Value) -> Option<Value> {
    let Some(declared) = declared.as_object() else {
        return Some(needed.clone());
    };
    let left = |(name, needed): (&String, &Value)| match declared.get(name) {
        Some(declared) => Some((name.clone(), without(needed, declared)?)),
        None => Some((name.clone(), needed.clone())),
    };
    let left: Map<_, _> = needed.as_object()?.iter().filter_map(left).collect();
    (!left.is_empty()).then(|| left.into())
}
