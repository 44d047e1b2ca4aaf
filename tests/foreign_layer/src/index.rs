//! A leaf that tells what it does.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tower::Service;
use tower_toolcall::{Progress, ToolCall, ToolError};

/// What the leaf leaves for hooks of its own author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard(pub u32);

/// Indexes documents, a minute each, with a report of progress after each. `documents` is their
/// number; `broken` makes the answer an error in the tool's own words.
#[derive(Clone, Copy, Debug)]
pub struct Index;

impl Service<ToolCall> for Index {
    type Response = String;
    type Error = ToolError;
    type Future = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        Box::pin(async move {
            call.check()?;
            let documents = call.arguments().get("documents");
            let documents = documents.and_then(|n| n.as_u64()).unwrap_or(1);
            let progress = call.progress();
            for _ in 0..documents {
                tokio::time::sleep(Duration::from_secs(60)).await;
                progress.iter().for_each(Progress::report);
            }
            let is_broken = call.arguments().contains_key("broken");
            let answer = match is_broken {
                true => "error: the index is locked".to_owned(),
                false => format!("{documents} documents"),
            };
            call.record(|record| {
                record.set_reported(is_broken);
                record.set_output_bytes(answer.len() as u64 + 2);
                record.insert_extension(Shard(7));
            });
            Ok(answer)
        })
    }
}
