//! W6: defaults, those of a preset too, give way to what was set.

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    settings::{Preset, Settings},
};

use crate::kit::{call, changed, secs, stack};

fn file(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

/// As the layers print themselves.
#[track_caller]
fn in_force(settings: &Settings, parts: &[&str]) {
    settings.check().unwrap();
    let layers = format!(
        "{:?} {:?} {:?} {:?}",
        settings.retry_policy().unwrap(),
        settings.rate_limit_builder(),
        settings.circuit_breaker_builder().unwrap(),
        settings.deadline_layer(),
    );
    for part in parts {
        assert!(layers.contains(part), "{part} in {layers}");
    }
}

/// W6: the newcomer's file: the default cooldown is no obstacle.
#[test]
fn a_short_budget_alone_works() {
    for section in ["deadline", "sequence", "parallel"] {
        for budget in ["10s", "30s", "800ms", "1ms"] {
            let text = format!("[{section}]\nbudget = \"{budget}\"");
            for preset in Preset::ALL {
                let settings = file(&format!("preset = \"{preset}\"\n{text}"));
                assert_eq!(settings.check(), Ok(()), "{preset}: {text}");
            }
        }
    }
}

/// W6: nothing is waited for that cannot be waited out: the error is there at once, with the whole
/// time to come back.
#[tokio::test(start_paused = true)]
async fn a_default_cooldown_that_does_not_fit_is_not_begun() {
    let layer = stack(&file("[deadline]\nbudget = \"10s\""));
    let limited = || ToolError::new(ErrorKind::RateLimited, "429");
    let tool = service_fn(move |_: ToolCall| async move { Err::<(), _>(limited()) });
    let start = Instant::now();
    for _ in 0..3 {
        let error = layer.layer(tool).oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.retry_after() >= Some(secs(30)), "{error:?}");
    }
    assert_eq!(start.elapsed(), secs(0));
    // A delay that the server asks for, and that fits, is waited out.
    let tool = service_fn(move |call: ToolCall| async move {
        match call.attempt() {
            1 => Err(limited().with_retry_after(secs(3))),
            _ => Ok("done"),
        }
    });
    let other = ToolCall::new("other");
    assert_eq!(layer.layer(tool).oneshot(other).await.unwrap(), "done");
    assert!((secs(3)..secs(5)).contains(&start.elapsed()));
}

/// W6: what was set is checked as before, be it to the default's own value.
#[test]
fn what_was_set_does_not_give_way() {
    let text = "[deadline]\nbudget = \"10s\"\n[rate_limit]\ndefault_cooldown = \"30s\"";
    let error = file(text).check().unwrap_err();
    assert_eq!(error.field(), "rate_limit.default_cooldown");
    let vars = [
        ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "30s"),
        ("TOOLCALL_DEADLINE_BUDGET", "10s"),
    ];
    let error = Settings::default().with_env_from(vars).unwrap_err();
    assert_eq!(error.field(), "TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN");
}

#[test]
fn a_longer_cooldown_makes_the_longest_wait_as_long() {
    let settings = file("[rate_limit]\ndefault_cooldown = \"400s\"");
    let all = ["max_wait: 400s", "max_delay: 400s", "max_cooldown: 400s"];
    in_force(&settings, &all);
    // A default cooldown is no reason to wait longer than was set.
    let settings = file("[rate_limit]\nmax_wait = \"20s\"");
    in_force(&settings, &["max_wait: 20s", "default_cooldown: 30s"]);
    let settings = file("[rate_limit]\nmax_cooldown = \"20s\"");
    in_force(&settings, &["max_cooldown: 20s", "default_cooldown: 20s"]);
    let error = file("[rate_limit]\nmax_cooldown = \"20s\"\ndefault_cooldown = \"25s\"").check();
    assert_eq!(error.unwrap_err().field(), "rate_limit.default_cooldown");
}

/// W6: not the default that would give way to it.
#[test]
fn a_longest_cooldown_of_zero_is_at_fault_itself() {
    let error = file("[rate_limit]\nmax_cooldown = \"0s\"").check();
    assert_eq!(error.unwrap_err().field(), "rate_limit.max_cooldown");
}

#[test]
fn a_longer_base_makes_the_cap_as_long() {
    in_force(&file("[retry]\nbase = \"40s\""), &["cap: 40s"]);
    in_force(&file("[retry]\ncap = \"500ms\""), &["cap: 500ms"]);
}

/// T5: a tenth of the budget, and so calls do run.
#[tokio::test(start_paused = true)]
async fn a_reserve_leaves_something_of_a_short_budget() {
    use tower_toolcall::batch::{Parallel, Sequence};

    let settings = file("[sequence]\nbudget = \"400ms\"\n[parallel]\nbudget = \"300ms\"");
    in_force(&settings, &["reserve: 30ms"]);
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let tools = stack(&settings).layer(hangs);
    let start = Instant::now();
    let sequence = settings.sequence.apply(Sequence::new(tools.clone()));
    let report = sequence.run([call()]).await;
    assert_eq!(report.results()[0].attempts(), 1);
    assert_eq!(start.elapsed(), std::time::Duration::from_millis(360));
    let batch = settings.parallel.apply(Parallel::new(tools));
    assert_eq!(batch.run([call()]).await[0].attempts(), 1);
}

/// W6: a preset's value is a default. Calls that time out one after the other open the breaker.
#[tokio::test(start_paused = true)]
async fn the_window_of_a_preset_gives_way_to_a_longer_timeout() {
    let vars = [("TOOLCALL_PRESET", "gateway"), ("TOOLCALL_TIMEOUT", "400")];
    let settings = Settings::default().with_env_from(vars).unwrap();
    in_force(&settings, &["window: Some(2000s)"]);
    let layer = stack(&settings);
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    for _ in 0..5 {
        let error = layer.layer(hangs).oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    let error = layer.layer(hangs).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    // Where it is long enough it stays, and that of a file is a warning (P18).
    in_force(&Settings::gateway(), &["window: Some(300s)"]);
    let vars = [
        ("TOOLCALL_PRESET", "gateway"),
        ("TOOLCALL_TIMEOUT", "365days"),
    ];
    Settings::default().with_env_from(vars).unwrap();
    let window = file("[circuit_breaker]\nwindow = \"300s\"");
    let longer = window.with_env_from([("TOOLCALL_TIMEOUT", "400")]);
    let warnings = longer.unwrap().warnings();
    assert_eq!(warnings[0].field(), "circuit_breaker.window");
}

#[test]
fn the_window_of_a_preset_gives_way_to_a_number_of_calls() {
    let vars = [
        ("TOOLCALL_PRESET", "gateway"),
        ("TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE", "0.5"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS", "100"),
    ];
    let settings = Settings::default().with_env_from(vars).unwrap();
    in_force(&settings, &["Calls(100)"]);
}

/// Timeouts and budgets are promises: what needs more of them is refused.
#[test]
fn timeouts_and_budgets_do_not_give_way() {
    for (preset, change, key) in [
        (
            Settings::agent_library(),
            "[deadline]\nreserve = \"70s\"",
            "deadline.reserve",
        ),
        (
            Settings::agent_library(),
            "[sequence]\nreserve = \"30s\"",
            "sequence.reserve",
        ),
        // A preset's budget is relied on: what was set and does not fit into it is refused.
        (
            Settings::agent_library(),
            "[rate_limit]\ndefault_cooldown = \"60s\"",
            "rate_limit.default_cooldown",
        ),
        (
            Settings::agent_library(),
            "[retry]\nattempts = 3\nbase = \"70s\"",
            "retry.base",
        ),
    ] {
        let preset = toml::to_string(&preset).unwrap();
        let named = preset.lines().next().filter(|l| l.starts_with("preset"));
        let text = format!("{}\n{change}", named.unwrap_or_default());
        assert_eq!(file(&text).check().unwrap_err().field(), key);
    }
    let same = changed(|s| s.timeout.default = secs(30));
    assert_eq!(same.check(), Ok(()));
}

/// W4, W6: as many timeouts as open the breaker fit into the window of the preset, if they come one
/// after the other.
#[test]
fn the_window_of_a_preset_holds_the_timeouts_that_open_the_breaker() {
    for (timeout, window) in [(60, 300), (100, 500), (299, 1495), (400, 2000)] {
        let mut settings = Settings::gateway();
        settings.timeout.default = secs(timeout);
        assert_eq!(settings.check(), Ok(()));
        let layer = settings.circuit_breaker_builder().unwrap();
        let shown = format!("{layer:?}");
        assert!(
            shown.contains(&format!("window: Some({window}s)")),
            "{timeout}: {shown}"
        );
    }
}
