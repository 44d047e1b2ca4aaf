//! The program in a process of its own, and a server that plays a provider.

use std::{
    env,
    process::ExitCode,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, StatusCode},
};
use serde_json::Value;
use tokio::{net::TcpListener, process::Command};

/// A key that no output may have.
pub(crate) const KEY: &str = "sk-invented-0123456789";

const WORDS: &str = "AGENT_EXAMPLE_WORDS";

const VARIABLES: [&str; 7] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AGENT_URL",
    "AGENT_MODEL",
    "AWS_REGION",
];

/// How the program has ended, and all that it has printed.
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) said: String,
}

/// Runs the program with these words and variables.
pub(crate) async fn run(words: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "kit::the_program", "--nocapture"]);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).env(WORDS, words);
    let output = command.kill_on_drop(true).output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    Ended {
        is_success: output.status.success(),
        said: out + &err,
    }
}

/// What `run` starts; without words, nothing.
#[test]
fn the_program() {
    let Ok(words) = env::var(WORDS) else { return };
    let words = words.split_whitespace().map(str::to_owned);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(crate::agent::main(words));
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

/// A request as the server got it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A server that gives these answers, and the last one again and again.
pub(crate) struct Played {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Played {
    pub(crate) async fn start(answers: Vec<(u16, String)>) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let list = Arc::clone(&asked);
        let answer = move |request: Request| {
            let (list, answers) = (Arc::clone(&list), answers.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                let mut list = list.lock().unwrap();
                list.push(Asked {
                    path: parts.uri.path().to_owned(),
                    headers: parts.headers,
                    body: serde_json::from_slice(&body).unwrap(),
                });
                let (status, text) = &answers[(list.len() - 1).min(answers.len() - 1)];
                (StatusCode::from_u16(*status).unwrap(), text.clone())
            }
        };
        let app = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}
