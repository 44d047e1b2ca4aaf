//! What is left of answers that are too long.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Execution, ModelText, ToolCall, ToolError,
    check::CheckLayer,
    fit::{Cut, FitLayer, Shorten},
};

async fn through<Res>(layer: FitLayer, answer: Res) -> Result<Res, ToolError>
where
    Res: Shorten + Clone,
{
    let tool = service_fn(move |_: ToolCall| {
        let answer = answer.clone();
        async { Ok::<_, AnyError>(answer) }
    });
    let call = ToolCall::new("dump").with_id("c7");
    layered(layer, tool).oneshot(call).await
}

fn layered<S>(layer: FitLayer, tool: S) -> <FitLayer as tower::Layer<S>>::Service {
    tower::Layer::layer(&layer, tool)
}

async fn fit<Res: Shorten + Clone>(max: usize, answer: Res) -> Res {
    through(FitLayer::new(max), answer).await.unwrap()
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

#[tokio::test]
async fn an_answer_of_the_largest_size_passes_as_it_is() {
    let text = "ä".repeat(100);
    assert_eq!(fit(100, text.clone()).await, text);
    assert_ne!(fit(99, text.clone()).await, text);
    let json = json!({ "ä": ["\n", 1.5] }); // {"ä":["\n",1.5]}
    assert_eq!(fit(16, json.clone()).await, json);
    assert_ne!(fit(15, json.clone()).await, json);
}

#[tokio::test]
async fn three_quarters_are_of_the_beginning_and_a_quarter_of_the_end() {
    let text: String = ('a'..='z').cycle().take(5_000_000).collect();
    let short = fit(1_000, text.clone()).await;
    let (head, rest) = short.split_once("\n[... ").unwrap();
    let (mark, tail) = rest.split_once("]\n").unwrap();
    let missing = 5_000_000 - head.len() - tail.len();
    assert_eq!(
        mark.replace(',', ""),
        format!("{missing} of 5000000 characters left out; ask for less")
    );
    assert!(mark.starts_with("4,999,"), "{mark}");
    assert!(text.starts_with(head) && text.ends_with(tail));
    assert!(head.len().abs_diff(3 * tail.len()) <= 3, "{short}");
    assert!(
        (995..=1_000).contains(&short.len()),
        "{} of 1000",
        short.len()
    );
}

#[tokio::test]
async fn a_cut_is_at_a_line_break_that_is_near() {
    let text: String = (0..1_000).map(|n| format!("row {n}\r\n")).collect();
    let short = fit(500, text).await;
    let (head, rest) = short.split_once("\n[...").unwrap();
    let (_, tail) = rest.split_once("]\n").unwrap();
    assert!(
        head.ends_with("\r\n") && tail.starts_with("row "),
        "{short}"
    );
    assert!(tail.ends_with("row 999\r\n"), "{short}");
}

/// Of a limit without room for the mark nothing is left but that.
#[tokio::test]
async fn a_limit_below_the_mark_holds_too() {
    let text = "x".repeat(1_000);
    assert_eq!(fit(0, text.clone()).await, "");
    assert_eq!(fit(9, text.clone()).await, "[... 1,00");
    expect!["[... 1,000 of 1,000 characters left out; ask for less]"]
        .assert_eq(&fit(55, text).await);
}

#[tokio::test]
async fn the_mark_has_the_advice_and_the_reference() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let layer = FitLayer::new(300)
        .with_advice("ask for fewer\nrows")
        .with_keep(move |call, whole| {
            let name = format!("{}-{}", call.tool(), call.id()?);
            keep.lock().unwrap().push(whole.len());
            Some(format!("{name}\u{202e}.txt"))
        });
    let short = through(layer.clone(), "x".repeat(52_000)).await.unwrap();
    let expected =
        " of 52,000 characters left out; ask for fewer rows, or read the whole as dump-c7 .txt]\n";
    assert!(short.contains(expected), "{short}");
    assert!(short.len() <= 300);
    // What fits is not kept.
    through(layer, "x".repeat(300)).await.unwrap();
    assert_eq!(*kept.lock().unwrap(), [52_000]);
}

#[tokio::test]
async fn a_reference_that_is_too_long_is_not_shown() {
    let layer = FitLayer::new(1_000).with_keep(|_, _| Some("r".repeat(257)));
    let short = through(layer, "x".repeat(5_000)).await.unwrap();
    assert!(short.contains("; ask for less]"), "{short}");
}

#[tokio::test]
async fn long_strings_of_json_are_cut_to_one_length() {
    let json = json!({
        "status": "ok",
        "stdout": "line \"a\"\n".repeat(10_000),
        "stderr": ["\u{1}".repeat(10_000), "short"],
    });
    let short = fit(2_000, json.clone()).await;
    assert_eq!(short["status"], "ok");
    assert_eq!(short["stderr"][1], "short");
    let text = short.to_string();
    assert!((1_900..=2_000).contains(&chars(&text)), "{text}");
    for cut in [&short["stdout"], &short["stderr"][0]] {
        assert!(cut.as_str().unwrap().contains("characters left out"));
        assert!((900..1_000).contains(&cut.to_string().len()), "{cut}");
    }
}

#[tokio::test]
async fn json_of_many_small_values_becomes_text() {
    let rows: Vec<_> = (0..1_000).map(|n| json!({ "id": n })).collect();
    let short = fit(500, json!(rows)).await;
    let text = short.as_str().unwrap();
    assert!(text.starts_with(r#"[{"id":0},{"id":1}"#), "{text}");
    assert!(text.ends_with(r#"{"id":999}]"#), "{text}");
    assert!(chars(text) <= 500);
}

/// The tool ran, and nothing below or beside it is to blame.
#[tokio::test]
async fn an_answer_that_cannot_be_shortened_is_an_error() {
    #[derive(Clone)]
    struct Image;
    impl ModelText for Image {
        fn model_text(&self) -> Cow<'_, str> {
            Cow::Borrowed("aGk=")
        }
    }
    impl Shorten for Image {
        fn fits(&self, _: usize) -> bool {
            false
        }
        fn shorten(&mut self, _: &Cut) -> Result<(), AnyError> {
            Err("it is an image".into())
        }
    }
    let layer = FitLayer::new(500).with_keep(|_, whole| Some(format!("{}.b64", whole.len())));
    let error = through(layer, Image).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!((error.tool(), error.call_id()), (Some("dump"), Some("c7")));
    expect!["the answer has more than 500 characters; ask for less, or read the whole as 4.b64. It cannot be shortened: it is an image"].assert_eq(error.message());
}

/// JSON that no parser takes is not measured to the bitter end.
#[tokio::test]
async fn json_of_a_thousand_levels_cannot_be_shortened() {
    let mut deep = json!(1);
    for _ in 0..1_000 {
        deep = Value::Array(vec![deep]);
    }
    let layer = FitLayer::new(5_000).with_keep(|_, whole| Some(whole.len().to_string()));
    let error = through(layer, deep).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    expect!["the answer has more than 5000 characters; ask for less, or read the whole as 0. It cannot be shortened: nested too deeply"].assert_eq(error.message());
}

/// The documented order: what is refused is judged whole.
#[tokio::test]
async fn a_check_below_judges_the_whole_answer() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("x".repeat(5_000)) });
    let refused = ServiceBuilder::new()
        .layer(FitLayer::new(1_000))
        .layer(CheckLayer::max_bytes(4_000))
        .service(tool);
    let error = refused.oneshot(ToolCall::new("dump")).await.unwrap_err();
    expect!["the answer has more than 4000 bytes"].assert_eq(error.message());
    let passes = ServiceBuilder::new()
        .layer(CheckLayer::max_bytes(4_000))
        .layer(FitLayer::new(1_000))
        .service(tool);
    assert!(passes.oneshot(ToolCall::new("dump")).await.is_ok());
}

#[test]
fn a_layer_shows_its_limit() {
    let layer = FitLayer::new(5).with_keep(|_, _| None);
    expect!["FitLayer { max_chars: 5, advice: None, keep: true }"].assert_eq(&format!("{layer:?}"));
}

fn run<Res: Shorten + Clone>(max: usize, answer: Res) -> Res {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(fit(max, answer))
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[a\n\"ä\u{1}😀]{0,900}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a\"ä]{0,9}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// From both sides: never more than the limit, and nothing is changed that fits; what is left
    /// is of the ends.
    #[test]
    fn a_text_has_no_more_than_its_limit(text in "[a\n\r ä😀]{0,700}", max in 0_usize..600) {
        let short = run(max, text.clone());
        prop_assert!(chars(&short) <= max);
        prop_assert_eq!(short == text, chars(&text) <= max);
        if let Some((head, rest)) = short.split_once("\n[... ")
            && let Some((mark, tail)) = rest.split_once("]\n")
        {
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            let missing = chars(&text) - chars(head) - chars(tail);
            prop_assert!(mark.starts_with(&missing.to_string()), "{}", short);
        }
    }

    #[test]
    fn json_has_no_more_than_its_limit(json in any_json(), max in 0_usize..3_000) {
        let short = run(max, json.clone());
        prop_assert!(chars(&short.model_text()) <= max);
        prop_assert_eq!(short == json, chars(&json.model_text()) <= max);
    }

    /// Several texts are cut as one, which they are for the model.
    #[test]
    fn texts_have_no_more_than_their_limit_together(
        texts in prop::collection::vec("[a\nä]{0,90}", 1..12),
        max in 0_usize..600,
    ) {
        struct Texts(Vec<String>);
        impl ModelText for Texts {
            fn model_text(&self) -> Cow<'_, str> {
                self.0.join("\n").into()
            }
        }
        impl Clone for Texts {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
        impl Shorten for Texts {
            fn fits(&self, max: usize) -> bool {
                chars(&self.model_text()) <= max
            }
            fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
                cut.texts(&mut self.0.iter_mut().collect::<Vec<_>>());
                self.0.retain(|text| !text.is_empty());
                Ok(())
            }
        }
        let whole = Texts(texts);
        let short = run(max, whole.clone());
        prop_assert!(chars(&short.model_text()) <= max, "{:?}", short.0);
        prop_assert_eq!(short.0 == whole.0, whole.fits(max));
    }
}
