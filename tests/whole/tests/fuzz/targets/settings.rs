//! Whatever a file or the environment says, there are settings of which a stack can be built, or
//! one error that names a key.
//!
//! The input is a TOML file, and lines of `NAME=value`.

use tower_toolcall::{ConfigError, settings::Settings};

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(settings) = toml::from_str::<Settings>(&text) {
        builds(&settings);
        let _ = settings.with_env_from([("TOOLCALL_TIMEOUT", "5s")]);
    }
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let variables: Vec<_> = lines.take(200).collect();
    match Settings::default().with_env_from(variables.iter().copied()) {
        Ok(settings) => builds(&settings),
        Err(error) => names_its_key(&error),
    }
    // Alone each is named by itself.
    for (name, value) in variables.into_iter().take(8) {
        if let Err(error) = Settings::default().with_env_from([(name, value)]) {
            names_its_key(&error);
            let shown = error.field();
            assert!(error.to_string().contains(shown));
            let begins = name.get(..8).is_none_or(|begin| shown.starts_with(begin));
            assert!(begins || shown.contains('.'), "{name}: {error}");
        }
    }
}

fn builds(settings: &Settings) {
    match settings.check() {
        // What the program has to have is not among settings.
        Ok(()) => match settings.stack().build() {
            Ok(stack) => drop(stack),
            Err(error) => assert_eq!(error.field(), "policy.ask", "{error}"),
        },
        Err(error) => names_its_key(&error),
    }
}

fn names_its_key(error: &ConfigError) {
    let (field, reason) = (error.field(), error.reason());
    assert!(!field.is_empty() && !reason.is_empty(), "{error:?}");
    assert!(field.len() <= 600 && reason.len() <= 4_000, "{error}");
    assert!(!field.contains(char::is_control), "{field:?}");
}
