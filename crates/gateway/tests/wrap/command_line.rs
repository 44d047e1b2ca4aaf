//! Help, the version and wrong command lines, of both uses of the program.

use tokio::process::Command;

use crate::kit::{Client, GATEWAY, own};

/// Runs the program; returns its exit code, stdout and stderr.
async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(GATEWAY).args(arguments).output().await;
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Returns the option that begins each line of a help text.
async fn listed(arguments: &[&str]) -> Vec<String> {
    let (code, help, said) = run(arguments).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage: "));
    let words = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| !["-h,", "-V,"].contains(word))
    });
    let options = words.filter(|word| word.starts_with("--"));
    options.map(str::to_owned).collect()
}

#[tokio::test]
async fn help_lists_all_options_of_the_gateway() {
    let options = [
        "--config",
        "--check",
        "--server",
        "--port",
        "--hosts",
        "--sessions",
        "--calls",
        "--grace",
        "--log",
        "--help",
        "--version",
    ];
    for help in ["-h", "--help"] {
        assert_eq!(listed(&[help]).await, options);
    }
    let (_, help, _) = run(&["--help"]).await;
    for said in [
        "wrap",
        "pin",
        "GATEWAY_CONFIG",
        "GATEWAY_LOG",
        "PORT",
        "GATEWAY_HOSTS",
        "GATEWAY_SESSIONS",
        "GATEWAY_CALLS",
        "GATEWAY_GRACE",
        "/metrics",
    ] {
        assert!(help.contains(said), "{said} in {help}");
    }
}

#[tokio::test]
async fn help_lists_all_options_of_wrap() {
    let options = [
        "--no-timeout",
        "--no-deadline",
        "--no-breaker",
        "--no-restart",
        "--no-trace",
        "--no-metrics",
        "--metrics",
        "--config",
        "--help",
    ];
    for help in ["-h", "--help"] {
        assert_eq!(listed(&["wrap", help]).await, options);
    }
}

#[tokio::test]
async fn version_is_that_of_the_package() {
    let version = concat!("gateway ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(
        run(&["--version"]).await,
        (Some(0), version.into(), String::new())
    );
}

#[tokio::test]
async fn unknown_options_are_errors_that_name_the_nearest() {
    for (arguments, nearest) in [
        (&["--sesions", "5"][..], "'--sessions'"),
        (&["wrpa"], "'wrap'"),
        (&["wrap", "--no-timeouts", "--", "node"], "'--no-timeout'"),
    ] {
        let (code, printed, said) = run(arguments).await;
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
        assert!(
            said.contains(nearest) && said.contains("\nUsage: "),
            "{said}"
        );
    }
}

#[tokio::test]
async fn wrong_values_are_errors_that_name_the_option() {
    for variable in ["PORT", "GATEWAY_SESSIONS", "GATEWAY_CALLS", "GATEWAY_GRACE"] {
        let output = Command::new(GATEWAY).env(variable, "many").output().await;
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let option = variable.trim_start_matches("GATEWAY_").to_lowercase();
        assert!(
            said.contains("'many'") && said.contains(&format!("--{option}")),
            "{said}"
        );
    }
}

#[tokio::test]
async fn wrong_servers_are_errors_that_name_what_is_wrong() {
    for (servers, wrong) in [
        (&["time"][..], "`=` is missing"),
        (&["=npx time"], "NAME takes"),
        (&["my time=npx time"], "NAME takes"),
        (&["my__time=npx time"], "NAME takes"),
        (&["time_=npx time"], "NAME takes"),
        (&["zeit\u{e9}=npx time"], "NAME takes"),
        (&["time="], "COMMAND names no program"),
        (&["time=  "], "COMMAND names no program"),
        (&["time='' time"], "COMMAND names no program"),
        (&["time=npx 'time"], "a quote that does not end"),
        (&["time=npx \"time"], "a quote that does not end"),
        (
            &["a=npx", "time=one", "b=npx", "time=two"],
            "two servers have the name 'time'",
        ),
    ] {
        let options = servers.iter().flat_map(|server| ["--server", server]);
        let (code, printed, said) = run(&options.collect::<Vec<_>>()).await;
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
        assert!(
            said.contains(wrong) && said.contains("server"),
            "{wrong}: {said}"
        );
    }
}

#[tokio::test]
async fn a_wrong_server_is_shown_without_its_secrets() {
    let secret = "sk-live-51Habcdefghijklmnopqrstuv";
    let server = format!("time=npx time --api-key {secret} 'x");
    let (code, _, said) = run(&["--server", &server]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("--server") && !said.contains(secret),
        "{said}"
    );
}

#[tokio::test]
async fn bounds_of_calls_that_cannot_work_are_errors() {
    for calls in ["0", "18446744073709551615"] {
        let output = Command::new(GATEWAY)
            .args(["--calls", calls])
            .output()
            .await;
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--calls"), "{said}");
    }
}

/// The environment of `wrap` is its server's, which may have a `PORT` of its own.
#[tokio::test]
async fn wrap_takes_no_option_from_the_environment() {
    let mut command = Command::new(GATEWAY);
    command
        .env("PORT", "/run/socket")
        .env("GATEWAY_CALLS", "many");
    let ended = command
        .args(["wrap", "--", "sh", "-c", "exit 7"])
        .status()
        .await;
    assert_eq!(ended.unwrap().code(), Some(7));
}

/// The last of several values counts.
#[tokio::test]
async fn options_of_wrap_may_be_repeated() {
    let arguments = [
        "--no-trace",
        "--no-trace",
        "--config",
        "/no/file",
        "--config",
        "/dev/null",
    ];
    let mut client = Client::wrap(&arguments, &own(&[])).await;
    client.close();
    assert!(client.ended().await.success());
}
