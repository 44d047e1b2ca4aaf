//! An agent wants to delete files, and a person at the terminal is asked first.
//!
//! ```text
//! cargo run --example approval
//! ```
//!
//! Where the input is no terminal, a script answers.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex as Turn;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ServiceBuilderExt, ToolCall, ToolError,
    policy::{Approval, ApprovalDecision, PolicyLayer, Rule},
    retry::RetryPolicy,
};

/// What a person says where there is none.
const SCRIPT: [&str; 4] = ["y", "show", "only below /tmp, please", "y"];

/// Answers, from the terminal or from the script, one question at a time.
#[derive(Clone)]
struct Person {
    turn: Arc<Turn<()>>,
    script: Option<Arc<Mutex<VecDeque<&'static str>>>>,
}

impl Person {
    fn new() -> Self {
        let is_there = io::stdin().is_terminal();
        let script = (!is_there).then(|| Arc::new(Mutex::new(SCRIPT.into())));
        let turn = Arc::default();
        Self { turn, script }
    }

    async fn approve(self, approval: Approval) -> Result<ApprovalDecision, ToolError> {
        let _turn = self.turn.lock().await;
        println!("\n  The {approval}.");
        if !approval.is_shown_in_full() {
            println!("  Not all of it is shown: `show` shows it.");
        }
        loop {
            let answer = self
                .answer("  Allow it? [y / n / show / a reason] ")
                .await?;
            match answer.trim() {
                "y" | "yes" => return Ok(approval.approve()),
                "" | "n" | "no" => return Ok(approval.deny("")),
                // As JSON, with escapes for whatever a terminal would obey.
                "show" => println!(
                    "  {:?}",
                    Value::from(approval.arguments_in_full().clone()).to_string()
                ),
                reason => return Ok(approval.deny(reason)),
            }
        }
    }

    async fn answer(&self, question: &str) -> io::Result<String> {
        print!("{question}");
        io::stdout().flush()?;
        if let Some(script) = &self.script {
            // Without an answer left: no.
            let answer = script.lock().expect("not poisoned").pop_front();
            let answer = answer.unwrap_or_default();
            println!("{answer}");
            return Ok(answer.to_owned());
        }
        // A call that is given up leaves a thread behind that reads the next line, whose answer
        // then is nobody's. A program with a prompt of its own reads lines in one place, and hands
        // them to the question that is open.
        let read = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().read_line(&mut line).map(|_| line)
        });
        read.await?
    }
}

#[derive(Deserialize)]
struct Delete {
    path: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let person = Person::new();
    let policy = PolicyLayer::new()
        .allow("list_files")
        .rule(Rule::ask("delete_file").because("what is deleted is gone"))
        .deny_by_default()
        .with_approver(service_fn(move |approval| person.clone().approve(approval)))
        .with_approval_timeout(Duration::from_secs(60))?;
    policy.check()?;

    let tool = service_fn(|call: ToolCall| async move {
        Ok::<_, BoxError>(match call.tool() {
            "list_files" => "report.txt, notes.txt".to_owned(),
            _ => format!("deleted {}", call.arguments_as::<Delete>()?.path),
        })
    });
    let tools = ServiceBuilder::new()
        .tool_policy(policy)
        // The time in which the person thinks is not the tools'.
        .tool_deadline(Duration::from_secs(10))
        .tool_retry(RetryPolicy::new())
        .tool_timeout(Duration::from_secs(5))
        .tool(tool);

    let long = "x".repeat(300) + "/../../etc";
    for (tool, arguments) in [
        ("list_files", json!({})),
        ("delete_file", json!({ "path": "/tmp/report.txt" })),
        ("delete_file", json!({ "path": long })),
        ("delete_file", json!({ "path": "/tmp/notes.txt" })),
        ("format_disk", json!({ "disk": 0 })),
    ] {
        let call = ToolCall::new(tool)
            .with_agent_id("janitor")
            .with_json(arguments)?;
        match tools.clone().oneshot(call).await {
            Ok(answer) => println!("{tool}: {answer}"),
            Err(error) => println!("{tool}: {}\n  ({error})", error.model_message()),
        }
    }
    Ok(())
}
