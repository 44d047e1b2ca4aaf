//! Tools with a character of their own each, and agents who call them.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::{Service, ServiceExt};
use tower_toolcall::{ErrorKind, ReplaySafety, ToolCall, ToolError};

/// A number from 0 to 1, another one each time.
fn chance() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// About `ms` milliseconds; now and then much more, as real tools do.
fn about(ms: f64) -> Duration {
    let tail = (1.0 - chance()).ln().abs();
    Duration::from_secs_f64(ms * (0.6 + 0.5 * tail) / 1e3)
}

/// Runs a tool.
pub(crate) async fn run(call: ToolCall, start: Instant) -> Result<Value, ToolError> {
    let answer = json!({ "tool": call.tool(), "session": "s3cr3t is redacted", "rows": [1, 2, 3] });
    match call.tool() {
        "search" => sleep(about(25.0)).await,
        "read_file" => sleep(about(4.0)).await,
        "summarise" => sleep(about(350.0)).await,
        // Asks for patience now and then: then all callers wait, and return one by one.
        "weather" if chance() < 0.005 => {
            let error = ToolError::new(ErrorKind::RateLimited, "429 Too Many Requests");
            return Err(error.with_retry_after(Duration::from_millis(500)));
        }
        "weather" => sleep(about(60.0)).await,
        // Fails now and then, and may not be sent twice.
        "pay" => {
            sleep(about(90.0)).await;
            if chance() < 0.05 {
                return Err(ToolError::new(
                    ErrorKind::Upstream,
                    "503 from ?api_key=s3cr3t",
                ));
            }
        }
        // Out of order for 12 s of every 30.
        "legacy" => {
            sleep(about(30.0)).await;
            if start.elapsed().as_secs() % 30 >= 18 {
                return Err(ToolError::new(
                    ErrorKind::ConnectionFailed,
                    "connection refused",
                ));
            }
        }
        "import" => sleep(about(900.0)).await,
        "buggy" if chance() < 0.3 => panic!("index out of bounds"),
        "buggy" => sleep(about(10.0)).await,
        _ => return Err(ToolError::new(ErrorKind::NotFound, "no such tool")),
    }
    Ok(answer)
}

/// One agent: calls tool after tool, for ever.
pub(crate) async fn agent<S>(tools: S)
where
    S: Service<ToolCall, Response = Value, Error = ToolError> + Clone,
{
    for turn in 1_u64.. {
        let call = call(turn);
        // One caller in fifty loses patience.
        let patience = match chance() {
            c if c < 0.02 => Duration::from_millis(15),
            _ => Duration::from_secs(60),
        };
        let _ = timeout(patience, tools.clone().oneshot(call)).await;
        sleep(about(40.0)).await;
    }
}

fn call(turn: u64) -> ToolCall {
    let (tool, server) = match (chance() * 100.0) as u32 {
        0..25 => ("search", "docs"),
        25..45 => ("read_file", "files"),
        45..55 => ("summarise", "docs"),
        55..70 => ("weather", "met"),
        70..78 => ("pay", "bank"),
        78..90 => ("legacy", "erp"),
        90..94 => ("import", "erp"),
        94..97 => ("buggy", "files"),
        _ => return ToolCall::new(format!("invented_{turn}")).with_server("docs"),
    };
    let safety = match tool {
        "pay" => ReplaySafety::Unsafe,
        _ => ReplaySafety::Safe,
    };
    ToolCall::new(tool)
        .with_server(server)
        .with_id(format!("call_{turn}"))
        .with_session_id("session-7")
        .with_json(json!({ "query": "tower", "password": "hunter2" }))
        .expect("an object")
        .with_replay_safety(safety)
}
