//! The stack from a file and the environment.
//!
//! ```text
//! cargo run --features settings --example settings
//! TOOLCALL_TIMEOUT=5 cargo run --features settings --example settings -- my.toml
//! TOOLCALL_RETRY_BASE=soon cargo run --features settings --example settings
//! ```
//!
//! It prints what runs and why, and calls a tool. The last one ends with an error that says what to
//! write.

use std::{env, fs, process::ExitCode};

use serde::Deserialize;
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{AnyError, BoxError, ToolCall, result::ToolResultLayer, settings::Settings};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Deserialize)]
struct Weather {
    city: String,
}

async fn run() -> Result<(), BoxError> {
    let settings = read()?.with_env()?;
    println!("{}", settings.explain());

    let stack = settings.stack().build()?;
    let weather = service_fn(|call: ToolCall| async move {
        let Weather { city } = call.arguments_as()?;
        Ok::<_, AnyError>(format!("{city}: 12 degrees, clear sky"))
    });
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(stack)
        .service(weather);

    let call = ToolCall::new("weather").with_json(json!({ "city": "Oslo" }))?;
    let Ok(result) = tools.oneshot(call).await;
    println!(
        "# {} in {:?}: {:?}",
        result.status(),
        result.duration(),
        result.into_data()
    );
    Ok(())
}

/// The file whose path is given, or the one beside this program.
fn read() -> Result<Settings, BoxError> {
    let file = match env::args_os().nth(1) {
        Some(path) => fs::read_to_string(path)?,
        None => include_str!("settings.toml").to_owned(),
    };
    Ok(toml::from_str(&file)?)
}
