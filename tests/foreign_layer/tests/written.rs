//! What subscribers and hooks hear of layers and leaves of another author. In a process of its own:
//! a subscriber of one thread does not hear of events that another thread has met first.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use foreign_layer::{AgainLayer, Index, Shard};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, ReplaySafety, ToolCall, ToolError,
    trace::{End, TraceHooks, TraceLayer},
};

fn call(tool: &str) -> ToolCall {
    ToolCall::new(tool).with_replay_safety(ReplaySafety::Safe)
}

/// Hooks of the leaf's author read what the leaf has left; and the events of foreign layers are
/// written like ours.
#[tokio::test(start_paused = true)]
async fn hooks_and_subscribers_hear_of_foreign_layers_and_leaves() {
    #[derive(Clone)]
    struct Hooks(Arc<Mutex<Vec<Option<Shard>>>>);

    impl<Res> TraceHooks<Res> for Hooks {
        fn on_end(&self, call: &tower_toolcall::CallInfo, _: &End<'_, Res>, _: &tracing::Span) {
            let mut shard = None;
            call.record(|record| shard = record.extension::<Shard>());
            self.0.lock().unwrap().push(shard);
        }
    }

    let written = Written::default();
    let to = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || to.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let hooks = Hooks(Arc::default());
    let trace = TraceLayer::new().with_hooks(hooks.clone());
    let stack = ServiceBuilder::new().layer(trace).service(Index);
    stack.oneshot(call("index")).await.unwrap();
    assert_eq!(*hooks.0.lock().unwrap(), [Some(Shard(7))]);

    let tool = service_fn(|call: ToolCall| async move {
        match call.attempt() {
            1 | 2 => Err(ToolError::new(ErrorKind::Upstream, "503")),
            _ => Ok("done"),
        }
    });
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(AgainLayer::new(3, Duration::from_secs(1)))
        .service(tool);
    stack.oneshot(call("search")).await.unwrap();
    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let retries = written
        .lines()
        .filter(|line| line.contains("tool.retry tool=search"));
    assert_eq!(retries.count(), 2, "{written}");
    let line = "code=\"UPSTREAM_ERROR\" error=\"503\" attempt=1 delay_ms=1000.0\n";
    assert!(written.contains(line), "{written}");
    // How many there may be is in the event at DEBUG.
    assert!(written.contains("attempts=3"), "{written}");
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().map_err(|_| io::ErrorKind::Other)?;
        written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
