//! What the two adapters hold.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use example_rig::{Session, dynamic_tool, from_rig, leaf, to_rig};
use rig::{
    Agent, AgentBuilder,
    completion::{Message, ToolDefinition, message::UserContent},
    core::test_utils::{MockCompletionModel, MockTurn},
    tool::{Tool, ToolContext, ToolErrorKind, ToolExecutionError, ToolOutput, tool_definition},
};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Execution, ReplaySafety, ServiceBuilderExt as _, ToolCall,
    ToolError, retry::RetryPolicy, router::RouterBuilder,
};

/// A rig tool that fails, and counts its runs.
struct Fails(ToolExecutionError, Arc<AtomicU32>);

impl Tool for Fails {
    const NAME: &'static str = "pay";
    type Args = Value;
    type Output = String;
    type Error = ToolExecutionError;

    fn description(&self) -> String {
        "Pays".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object" })
    }

    async fn call(&self, _: &mut ToolContext, _: Value) -> Result<String, ToolExecutionError> {
        self.1.fetch_add(1, Relaxed);
        Err(self.0.clone())
    }
}

fn definition(name: &str) -> Result<ToolDefinition, BoxError> {
    let tool = json!({ "name": name, "description": "A tool", "parameters": { "type": "object" } });
    Ok(serde_json::from_value(tool)?)
}

/// An agent with one tool, whose model calls it so often, with the same arguments.
fn agent<S>(calls: usize, stack: S) -> Result<(Agent, MockCompletionModel), BoxError>
where
    S: Service<ToolCall, Response = String, Error = ToolError, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    let args = json!({ "order": 17, "password": "hunter2" });
    let call = |n| MockTurn::tool_call(format!("call_{n}"), "pay", args.clone());
    let turns = (0..calls).map(call).chain([MockTurn::text("done")]);
    let model = MockCompletionModel::from_turns(turns);
    let agent = AgentBuilder::new(model.clone())
        .dynamic_tool(dynamic_tool(definition("pay")?, stack))
        .default_max_turns(calls + 1)
        .build();
    Ok((agent, model))
}

/// What the model has read in the end: for each call whether it is an error, and the text.
fn read(model: &MockCompletionModel) -> Vec<(bool, String)> {
    let last = model.requests().pop();
    let history = last.into_iter().flat_map(|request| request.chat_history);
    let parts = history.flat_map(|message| match message {
        Message::User { content } => content,
        _ => Vec::new(),
    });
    let results = parts.filter_map(|part| match part {
        UserContent::ToolResult(result) => {
            let text = result.content.iter().filter_map(|c| c.as_text()).collect();
            Some((result.is_error, text))
        }
        _ => None,
    });
    results.collect()
}

#[tokio::test(start_paused = true)]
async fn the_model_is_offered_the_definition_and_reads_the_answer() -> Result<(), BoxError> {
    let tool = service_fn(|call: ToolCall| async move {
        Ok::<_, ToolError>(format!("order {}", call.arguments()["order"]))
    });
    let (agent, model) = agent(1, ServiceBuilder::new().tool_trace().service(tool))?;
    agent.prompt("Go.").await?;
    let requests = model.requests();
    assert_eq!(requests[0].tools, [definition("pay")?]);
    assert_eq!(read(&model), [(false, "order 17".to_owned())]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_slow_tool_is_an_error_with_our_text_for_the_model() -> Result<(), BoxError> {
    let tool = service_fn(|_| pending::<Result<String, ToolError>>());
    let stack = ServiceBuilder::new().tool_timeout(Duration::from_secs(1));
    let (agent, model) = agent(1, stack.service(tool))?;
    agent.prompt("Go.").await?;
    let [(is_error, text)] = &read(&model)[..] else {
        panic!("one result");
    };
    assert!(is_error);
    assert!(text.starts_with("Tool 'pay' timed out and may still be running."));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_repeat_guard_knows_the_session_of_the_run() -> Result<(), BoxError> {
    let runs = Arc::new(AtomicU32::new(0));
    let tool = {
        let runs = runs.clone();
        service_fn(move |_: ToolCall| {
            runs.fetch_add(1, Relaxed);
            async { Err::<String, _>(ToolError::new(ErrorKind::Reported, "no such order")) }
        })
    };
    let stack = ServiceBuilder::new().tool_repeat_guard().service(tool);
    let (agent, model) = agent(5, stack)?;
    let mut context = ToolContext::new();
    context.insert(Session("s1".to_owned()))?;
    agent.prompt("Go.").tool_context(context).await?;
    assert_eq!(runs.load(Relaxed), 3);
    assert!(read(&model)[3].1.contains("has failed 3 times in a row"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_drops_its_call() -> Result<(), BoxError> {
    struct Running(Arc<AtomicBool>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let tool = {
        let dropped = dropped.clone();
        service_fn(move |_: ToolCall| {
            let running = Running(dropped.clone());
            async move {
                let _running = running;
                pending::<Result<String, ToolError>>().await
            }
        })
    };
    let (agent, _) = agent(1, tool)?;
    let run = agent.prompt("Go.").into_future();
    assert!(
        tokio::time::timeout(Duration::from_secs(1), run)
            .await
            .is_err()
    );
    assert!(dropped.load(Relaxed));
    Ok(())
}

#[test]
fn an_error_for_rig_is_redacted_and_has_ours_as_its_source() {
    let error = ToolError::new(
        ErrorKind::ConnectionFailed,
        "no answer from https://ada:hunter2@db".to_owned(),
    );
    let error = to_rig(error);
    assert_eq!(error.kind(), ToolErrorKind::Network);
    assert!(!error.message().contains("hunter2"));
    let ours = error.downcast_ref::<ToolError>();
    assert_eq!(ours.map(ToolError::kind), Some(ErrorKind::ConnectionFailed));
}

#[test]
fn rig_may_repeat_only_what_did_not_run() {
    let timeout = ToolError::new(ErrorKind::Timeout, "late");
    assert!(timeout.is_retryable());
    assert_eq!(to_rig(timeout).retryable(), Some(false));
    let refused = ToolError::refusal(ErrorKind::Overloaded, "full");
    assert_eq!(to_rig(refused).retryable(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn several_rig_tools_go_behind_one_stack() -> Result<(), BoxError> {
    let runs = Arc::new(AtomicU32::new(0));
    let failing = |why| leaf(Fails(ToolExecutionError::other(why), runs.clone()));
    let router = RouterBuilder::<ToolOutput>::new()
        .tool("a", failing("a fails"))
        .tool("b", failing("b fails"))
        .build()?;
    for tool in ["a", "b"] {
        let tool = dynamic_tool(definition(tool)?, router.clone());
        let Err(error) = tool.execute(json!({})).await else {
            panic!("it fails");
        };
        assert_eq!(
            error.model_feedback(),
            Some(&*format!("{} fails", tool.name()))
        );
    }
    Ok(())
}

/// How often a rig tool runs under a retry layer that makes three attempts.
async fn runs(error: ToolExecutionError, replay: ReplaySafety) -> Result<u32, BoxError> {
    let runs = Arc::new(AtomicU32::new(0));
    let policy = RetryPolicy::new().with_replay_safety(move |_| replay);
    let tool = Fails(error, runs.clone());
    let definition = tool_definition(&tool);
    let stack = ServiceBuilder::new().tool_retry(policy).service(leaf(tool));
    let tool = dynamic_tool(definition, stack);
    assert!(tool.execute(json!({})).await.is_err());
    Ok(runs.load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_retryable_error_of_rig_is_not_believed_without_replay_safety() -> Result<(), BoxError> {
    for error in [
        ToolExecutionError::timeout("late").with_retryable(true),
        ToolExecutionError::rate_limited("slow down").with_retryable(true),
        ToolExecutionError::network("lost").with_retryable(true),
        ToolExecutionError::provider("down")
            .with_http_status(503)
            .with_retryable(true),
    ] {
        assert_eq!(runs(error.clone(), ReplaySafety::Unknown).await?, 1);
        assert_eq!(runs(error.clone(), ReplaySafety::Unsafe).await?, 1);
        assert_eq!(runs(error, ReplaySafety::Safe).await?, 3);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_rig_calls_not_retryable_is_not_repeated() -> Result<(), BoxError> {
    let error = ToolExecutionError::timeout("late").with_retryable(false);
    assert_eq!(runs(error, ReplaySafety::Safe).await?, 1);
    Ok(())
}

#[test]
fn of_no_error_of_rig_it_is_known_whether_the_tool_ran() {
    for kind in [
        ToolErrorKind::InvalidArgs,
        ToolErrorKind::Timeout,
        ToolErrorKind::Cancelled,
        ToolErrorKind::NotFound,
        ToolErrorKind::PermissionDenied,
        ToolErrorKind::RateLimited,
        ToolErrorKind::Provider,
        ToolErrorKind::Network,
        ToolErrorKind::Other,
    ] {
        let theirs = ToolExecutionError::new(kind, "x").with_http_status(503);
        let ours = from_rig(theirs).with_retry_after(Duration::from_secs(1));
        let proves = (ours.execution(), ours.evidence());
        assert_eq!(proves, (Execution::Unknown, Evidence::Inferred), "{kind}");
    }
}

/// It may speak of another service, or repeat a page that it read.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_a_tool_speaks_of_delays_no_other_call() {
    let error = ToolExecutionError::rate_limited("slow down");
    let tool = Fails(error, Arc::new(AtomicU32::new(0)));
    let stack = ServiceBuilder::new().tool_rate_limit().service(leaf(tool));
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        assert!(stack.clone().oneshot(ToolCall::new("pay")).await.is_err());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// What the host has set for the run, such as whose account it is.
#[tokio::test(start_paused = true)]
async fn a_rig_tool_behind_a_stack_has_the_context_of_its_run() -> Result<(), BoxError> {
    struct Whose;
    impl Tool for Whose {
        const NAME: &'static str = "whose";
        type Args = Value;
        type Output = String;
        type Error = ToolExecutionError;
        fn description(&self) -> String {
            "Says whose session it is".to_owned()
        }
        fn parameters(&self) -> Value {
            json!({ "type": "object" })
        }
        async fn call(&self, cx: &mut ToolContext, _: Value) -> Result<String, ToolExecutionError> {
            let Session(id) = cx.require().map_err(ToolExecutionError::from_error)?;
            Ok(id)
        }
    }
    let tool = dynamic_tool(tool_definition(&Whose), leaf(Whose));
    let mut context = ToolContext::new();
    context.insert(Session("s1".to_owned()))?;
    let result = tool.execute_with(&mut context, json!({})).await;
    assert_eq!(result?.render(), "s1");
    Ok(())
}

/// A rig tool's diagnostics are for operators; it has another text for the model.
#[test]
fn diagnostics_of_a_rig_tool_do_not_reach_the_model() {
    let source = std::io::Error::other("row 7 of table customers");
    let ours = from_rig(ToolExecutionError::from_error(source));
    assert!(ours.message().contains("customers"));
    assert_eq!(ours.model_message(), "the tool failed");
    let ours = from_rig(ToolExecutionError::invalid_args("city must be a string"));
    assert_eq!(ours.kind(), ErrorKind::InvalidInput);
    assert_eq!(ours.model_message(), "city must be a string");
}
