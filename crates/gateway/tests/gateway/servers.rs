//! The servers that a command line names.

use std::{env, fs, process::Stdio, time::Duration};

use rmcp::{
    RoleClient, ServiceExt as _, model::CallToolRequestParams, service::RunningService,
    transport::StreamableHttpClientTransport,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{sleep, timeout},
};

use crate::{
    kit::{LIMIT, beside},
    upstream::installed,
};

/// The program, whose log is read.
pub(crate) struct Program {
    pub(crate) child: Child,
    log: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(servers: &[&str]) -> Self {
        let mut command = Self::command();
        command.args(servers.iter().flat_map(|server| ["--server", server]));
        Self::of(command)
    }

    pub(crate) fn command() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.args(["--port", "0"]).env("NO_COLOR", "1");
        command
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.env("PYTHONPATH", installed("mcp-servers-python").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, log }
    }

    /// Returns the next line of the log that has these words.
    pub(crate) async fn line(&mut self, words: &str) -> String {
        let line = async {
            loop {
                let line = self.log.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("no line has {words:?}"));
                if line.contains(words) {
                    return line;
                }
            }
        };
        let line = timeout(LIMIT, line).await;
        line.unwrap_or_else(|_| panic!("no line has {words:?}"))
    }

    /// Waits until it serves. Returns the address of `/mcp`.
    pub(crate) async fn url(&mut self) -> String {
        let line = self.line("/mcp ").await;
        line.split_whitespace().next().unwrap().to_owned()
    }

    pub(crate) async fn client(&mut self) -> RunningService<RoleClient, ()> {
        let url = self.url().await;
        ().serve(StreamableHttpClientTransport::from_uri(url))
            .await
            .unwrap()
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names
//# The server `name` (from `serverInfo`) is not guaranteed to be unique across servers and SHOULD
//# NOT be relied upon for disambiguation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_the_command_line_are_offered_instead_of_those_of_the_tests() {
    let _beside = beside().await;
    let folder = env::temp_dir().join(format!("gateway \'servers\' {}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
    let copy = folder.join("a server.py");
    fs::copy(script, &copy).unwrap();
    let own = format!("own=python3 \"{}\"", copy.display());
    let time = "time=env TZ=UTC python3 -m mcp_server_time --local-timezone=UTC";
    let mut program = Program::start(&[&own, time]);
    let client = program.client().await;

    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    let is_named = |name: &&str| name.starts_with("own__") || name.starts_with("time__");
    assert!(names.iter().all(is_named), "{names:?}");
    for (tool, arguments, said) in [
        ("own__echo", json!({ "message": "hello" }), "hello"),
        (
            "time__get_current_time",
            json!({ "timezone": "UTC" }),
            "+00:00",
        ),
    ] {
        let arguments = arguments.as_object().unwrap().clone();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = client.call_tool(params).await.unwrap();
        let text = &result.content[0].as_text().unwrap().text;
        assert!(text.contains(said), "{tool}: {text}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// `npx` and the like run a server as a child of theirs, and so does a shell.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_a_launcher_ends_with_the_gateway() {
    let _beside = beside().await;
    let folder = env::temp_dir().join(format!("gateway-launcher-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
    let copy = folder.join("server.py");
    fs::copy(script, &copy).unwrap();
    let launcher = format!("own=sh -c 'python3 {} --stays; true'", copy.display());
    let mut program = Program::start(&[&launcher]);
    program.client().await.cancel().await.unwrap();
    let path = copy.to_string_lossy().into_owned();
    assert!(runs(&path).is_some());

    let pid = program.child.id().unwrap().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(told.unwrap().success());
    let end = async {
        program.child.wait().await.unwrap();
        until_ended(&path).await;
    };
    let ended = timeout(LIMIT, end).await;
    ended.expect("the server outlives the gateway");
    fs::remove_dir_all(&folder).unwrap();
}

/// Later, the id of the group may belong to another process.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_group_of_a_killed_server_ends_without_another_call() {
    let _beside = beside().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
    let starts = env::temp_dir().join(format!("gateway-group-{}", std::process::id()));
    let starts = starts.to_string_lossy().into_owned();
    let seconds = format!("1000{}", std::process::id());
    let child = format!("sleep {seconds} </dev/null >/dev/null &");
    let own = format!("own=sh -c '{child} exec python3 {script} {starts}'");
    let mut program = Program::start(&[&own]);
    program.client().await.cancel().await.unwrap();
    let server = runs(&starts).unwrap();
    let child = format!("sleep\0{seconds}");
    assert!(runs(&child).is_some());

    let told = Command::new("kill").args(["-KILL", &server]).status().await;
    assert!(told.unwrap().success());
    let ended = timeout(LIMIT, until_ended(&child)).await;
    ended.expect("a child outlives its server");
    fs::remove_file(starts).unwrap();
}

/// Returns the id of the process whose command line has these words, other than a gateway's.
#[cfg(target_os = "linux")]
fn runs(words: &str) -> Option<String> {
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    let found = processes.find(|it| {
        let name = fs::read_to_string(it.path().join("comm")).unwrap_or_default();
        let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
        !name.starts_with("gateway") && String::from_utf8_lossy(&line).contains(words)
    });
    Some(found?.file_name().to_string_lossy().into_owned())
}

#[cfg(target_os = "linux")]
async fn until_ended(words: &str) {
    while runs(words).is_some() {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_program_is_missing_is_named_in_the_log() {
    let _beside = beside().await;
    let time = "time=python3 -m mcp_server_time --local-timezone UTC";
    let mut program = Program::start(&["lost=no-such-program --port 1", time]);
    let line = program.line("lost is not there yet").await;
    assert!(
        line.contains("cannot start `no-such-program`: No such file"),
        "{line}"
    );
    let client = program.client().await;
    // On a busy machine the other one may come later than the gateway waits for it.
    let listed = async {
        loop {
            let tools = client.list_all_tools().await.unwrap();
            if tools.iter().any(|tool| tool.name == "time__convert_time") {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, listed)
        .await
        .expect("the other one is missing");
}

/// A log without it would not say why a server does not start, nor what one says in its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_write_to_stderr_is_in_the_log_without_secrets() {
    let _beside = beside().await;
    let secret = "sk-live-51Habcdefghijklmnopqrstuv";
    let fails = format!("fails=sh -c 'printf \"no\\rdatabase with {secret}\" >&2; exit 3'");
    let long = "long=sh -c 'yes word | head -c 5000 | tr \"\\n\" \" \" >&2; exit 3'";
    let mut program = Program::start(&[&fails]);
    assert!(!program.line("fails: no database").await.contains(secret));
    let line = program.line("fails is not there yet").await;
    assert!(line.contains("ended with exit status: 3"), "{line}");
    let line = Program::start(&[long]).line("long: word").await;
    assert!((4_000..4_500).contains(&line.len()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_of_a_command_may_begin_with_a_hash() {
    let _beside = beside().await;
    let mut program = Program::start(&["words=sh -c 'echo $0 $1 $2 >&2; exit 3' #a \"#b\" c#d"]);
    program.line("words: #a #b c#d").await;
}
