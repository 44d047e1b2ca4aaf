//! An agent whose payment times out although the card was charged, without the layer and with it.
//!
//! ```text
//! cargo run --example once
//! ```
//!
//! The model is played by a few lines, as real ones behave: a payment that timed out it asks for
//! again, although it reads that it should not. A text is advice; the layer is what keeps the
//! second payment from being made, and says what to do instead.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ReplaySafety, ToolCall, ToolError, once::OnceLayer, timeout::TimeoutLayer,
};

const TIMEOUT: Duration = Duration::from_millis(100);

/// How often the model asks before it gives up.
const PATIENCE: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let timeout = TimeoutLayer::new(TIMEOUT);

    println!("--- without the layer");
    let without = Bank::default();
    let stack = ServiceBuilder::new().layer(timeout.clone());
    agent(&stack.service(without.service())).await?;

    println!("\n--- with the layer");
    let with = Bank::default();
    let stack = ServiceBuilder::new().layer(OnceLayer::new()).layer(timeout);
    let tools = stack.service(with.service());
    agent(&tools).await?;

    println!("\n                           without     with");
    let (before, after) = (without.charges("17"), with.charges("17"));
    println!("charges of order 17        {before:>7}  {after:>7}");
    assert!(before == 2 && after == 1);

    println!("\n--- with it and a key of the program's, another amount is not another payment");
    let keyed = |euros| Ok::<_, ToolError>(pay("19", euros)?.with_once_key("order 19"));
    let first = ask(&tools, keyed(20)?).await;
    let other = ask(&tools, keyed(30)?).await;
    assert!(first.is_ok() && other.is_err() && with.charges("19") == 1);

    println!("\n--- with it, two calls at once, and one that comes later, share one run");
    let (first, second) = tokio::join!(ask(&tools, pay("18", 5)?), ask(&tools, pay("18", 5)?));
    let later = ask(&tools, pay("18", 5)?).await;
    println!("    charges of order 18: {}", with.charges("18"));
    assert!(first.is_ok() && first == second && second == later);
    assert_eq!(with.charges("18"), 1);
    Ok(())
}

/// The user wants order 17 to be paid.
async fn agent<S>(tools: &S) -> Result<(), BoxError>
where
    S: Service<ToolCall, Response = String, Error = ToolError> + Clone,
{
    for _ in 0..PATIENCE {
        match ask(tools, pay("17", 20)?).await {
            Ok(_) => return Ok(()),
            // What it is told to do instead it does.
            Err(text) if text.contains("find out first") => {
                // A tool that only reads is declared safe: it always runs.
                let look = ToolCall::new("charges").with_replay_safety(ReplaySafety::Safe);
                ask(tools, look.with_json(json!({ "order": "17" }))?).await?;
                return Ok(());
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// A payment as the model asks for it: each time under a new id.
fn pay(order: &str, euros: u32) -> Result<ToolCall, ToolError> {
    static IDS: AtomicU32 = AtomicU32::new(1);
    ToolCall::new("pay")
        .with_agent_id("shopper")
        .with_id(format!("call_{}", IDS.fetch_add(1, Relaxed)))
        .with_json(json!({ "order": order, "euros": euros }))
}

/// Makes a call. What the model reads: an answer, or the text of an error.
async fn ask<S>(tools: &S, call: ToolCall) -> Result<String, String>
where
    S: Service<ToolCall, Response = String, Error = ToolError> + Clone,
{
    println!("    {} {}", call.tool(), call.sanitized());
    let answer = tools.clone().oneshot(call).await;
    let answer = answer.map_err(|error| error.model_message());
    let (Ok(text) | Err(text)) = &answer;
    println!("        {text}");
    answer
}

#[derive(Deserialize)]
struct Order {
    order: String,
}

/// The orders that were charged. The answer to its first payment is lost.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Vec<String>>>);

impl Bank {
    fn charges(&self, order: &str) -> usize {
        let charged = self.0.lock().expect("nothing panics under it");
        charged.iter().filter(|charged| *charged == order).count()
    }

    fn service(
        &self,
    ) -> impl Service<ToolCall, Response = String, Error = ToolError> + Clone + use<> {
        let bank = self.clone();
        service_fn(move |call: ToolCall| {
            let bank = bank.clone();
            async move {
                let Order { order } = call.arguments_as()?;
                if call.tool() == "charges" {
                    let charges = bank.charges(&order);
                    return Ok(format!("charges of order {order}: {charges}"));
                }
                let receipt = bank.charge(&order);
                let takes = if receipt == 1 {
                    TIMEOUT * 10
                } else {
                    TIMEOUT / 10
                };
                tokio::time::sleep(takes).await;
                Ok(format!("order {order} is paid: receipt {receipt}"))
            }
        })
    }

    fn charge(&self, order: &str) -> usize {
        let mut charged = self.0.lock().expect("nothing panics under it");
        charged.push(order.to_owned());
        println!("        (the bank charges the card for order {order})");
        charged.len()
    }
}
