use std::{error::Error, io};

use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, BoxError, CallInfo, ErrorKind, Evidence, ToolCall, ToolError,
    check::{Check, CheckLayer, check_fn},
    circuit_breaker::CircuitBreakerLayer,
    fit::{Cut, FitLayer, Shorten},
    key::{Key, key_fn, principal_fn},
    once::OnceLayer,
    repeat_guard::RepeatGuardLayer,
};

fn refused() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionRefused)
}

/// P8.
#[test]
fn a_source_is_any_error() {
    let error = || ToolError::new(ErrorKind::Failed, "no weather");
    let is_io = |error: ToolError| error.source().unwrap().is::<io::Error>();
    assert!(is_io(error().with_source(refused())));
    assert!(is_io(error().with_source(BoxError::from(refused()))));
    assert!(is_io(error().with_source(AnyError::from(refused()))));
    let said = |error: ToolError| error.source().unwrap().to_string();
    assert_eq!(said(error().with_source(String::from("rain"))), "rain");
    assert_eq!(said(error().with_source("rain")), "rain");
    assert_eq!(said(error().with_source(anyhow::anyhow!("rain"))), "rain");
}

/// P8.
#[test]
fn a_transport_has_any_error() {
    for error in [
        ToolError::from_transport(refused()),
        ToolError::from_transport(AnyError::from(refused())),
        ToolError::from_transport(BoxError::from(refused())),
    ] {
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.evidence(), Evidence::Reported);
    }
}

/// P8: a check that calls functions with other errors.
#[tokio::test]
async fn a_check_fails_with_any_error() {
    fn is_short(answer: &str) -> Result<(), AnyError> {
        match answer.len() {
            ..5 => Ok(()),
            _ => Err("too long".into()),
        }
    }
    let check = check_fn(|_: &CallInfo, answer: &String| {
        is_short(answer)?;
        answer.parse::<u8>()?;
        Ok(())
    });
    let run = |answer: &'static str| {
        let tool =
            service_fn(move |_: ToolCall| async move { Ok::<_, AnyError>(answer.to_owned()) });
        let stack = ServiceBuilder::new()
            .layer(CheckLayer::new(check))
            .service(tool);
        stack.oneshot(ToolCall::new("weather"))
    };
    assert_eq!(run("12").await.unwrap(), "12");
    assert_eq!(run("twelve").await.unwrap_err().message(), "too long");
    assert_eq!(
        run("12.5").await.unwrap_err().message(),
        "invalid digit found in string"
    );
}

/// P8: the functions of programs that use `BoxError` or another type of their own.
#[test]
fn a_check_is_a_function_with_its_own_error_type() {
    fn boxed(_: &CallInfo, _: &String) -> Result<(), BoxError> {
        Err("no".into())
    }
    fn anyhow(_: &CallInfo, _: &String) -> Result<(), anyhow::Error> {
        anyhow::bail!("no")
    }
    fn text(_: &CallInfo, _: &String) -> Result<(), String> {
        Err("no".into())
    }
    fn any(_: &CallInfo, _: &String) -> Result<(), AnyError> {
        Err("no".into())
    }
    let _ = CheckLayer::new(boxed);
    let says = |check: &dyn Check<String>| {
        let call = ToolCall::new("weather").info();
        check.check(&call, &String::new()).unwrap_err().to_string()
    };
    for check in [&boxed as &dyn Check<String>, &anyhow, &text, &any] {
        assert_eq!(says(check), "no");
    }
}

/// P8.
#[tokio::test]
async fn an_answer_that_cannot_be_shortened_says_so_with_any_error() {
    #[derive(Debug)]
    struct Photo;
    impl tower_toolcall::ModelText for Photo {
        fn model_text(&self) -> std::borrow::Cow<'_, str> {
            "a photo".into()
        }
    }
    impl Shorten for Photo {
        fn fits(&self, _: usize) -> bool {
            false
        }

        fn shorten(&mut self, _: &Cut) -> Result<(), AnyError> {
            Err(AnyError::from(refused()))
        }
    }
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(Photo) });
    let stack = ServiceBuilder::new().layer(FitLayer::new(10)).service(tool);
    let error = stack.oneshot(ToolCall::new("photo")).await.unwrap_err();
    assert!(error.source().unwrap().is::<io::Error>());
}

/// P20.
#[test]
fn a_key_and_a_principal_may_be_bound_closures() {
    let none = String::from("none");
    let session = key_fn(|call| call.session_id().unwrap_or(""));
    let per_session = Key::by(session);
    let breaker = CircuitBreakerLayer::builder()
        .with_keys(per_session)
        .build();
    drop(breaker.unwrap());

    let of_call = principal_fn(move |call| call.agent_id().filter(|agent| *agent != none));
    let once = OnceLayer::builder().with_principal(of_call).build();
    drop(once.unwrap());
    let agent = key_fn(|call| call.agent_id().unwrap_or(""));
    let guard = RepeatGuardLayer::builder()
        .with_keys(Key::by(agent))
        .build();
    drop(guard.unwrap());
}

/// S-9c: neither a caller nor a model is told to wait for 8,000 years.
#[cfg(feature = "hints")]
#[test]
fn a_delay_has_an_end() {
    use std::time::{Duration, UNIX_EPOCH};

    let date = "Fri, 31 Dec 9999 23:59:59 GMT";
    let delay = tower_toolcall::hint::retry_after(date, UNIX_EPOCH).unwrap();
    let limited = || ToolError::new(ErrorKind::RateLimited, "429").with_tool("search");
    let by_text: BoxError = "rate limit reached, try again in 9999999h".into();
    for error in [
        limited().with_retry_after(delay),
        limited().with_retry_after(Duration::MAX),
        ToolError::from(by_text),
    ] {
        // Layers that wait never wait for less than a server has asked for.
        assert!(
            error.retry_after() > Some(Duration::from_secs(2_678_400)),
            "{error}"
        );
        assert_eq!(error.to_http().headers()["retry-after"], "2678400");
        assert_eq!(
            error.to_json_rpc()["data"]["retry_after_seconds"],
            2_678_400
        );
        let text = error.public_model_message();
        assert!(text.contains("after 2678400 s"), "{text}");
    }
    let day = Duration::from_secs(86_400);
    let error = limited().with_retry_after(day);
    assert_eq!(error.to_http().headers()["retry-after"], "86400");
}

/// 46: lines of a peer in a log of the program: with line feeds, and with other ends of lines.
#[test]
fn a_line_of_a_peer_is_no_line_of_a_log() {
    let forged = "2026-11-27T09:00:00Z INFO paid 1 EUR";
    for end in ["\n", "\r\n", "\r", "\u{2028}", "\u{85}", "\n\n"] {
        let error = AnyError::from(format!("the server says no{end}{forged}"));
        for shown in [format!("{error:?}"), error.to_string()] {
            let mut lines = shown.split(['\n', '\r', '\u{2028}', '\u{85}']);
            assert_eq!(
                lines.next().map(|line| line.starts_with("the server")),
                Some(true)
            );
            assert!(lines.all(|line| line.starts_with("    ")), "{shown:?}");
            assert!(shown.contains(forged));
        }
    }
    // The place in a file stays a picture of it.
    let of_file = AnyError::from("line 1, column 5\n  |\n1 | a = b\n  |     ^");
    let shown = format!("{of_file:?}");
    let columns: Vec<_> = shown.lines().filter_map(|line| line.find('|')).collect();
    assert_eq!(columns, [6; 3]);
}
