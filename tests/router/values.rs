//! Rule 9: an error about arguments never has a value of theirs in it, wherever it stood and whoever wrote the text.

#![allow(dead_code, reason = "read by serde, or refused")]

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU8,
    time::Duration,
};

use proptest::prelude::*;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use tower_toolcall::{BoxError, ToolCall, ToolError, router::tool_fn};

/// In each form in which it stands somewhere below.
const CANARIES: [&str; 4] = ["canary", "76543", "CANARY", "c4n4ry"];

fn refusal<A: DeserializeOwned + Send + 'static>(arguments: Value) -> ToolError {
    let tool = tool_fn(|_: A| async { Ok::<_, BoxError>(()) });
    let call = ToolCall::new("t").with_json(arguments).unwrap();
    let refused = tokio_test::task::spawn(tool.oneshot(call)).poll();
    match refused {
        std::task::Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn texts(error: &ToolError) -> String {
    let json = serde_json::to_string(error).unwrap();
    let source = std::error::Error::source(error).map(ToString::to_string);
    format!(
        "{error} {error:?} {} {} {json} {source:?}",
        error.model_message(),
        error.user_message()
    )
}

#[track_caller]
fn keeps_quiet<A: DeserializeOwned + Send + 'static>(value: Value) {
    #[derive(Deserialize)]
    struct Of<A> {
        _a: A,
    }
    for error in [
        refusal::<Of<A>>(json!({ "_a": value })),
        refusal::<Of<Vec<A>>>(json!({ "_a": [value] })),
        refusal::<Of<HashMap<String, A>>>(json!({ "_a": { "k": value } })),
        refusal::<Of<Option<A>>>(json!({ "_a": value, "more": "canary" })),
    ] {
        let texts = texts(&error);
        for canary in CANARIES {
            assert!(!texts.contains(canary), "{texts}");
        }
    }
}

#[test]
fn strings_in_the_place_of_everything() {
    for text in [
        "canary",
        "76543",
        "canary`, expected `canary",
        "a\"canary\nc4n4ry",
        "c",
    ] {
        let value = json!(text);
        keeps_quiet::<u32>(value.clone());
        keeps_quiet::<f64>(value.clone());
        keeps_quiet::<bool>(value.clone());
        keeps_quiet::<()>(value.clone());
        keeps_quiet::<(u8, u8)>(value.clone());
        keeps_quiet::<BTreeMap<String, u8>>(value.clone());
        keeps_quiet::<Vec<u8>>(value.clone());
        keeps_quiet::<NonZeroU8>(value.clone());
        keeps_quiet::<Duration>(value);
    }
    keeps_quiet::<char>(json!("canary"));
}

#[test]
fn numbers() {
    for n in [
        json!(76543),
        json!(-76543),
        json!(76543.5),
        json!(7.6543e20),
    ] {
        keeps_quiet::<u8>(n.clone());
        keeps_quiet::<String>(n.clone());
        keeps_quiet::<Vec<u8>>(n.clone());
        keeps_quiet::<NonZeroU8>(n.clone());
        keeps_quiet::<Duration>(n);
    }
}

#[test]
fn keys() {
    keeps_quiet::<BTreeMap<u8, u8>>(json!({ "canary": 1 }));
    keeps_quiet::<BTreeMap<u8, u8>>(json!({ "76543": 1 }));
    keeps_quiet::<BTreeMap<bool, u8>>(json!({ "canary": 1 }));
    keeps_quiet::<BTreeMap<IpAddr, u8>>(json!({ "canary": 1 }));
    keeps_quiet::<BTreeMap<String, u8>>(json!({ "canary": "x" }));
    keeps_quiet::<BTreeMap<String, BTreeMap<String, u8>>>(json!({ "canary": { "c4n4ry": [] } }));

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[serde(default)]
        _known: u8,
    }
    keeps_quiet::<Strict>(json!({ "canary": 1 }));
}

#[test]
fn variants() {
    #[derive(Deserialize)]
    enum External {
        _A,
        _B(u8),
        _C { _x: u8 },
        _D(u8, u8),
    }
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "lowercase")]
    enum Internal {
        _A { _x: u8 },
    }
    #[derive(Deserialize)]
    #[serde(tag = "type", content = "of")]
    enum Adjacent {
        _A(u8),
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        _A(u8),
        _B { _x: u8 },
    }
    for value in [
        json!("canary"),
        json!({ "canary": 1 }),
        json!({ "_A": "canary" }),
        json!({ "_B": "canary" }),
        json!({ "_C": { "_x": "canary" } }),
        json!({ "_D": ["canary", 1] }),
        json!({ "a": "canary", "b": 1 }),
        json!("_B"),
    ] {
        keeps_quiet::<External>(value);
    }
    for value in [
        json!({ "type": "canary" }),
        json!({ "type": "_a", "_x": "canary" }),
        json!({ "type": "_A", "of": "canary" }),
        json!({ "type": 76543, "of": 1 }),
        json!({ "canary": "canary" }),
        json!("canary"),
    ] {
        keeps_quiet::<Internal>(value.clone());
        keeps_quiet::<Adjacent>(value.clone());
        keeps_quiet::<Untagged>(value);
    }
}

/// Who takes any name for a variant.
#[test]
fn variants_that_the_program_does_not_know() {
    struct Any;
    impl<'de> serde::de::Visitor<'de> for Any {
        type Value = Self;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an enum")
        }
        fn visit_enum<A: serde::de::EnumAccess<'de>>(self, of: A) -> Result<Self, A::Error> {
            use serde::de::VariantAccess as _;
            let (_, variant): (String, _) = of.variant()?;
            variant.newtype_variant::<u8>().map(|_| Any)
        }
    }
    impl<'de> Deserialize<'de> for Any {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_enum("Any", &[], Any)
        }
    }
    keeps_quiet::<Any>(json!({ "canary": "c4n4ry" }));
    keeps_quiet::<Any>(json!("canary"));
}

/// `flatten` reads everything into a buffer first.
#[test]
fn flattened_fields() {
    #[derive(Deserialize)]
    struct Inner {
        _n: u8,
    }
    #[derive(Deserialize)]
    struct Outer {
        #[serde(flatten)]
        _inner: Inner,
        #[serde(flatten)]
        _rest: HashMap<String, u8>,
    }
    keeps_quiet::<Outer>(json!({ "_n": "canary" }));
    keeps_quiet::<Outer>(json!({ "_n": 1, "canary": "c4n4ry" }));
    keeps_quiet::<Outer>(json!({ "canary": 76543 }));
}

#[test]
fn types_of_the_standard_library() {
    keeps_quiet::<IpAddr>(json!("canary"));
    keeps_quiet::<SocketAddr>(json!("canary:76543"));
    keeps_quiet::<std::ops::Range<u8>>(json!({ "start": "canary", "end": 1 }));
    keeps_quiet::<Result<u8, u8>>(json!({ "Ok": "canary" }));
}

/// Who quotes a value, in whatever way.
#[test]
fn texts_of_somebody_elses() {
    macro_rules! quoting {
        ($($name:ident |$text:ident| $error:expr;)*) => {$({
            #[derive(Debug)]
            struct $name;
            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                    let $text = String::deserialize(d)?;
                    Err($error)
                }
            }
            keeps_quiet::<$name>(json!("canary"));
            keeps_quiet::<$name>(json!("a longer text\twith a canary \u{1b} in it 76543"));
            keeps_quiet::<$name>(json!("76543"));
            keeps_quiet::<$name>(json!("CANARY"));
        })*};
    }
    struct Shown(String);
    impl serde::de::Expected for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "anything but {}", self.0)
        }
    }
    use serde::de::Unexpected;
    quoting! {
        Plain |t| D::Error::custom(format!("{t} is no host"));
        Debugged |t| D::Error::custom(format!("no host: {t:?}"));
        Glued |t| D::Error::custom(format!("host=x{t}x"));
        Lower |t| D::Error::custom(t.to_lowercase());
        Upper |t| D::Error::custom(t.to_uppercase());
        Cut |t| D::Error::custom(format!("begins with {}", &t[..5]));
        Last |t| D::Error::custom(format!("ends with {}", &t[t.len() - 5..]));
        Other |t| D::Error::invalid_value(Unexpected::Other(&t), &"a host");
        Wanted |t| D::Error::invalid_value(Unexpected::Unit, &&*format!("something other than {t}"));
        Expected |t| D::Error::invalid_value(Unexpected::Str(&t), &Shown(t.clone()));
        Imitated |t| D::Error::custom(format!("invalid type: string {t:?}, expected {t}"));
        Variant |t| D::Error::unknown_variant(&t, &["a", "b"]);
        Field |t| D::Error::unknown_field(&t, &[]);
        Wrapped |t| match serde_json::from_str::<u8>(&format!("\"{t}\"")) {
            Err(error) => D::Error::custom(error),
            Ok(_) => D::Error::custom("?"),
        };
        Std |t| D::Error::custom(format!("{}: {t}", "x".parse::<u8>().unwrap_err()));
    }
}

/// A text about a secret field is not shown, whatever it says.
#[test]
fn nothing_foreign_is_shown_of_a_secret_field() {
    #[derive(Deserialize)]
    struct Login {
        _password: Code,
        _n: Option<u8>,
    }
    struct Code;
    impl<'de> Deserialize<'de> for Code {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            let text = String::deserialize(d)?;
            Err(D::Error::custom(format!(
                "wrong, spelt backwards it is {}",
                text.chars().rev().collect::<String>()
            )))
        }
    }
    let error = refusal::<Login>(json!({ "_password": "yranac" }));
    assert_eq!(
        error.message(),
        "invalid arguments: the value does not fit, at `_password`"
    );
}

/// The texts of serde that are known to be harmless are there, although a value has the same words.
#[test]
fn an_innocent_value_hides_nothing() {
    #[derive(Deserialize)]
    struct Args {
        _n: u32,
        _unit: Option<Unit>,
    }
    #[derive(Deserialize)]
    enum Unit {
        Celsius,
    }
    let error = refusal::<Args>(json!({ "q": "u32 a string", "_n": "Celsius" }));
    assert!(error.message().contains("expected u32, not a string"));
    let error = refusal::<Args>(json!({ "q": "Celsius", "_n": 1, "_unit": "x" }));
    assert!(error.message().contains("expected `Celsius`"));
    assert!(matches!(Unit::Celsius, Unit::Celsius));
}

/// Any JSON whose strings and keys have the canary in them, and whose numbers are large.
fn json_with_canaries() -> impl Strategy<Value = Value> {
    let text = "[a-z\"` ]{0,5}canary[a-z\"`, ]{0,5}";
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        (7_654_300u64..7_654_399).prop_map(Value::from),
        (-7_654_399i64..-7_654_300).prop_map(Value::from),
        Just(json!(76543.25)),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(text, inner, 0..4)
                .prop_map(|map| { Value::Object(map.into_iter().collect::<Map<String, Value>>()) }),
        ]
    })
}

/// Something with most forms that serde has.
#[derive(Deserialize)]
struct Everything {
    _a: Option<u8>,
    _b: Vec<(bool, String)>,
    _c: Kind,
    _d: HashMap<u16, IpAddr>,
    #[serde(flatten)]
    _rest: BTreeMap<String, Option<Box<Everything>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Kind {
    _Named { _name: String, _of: u8 },
    _Number(NonZeroU8),
    _Tagged(Tagged),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    _A { _x: Duration },
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Rule 9.
    #[test]
    fn no_argument_is_in_the_error(
        fields in prop::collection::hash_map(
            prop_oneof![Just("_a".to_owned()), Just("_b".into()), Just("_c".into()), Just("_d".into()), Just("canary".into())],
            json_with_canaries(),
            0..5,
        ),
    ) {
        let arguments: Map<String, Value> = fields.into_iter().collect();
        let tool = tool_fn(|_: Everything| async { Ok::<_, BoxError>(()) });
        let call = ToolCall::new("t").with_arguments(arguments);
        let refused = tokio_test::task::spawn(tool.oneshot(call)).poll();
        if let std::task::Poll::Ready(Err(error)) = refused {
            let texts = texts(&error);
            prop_assert!(!texts.contains("canary") && !texts.contains("76543"), "{}", texts);
        }
    }
}
