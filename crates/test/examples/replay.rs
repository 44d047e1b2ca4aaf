//! Writes down what a tool answers, and gives the same answers without the tool.
//!
//! ```sh
//! cargo run -p tower-toolcall-test --example replay
//! ```

use serde_json::json;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{AnyError, ToolCall};
use tower_toolcall_test::{Capture, Replay};

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let real = service_fn(|call: ToolCall| async move {
        Ok::<_, AnyError>(json!({ "city": call.arguments()["city"], "degrees": 12 }))
    });
    let weather =
        |city| ToolCall::new("weather").with_json(json!({ "city": city, "api_key": "s3cr3t" }));

    let capture = Capture::new();
    let tools = ServiceBuilder::new().layer(capture.layer()).service(real);
    tools.oneshot(weather("Oslo")?).await?;
    let lines = capture.lines(); // a test keeps them in a file
    print!("captured:\n{lines}");

    let replay = Replay::from_lines(&lines)?;
    let answer = replay.clone().oneshot(weather("Oslo")?).await?;
    println!("replayed: {answer}");
    if let Err(error) = replay.oneshot(weather("Rome")?).await {
        println!("refused:  {error}");
    }
    Ok(())
}
