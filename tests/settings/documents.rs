//! `.env.example`, the example file and the docs say what is true (G1).

use std::time::Duration;

use tower_toolcall::settings::{Settings, VARIABLES, Variable};

const ENV: &str = include_str!("../../.env.example");
const DOCS: &str = include_str!("../../src/settings/variables.md");
const MODULE: &str = include_str!("../../src/settings/mod.rs");
const TOML: &str = include_str!("../../examples/settings.toml");

/// The variables of `.env.example`, with the line above.
fn examples() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines: Vec<_> = ENV.lines().collect();
    let pairs = lines.windows(2);
    pairs
        .filter_map(|pair| {
            let (name, value) = pair[1].strip_prefix("#TOOLCALL_")?.split_once('=')?;
            Some((pair[0], name, value))
        })
        .collect()
}

/// Text between backticks as HTML.
fn html(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let part = |(n, part): (usize, &str)| match n % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    };
    parts.map(part).collect()
}

#[test]
fn the_example_of_an_environment_has_each_variable_with_its_line() {
    let examples = examples();
    assert_eq!(examples.len(), VARIABLES.len());
    for ((line, name, _), variable) in examples.iter().zip(VARIABLES) {
        assert_eq!(format!("TOOLCALL_{name}"), variable.name());
        assert_eq!(*line, format!("# {}", variable.help()));
    }
}

/// Whoever copies it changes nothing.
#[test]
fn the_example_of_an_environment_is_all_comments() {
    assert!(
        ENV.lines()
            .all(|line| line.is_empty() || line.starts_with('#'))
    );
}

#[test]
fn the_values_of_the_example_are_the_defaults() {
    let vars = examples();
    let vars = vars
        .iter()
        .map(|(_, name, value)| (format!("TOOLCALL_{name}"), value));
    assert_eq!(
        Settings::default().with_env_from(vars).unwrap(),
        Settings::default()
    );
}

#[test]
fn no_value_of_the_example_is_blank() {
    assert!(examples().iter().all(|(.., value)| !value.is_empty()));
}

/// With everything uncommented a shell can read it, and it says the defaults.
#[cfg(unix)]
#[test]
fn a_shell_can_read_the_example_of_an_environment() {
    use std::{fs, process::Command};

    let file = format!("{}/env.example", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&file, ENV.replace("\n#TOOLCALL_", "\nTOOLCALL_")).unwrap();
    let shell = Command::new("/bin/sh")
        .args(["-c", r#"set -a; . "$0"; env"#, &file])
        .output()
        .unwrap();
    assert!(shell.stderr.is_empty(), "{shell:?}");
    let said = String::from_utf8(shell.stdout).unwrap();
    let vars: Vec<_> = said.lines().filter_map(|l| l.split_once('=')).collect();
    let ours = vars
        .iter()
        .filter(|(name, _)| name.starts_with("TOOLCALL_"));
    assert_eq!(ours.count(), VARIABLES.len());
    let settings = Settings::default().with_env_from(vars).unwrap();
    assert_eq!(settings, Settings::default());
}

/// What is copied from a text can stand in such a file.
#[test]
fn no_duration_has_a_space() {
    for text in [ENV, TOML, DOCS, MODULE] {
        assert!(!text.contains("1m 30s"));
    }
}

/// P15: the docs and the example have each alias.
#[test]
fn the_aliases_are_documented() {
    for alias in VARIABLES.iter().filter_map(Variable::alias) {
        for text in [MODULE, ENV] {
            assert!(text.contains(alias), "{alias}");
        }
    }
}

#[test]
fn the_list_in_the_docs_has_each_variable() {
    let entry = |(variable, (_, _, value)): (&Variable, &(_, _, &str))| {
        let (name, key, help) = (variable.name(), variable.key(), variable.help());
        [
            format!("<dt><code>{name}</code></dt>"),
            format!(
                "<dd>{}. <code>{key}</code>, default <code>{value}</code></dd>",
                html(help)
            ),
        ]
    };
    let values = examples();
    let entries = VARIABLES.iter().zip(&values).flat_map(entry);
    let list = ["<dl>".to_owned()].into_iter().chain(entries);
    let list: Vec<_> = list.chain(["</dl>".to_owned()]).collect();
    assert_eq!(DOCS.lines().collect::<Vec<_>>(), list);
}

/// The words in backticks behind `expected`, by which an error says what there is.
fn expected(file: &str) -> Vec<String> {
    let error = toml::from_str::<Settings>(file).unwrap_err().to_string();
    let expected = error.split("expected").nth(1).unwrap();
    let words = expected.split('`').skip(1).step_by(2);
    words.map(Into::into).collect()
}

#[test]
fn every_key_has_its_variable() {
    let sections = expected("unknown = 1");
    let keys = sections
        .iter()
        .filter(|section| !["preset", "tools"].contains(&section.as_str()))
        .flat_map(|section| {
            let keys = expected(&format!("[{section}]\nunknown = 1"));
            keys.into_iter().map(move |key| format!("{section}.{key}"))
        });
    // One that is known so that it can be refused.
    let keys = keys.filter(|key| key != "token.client_secret");
    let named = VARIABLES.iter().map(|v| v.key().to_owned());
    assert_eq!(
        keys.collect::<Vec<_>>(),
        named.filter(|key| key != "preset").collect::<Vec<_>>()
    );
}

#[test]
fn the_example_of_a_file_can_be_built() {
    let settings: Settings = toml::from_str(TOML).unwrap();
    assert!(settings.stack().build().is_ok());
    assert_eq!(
        settings.tools["import"].timeout,
        Some(Duration::from_secs(45))
    );
}

/// Keys without a default stand there as comments.
#[test]
fn the_example_of_a_file_has_every_key() {
    let text = TOML.replace("\n#", "\n");
    for key in VARIABLES.iter().map(Variable::key) {
        let key = key.split('.').next_back().unwrap();
        let line = format!("{key} = ");
        assert!(text.lines().any(|l| l.starts_with(&line)), "{key}");
    }
}
