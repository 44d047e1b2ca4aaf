//! The capabilities of the client of a call: what a tool's server may ask it for.

use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitationCapability, ErrorData,
    FormElicitationCapability, InputRequest, InputRequests, RootsCapabilities, SamplingCapability,
    TASKS_EXTENSION_ID, UrlElicitationCapability,
};

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

/// Returns the capabilities that a client needs to answer these requests.
pub(crate) fn needed(requests: &InputRequests) -> ClientCapabilities {
    let mut needed = ClientCapabilities::default();
    for request in requests.values() {
        match request {
            InputRequest::Elicitation(asks) => {
                let elicitation = needed.elicitation.get_or_insert_default();
                match &asks.params {
                    ElicitRequestParams::UrlElicitationParams { .. } => {
                        elicitation.url = Some(UrlElicitationCapability::new());
                    }
                    _ => elicitation.form = Some(FormElicitationCapability::new()),
                }
            }
            #[expect(deprecated, reason = "servers may still ask for samples")]
            InputRequest::CreateMessage(asks) => {
                let sampling: &mut SamplingCapability = needed.sampling.get_or_insert_default();
                if asks.params.tools.is_some() || asks.params.tool_choice.is_some() {
                    sampling.tools = Some(Default::default());
                }
            }
            _ => needed.roots = Some(RootsCapabilities::default()),
        }
    }
    needed
}

/// Returns those of the needed capabilities that the client has not declared, if there are any.
pub(crate) fn missing(
    mut needed: ClientCapabilities,
    can: &ClientCapabilities,
) -> Option<ClientCapabilities> {
    if let Some(needs) = &mut needed.elicitation {
        if *needs == ElicitationCapability::default() {
            needs.form = Some(FormElicitationCapability::new());
        }
        needs.form.take_if(|_| has_forms(can));
        let url = can.elicitation.as_ref().and_then(|can| can.url.as_ref());
        needs.url.take_if(|_| url.is_some());
    }
    let declared = can.sampling.as_ref();
    let has = |needs: &SamplingCapability| {
        declared.is_some_and(|can| needs.tools.is_none() || can.tools.is_some())
    };
    needed
        .elicitation
        .take_if(|needs| *needs == ElicitationCapability::default());
    needed.sampling.take_if(|needs| has(needs));
    needed.roots.take_if(|_| can.roots.is_some());
    if let Some(needs) = &mut needed.extensions {
        let declared = |name: &String| can.extensions.iter().any(|can| can.contains_key(name));
        needs.retain(|name, _| !declared(name));
    }
    needed.extensions.take_if(|needs| needs.is_empty());
    (needed != ClientCapabilities::default()).then_some(needed)
}

/// Returns whether an error of a tool's server is about capabilities that the client lacks.
pub(crate) fn is_lacking(error: &ErrorData, can: &ClientCapabilities) -> bool {
    let required = error
        .data
        .as_ref()
        .and_then(|data| data.get("requiredCapabilities"));
    let required = required.and_then(|required| serde_json::from_value(required.clone()).ok());
    required.is_some_and(|required| missing(required, can).is_some())
}
