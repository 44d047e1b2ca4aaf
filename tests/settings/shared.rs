//! `[shared]`: what processes tell each other.

use tower_toolcall::settings::Settings;

fn file(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

const FILE: &str = r#"
    [shared]
    url = "redis://gateway:hunter2@127.0.0.1:1/3?protocol=resp3&pass=hunter2"
    namespace = "prod"
    grace = "2s"
    resync = "500ms"
"#;

/// C8, G1.
#[tokio::test]
async fn a_url_gives_a_mirror_of_what_is_switched_on() {
    let made = |settings: &Settings| {
        let stack = settings.stack().build().unwrap();
        let shared = settings.shared(&stack).unwrap();
        shared.map(|shared| format!("{shared:?}"))
    };
    assert_eq!(made(&Settings::default()), None);
    let shown = made(&file(FILE)).unwrap();
    let layers = r#"layers: ["breakers", "limits"], grace: 2s, resync: 500ms"#;
    assert!(shown.contains(layers), "{shown}");
    let settings = file(&format!("{FILE}[circuit_breaker]\nkey = \"agent\""));
    let error = settings.shared(&settings.stack().build().unwrap());
    assert_eq!(error.unwrap_err().field(), "circuit_breaker.key");
    let off = "[circuit_breaker]\nenabled = false\n[rate_limit]\nenabled = false";
    let shown = made(&file(&format!("{FILE}{off}"))).unwrap();
    assert!(shown.contains("layers: []"), "{shown}");
}

/// C8, S7: the password goes to the server alone.
#[test]
fn the_password_of_the_server_is_never_shown_or_written() {
    let settings = file(FILE);
    let written = toml::to_string(&settings).unwrap();
    assert!(written.contains("redis://127.0.0.1:1/3\""), "{written}");
    for shown in [
        format!("{settings:?}"),
        serde_json::to_string(&settings.shared).unwrap(),
        written,
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(settings.shared.url.unwrap().expose().contains("hunter2"));
    for url in [
        "redis://:hunter2#hunter2@cache:6379",
        "rediss://app:hun?ter2hunter2@cache",
        "redis://app:hun/hunter2@cache",
        "redis://:hunter2",
        "hunter2",
    ] {
        let shown = tower_toolcall::settings::ServerUrl::from(url).to_string();
        assert!(
            !shown.contains("hunter2") && !shown.contains("app"),
            "{shown}"
        );
    }
    let bad = "redis://gateway:hunter2@127.0.0.1:port";
    let error = Settings::default().with_env_from([("TOOLCALL_SHARED_URL", bad)]);
    assert!(!error.unwrap_err().to_string().contains("hunter2"));
}

/// C8, G1.
#[test]
fn what_cannot_work_names_its_key_or_variable() {
    for (name, value) in [
        ("TOOLCALL_SHARED_URL", "http://localhost"),
        ("TOOLCALL_SHARED_NAMESPACE", "a b"),
        ("TOOLCALL_SHARED_GRACE", "2h"),
        ("TOOLCALL_SHARED_RESYNC", "1ms"),
    ] {
        let error = Settings::default().with_env_from([(name, value)]);
        assert_eq!(error.unwrap_err().field(), name);
    }
    let error = file("[shared]\nurl = \"redis://localhost\"\ngrace = \"2h\"").check();
    assert_eq!(error.unwrap_err().field(), "shared.grace");
}
