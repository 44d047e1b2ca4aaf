//! A payment that a model asks for again, through the loop that `turn` documents.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use serde_json::{Value, json};
use tower::{Layer, Service, service_fn};
use tower_toolcall::{
    AnyError, ToolCall, ToolError,
    batch::{Parallel, Sequence},
    once::OnceLayer,
};
use tower_toolcall_turn::{Format, Reply, Turn};

use crate::kit::{FORMATS, Written, response};

/// A bank that counts its payments.
#[derive(Clone, Default)]
struct Bank(Arc<AtomicU32>);

impl Bank {
    fn payments(&self) -> u32 {
        self.0.load(SeqCst)
    }

    fn below(
        &self,
        once: &OnceLayer,
    ) -> impl Service<ToolCall, Response = String, Error = ToolError> + Clone + use<> {
        let payments = Arc::clone(&self.0);
        once.layer(service_fn(move |call: ToolCall| {
            let receipt = payments.fetch_add(1, SeqCst) + 1;
            async move { Ok::<_, AnyError>(format!("{} paid, receipt {receipt}", call.tool())) }
        }))
    }
}

fn pay(id: &str, euros: u32) -> Written {
    Written::new(id, "pay", &json!({ "euros": euros }).to_string())
}

fn turn(format: Format, calls: &[Written]) -> Turn {
    Turn::read(format, &response(format, calls)).unwrap()
}

/// Plays turns of one conversation, each in the calls that the model makes.
async fn play<const N: usize>(format: Format, turns: [&[Written]; N]) -> u32 {
    let (bank, once) = (Bank::default(), OnceLayer::new());
    let tools = Parallel::new(bank.below(&once));
    for calls in turns {
        let turn = turn(format, calls).with_session_id("chat 17");
        let _: Reply = turn.run(&tools).await;
    }
    assert_eq!(once.len(), bank.payments() as usize);
    bank.payments()
}

/// P4: models give each call a new id.
#[tokio::test(start_paused = true)]
async fn a_payment_that_is_asked_for_under_a_new_id_is_made_once() {
    for format in FORMATS {
        let payments = play(format, [&[pay("c1", 20)], &[pay("c2", 20)]]).await;
        assert_eq!(payments, 1, "{format:?}");
    }
}

/// P4: some model servers send one id for all calls.
#[tokio::test(start_paused = true)]
async fn different_payments_under_one_constant_id_are_all_made() {
    for format in FORMATS {
        let all = [10, 20, 30].map(|euros| pay("call", euros));
        let turns = [&all[..1], &all[1..2], &all[2..]];
        assert_eq!(play(format, turns).await, 3, "{format:?}");
        assert_eq!(play(format, [&all]).await, 3, "{format:?}");
    }
}

/// P4: some model servers number the calls of each turn from 0.
#[tokio::test(start_paused = true)]
async fn different_payments_of_turns_that_number_from_zero_are_all_made() {
    for format in FORMATS {
        let first = [pay("0", 10), pay("1", 20)];
        let second = [pay("0", 30), pay("1", 40)];
        assert_eq!(play(format, [&first, &second]).await, 4, "{format:?}");
        // The second turn repeats the first one's second payment under the number of another.
        let repeats = [pay("0", 20)];
        assert_eq!(play(format, [&first, &repeats]).await, 2, "{format:?}");
    }
}

/// P4: equal calls of one turn are one payment, unless the program says that both are meant.
#[tokio::test(start_paused = true)]
async fn equal_payments_of_one_turn_are_made_once_without_keys_of_their_own() {
    let format = Format::Anthropic;
    let both = [pay("c1", 20), pay("c2", 20)];
    assert_eq!(play(format, [&both]).await, 1);

    let (bank, once) = (Bank::default(), OnceLayer::new());
    let mut n = 0;
    let turn = turn(format, &both)
        .with_session_id("chat 17")
        .map_calls(|call| {
            n += 1;
            call.with_once_key(format!("order {n}"))
        });
    let _: Reply = turn.run(&Parallel::new(bank.below(&once))).await;
    assert_eq!(bank.payments(), 2);
}

/// P4: a conversation does not get the answer of another one.
#[tokio::test(start_paused = true)]
async fn equal_payments_of_two_conversations_are_both_made() {
    let (bank, once) = (Bank::default(), OnceLayer::new());
    let tools = Parallel::new(bank.below(&once));
    for chat in ["chat 17", "chat 18"] {
        let turn = turn(Format::OpenAiChat, &[pay("c1", 20)]).with_session_id(chat);
        let _: Reply = turn.run(&tools).await;
    }
    assert_eq!(bank.payments(), 2);
}

/// P5: a turn puts its caller's names on each call, and keeps them when tools are renamed.
#[test]
fn a_turn_puts_its_caller_on_each_call() {
    let names = tower_toolcall_turn::Names::new(["docs/search"]);
    let written = Written::new("c1", &names.to_model("docs/search"), "{}");
    let turn = turn(Format::OpenAiChat, &[written, pay("c2", 1)])
        .with_session_id("s")
        .with_agent_id("a")
        .with_trace_id("t")
        .map_calls(|call| call.with_id("another").with_once_key("k"))
        .with_names(&names);
    let calls: Vec<_> = turn.calls().collect();
    let tools: Vec<_> = calls.iter().map(|call| (call.id(), call.tool())).collect();
    assert_eq!(tools, [(Some("c1"), "docs/search"), (Some("c2"), "pay")]);
    for call in &calls {
        let who = (call.session_id(), call.agent_id(), call.trace_id());
        assert_eq!(who, (Some("s"), Some("a"), Some("t")));
        assert_eq!(call.once_key(), Some("k"));
    }
}

/// P5: so do batches, whichever way they run.
#[tokio::test(start_paused = true)]
async fn a_batch_puts_its_caller_on_each_call() {
    let tool = service_fn(|call: ToolCall| async move {
        Ok::<_, AnyError>(json!([call.session_id(), call.agent_id()]))
    });
    let caller = |call: ToolCall| call.with_session_id("s").with_agent_id("a");
    let calls = || ["x", "y"].map(ToolCall::new);
    let parallel = Parallel::new(tool).map_calls(caller).run(calls()).await;
    let sequence = Sequence::new(tool).map_calls(caller).run(calls()).await;
    let results = parallel.iter().chain(sequence.results());
    let who: Vec<&Value> = results.map(|result| result.data().unwrap()).collect();
    assert_eq!(who, [&json!(["s", "a"]); 4]);
}
