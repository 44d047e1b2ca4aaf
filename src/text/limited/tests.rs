use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::*;

#[derive(Serialize)]
enum Shape {
    Unit,
    Wrapped(u8),
    Pair(u8, Option<&'static str>),
    Named { a: (u8, f64), b: BTreeMap<u8, char> },
}

#[derive(Serialize)]
struct Wrapper<T>(T);

#[derive(Serialize)]
struct List(Option<Box<List>>);

#[test]
fn what_is_within_the_limits_is_what_serde_json_makes_of_it() {
    let value = Wrapper(vec![
        Shape::Unit,
        Shape::Wrapped(1),
        Shape::Pair(2, Some("x")),
        Shape::Pair(3, None),
        Shape::Named {
            a: (4, 0.5),
            b: BTreeMap::from([(5, 'c'), (6, 'd')]),
        },
    ]);
    let plain = serde_json::to_value(&value).unwrap();
    assert_eq!(collect(&value, 16, 100).unwrap(), plain);
}

#[test]
fn recursion_ends_however_deep_a_value_is() {
    let mut deep = json!(1);
    for _ in 0..10_000 {
        deep = Value::Array(vec![deep]);
    }
    let collected = collect(&deep, 16, 1000).unwrap();
    assert!(collected.to_string().len() < 100);
    crate::call::dismantle(deep);

    let mut list = List(None);
    for _ in 0..5_000 {
        list = List(Some(Box::new(list)));
    }
    assert_eq!(collect(&list, 16, 1000).unwrap(), json!(null));
    while let Some(next) = list.0 {
        list = *next;
    }
}

/// `serde_json` panics where the one member of its own structs is missing.
#[test]
fn a_struct_of_serde_jsons_own_is_never_cut() {
    struct Own;
    impl Serialize for Own {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut own = to.serialize_struct("$serde_json::private::Number", 1)?;
            own.serialize_field("$serde_json::private::Number", "12")?;
            own.end()
        }
    }
    let cut = [Own, Own].serialize(Limited::new(
        serde_json::value::Serializer,
        Limits::new(0, &Budget::new(0)),
    ));
    assert_eq!(cut.unwrap(), json!([]));
    let deepest = collect(&[Own], 1, 1).unwrap();
    assert_eq!(deepest[0].to_string().matches("12").count(), 1);
}

#[test]
fn bytes_end_with_the_nodes() {
    struct Bytes(usize);
    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(&vec![7; self.0])
        }
    }
    assert_eq!(collect(&Bytes(1000), 16, 2).unwrap(), json!([7, 7]));
}

#[test]
fn as_many_levels_are_written_as_parsers_take() {
    let nested = |levels| {
        let mut value = json!(1);
        for _ in 0..levels {
            value = Value::Array(vec![value]);
        }
        value
    };
    let written = |levels| write(io::sink(), &nested(levels), LEVELS);
    assert!(written(LEVELS).is_ok());
    assert!(written(LEVELS + 1).is_err());
    // Of them serde_json reads all but one back.
    let text = serde_json::to_string(&nested(LEVELS - 1)).unwrap();
    assert!(serde_json::from_str::<Value>(&text).is_ok());
}

#[test]
fn members_end_with_the_nodes() {
    assert_eq!(collect(&[[1, 2], [3, 4]], 16, 3).unwrap(), json!([[1, 2]]));
    let map = BTreeMap::from([("a", 1), ("b", 2)]);
    assert_eq!(collect(&map, 16, 1).unwrap(), json!({ "a": 1 }));
}
