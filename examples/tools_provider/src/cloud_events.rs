//! The transitions of a circuit breaker as CloudEvents 1.0, for whatever bus there is.

use std::time::SystemTime;

use serde_json::{Value, json};
use tower_toolcall::circuit_breaker::{Transition, Transitions};

/// Prints each as it comes. Here would be a request to a broker: the stream waits for nobody, and
/// who is too slow is told how many he has missed.
pub(crate) fn print(mut transitions: Transitions) {
    tokio::spawn(async move {
        while let Some(transition) = transitions.next().await {
            match transition {
                Ok(transition) => println!("        event: {}", cloud_event(&transition)),
                Err(lagged) => println!("        event: {lagged}"),
            }
        }
    });
}

/// Of a breaker that is no server's and no tool's, the subject is `default`.
pub(crate) fn cloud_event(transition: &Transition) -> Value {
    let key = transition.server.as_deref().or(transition.tool.as_deref());
    let key = key.unwrap_or("default");
    json!({
        "specversion": "1.0",
        "type": format!("dev.tools.circuit_breaker.{}", transition.to),
        "source": "/tools-provider/circuit-breakers",
        "subject": key,
        "id": format!("{key}-{}", transition.generation),
        "time": now(),
        "datacontenttype": "application/json",
        "data": transition,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "an event has a time that other machines understand"
)]
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
