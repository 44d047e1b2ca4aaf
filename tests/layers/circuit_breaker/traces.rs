//! Published traces of other breakers, replayed on ours.
//!
//! resilience4j, failsafe-rs, failsafe-lib (Java) and gobreaker: each test names the one that it
//! comes from. Theirs are the events and what has to be seen after them; the tests are ours. Where
//! our rules differ on purpose, the test says what ours does on the same trace.

use std::{collections::VecDeque, future, iter, task::Poll, time::Duration};

use tokio::time::{advance, sleep};
use tokio_test::{assert_pending, task};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_toolcall::{
    ErrorKind, Outcome, ToolCall, ToolError,
    circuit_breaker::{
        Breaker, BreakerSnapshot, BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Permit,
        Rates, Transitions, Trip,
    },
    outcome::classify_fn,
};

/// A breaker that is driven by hand.
struct Run {
    layer: CircuitBreakerLayer,
    breaker: Breaker,
    transitions: Transitions,
    /// The calls that it has let through and that still run.
    pending: VecDeque<Permit>,
    /// Nobody looks at it, so that it may put off what it can.
    blind: bool,
}

fn run(builder: CircuitBreakerBuilder) -> Run {
    let layer = builder.build().unwrap();
    let handle = layer.handle();
    Run {
        layer,
        breaker: handle.breaker(&ToolCall::new("t")),
        transitions: handle.subscribe(),
        pending: VecDeque::new(),
        blind: false,
    }
}

impl Run {
    /// Replays a trace. What happens:
    ///
    /// - `S`, `F`, `I`: a call is admitted and succeeds, fails, tells nothing (is ignored);
    /// - `s`, `f`: a success or a failure that comes without an admission;
    /// - `P`: a call is admitted and runs; `w`, `l`, `d`: the one that has run longest succeeds
    ///   (wins), fails (loses), is dropped;
    /// - `20*SF`: 20 times `SF`;
    /// - `~5sF`: a call through the layer that takes 5 s and fails; `~5sN`: one that is denied,
    ///   which is neutral; `20*~5sF`: 20 such calls;
    /// - `+3s`, `+10ms`, `+1ns`: time passes;
    /// - `!open`, `!closed`, `!disabled`, `!reset`: somebody demands it;
    /// - `@5s`, `@open`, `@closed`, `@reset`: another process has opened its breaker for so long,
    ///   or is in the state of such a demand (`@open` alone is no demand).
    ///
    /// What has to be seen:
    ///
    /// - `D`: a call is denied;
    /// - `C`, `O`, `H`, `X`, `U`, `N`: the breaker is closed, open, half-open, forced open, forced
    ///   closed (unopenable), disabled (none);
    /// - `>OC`: these are the transitions up to now, or since the last such word;
    /// - `?5s`: it will be open for 5 s; `?0ns`: it is not;
    /// - `5:3`: there are 5 calls in its window, 3 of them failures; `5:3:1`: and one was slow;
    /// - `-2`, `#4`, `%1`: it has refused two, counted four failures, and met one stale result in
    ///   its life.
    async fn play(&mut self, trace: &str) {
        for (n, word) in trace.split_whitespace().enumerate() {
            let at = format!("word {n}, {word:?}, of {trace:?}");
            if let Some((times, call)) = word.split_once("*~") {
                for _ in 0..times.parse().unwrap() {
                    self.call(call).await;
                }
                continue;
            }
            let (sign, rest) = word.split_at(1);
            match sign {
                "+" => advance(duration(rest)).await,
                "~" => self.call(rest).await,
                "!" => self.demand(rest),
                "@" => self.adopt(rest),
                "?" | "-" | "#" | "%" | ">" => self.look(sign, rest, &at),
                _ if word.contains(':') => self.look(":", word, &at),
                _ => {
                    let (times, events) = word.split_once('*').unwrap_or(("1", word));
                    for event in events.repeat(times.parse().unwrap()).chars() {
                        self.step(event, &at);
                    }
                }
            }
        }
    }

    fn look(&mut self, sign: &str, expected: &str, at: &str) {
        if self.blind {
            return;
        }
        let now = self.now();
        let seen = match sign {
            "?" => format!("{:?}", now.retry_after.unwrap_or_default()),
            "-" => now.rejected_total.to_string(),
            "#" => now.failed_total.to_string(),
            "%" => now.stale_total.to_string(),
            ">" => self.told(),
            "state" => letter(now.state).to_string(),
            _ if now.slow_calls == 0 && expected.matches(':').count() == 1 => {
                format!("{}:{}", now.calls, now.failures)
            }
            _ => format!("{}:{}:{}", now.calls, now.failures, now.slow_calls),
        };
        assert_eq!(seen, expected, "{at}");
    }

    fn step(&mut self, event: char, at: &str) {
        let is_open = |run: &Self| {
            let now = run.now();
            !run.blind && now.state == BreakerState::Open && now.retry_after.is_some()
        };
        let was_open = "fl".contains(event) && is_open(self);
        let opened = match event {
            'F' => self.breaker.admit().expect(at).failure(),
            'f' => self.breaker.record_failure(),
            'l' => self.pending.pop_front().expect(at).failure(),
            'S' => return self.breaker.admit().expect(at).success(),
            'I' => return drop(self.breaker.admit().expect(at)),
            's' => return self.breaker.record_success(),
            'P' => return self.pending.push_back(self.breaker.admit().expect(at)),
            'w' => return self.pending.pop_front().expect(at).success(),
            'd' => return drop(self.pending.pop_front().expect(at)),
            'D' => return self.denied(at),
            state => return self.look("state", &state.to_string(), at),
        };
        let opens = is_open(self) && (event == 'F' || !was_open);
        assert!(self.blind || opened == opens, "says if it opened: {at}");
    }

    fn denied(&self, at: &str) {
        assert!(self.blind || self.breaker.is_open(), "{at}");
        let error = self.breaker.admit().expect_err(at);
        assert_eq!(error.kind(), ErrorKind::CircuitOpen, "{at}");
        assert_eq!(error.message(), "Circuit breaker open", "{at}");
        assert!(error.retry_after() > Some(Duration::ZERO), "{at}");
    }

    async fn call(&self, call: &str) {
        let (time, end) = call.split_at(call.len() - 1);
        let (time, failure) = match end {
            "S" => (duration(time), None),
            "N" => (duration(time), Some(ErrorKind::Denied)),
            _ => (duration(time), Some(ErrorKind::Upstream)),
        };
        let tool = service_fn(move |_: ToolCall| async move {
            sleep(time).await;
            failure.map_or(Ok(()), |kind| Err(ToolError::new(kind, "no")))
        });
        let result = self.layer.layer(tool).oneshot(ToolCall::new("t")).await;
        assert_eq!(result.map_err(|error| error.kind()).err(), failure);
    }

    fn now(&self) -> BreakerSnapshot {
        self.breaker.snapshot()
    }

    fn demand(&self, demand: &str) {
        match demand {
            "open" => self.breaker.force_open(),
            "closed" => self.breaker.force_closed(),
            "disabled" => self.breaker.disable(),
            "reset" => self.breaker.reset(),
            _ => panic!("no such demand: {demand}"),
        }
    }

    fn adopt(&self, state: &str) {
        match state {
            "open" => self.breaker.adopt_state(BreakerState::Open),
            "closed" => self.breaker.adopt_state(BreakerState::ForcedClosed),
            "reset" => self.breaker.adopt_state(BreakerState::Closed),
            period => self.breaker.adopt(duration(period)),
        }
    }

    fn told(&mut self) -> String {
        let next = || match task::spawn(self.transitions.next()).poll() {
            Poll::Ready(next) => Some(letter(next.unwrap().unwrap().to)),
            Poll::Pending => None,
        };
        iter::from_fn(next).collect()
    }
}

/// Replays a trace on a new breaker, and on another that nobody looks at: that makes no difference.
async fn replay(builder: CircuitBreakerBuilder, trace: &str) {
    let mut ends = Vec::new();
    for blind in [false, true] {
        let mut run = run(builder.clone());
        run.blind = blind;
        run.play(trace).await;
        ends.push(run.now());
    }
    assert_eq!(ends[0], ends[1], "{trace}");
}

/// Tests that replay traces on breakers of given settings.
macro_rules! traces {
    ($($(#[$doc:meta])+ $name:ident { $($builder:expr => $($trace:literal)+;)+ })+) => {$(
        $(#[$doc])+
        #[tokio::test(start_paused = true)]
        async fn $name() {
            $(replay($builder, concat!($($trace, " "),+)).await;)+
        }
    )+};
}

fn letter(state: BreakerState) -> char {
    match state {
        BreakerState::Closed => 'C',
        BreakerState::Open => 'O',
        BreakerState::HalfOpen => 'H',
        BreakerState::ForcedOpen => 'X',
        BreakerState::ForcedClosed => 'U',
        BreakerState::Disabled => 'N',
        _ => '?',
    }
}

fn duration(text: &str) -> Duration {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number = digits.parse().unwrap();
    match &text[digits.len()..] {
        "s" => s(number),
        "ms" => ms(number),
        "ns" => Duration::from_nanos(number),
        unit => panic!("no such unit: {unit}"),
    }
}

const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn in_a_row(failures: u32) -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder().with_trip(Trip::consecutive_failures(failures))
}

fn within(secs: u64) -> CircuitBreakerBuilder {
    let trip = Trip::consecutive_failures_within(5, s(secs));
    CircuitBreakerLayer::builder().with_trip(trip)
}

fn on(rates: Rates) -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder().with_trip(rates)
}

fn of_calls(calls: u32, rate: f64) -> Rates {
    Rates::over_calls(calls).with_failure_rate(rate)
}

fn of_time(window: Duration, rate: f64) -> Rates {
    Rates::over_time(window).with_failure_rate(rate)
}

/// What most of resilience4j's state machine tests run on.
fn fixture_a() -> CircuitBreakerBuilder {
    let rates = of_time(s(20), 0.5).with_slow_call_rate(0.5, s(4));
    let builder = on(rates.with_minimum_calls(5));
    builder.with_open_for(s(5)).with_probes(4)
}

/// What gobreaker's tests of its windows run on.
fn gobreaker() -> CircuitBreakerBuilder {
    let builder = on(of_time(s(30), 0.6).with_minimum_calls(3));
    builder.with_open_for(s(90)).with_probes(3)
}

traces! {
    // What was asked for, and the traps of the design.

    /// C2, C3, C4, trap 12: five failures in a row open it, however slowly they come, for a minute;
    /// one probe decides, while others are refused; a refusal changes nothing.
    the_default {
        CircuitBreakerLayer::builder() => "10*FFFFSC 0:0 FC 1:1 +86400s F 2:2 +86400s F 3:3 +86400s FC +86400s FO"
            "?60s DDD -3 5:5 #45 +59999ms DO +1ms ?0ns PH DDD wC S -7 >OHC"
            "5*F +60s FO ?60s +59s D +1s FO ?60s +60s PH lO ?60s";
    }

    /// C3: as of system E, after 30 s three probes have to succeed.
    several_probes_have_to_succeed {
        in_a_row(5).with_open_for(s(30)).with_probes(3) => "5*F ?30s +30s PPP DH wH wH wC";
    }

    /// W4, C2: of system D, five in a row within 300 s open it, wherever the window begins; a
    /// success ends a row.
    a_row_within_a_time {
        within(300) => "FFFS 0:0 FFFFC FO ?60s";
        within(300) => "FC +76s FC +76s FC +76s FC 4:4 +76s FC 4:4 +76s FC 4:4 +76s FC 4:4";
        within(300) => "+10s F +298s FFFC FO";
        within(300) => "+290s F +298s FFFC FO";
    }

    /// C2: who asks for all failures within a time gets all, whatever succeeds in between.
    a_success_does_not_reset_a_total {
        CircuitBreakerLayer::builder().with_trip(Trip::total_failures_within(5, s(300)))
            => "FS +70s FS +70s FS +70s FS +70s C FO";
    }

    /// C2: no rate means anything below its minimum, and neutral results are no calls of one.
    a_rate_needs_its_minimum {
        on(of_calls(20, 0.5).with_minimum_calls(10)) => "10*S 9*F C FO 20:10";
        on(of_calls(20, 0.5).with_minimum_calls(10)) => "9*F C SO 10:9";
        on(of_calls(20, 0.5).with_minimum_calls(10)) => "9*IIIIIF C 9:9 50*~0sN C 9:9 IIFO";
        on(of_time(s(60), 0.5).with_minimum_calls(10)) => "1000*S 9*F C +60s 0:0 9*F C FO";
    }

    /// Trap 2: what was admitted before a trip, a failed probe, a demand or another process'
    /// opening decides nothing after it, and makes no open period longer.
    what_is_late_is_stale {
        in_a_row(1) => "P F +30s lO ?30s %1 +30s SC";
        in_a_row(1).with_probes(2).with_successes(1) => "F +60s PH FO +60s PH wH %1";
        in_a_row(1) => "F +60s PH !reset C wC %1 0:0";
        in_a_row(5) => "5*P !open !reset 5*l C 0:0 %5";
        in_a_row(5) => "5*P !reset 5*l C 0:0 %5";
        in_a_row(5) => "5*F +60s PH @30s wO ?30s %1";
    }

    /// Trap 2: results of one state do not make each other stale.
    results_of_one_state_all_count {
        in_a_row(5) => "5*P lC lC lC lC lO %0";
    }

    /// Trap 3: neutral results end no row of failures, are no probe's success, and neither make
    /// room for more probes than are allowed, nor does the end of an older call.
    neutral_results_are_none {
        in_a_row(5) => "FFFF ~0sN I C 4:4 FO";
        in_a_row(1).with_probes(3) => "F +60s 100*~0sN H SH SH SC";
        in_a_row(1).with_probes(3) => "F +60s 4*~0sN H PPP DH";
        in_a_row(5) => "P 5*F +60s PH dH D";
    }

    /// Trap 4: what was before does not count after recovery, and calls are stamped when they end:
    /// these ended together, though each started longer ago than the window is long.
    a_window_is_of_ends_and_begins_anew {
        in_a_row(5) => "5*F O +60s SC 0:0 3*F C";
        on(of_calls(5, 0.8)) => "5*F O +60s SC 0:0 3*F C";
        CircuitBreakerLayer::builder().with_trip(Trip::consecutive_failures_within(5, s(10)))
            => "5*F O +60s SC 0:0 3*F C !reset 5*P +100s llll C lO";
        CircuitBreakerLayer::builder().with_trip(Trip::total_failures_within(5, s(10)))
            => "5*F O +60s SC 0:0 3*F C !reset 5*P +100s llll C lO";
        on(of_time(s(10), 0.5).with_minimum_calls(5)) => "5*F O +60s SC 0:0 3*F C !reset 5*P +100s llll C lO";
    }

    /// C6, C7: forced open, it keeps what it had counted; forced closed, it counts and stays.
    a_demand_holds_until_it_is_reset {
        in_a_row(5) => "FFF !open X 3:3 D +10000s DX !reset S";
        in_a_row(5) => "5*F !closed U 20*F U 20:20 !reset FFFFC FO";
        in_a_row(5) => "!disabled 20*F N 0:0 #0 !reset FFFFC FO";
    }

    /// C7: what is recorded by hand counts as what is called, and needs no permit while half-open.
    by_hand_it_is_the_same {
        in_a_row(5) => "10*ffffs C 0:0 4*f C fO f O #45 +60s fO +60s sC";
    }

    /// C8: an opening of another process lasts no longer than the settings allow, and does not
    /// shorten ours; a closing of another one ends both, and leaves a closed breaker alone.
    states_of_other_processes {
        in_a_row(5) => "@1000000s O ?60s @1000000s ?60s @reset C";
        in_a_row(5) => "5*F @1s ?60s @reset C S";
        in_a_row(5) => "FFFF @reset @open C 4:4 FO";
        in_a_row(5) => "@closed U @reset C !closed @60s U";
    }

    // What opens a breaker.

    /// resilience4j, `shouldOpenAfterFailureRateThresholdExceeded`. A call that never ends is none.
    a_success_may_complete_the_minimum_and_open {
        fixture_a() => "P C 0:0 F C 1:1 F C 2:2 F C 3:3 S C 4:3 s O 5:3 -0 D O 5:3 -1 >O";
    }

    /// resilience4j, `shouldOpenAfterFailureRateThresholdExceeded2`.
    the_threshold_itself_opens {
        fixture_a() => "s +1s s +1s s +1s f +1s f C +1s C f O 6:3";
    }

    /// resilience4j, `shouldThrowCircuitBreakerOpenException`: a minimum of 100 in a window of 2 is
    /// taken for 2; ours is 2 by itself, and 100 is an error
    /// (`settings_that_cannot_work_are_refused` of `configuration`).
    a_small_window_lowers_the_default_minimum {
        on(of_calls(2, 0.5)) => "FC FO D 2:2";
    }

    /// failsafe-lib, `testFailureWithFailureThreshold`, `testSuccessWithFailureThreshold`, and with
    /// a threshold of 1 `testFailureWithDefaultConfig`, `testSuccessWithDefaultConfig`.
    a_success_ends_a_row_of_failures {
        in_a_row(1) => "SC FO D";
        in_a_row(3) => "FSFF C F O";
        in_a_row(2) => "20*SCFC";
    }

    /// failsafe-lib, `testFailureWithFailureRatio`, `testSuccessWithFailureRatio`.
    two_of_the_last_three_and_never_three_of_four {
        on(of_calls(3, 2.0 / 3.0)) => "FSC FO";
        on(of_calls(4, 0.75)) => "20*SCFC 4:2";
    }

    /// failsafe-rs, `fail_on_nth_attempt`, `reset_to_zero_on_success`, `reset_to_zero_on_revived`.
    a_row_starts_anew_after_a_success_or_a_reset {
        in_a_row(3).with_open_for(s(5)) => "FC FC FO ?5s";
        in_a_row(3) => "F S FF C F !reset FF C F O";
    }

    /// gobreaker, `TestDefaultCircuitBreaker`: it opens when more than 5 failed in a row, and
    /// zeroes its counters when it opens; ours keeps what it opened for until it closes. Reading
    /// gobreaker's state half-opens it; ours waits for a call.
    six_in_a_row_and_a_probe_twice {
        in_a_row(6) => "FFFFFC 5:5 SC 0:0 FC 1:1 FFFFFO DD +59999ms DO 6:6"
            "+1s O PH lO D +60s +1ns PH wC 0:0 -4";
    }

    // A window of calls.

    /// resilience4j, `FixedSizeSlidingWindowMetricsTest.testSlidingWindowMetrics`.
    a_window_of_calls_forgets_the_oldest {
        on(of_calls(4, 1.0)) => "0:0 F 1:1 S 2:1 S 3:1 S 4:1 S 4:0";
    }

    /// resilience4j, `FixedSizeSlidingWindowMetricsTest.testSlidingWindowMetricsWithSlowCalls`.
    a_window_of_calls_forgets_slow_ones {
        on(of_calls(2, 1.0).with_slow_call_rate(1.0, s(1)))
            => "!closed ~2sF 1:1:1 ~2sS 2:1:2 ~1msS 2:0:1 ~1msS 2:0:0 ~1msS 2:0:0";
    }

    /// resilience4j, `CircuitBreakerMetricsTest.testCircuitBreakerMetrics`. Theirs are the counters
    /// alone; a whole breaker opens at the tenth result, which is a success, and no other brings it
    /// back.
    twelve_results_in_a_window_of_ten {
        on(of_calls(10, 0.5)) => "!closed SSFF 4:2 FFFFSSSS 10:6 SSS 10:3";
        on(of_calls(10, 0.5)) => "SSFF FFFFS C S O DD ssss O 10:6 -2";
    }

    /// failsafe-lib, `CountingCircuitStatsTest.testMetrics`.
    a_hundred_successes_push_everything_out {
        on(of_calls(100, 0.5).with_minimum_calls(100)) => "0:0 16*SFF SF 50:33 100*S C 100:0";
    }

    /// failsafe-lib, `CircuitBreakerTest.shouldGetSuccessAndFailureStats`, without the half-open
    /// part.
    half_of_the_last_ten_is_never_reached {
        on(of_calls(10, 0.5)) => "sfsfsfs C 7:3 !reset fsss fsss fsss fss C 10:2";
    }

    // A window of time.

    /// resilience4j, `SlidingTimeWindowMetricsTest.testSlidingTimeWindowMetrics`: what is as old as
    /// the window is gone.
    a_window_of_time_forgets_the_oldest {
        on(of_time(s(5), 1.0)) => "F 1:1 +100ms S 2:1 +100ms S 3:1 +1s S 4:1 +1s S 5:1 +1s F 6:2 +1s S 7:2"
            "+1s S 5:1 +1s S 5:1 +5s S 1:0";
    }

    /// resilience4j, `SlidingTimeWindowMetricsTest.shouldClearSlidingTimeWindowMetrics`.
    a_reader_sees_no_old_results {
        on(of_time(s(5), 1.0))
            => "F 1:1 +100ms S 2:1 +700ms F 3:2 +4s 3:2 +1s 0:0 +100ms S 1:0 +5s S 1:0";
    }

    /// failsafe-rs, `windowed_adder.rs`. (Its last sum over the large window depends on where its
    /// slices lie.)
    sums_over_a_sliding_window {
        on(of_time(s(3), 1.0)) => "S 1:0 +1s 1:0 SS 3:0 +1s 3:0 +1s 2:0 +1s 0:0";
        on(of_time(s(3), 1.0)) => "S 1:0 +1s SS 3:0 +1s S 4:0 +2s 1:0 +100s 0:0"
            "100*S +1s 100:0 100*S +1s 100*S 300:0 +100s 0:0";
        on(of_time(s(20), 1.0)) => "+1s S +1s SS +2s S +1s SS +2s S +1s SS +2s S +1s SS"
            "+2s S +1s SS +2s S +1s SS +2s S +1s SS +1s 20:0 +1s 18:0 +1s 18:0 +5s 12:0";
    }

    /// failsafe-lib, `TimedCircuitStatsTest.testMetrics`.
    waves_of_results_roll_through_a_window_of_time {
        on(of_time(s(4), 0.5)) => "!closed 10*SFFFF 50:40 +1s 10*S 60:40 +1500ms 20*F 80:60"
            "+600ms 5*SFFFF 105:80 +2300ms 8*S 53:40 +1900ms 5*F 13:5 +15200ms 0:0";
    }

    /// failsafe-lib, `shouldSupportTimeBasedFailureThresholding` (2 failures within 200 ms) and
    /// `shouldSupportTimeBasedFailureRateThresholding`, as far as they open: their open period is
    /// zero, which is an error in ours.
    failures_roll_out_of_the_window {
        CircuitBreakerLayer::builder().with_trip(Trip::total_failures_within(2, ms(200)))
            => "FS +210ms FS +50ms C FO";
        on(of_time(ms(200), 0.5).with_minimum_calls(3)) => "FS +210ms FS +50ms SC FO 4:2";
    }

    /// gobreaker, `TestCustomCircuitBreaker`: its window starts anew every 30 s, and so it opens at
    /// the last failure but one; ours slides, and knows the success of a second before.
    a_window_of_time_slides_and_does_not_tumble {
        gobreaker() => "5*SFI C 10:5 +29999ms S C 11:5 +1s F C 2:1 SF C 4:2 F O 5:3";
    }

    /// gobreaker, `TestRollingWindowCircuitBreaker`; what it excludes is not in our counts at all.
    a_rolling_window_from_closed_to_closed {
        gobreaker() => "5*SFI 10:5 +3s S 11:5 +2s SI 12:5 +2s IS 13:5 +2s F 14:6"
            "+3s SF 16:7 +3s SF 18:8 +3s SF 20:9 +3s SF 22:10 +3s SF 24:11 +3s SF 26:12"
            "+3s FC 17:8 FFFFFC 22:13 FO 23:14 +90s +1ns SH SH PH D wC 0:0";
    }

    // The open period.

    /// resilience4j, `shouldTransitionToHalfOpenAfterWaitDuration`. Theirs zeroes its counters when
    /// it half-opens; ours keeps what it opened for, and counts refusals for ever.
    the_first_call_after_the_period_is_the_probe {
        fixture_a() => "FFFFF O D +3s D O -2 +3s O P H 5:5 -2";
    }

    /// failsafe-lib, `OpenStateTest`.
    it_tells_how_long_it_will_be_open {
        in_a_row(1).with_open_for(s(1)) => "?0ns F ?1s D +110ms ?890ms D +1s ?0ns P H";
    }

    /// resilience4j, failsafe-rs and gobreaker let nobody in at the very end of the period,
    /// failsafe-lib does; none tests it. Ours does: who comes back after `retry_after`, to the
    /// nanosecond, is admitted.
    the_very_end_of_the_period_is_half_open {
        in_a_row(1).with_open_for(s(5)) => "F +4999ms +999999ns D O +1ns P H";
    }

    /// resilience4j, `shouldTransitionToHalfOpenAfterWaitInterval`: 5 s, then 7.5 s.
    the_period_grows_by_half {
        fixture_a().with_growth(1.5, s(60))
            => "FFFFF D +3s D -2 +3s PH lO +6s D O +1499ms D +1ms PH";
    }

    /// resilience4j, `IntervalFunctionTest`: 100 ms doubled, at most 100 s.
    the_period_grows_strictly_until_it_is_bounded {
        in_a_row(1).with_open_for(ms(100)).with_growth(2.0, s(100))
            => "F ?100ms +999s F ?200ms +999s F ?400ms +999s F ?800ms +999s F ?1.6s +999s F ?3.2s +999s"
            "F ?6.4s +999s F ?12.8s +999s F ?25.6s +999s F ?51.2s +999s F ?100s +999s F ?100s";
    }

    /// failsafe-rs, `iterates_over_backoff`, and `backoff.rs`: the period doubles up to its bound,
    /// and is the first again once the breaker was closed.
    the_period_doubles_up_to_its_bound {
        in_a_row(1).with_open_for(s(5)).with_growth(2.0, s(60))
            => "F ?5s +5s F ?10s +10s F ?20s +20s F ?40s +40s F ?60s +60s F ?60s +60s SC F ?5s";
        in_a_row(1).with_open_for(s(10)).with_growth(2.0, s(100))
            => "F ?10s +10s F ?20s +20s F ?40s +40s F ?80s +80s F ?100s +100s F ?100s +100s SC F ?10s";
        in_a_row(1).with_open_for(s(3)) => "F ?3s +3s F ?3s +3s F ?3s +3s SC F ?3s";
    }

    /// failsafe-rs, `state_machine`: the whole cycle.
    the_whole_cycle_with_a_growing_period {
        in_a_row(3).with_open_for(s(5)).with_growth(2.0, s(300))
            => "10*S C FF C F O D -1 9*D -10 +2s D O +4s PH lO ?10s D +5s D O +6s PH wC"
            "PC 10*S fff O ?5s !reset C S";
    }

    // Half-open.

    /// resilience4j, `shouldOnlyPermitFourCallsInHalfOpenState`,
    /// `shouldIncreaseCounterOnReleasePermission`,
    /// `shouldThrowCallNotPermittedExceptionWhenNotFurtherTestCallsArePermitted`. At the end, three
    /// of the first half-open time are dropped in the second: they give no place back.
    four_probes_and_one_more_when_one_is_dropped {
        fixture_a() => "FFFFF +5s PPPP H DD -2 dH P D lO +5s PPPP H DD dddH D d P D";
    }

    /// failsafe-lib, `shouldRejectExcessiveAttemptsWhenBreakerHalfOpen`. There, a probe that has
    /// ended makes room for another; in ours those are enough that have succeeded or still may.
    more_calls_than_probes_are_refused {
        in_a_row(1).with_probes(3) => "F +60s PPP H DDDDD -5 w DH w DH w C";
    }

    /// failsafe-lib, `HalfOpenStateTest`, 3 successes; ours can ask for more of them than run at a
    /// time.
    three_successes_one_at_a_time {
        in_a_row(1).with_probes(1).with_successes(3) => "F +60s PH D wH PH D wH IH PH D wC";
    }

    /// resilience4j, `circuitBreakerTransitionsToOpenAfterWaitDurationInHalfOpenState`: half-open
    /// for a limited time. Ours stays half-open as long as nothing is known, but a probe that hangs
    /// keeps its place for its lease only.
    half_open_without_calls_lasts_and_a_hanging_probe_does_not {
        in_a_row(1).with_probe_lease(s(10)) => "F +60s IH +3600s H P D +9999ms D +1ms P D d D w C";
    }

    /// resilience4j, `shouldTransitionBackToOpenStateWhenFailureRateIsAboveThreshold`: opens at 75
    /// % failures, after 4 probes; `...ToClosedStateWhenFailureIsBelowThreshold`: closes at 25 %
    /// failures; ours reopens at the first, wherever it comes (C3), and closes with an empty
    /// window.
    the_first_failed_probe_reopens {
        fixture_a() => "FFFFF +5s FO DDD -3";
        fixture_a() => "FFFFF +5s SH SH SH F O D";
        fixture_a() => "FFFFF +5s SH SH SH SC 0:0 S C 1:0";
    }

    /// resilience4j, `shouldTransitionBackToOpenStateWhenSlowCallRateIsAboveThreshold`: opens when
    /// 3 of 4 were slow; ours at the first.
    a_slow_probe_is_a_failed_one {
        fixture_a() => "FFFFF +5s ~1sS H ~5sS O D";
    }

    /// failsafe-lib, `HalfOpenStateTest`: as theirs where every probe has to succeed.
    as_many_successes_as_probes_close {
        in_a_row(1) => "F +60s FO +60s SC";
        in_a_row(1).with_probes(2) => "F +60s SH SC";
        in_a_row(1).with_probes(3) => "F +60s SH FO +60s FO +60s SH SH SC";
    }

    /// failsafe-lib, the same: closes at 2 successes of 3 or 3 of 4, and may wait for the third
    /// failure. Ours has no ratio, and reopens at the first (C3).
    a_failed_probe_is_never_outweighed {
        in_a_row(1).with_probes(3) => "F +60s SH SH FO";
        in_a_row(1).with_probes(4) => "F +60s SH FO +60s SH SH SH FO";
    }

    // Slow calls.

    /// resilience4j, `shouldOpenAfterSlowCallRateThresholdExceeded`, a slow failure counts as both;
    /// and `...UsingMockClock`, the breaker times the call itself.
    slow_calls_open {
        fixture_a() => "~5sF C ~5sS C ~100msF C ~100msS C ~5sS O 5:2:3";
        fixture_a() => "~5sS 1:0:1 C ~5sS 2:0:2 C ~1sS 3:0:2 C ~1sS 4:0:2 C ~5sS 5:0:3 O";
    }

    /// resilience4j takes a call for slow that is longer than the limit; ours one that is as long.
    a_call_as_long_as_the_limit_is_slow {
        fixture_a() => "~3999msS 1:0:0 ~4sS 2:0:1 ~4001msS 3:0:2";
    }

    /// resilience4j, `testSlowCallsPercentage`.
    two_of_five_were_slow {
        on(of_calls(5, 0.5).with_slow_call_rate(0.5, s(4))) => "~10sS ~10sF 3*S 5:1:2 C";
        on(of_time(s(60), 0.5).with_minimum_calls(5).with_slow_call_rate(0.5, s(4)))
            => "~10sS ~10sF 3*S 5:1:2 C";
    }

    // What does not count.

    /// resilience4j, `shouldReleasePermissionWhenExceptionIgnored`: closes at 25 % failures; ours
    /// reopens at the first (C3). An ignored probe gives its place back.
    /// `shouldIgnoreExceptionsAndThenTransitionToClosed`.
    an_ignored_probe_decides_nothing {
        fixture_a() => "FFFFF +5s SHSHSH IH P D l O";
        fixture_a() => "FFFFF +5s IHIHIHIH SHSHSH SC 0:0";
    }

    /// gobreaker, `TestCustomCircuitBreaker`, half-open.
    excluded_probes_take_no_place {
        gobreaker() => "FFF O +90s IIIIH FO D +90s +1ns SSH PH D wC 0:0";
    }

    /// resilience4j, `CircuitBreakerExceptionHandlingTest`; failsafe-rs, `call_with`; gobreaker,
    /// `TestIsExcludedAndIsSuccessfulCombination`. To resilience4j and failsafe-rs a failure that
    /// is not on the list is a success; ours never takes what tells nothing for one.
    what_tells_nothing_is_no_success {
        on(of_calls(5, 1.0)) => "FI 1:1";
        on(of_calls(10, 1.0)) => "III 0:0 SSS 3:0 FF 5:2";
        in_a_row(9) => "III SSS FF 2:2";
        in_a_row(2) => "FI C FO";
        in_a_row(1) => "IIC F O D +60s IH S C";
    }

    // Results that come late.

    /// gobreaker, `TestGeneration`: a result counts in the state of its admission, or not at all.
    a_late_result_decides_nothing {
        in_a_row(2) => "9*P FF wOlOdO 2:2 +60s IH wH lH SC wC lC dC 0:0 %6 PF wC lO %7 >OHCO #4";
    }

    /// resilience4j: a late ignored result would give a probe's place back twice.
    a_late_ignored_result_gives_no_place_back {
        in_a_row(1) => "PPP F +60s PH D dD dD dD wC %0";
    }

    /// resilience4j, `shouldConsumeOnStateTransitionEvent`, `shouldConsumeCallNotPermittedEvent`.
    a_late_failure_opens_nothing_twice {
        on(of_calls(1, 0.5)) => "P fO fO lO sO D 1:1 -1 >O";
    }

    /// `failed_total`, on the same trace, is of failures that counted.
    a_failure_fed_by_hand_while_open_does_not_count {
        in_a_row(1) => "fO fO #1";
    }

    // By hand.

    /// resilience4j, `shouldForceOpenCircuitBreaker`.
    forced_open_has_no_end {
        fixture_a() => "!open X D +6s X D 0:0 -2 !reset C S";
    }

    /// resilience4j, `shouldDisableCircuitBreaker`.
    disabled_admits_everything_and_sees_nothing {
        fixture_a() => "!disabled N SFFFF 0:0 FFSFF fs ~5sF ~5sS 0:0:0 -0 N";
    }

    /// `failed_total`, on the same trace: disabled, it "lets every call pass until it is reset, and
    /// counts nothing".
    disabled_counts_no_failures {
        fixture_a() => "!disabled SFFFF #0";
    }

    /// resilience4j, `shouldRecordMetricsInMetricsOnlyState`.
    forced_closed_counts_and_does_not_open {
        fixture_a() => "SS 2:0 !closed U 0:0 P FFF 3:3 S 4:3 s 5:3 5*F 10:8 >U";
    }

    /// resilience4j, the `reset` tests. One that was closed already tells nobody.
    reset_forgets_and_closes {
        fixture_a() => "SF 2:1 !reset C 0:0 5*F O !reset C 0:0 SS 2:0 !reset C 0:0 >OC";
    }

    /// resilience4j, the transition tests and `shouldNotProduceEventsInDisabledState`: to the same
    /// state is allowed and told to nobody.
    only_a_change_is_a_transition {
        in_a_row(1) => "!open X !open >X !disabled FF !disabled >N !closed !closed >U !reset !reset >C";
    }

    /// failsafe-lib, `testRejectedWithRetries`: of 7 attempts 3 run, and the refusals are no
    /// failures.
    refusals_are_no_failures {
        in_a_row(3) => "FFF DDDD O 3:3 -4 #3";
    }
}

// Through the layer.

/// resilience4j, `CircuitBreakerResultHandlingTest`: an answer may be a failure.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_as_its_classifier_says() {
    let builder =
        on(of_calls(5, 1.0)).classify_fn(|result: Result<&&str, &ToolError>| match result {
            Ok(&"success") => Outcome::success(),
            Ok(&"failure") => Outcome::failure(),
            _ => Outcome::neutral(),
        });
    let layer = builder.build().unwrap();
    for answer in ["success", "other", "failure"] {
        let tool = service_fn(move |_| async move { Ok::<_, ToolError>(answer) });
        let result = layer.layer(tool).oneshot(ToolCall::new("t")).await;
        assert_eq!(result.unwrap(), answer);
    }
    let seen = &layer.handle().snapshot()[0];
    assert_eq!((seen.calls, seen.failures), (2, 1));
}

/// resilience4j, `FluxCircuitBreakerTest`, `shouldDecorateFutureWithSupplierAndCallCancel`:
/// cancelled, a call tells nothing and gives its place back. gobreaker, `TestPanicInRequest`: a
/// panic is a failure.
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_nothing_and_a_panic_is_a_failure() {
    let mut b = run(in_a_row(1));
    let hangs = |_| future::pending::<Result<(), ToolError>>();
    let hangs = b.layer.layer(service_fn(hangs));
    let mut call = task::spawn(hangs.clone().oneshot(ToolCall::new("t")));
    assert_pending!(call.poll());
    drop(call);
    b.play("C 0:0").await;

    let panics = service_fn(|_| async { panic!("boom") as Result<(), ToolError> });
    let panicked = tokio::spawn(b.layer.layer(panics).oneshot(ToolCall::new("t"))).await;
    assert!(panicked.unwrap_err().is_panic());
    b.play("O D 1:1 +60s").await;

    let mut probe = task::spawn(hangs.oneshot(ToolCall::new("t")));
    assert_pending!(probe.poll());
    b.play("H D").await;
    drop(probe);
    b.play("H S C").await;
}

/// failsafe-lib, `NestedCircuitBreakerTest`: an error that one of two breakers handles opens that
/// one only, whichever is outside.
#[tokio::test(start_paused = true)]
async fn nested_breakers_see_their_own_errors() {
    let handles = |kind: ErrorKind| {
        let classifier = classify_fn(move |result: Result<&(), &ToolError>| match result {
            Err(error) if error.kind() == kind => Outcome::failure(),
            _ => Outcome::neutral(),
        });
        in_a_row(1).with_classifier(classifier).build().unwrap()
    };
    let down = || ToolError::new(ErrorKind::Upstream, "down");
    let tool = service_fn(move |_| async move { Err::<(), _>(down()) });
    let kinds = [ErrorKind::Upstream, ErrorKind::Timeout];
    for (inner, outer) in [(kinds[0], kinds[1]), (kinds[1], kinds[0])] {
        let layers = [handles(inner), handles(outer)];
        let stack = layers[1].layer(layers[0].layer(tool));
        assert!(stack.oneshot(ToolCall::new("t")).await.is_err());
        for (layer, kind) in layers.iter().zip([inner, outer]) {
            let is_open = layer.handle().breakers()[0].is_open();
            assert_eq!(is_open, kind == ErrorKind::Upstream);
        }
    }
}
