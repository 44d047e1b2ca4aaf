//! Bad values are errors that name their variable or key (G1, rules 7 and 8).

use std::future::ready;

use proptest::prelude::*;
use tower::service_fn;
use tower_toolcall::{
    ToolError,
    policy::Approval,
    settings::{Preset, Settings, VARIABLES},
};

use crate::kit::env;

const ABSURD: [&str; 12] = [
    "1e30",
    "NaN",
    "inf",
    "-1",
    "-5s",
    "30 parsecs",
    "99999y",
    "true story",
    "1234567890123456789012345678901234567890",
    "0x10",
    "\u{0}",
    "🙂",
];

/// Words, and any text: no value is absurd there.
fn is_free(name: &str) -> bool {
    let words = [
        "TOOLCALL_POLICY_DENY",
        "TOOLCALL_POLICY_ASK",
        "TOOLCALL_POLICY_ALLOW",
        "TOOLCALL_VALIDATE_HEADING",
        "TOOLCALL_TOKEN_CLIENT_ID",
        "TOOLCALL_TOKEN_CLIENT_SECRET_FILE",
    ];
    let unread = match name {
        // A word.
        "TOOLCALL_SHARED_NAMESPACE" | "TOOLCALL_CACHE_TOOLS" => true,
        "TOOLCALL_SHARED_URL" => true,
        _ => false,
    };
    name.ends_with("E_KEYS") || name.ends_with("S_KEYS") || words.contains(&name) || unread
}

#[test]
fn every_absurd_value_in_every_variable_over_every_preset_names_the_variable() {
    for preset in Preset::ALL {
        for variable in VARIABLES.iter().filter(|v| !is_free(v.name())) {
            for absurd in ABSURD {
                let (name, base) = (variable.name(), Settings::preset(preset));
                let error = base.with_env_from([(name, absurd)]).expect_err(name);
                assert_eq!(error.field(), name, "{absurd}: {error}");
            }
        }
    }
}

#[test]
fn a_word_that_is_none_names_its_list() {
    for name in [
        "TOOLCALL_SANITIZE_SENSITIVE_KEYS",
        "TOOLCALL_SANITIZE_HARMLESS_KEYS",
    ] {
        for words in ["!!", &"x".repeat(65), &"word,".repeat(300)] {
            assert_eq!(env(name, words).unwrap_err().field(), name);
        }
    }
}

#[test]
fn a_layers_own_check_names_the_variable() {
    for (name, value) in [
        ("TOOLCALL_CIRCUIT_BREAKER_RESET", "0"),
        ("TOOLCALL_CIRCUIT_BREAKER_THRESHOLD", "0"),
        ("TOOLCALL_CIRCUIT_BREAKER_PROBES", "0"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "0"),
        ("TOOLCALL_CIRCUIT_BREAKER_MAX_KEYS", "0"),
        ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "2days"),
        ("TOOLCALL_RATE_LIMIT_ATTEMPTS", "0"),
        ("TOOLCALL_RETRY_ATTEMPTS", "0"),
        ("TOOLCALL_RETRY_FACTOR", "0.5"),
        ("TOOLCALL_SLOW_FRACTION", "0"),
        ("TOOLCALL_IDLE_TIMEOUT", "0s"),
        ("TOOLCALL_SANITIZE_MAX_DEPTH", "65"),
        ("TOOLCALL_PARALLEL_LIMIT", "0"),
    ] {
        assert_eq!(env(name, value).unwrap_err().field(), name);
    }
}

/// S2: a secret in the wrong variable does not reach a log.
#[test]
fn an_error_does_not_quote_a_secret() {
    for secret in [
        "ghp_a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
        "postgres://me:hunter2@db/x",
        &"s3cr3t".repeat(20),
    ] {
        let error = env("TOOLCALL_RETRY_ATTEMPTS", secret)
            .unwrap_err()
            .to_string();
        for part in ["g7H8i9", "hunter2", "s3cr3t"] {
            assert!(!error.contains(part), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_names_its_variable() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::Command};

    // A child of this test, as the environment of this process must not change.
    let run = |name: &str, attempts: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "absurd::the_environment_of_this_process",
                "--ignored",
                "--nocapture",
            ])
            .env(name, OsStr::from_bytes(b"\xff"))
            .env("TOOLCALL_RETRY_ATTEMPTS", attempts)
            .output()
            .unwrap()
    };
    let said = |name, attempts| {
        let output = run(name, attempts);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let both = said("TOOLCALL_TIMEOUT", "x");
    assert!(both.contains("invalid `TOOLCALL_TIMEOUT`: its value is not UTF-8"));
    assert!(both.contains("invalid `TOOLCALL_RETRY_ATTEMPTS`: `x`"));
    assert!(said("SOMEBODY_ELSES", "3").contains("fine"));
}

/// What the test above runs in a process of its own.
#[test]
#[ignore = "the child process of `a_value_that_is_not_utf8_names_its_variable`, with an environment of its own"]
fn the_environment_of_this_process() {
    match Settings::from_env() {
        Ok(_) => println!("fine"),
        Err(error) => println!("{error}"),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,50}",
        "[0-9.]{1,12}",
        "[0-9]{1,6}(ns|ms|s|m|h|d|y)",
        "[0-9]{1,3}s",
        "(tool|server|true|false)",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No panic; what passes the check can be built; and no default is at fault (W6): what is
    /// refused was set.
    #[test]
    fn any_text_in_any_variable_is_an_error_or_a_stack(
        preset in prop::sample::select(&Preset::ALL[..]),
        vars in prop::collection::vec((prop::sample::select(VARIABLES), text()), 1..4),
    ) {
        let vars: Vec<_> = vars.iter().map(|(variable, text)| (variable.name(), text)).collect();
        match Settings::preset(preset).with_env_from(vars.clone()) {
            Ok(settings) => {
                // What `policy.ask` needs is no setting.
                let approver = service_fn(|approval: Approval| {
                    ready(Ok::<_, ToolError>(approval.approve()))
                });
                prop_assert!(settings.stack().with_approver(approver).build().is_ok());
            }
            Err(error) => {
                prop_assert!(error.to_string().len() < 400 * vars.len(), "{error}");
                prop_assert!(vars.iter().any(|(name, _)| *name == error.field()), "{error}");
            }
        }
    }

    /// The same through the fields, which no parser guards.
    #[test]
    fn any_number_in_any_field_is_an_error_or_a_stack(
        preset in prop::sample::select(&Preset::ALL[..]),
        number in any::<f64>(),
        count in any::<u64>(),
        field in 0..8,
    ) {
        let mut s = Settings::preset(preset);
        let time = std::time::Duration::from_nanos(count).saturating_mul((count % 7) as u32 * 1000);
        match field {
            0 => s.timeout.slow_fraction = number,
            1 => s.retry.factor = number,
            2 => s.retry.budget_ratio = number,
            3 => s.circuit_breaker.failure_rate = Some(number),
            4 => s.tools.entry("x".into()).or_default().timeout = Some(time),
            5 => s.timeout.default = time,
            6 => s.rate_limit.default_cooldown = time,
            _ => s.circuit_breaker.max_keys = count as usize,
        }
        prop_assert_eq!(s.check().is_ok(), s.stack().build().is_ok());
    }
}
