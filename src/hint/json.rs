//! Delays in JSON.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Map, Value};

use super::{
    Hint, HintSource,
    time::{go_duration, millis, seconds},
};

/// Objects further below the root are not looked at.
const MAX_DEPTH: usize = 4;

/// Nor are values after so many.
const MAX_NODES: usize = 256;

/// Milliseconds first, as they are the more exact.
const MILLIS: &[&str] = &["retry_after_ms", "retryAfterMs", "retry-after-ms"];

#[rustfmt::skip]
const SECONDS: &[&str] = &[
    "retry_after", "retryAfter", "retry-after", "Retry-After", "retry_after_seconds", "retryAfterSeconds",
];

/// Reads the delay in `error.data` of JSON-RPC, in the body of an error, or in anything like them:
/// `retry_after`, `retryAfterMs` and their relatives as numbers, in strings too (`"12"`,
/// `"1m26.4s"`), and `google.rpc.RetryInfo`, as gRPC gateways write it.
///
/// The one nearest to the root counts. Four levels and 256 values are looked at.
pub fn from_json(value: &Value) -> Option<Hint> {
    let mut queue = VecDeque::from([(value, 0)]);
    let mut room = MAX_NODES - 1;
    while let Some((value, depth)) = queue.pop_front() {
        if let Some(hint) = value.as_object().and_then(of_object) {
            return Some(hint);
        }
        if depth < MAX_DEPTH {
            let below = children(value).take(room);
            let before = queue.len();
            queue.extend(below.map(|child| (child, depth + 1)));
            room -= queue.len() - before;
        }
    }
    None
}

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let array = value.as_array().into_iter().flatten();
    array.chain(value.as_object().into_iter().flat_map(Map::values))
}

fn of_object(object: &Map<String, Value>) -> Option<Hint> {
    if let Some(delay) = retry_info(object) {
        return Some(Hint::wait(delay, HintSource::RetryInfo));
    }
    let first = |keys: &[&str], read: fn(&str) -> Option<Duration>| {
        keys.iter().find_map(|key| delay(object.get(*key)?, read))
    };
    let delay = first(MILLIS, millis).or_else(|| first(SECONDS, seconds))?;
    Some(Hint::wait(delay, HintSource::Json))
}

fn delay(value: &Value, read: fn(&str) -> Option<Duration>) -> Option<Duration> {
    match value {
        Value::Number(number) => read(&number.to_string()),
        Value::String(text) => read(text).or_else(|| go_duration(text)),
        _ => None,
    }
}

/// `{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}`: a duration is a
/// string in the JSON of Protocol Buffers, and an object where one was printed by other means.
///
/// Gateways leave the type out. An object of another type has a `retryDelay` of its own.
fn retry_info(object: &Map<String, Value>) -> Option<Duration> {
    let name = object
        .get("@type")
        .map(|name| name.as_str().unwrap_or_default());
    if name.is_some_and(|name| !name.ends_with("google.rpc.RetryInfo")) {
        return None;
    }
    match object.get("retryDelay").or(object.get("retry_delay"))? {
        Value::String(text) => go_duration(text),
        Value::Object(parts) => {
            // 64 bits are a string in JSON.
            let number = |n: &Value| n.as_u64().or_else(|| n.as_str()?.parse().ok());
            let part = |name| parts.get(name).map_or(Some(0), number);
            let nanos = Duration::from_nanos(part("nanos")?);
            Some(Duration::from_secs(part("seconds")?).saturating_add(nanos))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn millis(value: &Value) -> Option<u128> {
        Some(from_json(value)?.delay?.as_millis())
    }

    #[test]
    fn delays_are_read_where_servers_write_them() {
        let rows = [
            (json!({ "retry_after": 30 }), 30_000),
            (json!({ "retryAfter": 1.5 }), 1_500),
            (json!({ "retry_after": "12" }), 12_000),
            (json!({ "retry_after": "1m26.4s" }), 86_400),
            (json!({ "retry_after_ms": 250 }), 250),
            (json!({ "retryAfterMs": "250" }), 250),
            (json!({ "retry_after": 1, "retry_after_ms": 250 }), 250),
            // E5: the data of our own errors.
            (
                json!({ "code": "RATE_LIMITED", "retry_after_seconds": 2 }),
                2_000,
            ),
            (json!({ "retryAfterSeconds": 0 }), 0),
            // Discord, Telegram
            (
                json!({ "message": "You are being rate limited.", "retry_after": 64.57, "global": false }),
                64_570,
            ),
            (
                json!({ "ok": false, "error_code": 429, "parameters": { "retry_after": 35 } }),
                35_000,
            ),
            // An error of JSON-RPC
            (
                json!({ "error": { "code": -32000, "message": "x", "data": { "retryAfter": 3 } } }),
                3_000,
            ),
            // One that does not parse is passed over.
            (
                json!({ "retry_after": -1, "error": { "retry_after": 4 } }),
                4_000,
            ),
            (json!({ "retry_after": null, "retryAfter": 5 }), 5_000),
            (json!([{ "retry_after": 6 }]), 6_000),
        ];
        for (value, expected) in rows {
            assert_eq!(millis(&value), Some(expected), "{value}");
            assert_eq!(from_json(&value).unwrap().source, HintSource::Json);
        }
    }

    #[test]
    fn retry_info_is_read_in_each_of_its_forms() {
        let error = |delay: Value| {
            json!([{ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
                { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "retryDelay": "1s" },
                { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay },
            ] } }])
        };
        for (delay, expected) in [
            (json!("3.5s"), 3_500),
            (json!("36s"), 36_000),
            (json!("0.250000000s"), 250),
            (json!({ "seconds": 3, "nanos": 500_000_000 }), 3_500),
            (json!({ "nanos": 500_000_000 }), 500),
        ] {
            let hint = from_json(&error(delay)).unwrap();
            assert_eq!(hint.delay, Some(Duration::from_millis(expected)));
            assert_eq!(hint.source, HintSource::RetryInfo);
        }
        for rubbish in [
            json!("-1s"),
            json!("soon"),
            json!(3),
            json!({ "seconds": -1 }),
        ] {
            assert_eq!(from_json(&error(rubbish)), None);
        }
    }

    #[test]
    fn rubbish_is_ignored() {
        for value in [
            json!(null),
            json!(12),
            json!("retry_after"),
            json!({}),
            json!({ "retry_after": true }),
            json!({ "retry_after": [1] }),
            json!({ "retry_after": -1 }),
            json!({ "retry_after": "NaN" }),
            json!({ "retry_after": "inf" }),
            json!({ "retry_after": "1e400" }),
            json!({ "retryDelay": 5 }),
            json!({ "retry_after": "1".repeat(16 << 20) }),
            json!({ "retry_after_ms": "é" }),
            json!({ "took": 30 }),
        ] {
            assert_eq!(from_json(&value), None);
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nest = |n: usize| {
            (0..n).fold(
                json!({ "retry_after": 1 }),
                |inner, _| json!({ "x": inner }),
            )
        };
        assert_eq!(millis(&nest(4)), Some(1_000));
        assert_eq!(millis(&nest(5)), None);

        let after = |n: usize| {
            let mut list = vec![json!({}); n];
            list.push(json!({ "retry_after": 1 }));
            Value::from(list)
        };
        assert_eq!(millis(&after(254)), Some(1_000));
        assert_eq!(millis(&after(255)), None);
    }
}
