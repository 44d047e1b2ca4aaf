//! `[shared]`: what processes tell each other.

use tower_toolcall::{ConfigError, settings::Settings};
use tower_toolcall_redis::SharedState;

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
        let shared = SharedState::from_settings(settings, &stack).unwrap();
        shared.map(|shared| format!("{shared:?}"))
    };
    assert_eq!(made(&Settings::default()), None);
    let shown = made(&file(FILE)).unwrap();
    let layers = r#"layers: ["breakers", "limits"], grace: 2s, resync: 500ms"#;
    assert!(shown.contains(layers), "{shown}");
    let off = "[circuit_breaker]\nenabled = false\n[rate_limit]\nenabled = false";
    let shown = made(&file(&format!("{FILE}{off}"))).unwrap();
    assert!(shown.contains("layers: []"), "{shown}");
}

fn error_of(settings: &Settings) -> ConfigError {
    let stack = settings.stack().build().unwrap();
    SharedState::from_settings(settings, &stack).unwrap_err()
}

/// C8, G1.
#[test]
fn settings_that_cannot_work_are_named_by_key_or_variable() {
    for (name, value) in [
        ("TOOLCALL_SHARED_URL", "http://localhost"),
        ("TOOLCALL_SHARED_NAMESPACE", "a b"),
        ("TOOLCALL_SHARED_GRACE", "2h"),
        ("TOOLCALL_SHARED_RESYNC", "1ms"),
    ] {
        let settings = Settings::default().with_env_from([(name, value)]);
        assert_eq!(error_of(&settings.unwrap()).field(), name);
    }
    let grace = file("[shared]\nurl = \"redis://localhost\"\ngrace = \"2h\"");
    assert_eq!(error_of(&grace).field(), "shared.grace");
}

/// C8: ids of callers stay in their process.
#[tokio::test]
async fn keys_of_callers_are_refused_by_their_setting() {
    for (section, setting, field) in [
        ("circuit_breaker", "key = \"agent\"", "circuit_breaker.key"),
        ("rate_limit", "key = \"agent\"", "rate_limit.key"),
        (
            "rate_limit",
            "per_principal = true",
            "rate_limit.per_principal",
        ),
    ] {
        let error = error_of(&file(&format!("{FILE}[{section}]\n{setting}")));
        assert_eq!(error.field(), field);
    }
}

/// S7.
#[test]
fn the_error_of_a_url_has_no_password() {
    let bad = "redis://gateway:hunter2@127.0.0.1:port";
    let settings = Settings::default().with_env_from([("TOOLCALL_SHARED_URL", bad)]);
    assert!(!error_of(&settings.unwrap()).to_string().contains("hunter2"));
}
