use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::{MAX_DEPTH, MAX_VALUES};

/// Arguments behind an `Arc` of their own, so that copying a call never copies them.
///
/// Dropping a `Value` recurses once per level, and ten thousand levels overflow a stack. So
/// arguments deeper than [`MAX_DEPTH`] are noticed once, here, and taken apart level by level.
#[derive(Clone, Default)]
pub(super) struct Arguments(Option<Arc<Inner>>);

struct Inner {
    /// Always an object. A value, so that a validator can take it as it is.
    value: Value,
    too_deep: bool,
    too_many_values: bool,
}

impl Arguments {
    pub(super) fn new(map: Map<String, Value>) -> Self {
        if map.is_empty() {
            return Self(None);
        }
        let (too_deep, values) = extent(&map, MAX_DEPTH);
        Self(Some(Arc::new(Inner {
            value: Value::Object(map),
            too_deep,
            too_many_values: values > MAX_VALUES,
        })))
    }

    /// An object, empty if there are none.
    pub(super) fn value(&self) -> &Value {
        static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
        self.0.as_ref().map_or(&*EMPTY, |inner| &inner.value)
    }

    pub(super) fn map(&self) -> &Map<String, Value> {
        self.value().as_object().expect("always an object")
    }

    pub(super) fn is_too_deep(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.too_deep)
    }

    pub(super) fn has_too_many_values(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.too_many_values)
    }

    /// The map itself if it is not shared, else a copy; empty if it is too deep to copy.
    pub(super) fn into_map(self) -> Map<String, Value> {
        match self.0 {
            None => Map::new(),
            Some(inner) if inner.too_deep => Map::new(),
            Some(mut inner) => {
                let value = match Arc::get_mut(&mut inner) {
                    Some(inner) => inner.value.take(),
                    None => inner.value.clone(),
                };
                match value {
                    Value::Object(map) => map,
                    _ => Map::new(),
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.too_deep {
            dismantle(self.value.take());
        }
    }
}

/// Drops a value of any depth without recursion.
pub(crate) fn dismantle(value: Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => rest.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Returns whether an object has more than `limit` levels (the object itself is the first), and how
/// many values it has. Counting stops at the limit of levels.
fn extent(map: &Map<String, Value>, limit: usize) -> (bool, usize) {
    let nested = |v: &&Value| v.is_array() || v.is_object();
    let mut values = 1 + 2 * map.len();
    // Flat arguments, the usual case, allocate nothing here.
    let mut rest: Vec<(&Value, usize)> = map.values().filter(nested).map(|v| (v, 2)).collect();
    while let Some((value, level)) = rest.pop() {
        if level > limit {
            return (true, values);
        }
        match value {
            Value::Array(items) => {
                values += items.len();
                rest.extend(items.iter().filter(nested).map(|v| (v, level + 1)));
            }
            Value::Object(map) => {
                values += 2 * map.len();
                rest.extend(map.values().filter(nested).map(|v| (v, level + 1)));
            }
            _ => {}
        }
    }
    (false, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Map<String, Value> {
        let mut value = Value::Null;
        for _ in 1..levels {
            value = Value::Array(vec![value]);
        }
        Map::from_iter([("a".to_owned(), value)])
    }

    #[test]
    fn depth_is_counted_from_the_object_itself() {
        assert!(!extent(&nested(1), 1).0);
        assert!(!extent(&nested(128), 128).0);
        assert!(extent(&nested(129), 128).0);
    }

    /// S-1: arguments are bounded by the same number, parsed or not.
    #[test]
    fn values_are_counted_as_in_their_text() {
        for text in [
            r#"{"a":1}"#,
            r#"{"a":[1,"b",{}],"c":{"d":{"e":[[]]}}}"#,
            r#"{"a":null,"b":"{\"c\":[1,2]}"}"#,
        ] {
            let map = serde_json::from_str(text).unwrap();
            let counted = crate::text::values::ValueCounter::default().add(text.as_bytes());
            assert_eq!(extent(&map, MAX_DEPTH), (false, counted), "{text}");
        }
    }

    #[test]
    fn a_hundred_thousand_levels_are_dropped_without_recursion() {
        let arguments = Arguments::new(nested(100_000));
        assert!(arguments.is_too_deep());
        drop(arguments);
    }

    #[test]
    fn the_map_is_moved_out_when_nobody_shares_it() {
        let arguments = Arguments::new(nested(1));
        let before: *const String = arguments.map().keys().next().unwrap();
        let map = arguments.into_map();
        let after: *const String = map.keys().next().unwrap();
        assert_eq!(before, after);
    }
}
