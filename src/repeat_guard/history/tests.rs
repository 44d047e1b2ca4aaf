use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    failures: 3,
    window: Duration::from_secs(60),
};

/// A history and a clock.
#[derive(Default)]
struct Loop {
    history: History,
    now: Duration,
}

impl Loop {
    fn after(&mut self, secs: u64) -> &mut Self {
        self.now += Duration::from_secs(secs);
        self
    }

    fn admit(&mut self, call: u64) -> Result<(), Repeated> {
        let now = self.now;
        self.history.admit(call, || now, LIMITS, true)
    }

    /// Returns whether it was let through. It then fails with this error.
    fn fails_with(&mut self, call: u64, error: u64) -> bool {
        let admitted = self.admit(call).is_ok();
        if admitted {
            let why = || Some("why".into());
            self.history.failed(call, error, self.now, LIMITS, why);
        }
        admitted
    }

    fn fails(&mut self, call: u64) -> bool {
        self.fails_with(call, 0)
    }

    fn succeeds(&mut self, call: u64) -> Option<u32> {
        self.admit(call).expect("it succeeds");
        self.history.succeeded(call, 0, self.now, LIMITS)
    }

    /// Returns how many of these are let through before the first refusal.
    fn until_refused(&mut self, calls: impl IntoIterator<Item = u64>) -> usize {
        let mut calls = calls.into_iter();
        calls.position(|call| !self.fails(call)).expect("a refusal")
    }
}

#[test]
fn the_fourth_call_that_fails_alike_is_refused_and_told_why() {
    let mut model = Loop::default();
    assert_eq!(model.until_refused([1; 9]), 3);
    let refusal = model.after(20).admit(1).unwrap_err();
    assert_eq!((refusal.times, refusal.wait.as_secs()), (3, 40));
    assert_eq!(refusal.why.as_deref(), Some("why"));
    assert!(model.fails(2));
}

#[test]
fn another_error_begins_anew() {
    let mut model = Loop::default();
    assert!((0..100).all(|n| model.fails_with(1, n % 2)));
    assert!((0..3).all(|_| model.fails_with(1, 7)));
    assert!(!model.fails_with(1, 7));
}

#[test]
fn after_the_window_one_is_let_through_in_each() {
    let mut model = Loop::default();
    model.until_refused([1; 4]);
    // Refusals do not extend it.
    for _ in 0..59 {
        assert!(model.after(1).admit(1).is_err());
    }
    for times in 3..10 {
        assert_eq!(model.after(60).admit(1), Ok(()));
        // While it runs, and after it was dropped.
        assert_eq!(model.after(1).admit(1).unwrap_err().times, times);
        assert_eq!(model.after(59).admit(1), Ok(()));
        // It fails again.
        let why = || None;
        model.history.failed(1, 0, model.now, LIMITS, why);
        assert_eq!(model.admit(1).unwrap_err().times, times + 1);
    }
    model.after(60).succeeds(1);
    assert_eq!(model.until_refused([1; 4]), 3);
}

/// A call that fails once an hour is no loop; one that takes an hour to fail is.
#[test]
fn the_time_between_two_calls_counts_and_not_how_long_they_take() {
    let mut model = Loop::default();
    assert!((0..100).all(|_| model.after(60).fails(1)));
    let mut slow = Loop::default();
    for _ in 0..3 {
        slow.after(59).admit(1).unwrap();
        slow.after(3600);
        slow.history.failed(1, 0, slow.now, LIMITS, || None);
    }
    assert!(slow.after(59).admit(1).is_err());
}

#[test]
fn a_cycle_of_calls_that_fail_is_found() {
    for length in 1..=MEMORY as u64 {
        let cycle = (0..100).map(|n| n % length);
        assert_eq!(Loop::default().until_refused(cycle), 3 * length as usize);
    }
    let longer = (0..100).map(|n| n % (MEMORY as u64 + 1));
    let mut model = Loop::default();
    assert!(longer.into_iter().all(|call| model.fails(call)));
}

/// Tests that fail until the code is right.
#[test]
fn a_success_that_is_news_counts_all_others_anew() {
    let (tests, mut model) = (1, Loop::default());
    for edit in 100..200 {
        assert!(model.fails(tests) && model.fails(tests));
        model.succeeds(edit);
    }
    // It lifts a refusal, too.
    assert_eq!(model.until_refused([tests; 4]), 3);
    model.succeeds(200);
    assert!(model.fails(tests));
}

/// Read, edit, read, edit.
#[test]
fn a_success_that_is_no_news_does_not_hide_a_loop() {
    let (read, edit, mut model) = (1, 2, Loop::default());
    let refused = (0..10).position(|_| {
        model.succeeds(read);
        !model.fails(edit)
    });
    assert_eq!(refused, Some(3));
}

#[test]
fn a_call_that_succeeds_after_failures_is_news() {
    let mut model = Loop::default();
    for call in [1, 2] {
        assert!(model.fails(call) && model.fails(call));
    }
    model.succeeds(1);
    assert_eq!(model.until_refused([2; 4]), 3);
}

#[test]
fn the_same_success_is_told_of_now_and_then() {
    let mut model = Loop::default();
    let told: Vec<_> = (0..7).filter_map(|_| model.succeeds(1)).collect();
    assert_eq!(told, [3, 6]);
    // In a cycle as well, but not with news in between, nor once a minute.
    let mut model = Loop::default();
    let told = (0..12).filter(|n| model.succeeds(n % 2).is_some());
    assert_eq!(told.count(), 3);
    let mut model = Loop::default();
    assert!((0..30).all(|n| model.succeeds(1).or(model.succeeds(n + 2)).is_none()));
    assert!((0..30).all(|_| model.after(60).succeeds(1).is_none()));
}

#[test]
fn what_has_failed_of_late_matters() {
    let mut model = Loop::default();
    model.succeeds(1);
    assert!(!model.history.matters(model.now, LIMITS));
    model.fails(2);
    assert!(model.history.matters(model.now, LIMITS));
    model.after(60);
    assert!(!model.history.matters(model.now, LIMITS));
    model.fails(2);
    model.succeeds(3);
    assert!(!model.history.matters(model.now, LIMITS));
}

/// What becomes of a call: `None` if it is dropped.
type End = Option<Result<(), u64>>;

fn steps() -> impl Strategy<Value = Vec<(u64, u64, End)>> {
    let end = prop_oneof![
        Just(None),
        Just(Some(Ok(()))),
        (0..2_u64).prop_map(|error| Some(Err(error))),
        Just(Some(Err(0))),
    ];
    prop::collection::vec((0..4_u64, 0..40_u64, end), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// From both sides: whoever is refused has failed so often with the same error, and was let
    /// through within the window; whoever has failed so often within it, with no other call in
    /// between, is refused.
    #[test]
    fn a_refusal_is_deserved_and_ends(steps in steps()) {
        let mut model = Loop::default();
        let mut ends: [Vec<Result<(), u64>>; 4] = Default::default();
        // When each was let through, and when it last ended.
        let (mut through, mut ended) = ([None; 4], [None; 4]);
        // The call that was made last, and how often it has failed alike, in a row and without a
        // pause.
        let mut row = (9, 0, 0);
        for (call, pause, end) in steps {
            let (at, now) = (call as usize, model.after(pause).now);
            let failures = ends[at].iter().rev().take_while(|end| end.is_err());
            let alike = failures.take_while(|end| Some(*end) == ends[at].last()).count();
            let within = |since: [Option<Duration>; 4]| since[at].is_some_and(|at| now - at < LIMITS.window);
            if row.0 != call || !within(ended) {
                row = (call, 0, 0);
            }
            match model.admit(call) {
                Err(refusal) => {
                    prop_assert!(within(through) && alike >= 3 && refusal.times as usize <= alike);
                    prop_assert!(!refusal.wait.is_zero() && refusal.wait <= LIMITS.window);
                }
                Ok(()) => {
                    prop_assert!(row.2 < 3);
                    through[at] = Some(now);
                    let Some(end) = end else { continue };
                    ended[at] = Some(now);
                    ends[at].push(end);
                    match end {
                        Ok(()) => {
                            model.history.succeeded(call, 0, now, LIMITS);
                            row.2 = 0;
                        }
                        Err(error) => {
                            model.history.failed(call, error, now, LIMITS, || None);
                            row.2 = if row.1 == error { row.2 + 1 } else { 1 };
                            row.1 = error;
                        }
                    }
                }
            }
        }
    }
}
