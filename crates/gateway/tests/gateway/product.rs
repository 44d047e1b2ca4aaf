//! The configuration file, `--check`, reloads, probes and the log.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use crate::{
    kit::{LIMIT, beside},
    servers::Program,
};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");

/// Makes a folder of a test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("gateway-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program with this file.
pub(crate) fn with_file(file: &Path) -> Command {
    let mut command = Program::command();
    command.arg("--config").arg(file);
    command
}

async fn checked(file: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.arg("--check").arg("--config").arg(file);
    command.env("OWN_KEY", "sk-live-51Habcdefghijklmnopqrstuv");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().await.unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), text)
}

#[tokio::test]
async fn a_check_prints_what_would_run_without_secrets() {
    let _beside = beside().await;
    let folder = folder("check");
    let file = folder.join("gateway.toml");
    let text = r#"
listen = "127.0.0.1:9000"
hosts = ["tools.example.com"]
calls = 7

[servers.own]
command = ["own-server", "--key", "sk-live-51Habcdefghijklmnopqrstuv"]
environment = { OWN_KEY = { env = "OWN_KEY" } }

[servers.web]
url = "http://user:hunter2hunter2@127.0.0.1:1/mcp?key=hunter2hunter2"
headers = { authorization = "Bearer sk-live-51Habcdefghijklmnopqrstuv" }

[auth.tokens]
ci = "sk-live-51Habcdefghijklmnopqrstuv"

[settings.timeout]
default = "7s"
"#;
    fs::write(&file, text).unwrap();
    let (code, text) = checked(&file).await;
    assert_eq!(code, Some(0), "{text}");
    for shown in [
        "listens at 127.0.0.1:9000",
        "tools.example.com",
        "calls: 7",
        "server own: `own-server`, arguments: 2, environment: OWN_KEY",
        "server web: http://127.0.0.1:1/mcp, headers: authorization",
        "takes token of ci",
        "timeout: on, default = 7s",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    for secret in ["sk-live", "hunter2"] {
        assert!(!text.contains(secret), "{text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Each error names the field, what was found, and what is valid.
#[tokio::test]
async fn a_wrong_file_is_refused_with_exit_code_2() {
    let _beside = beside().await;
    let folder = folder("wrong");
    let file = folder.join("gateway.toml");
    for (text, words) in [
        ("port = 1", ["unknown field `port`", "`listen`"]),
        ("\nlisten = 'here'", ["line 2", "socket address"]),
        ("calls = 0", ["calls is 0", "valid are 1 and more"]),
        (
            "servers.a.command = ''",
            ["servers.a", "COMMAND names no program"],
        ),
        ("servers.a__b.command = 'x'", ["servers.a__b", "NAME takes"]),
        (
            "servers.a.url = 'ftp://x'",
            ["servers.a", "valid are addresses with http://"],
        ),
        (
            "servers.a.trust = true",
            ["servers.a", "neither `command` nor `url`"],
        ),
        (
            "[servers.a]\nurl = 'http://x'\nheaders = { 'a b' = 'c' }",
            ["servers.a", "`a b` is not a valid header"],
        ),
        ("settings.timeout.default = 'soon'", ["settings", "soon"]),
        ("settings.timeouts = 1", ["settings", "timeouts"]),
        ("hosts = ['a:443']", ["hosts: 'a:443' has a port", "valid"]),
        (
            "origins = ['https://a/']",
            ["origins: 'https://a/'", "valid is https://"],
        ),
        (
            "[auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = 'http://a.example.com/jwks'",
            ["auth.jwt.jwks", "valid are https://"],
        ),
        (
            "[auth.tokens]\na = '0123456789abcdef'\nb = '0123456789abcdef'",
            ["auth.tokens.b", "the token of a, too"],
        ),
        ("[auth]", ["auth", "neither `tokens` nor `jwt`"]),
        (
            "auth.tokens.ci = 'short'",
            ["auth.tokens.ci has 5 bytes", "valid are 16 or more"],
        ),
        (
            "auth.tokens.ci = { env = 'NO_SUCH' }",
            ["auth.tokens.ci", "the variable NO_SUCH is not set"],
        ),
        ("auth.tokens.ci = 3", ["line 1", "valid are a text, { env"]),
        (
            "[auth.jwt]\nissuer = 'i'\njwks = '/none'",
            ["auth.jwt.audience is missing", "auth.resource"],
        ),
        (
            "[auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = '/none'",
            ["auth.jwt.jwks", "/none"],
        ),
    ] {
        // A configuration without a server is that of a program to try.
        let text = format!("{text}\n[servers.other]\ncommand = 'x'");
        fs::write(&file, &text).unwrap();
        let (code, said) = checked(&file).await;
        assert_eq!(code, Some(2), "{text}: {said}");
        for word in words {
            assert!(said.contains(word), "{text}: {said}");
        }
    }
    let (code, said) = checked(&folder.join("missing.toml")).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("missing.toml"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

/// No line of the file is shown, nor a text that was found in it.
#[tokio::test]
async fn a_secret_of_a_wrong_line_is_not_shown() {
    let _beside = beside().await;
    let folder = folder("cut");
    let file = folder.join("gateway.toml");
    let secret = "4f8cQq71zzWk29xX";
    for wrong in [
        format!("[auth.tokens]\nci = \"{secret}"),
        format!("[auth.tokens]\nci = [\"{secret}\"]"),
        format!("[auth.tokens]\nci = {{ env = \"{secret}\", file = \"x\" }}"),
        format!("sessions = \"{secret}\""),
        format!("servers.a.headers = \"{secret}\""),
    ] {
        fs::write(&file, &wrong).unwrap();
        let (code, said) = checked(&file).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(!said.contains(secret), "{wrong}: {said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A server has the variables that the file names for it, and none of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_does_not_have_the_secrets_of_others() {
    let _beside = beside().await;
    let folder = folder("secrets");
    let file = folder.join("gateway.toml");
    let says = "echo \"has ${CI_TOKEN:-nothing} ${OTHER_KEY:-nothing} ${OWN_KEY:-nothing}\" >&2";
    let text = format!(
        "[servers.own]\ncommand = ['sh', '-c', '''{says}; exec python3 {SERVER}''']\n\
         environment = {{ OWN_KEY = {{ env = 'OWN_KEY' }} }}\n\
         [servers.other]\ncommand = ['python3', '{SERVER}']\n\
         environment = {{ KEY = {{ env = 'OTHER_KEY' }} }}\n\
         [auth.tokens]\nci = {{ env = 'CI_TOKEN' }}"
    );
    fs::write(&file, text).unwrap();
    let mut command = with_file(&file);
    command.env("CI_TOKEN", "apple pear plum fig");
    command.env("OTHER_KEY", "orange").env("OWN_KEY", "cherry");
    let line = Program::of(command).line("own: has").await;
    assert!(line.contains("has nothing nothing cherry"), "{line}");
    fs::remove_dir_all(folder).unwrap();
}

/// A file whose last part is wrong changes nothing: the server that it would replace keeps the
/// checks of its arguments, and callers keep their tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_reload_leaves_the_checks_of_before() {
    let _beside = beside().await;
    let folder = folder("refused");
    let (file, script) = (folder.join("gateway.toml"), folder.join("server.py"));
    let server = fs::read_to_string(SERVER).unwrap();
    let strict = r#""inputSchema": {"type": "object", "required": ["n"]}"#;
    let server = server.replace(r#""inputSchema": {"type": "object"}"#, strict);
    assert!(server.contains(strict));
    fs::write(&script, server).unwrap();
    let own = format!(
        "[servers.own]\ncommand = ['python3', '{}']\n",
        script.display()
    );
    let tokens = "[auth.tokens]\nci = '0123456789abcdef'\n";
    fs::write(&file, own.clone() + tokens).unwrap();
    let mut program = Program::of(with_file(&file));
    let url = program.url().await;
    let url = url.replace("/mcp", "/tools/own__echo/call");
    let call = async || {
        let call = reqwest::Client::new().post(&url).body("{}");
        let call = call.header("content-type", "application/json");
        let call = call.bearer_auth("0123456789abcdef").send().await;
        call.unwrap().status().as_u16()
    };
    assert_eq!(call().await, 400);
    let changed = own.clone() + "environment = { A = 'b' }\n" + tokens;
    for (wrong, why) in [
        (changed + "[pins]\nfile = '/none'", "pins.file"),
        (own, "[auth] is missing"),
    ] {
        fs::write(&file, wrong).unwrap();
        hang_up(&program).await;
        let line = program.line("not reloaded").await;
        assert!(line.contains(why), "{line}");
        assert_eq!(call().await, 400);
    }
    fs::remove_dir_all(folder).unwrap();
}

async fn hang_up(program: &Program) {
    let id = program.child.id().unwrap().to_string();
    let told = Command::new("kill").args(["-HUP", &id]).status().await;
    assert!(told.unwrap().success());
}

/// Servers and settings change, a wrong file changes nothing, and running calls end on the old
/// stack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_reads_the_file_again() {
    let _beside = beside().await;
    let folder = folder("reload");
    let file = folder.join("gateway.toml");
    let server = |name: &str| format!("[servers.{name}]\ncommand = ['python3', '{SERVER}']\n");
    fs::write(&file, server("a") + &server("b")).unwrap();
    let mut program = Program::of(with_file(&file));
    let client = program.client().await;
    let call = |tool: &'static str| {
        let params = CallToolRequestParams::new(tool);
        let client = client.peer().clone();
        async move { timeout(LIMIT, client.call_tool(params)).await.unwrap() }
    };
    let text = async |tool| {
        call(tool).await.unwrap().content[0]
            .as_text()
            .unwrap()
            .text
            .clone()
    };
    let process = text("b__pid").await;
    let running = tokio::spawn(call("b__steps"));
    program.line("b: got").await;
    sleep(Duration::from_millis(200)).await;

    // `b` stays as it is, `a` goes, and `c` comes.
    let changed = "[settings.policy]\ndeny = ['c__fail']\n".to_owned();
    fs::write(&file, changed + &server("b") + &server("c")).unwrap();
    hang_up(&program).await;
    program.line("reloaded").await;
    let listed = async {
        loop {
            let tools = client.list_all_tools().await.unwrap();
            let has = |name: &str| tools.iter().any(|tool| tool.name == name);
            if has("c__echo") {
                assert!(has("b__echo") && !has("a__echo"), "{tools:?}");
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, listed)
        .await
        .expect("a new server is not there");
    assert_eq!(text("b__pid").await, process, "it was started again");
    assert_eq!(text("c__echo").await, "{}");
    assert!(call("a__echo").await.is_err());
    let denied = call("c__fail").await.unwrap();
    assert_eq!(denied.is_error, Some(true), "{denied:?}");
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.content[0].as_text().unwrap().text, "done");

    fs::write(&file, "calls = 0").unwrap();
    hang_up(&program).await;
    let line = program.line("not reloaded").await;
    assert!(line.contains("calls is 0: valid are 1 and more"), "{line}");
    assert_eq!(text("b__pid").await, process);
    client.cancel().await.unwrap();
    fs::remove_dir_all(folder).unwrap();
}

async fn status(url: &str, path: &str) -> (u16, Value) {
    let answer = reqwest::get(url.replace("/mcp", path)).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(json!(text)))
}

/// A server that was never there has unknown tools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_is_ready_when_the_tools_of_all_servers_are_known() {
    let _beside = beside().await;
    let folder = folder("ready");
    let flag = folder.join("flag");
    let late = format!(
        "late=sh -c 'test -e {} && exec python3 {SERVER}'",
        flag.display()
    );
    let mut program = Program::start(&[&late]);
    let url = program.url().await;
    assert_eq!(status(&url, "/healthz").await, (200, json!("ok\n")));
    let waiting = json!({ "status": "waiting", "unknown": ["late"] });
    assert_eq!(status(&url, "/readyz").await, (503, waiting));
    fs::write(&flag, "").unwrap();
    let ready = async {
        while status(&url, "/readyz").await.0 != 200 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, ready).await.expect("it is not ready");
    // A probe names the address of a container.
    let probe = reqwest::Client::new().get(url.replace("/mcp", "/readyz"));
    let probe = probe.header("host", "10.0.0.7:8931").send().await.unwrap();
    assert_eq!(probe.status(), 200);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_a_json_log_is_an_object() {
    let _beside = beside().await;
    let mut command = Program::command();
    command.args(["--log", "json", "--server"]);
    command.arg(format!("own=python3 {SERVER}"));
    let mut program = Program::of(command);
    let line = program.line("/mcp ").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    let url = line["message"].as_str().unwrap();
    let url = url.split_whitespace().next().unwrap();
    let client = reqwest::Client::new().post(url.replace("/mcp", "/tools/own__fail/call"));
    let client = client.header("content-type", "application/json").body("{}");
    assert!(!client.send().await.unwrap().status().is_success());
    let line = program.line("tool.failure").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["message"], "tool.failure", "{line}");
    assert!(
        line["timestamp"].is_string() && line["level"].is_string(),
        "{line}"
    );
}

/// B6: a tool that has changed since it was pinned is hidden, and the log says how it differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_has_changed_since_it_was_pinned_is_hidden() {
    let _beside = beside().await;
    let folder = folder("pins");
    let (file, lock, script) = (
        folder.join("gateway.toml"),
        folder.join("catalog.lock"),
        folder.join("server.py"),
    );
    let text = format!(
        "[pins]\nfile = '{}'\n[servers.own]\ncommand = ['python3', '{}']",
        lock.display(),
        script.display()
    );
    fs::write(&file, text).unwrap();
    let server = fs::read_to_string(SERVER).unwrap();
    fs::write(&script, &server).unwrap();
    let (code, said) = checked(&file).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("valid is what `gateway pin` writes"),
        "{said}"
    );

    let pin = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.arg("pin").arg("--config").arg(&file);
        let output = command.output().await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, said) = pin().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("own: 22 tools are pinned"), "{said}");
    let changed = server.replace(
        r#"{"name": n, "#,
        r#"{"name": n, **({"description": "Also\u202e"} if n == "pid" else {}), "#,
    );
    fs::write(&script, &changed).unwrap();
    let mut program = Program::of(with_file(&file));
    let line = program.line("tool.stale_list").await;
    for word in ["own", "pid", "description", "hidden"] {
        assert!(line.contains(word), "{line}");
    }
    let client = program.client().await;
    let names = async || {
        let tools = client.list_all_tools().await.unwrap();
        let names = tools.iter().map(|tool| tool.name.to_string());
        names.collect::<Vec<_>>()
    };
    let has = |names: Vec<String>| names.contains(&"own__pid".to_owned());
    assert!(!has(names().await));

    let (code, said) = pin().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("own: pid: description\n"), "{said}");
    let hidden = r"own: pid: hidden characters in description: Also\u{202e}";
    assert!(said.contains(hidden), "{said}");
    hang_up(&program).await;
    program.line("reloaded").await;
    let listed = async {
        while !has(names().await) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, listed).await.expect("it stays hidden");
    client.cancel().await.unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn the_example_file_is_valid() {
    let _beside = beside().await;
    let folder = folder("example");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
    let mut text = fs::read_to_string(example).unwrap();
    for (named, name, content) in [
        ("/run/secrets/search", "search", "Bearer 0123456789abcdef"),
        ("/run/secrets/grafana", "grafana", "0123456789abcdef"),
        (
            "https://login.example.com/jwks.json",
            "keys",
            r#"{"keys":[]}"#,
        ),
        ("catalog.lock", "lock", "{}"),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        let quoted = format!("\"{named}\"");
        assert!(text.contains(&quoted), "{named}");
        text = text.replace(&quoted, &format!("\"{}\"", path.display()));
    }
    let file = folder.join("gateway.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.arg("--check").arg("--config").arg(&file);
    command
        .env("CI_TOKEN", "fedcba9876543210")
        .env("FILES_API_KEY", "x");
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    fs::remove_dir_all(folder).unwrap();
}
