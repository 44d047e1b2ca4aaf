//! Rule 9: an error about arguments never has a value of theirs in it, wherever it stood and
//! whoever wrote the text.

#![allow(dead_code, reason = "read by serde, or refused")]

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU8,
    time::Duration,
};

use expect_test::expect;
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

/// Who tells a value without quoting it.
#[test]
fn texts_that_are_made_of_values() {
    macro_rules! telling {
        ($($name:ident($type:ty) |$value:ident| $error:expr;)*) => {$({
            #[derive(Debug)]
            struct $name;
            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                    let $value = <$type>::deserialize(d)?;
                    Err($error)
                }
            }
            for value in [json!("hunter2"), json!(123_456)] {
                let error = refusal::<HashMap<String, $name>>(json!({ "amount": value }));
                let wrong = ["`*`: expected ", "`*`: the value does not fit"];
                let text = error.message();
                assert!(text == wrong[1] || text.starts_with(wrong[0]) && !text.contains('7'), "{text}");
            }
        })*};
    }
    telling! {
        Backwards(String) |t| D::Error::custom(t.chars().rev().collect::<String>());
        Bytes(String) |t| D::Error::custom(format!("{:?}", t.as_bytes()));
        Cents(u64) |n| D::Error::custom(format!("{}.{:02} is too much", n / 100, n % 100));
        Hex(u64) |n| D::Error::custom(format!("{n:#x}"));
        Length(String) |t| D::Error::invalid_length(t.len(), &"16 characters");
        LengthOfTuple(String) |t| D::Error::invalid_length(t.len(), &"a tuple of size 7");
        LikeOurs(String) |t| D::Error::invalid_type(serde::de::Unexpected::Map, &&*format!("a tuple of size {}", t.len()));
        LikeStructs(String) |t| D::Error::invalid_type(serde::de::Unexpected::Map, &&*format!("struct {} 7", t));
    }
}

/// A field's declared type says how long it is, and what it says itself of another length is not
/// told.
#[test]
fn the_length_that_is_told_is_the_declared_one() {
    struct Odd;
    impl<'de> Deserialize<'de> for Odd {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            let t = <(String,)>::deserialize(d)?.0;
            Err(D::Error::invalid_length(t.len(), &"16 characters"))
        }
    }
    let error = refusal::<(Odd, u8)>(json!({}));
    expect!["expected an array, not an object"].assert_eq(error.message());
    let error = refusal::<HashMap<String, (Odd, u8)>>(json!({ "k": [["canary"], 1] }));
    expect!["`*[0]`: the value does not fit"].assert_eq(error.message());
}

/// serde_json's own kinds of values are read by serde_json, whose errors quote.
#[test]
fn values_of_serde_json_itself() {
    struct Private;
    impl<'de> serde::de::Visitor<'de> for Private {
        type Value = Self;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("something private")
        }
        fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<Self, D::Error> {
            u8::deserialize(d).map(|_| Private)
        }
    }
    impl<'de> Deserialize<'de> for Private {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_newtype_struct("$serde_json::private::Private", Private)
        }
    }
    keeps_quiet::<Private>(json!("canary"));
    keeps_quiet::<Private>(json!({ "canary": 76543 }));
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
    expect!["`_password`: the value does not fit"].assert_eq(error.message());
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
    expect!["`_n`: expected u32, not a string"].assert_eq(error.message());
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

/// What serde_json itself reads of the same JSON.
fn agrees<A: DeserializeOwned + Send + 'static>(
    arguments: &Map<String, Value>,
) -> Result<(), String> {
    let theirs = serde_json::from_value::<A>(Value::Object(arguments.clone()));
    let tool = tool_fn(|_: A| async { Ok::<_, BoxError>(()) });
    let call = ToolCall::new("t").with_arguments(arguments.clone());
    let ours = match tokio_test::task::spawn(tool.oneshot(call)).poll() {
        std::task::Poll::Ready(ours) => ours,
        std::task::Poll::Pending => return Err("pending".to_owned()),
    };
    match ours.is_ok() == theirs.is_ok() {
        true => Ok(()),
        false => Err(format!("{arguments:?}: {ours:?}, {:?}", theirs.err())),
    }
}

#[derive(Deserialize)]
enum Variants {
    A,
    B(i8),
    C { x: u8 },
    D(u8, f32),
}

#[derive(Deserialize)]
struct Unit;

#[derive(Deserialize)]
struct Pair(u8, String);

/// Each field fails by itself, so that each is compared.
fn one_of_each(key: &str, value: &Value) -> Result<(), String> {
    let map = |key: &str| Map::from_iter([(key.to_owned(), value.clone())]);
    agrees::<HashMap<String, Variants>>(&map("k"))?;
    agrees::<HashMap<String, Pair>>(&map("k"))?;
    agrees::<HashMap<String, Unit>>(&map("k"))?;
    agrees::<HashMap<String, Option<(u8, bool)>>>(&map("k"))?;
    agrees::<HashMap<String, Vec<f32>>>(&map("k"))?;
    agrees::<HashMap<String, i128>>(&map("k"))?;
    agrees::<HashMap<String, char>>(&map("k"))?;
    agrees::<HashMap<String, Kind>>(&map("k"))?;
    agrees::<HashMap<String, std::ops::Range<u8>>>(&map("k"))?;
    agrees::<HashMap<String, std::path::PathBuf>>(&map("k"))?;
    agrees::<HashMap<u8, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<HashMap<i64, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<HashMap<u128, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<HashMap<i128, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<HashMap<bool, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<HashMap<char, serde::de::IgnoredAny>>(&map(key))?;
    agrees::<Variants>(&map(key))
}

/// Whatever serde_json reads from a value is read, and nothing else.
#[test]
fn a_function_takes_what_serde_json_takes() {
    let values: Vec<Value> = serde_json::from_str(
        r#"[
            null, true, 7, -7, 300, 1.5, 18446744073709551615, "", "A", "B", "x", [], [1],
            [1, "x"], [1, true], [1, true, 1], [1, 2.5], {}, { "A": null }, { "A": 1 },
            { "B": 1 }, { "B": [1] }, { "C": { "x": 1 } }, { "C": { "x": 1, "y": 1 } },
            { "C": [1] }, { "D": [1, 2] }, { "D": [1] }, { "D": [] }, { "D": { "0": 1 } },
            { "B": 1, "C": 1 }, { "start": 1, "end": 2 }, { "_name": "x", "_of": 1 },
            { "type": "_A", "_x": { "secs": 1, "nanos": 1 } }
        ]"#,
    )
    .unwrap();
    #[rustfmt::skip]
    let keys = [
        "7", "007", "+7", "-7", "-0", " 7", "7 ", "7.0", "7e0", "7.", "-", "", "true",
        "True", "x", "300", "A", "18446744073709551616",
        "340282366920938463463374607431768211456",
        "-170141183460469231731687303715884105728"
    ];
    for value in &values {
        for key in keys {
            one_of_each(key, value).unwrap();
        }
    }
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
