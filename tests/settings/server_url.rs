//! `shared.url`: a URL that may have a password.

use tower_toolcall::settings::{ServerUrl, Settings};

const FILE: &str = r#"
    [shared]
    url = "redis://gateway:hunter2@127.0.0.1:1/3?protocol=resp3&pass=hunter2"
"#;

/// C8, S7: the password goes to the server alone.
#[test]
fn the_password_of_the_server_is_never_shown_or_written() {
    let settings = toml::from_str::<Settings>(FILE).unwrap();
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
        let shown = ServerUrl::from(url).to_string();
        assert!(
            !shown.contains("hunter2") && !shown.contains("app"),
            "{shown}"
        );
    }
}
