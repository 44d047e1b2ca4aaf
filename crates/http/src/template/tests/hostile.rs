//! Values made to break out of their places, by the hundred thousand.

use std::env;

use bytes::Bytes;
use http::{Method, Request};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::{ORDER, post};
use crate::HttpTool;
use tower_toolcall::{ErrorKind, ToolCall, call::UpstreamToken};

/// A template, and whether a request of it is what its author expects of the arguments `a` and `b`.
struct Case {
    name: &'static str,
    tool: HttpTool,
    is_right: fn(&Request<Bytes>, &Value, &Value) -> bool,
}

fn case(
    name: &'static str,
    tool: HttpTool,
    is_right: fn(&Request<Bytes>, &Value, &Value) -> bool,
) -> Case {
    Case {
        name,
        tool,
        is_right,
    }
}

fn get(url: &str) -> HttpTool {
    HttpTool::new(Method::GET, url).unwrap()
}

fn with_body(template: &str) -> HttpTool {
    post().with_body(template).unwrap()
}

/// Ten, of which the first three are the pizzeria's; each place has one.
fn cases() -> Vec<Case> {
    let pizza = ORDER
        .replace("pizza_type }}", "a }}")
        .replace("size }}", "b }}");
    let pizza = pizza.replace("toppings", "a");
    vec![
        case(
            "the pizzeria's order",
            with_body(&pizza),
            |request, a, b| {
                let body = body(request);
                let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
                keys == ["a", "pizza_type", "quantity", "size"]
                    && is_text(&body["pizza_type"], a)
                    && is_text(&body["size"], b)
                    && body["a"] == *a
                    && body["quantity"] == 1
            },
        ),
        case(
            "the pizzeria's URL",
            get("https://api.pizzeria.com/orders/{{ a }}"),
            |request, a, _| {
                let uri = request.uri();
                let order = uri.path().strip_prefix("/orders/").unwrap();
                is_host(request) && uri.query().is_none() && is_segment(order, &plain(a))
            },
        ),
        case(
            "the pizzeria's headers",
            post()
                .with_header("X-Request-ID", "{{ request_id }}")
                .and_then(|tool| tool.with_header("Authorization", "Bearer {{ upstream_token }}"))
                .and_then(|tool| tool.with_header("X-Shop", "{{ a }}; {{ b }}"))
                .unwrap(),
            |request, a, b| {
                let headers = request.headers();
                headers.len() == 3
                    && headers["x-request-id"] == "call_1"
                    && headers["authorization"] == "Bearer t0k3n"
                    // A parser takes spaces off at both ends.
                    && headers["x-shop"].to_str().unwrap().trim()
                        == format!("{}; {}", plain(a), plain(b)).trim()
            },
        ),
        case(
            "JSON, in and outside of strings",
            with_body(
                r#"{"a": {{ a }}, "b": [{{ b }}], "c": "{{ a | tojson }}", "d": {{ [a, b] }}, "e\u0022": "{{ a }}\u005c", "f": {{ b }}}"#,
            ),
            |request, a, b| {
                let body = body(request);
                let rest = json!({ "a": a, "b": [b], "c": body["c"], "d": [a, b], "e\"": body["e\""], "f": b });
                let e = body["e\""].as_str().unwrap().strip_suffix('\\').unwrap();
                let c: Value = serde_json::from_str(body["c"].as_str().unwrap()).unwrap();
                body == rest && c == *a && is_text(&json!(e), a)
            },
        ),
        case(
            "JSON, a key",
            with_body(r#"{"{{ a }}": {"k-{{ b }}": 1}, "last": true}"#),
            |request, a, b| {
                let body = body(request);
                let body = body.as_object().unwrap();
                let (key, inner) = body.iter().find(|(key, _)| *key != "last").unwrap();
                let inner = inner.as_object().unwrap();
                let k = inner.keys().next().unwrap().strip_prefix("k-").unwrap();
                (body.len(), inner.len(), &body["last"]) == (2, 1, &json!(true))
                    && is_text(&json!(key), a)
                    && is_text(&json!(k), b)
            },
        ),
        case(
            "JSON, a loop",
            with_body(
                r#"[{% for x in [a, b, a] %}{"x": {{ x }}, "t": "-{{ x }}"}{% if not loop.last %},{% endif %}{% endfor %}]"#,
            ),
            |request, a, b| {
                let body = body(request);
                let items = body.as_array().unwrap();
                items.len() == 3
                    && items.iter().zip([a, b, a]).all(|(item, x)| {
                        let t = item["t"].as_str().unwrap().strip_prefix('-').unwrap();
                        item.as_object().unwrap().len() == 2
                            && item["x"] == *x
                            && is_text(&json!(t), x)
                    })
            },
        ),
        case(
            "segments and a query",
            get("https://api.pizzeria.com/orders/{{ a }}{{ b }}/x?q={{ a }}&r=-{{ b }}"),
            |request, a, b| {
                let (a, b) = (plain(a), plain(b));
                let path: Vec<&str> = request.uri().path().split('/').collect();
                let [_, "orders", segment, "x"] = *path else {
                    return false;
                };
                let expected = [
                    ("q".to_owned(), a.clone()),
                    ("r".to_owned(), format!("-{b}")),
                ];
                is_host(request)
                    && is_segment(segment, &format!("{a}{b}"))
                    && pairs(request.uri().query().unwrap()) == expected
            },
        ),
        case(
            "several segments",
            get("https://api.pizzeria.com/files/{{ a | path }}/raw"),
            |request, a, _| {
                let path = request.uri().path().strip_prefix("/files/").unwrap();
                let path = path.strip_suffix("/raw").unwrap();
                let a = plain(a);
                let mut parts = path.split('/').zip(a.split('/'));
                is_host(request)
                    && path.matches('/').count() == a.matches('/').count()
                    && parts.all(|(got, meant)| is_segment(got, meant))
            },
        ),
        case(
            "a form",
            post()
                .with_form([("a", "{{ a }}-{{ b }}"), ("b", "{{ b }}")])
                .unwrap(),
            |request, a, b| {
                let text = std::str::from_utf8(request.body()).unwrap();
                let (a, b) = (plain(a), plain(b));
                pairs(text) == [("a".to_owned(), format!("{a}-{b}")), ("b".to_owned(), b)]
            },
        ),
        case(
            "a header behind a condition",
            post()
                .with_header("If-Match", "{% if a %}\"{{ b }}\"{% endif %}")
                .unwrap(),
            |request, _, b| match request.headers().get("if-match") {
                Some(value) => *value == format!("\"{}\"", plain(b)),
                None => true,
            },
        ),
    ]
}

fn body(request: &Request<Bytes>) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

fn is_host(request: &Request<Bytes>) -> bool {
    let uri = request.uri();
    uri.scheme_str() == Some("https") && uri.authority().unwrap() == "api.pizzeria.com"
}

fn is_segment(got: &str, meant: &str) -> bool {
    !matches!(meant, "" | "." | "..") && decoded(got) == meant
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(k, v)| (decoded(k), decoded(v))).collect()
}

/// What a value is in a URL, a header or a form. Others must have been refused there.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => panic!("taken: {value}"),
    }
}

/// Returns whether a JSON string is what a value becomes in one.
fn is_text(got: &Value, value: &Value) -> bool {
    let got = got.as_str().unwrap();
    match value {
        Value::String(text) => got == text,
        Value::Array(_) | Value::Object(_) => serde_json::from_str::<Value>(got).unwrap() == *value,
        Value::Number(_) | Value::Bool(_) => *got == *plain(value),
        Value::Null => panic!("null in a string"),
    }
}

/// Not random: the same in each run.
struct Hostile(u64);

impl Hostile {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn text(&mut self) -> String {
        const ALPHABET: &str = "\"\\,:{}[]/ \n\r\t\0.?#%&=@;'<>a1é\u{2028}\u{10FFFE}😀-_~|$`";
        const WHOLE: [&str; 12] = [
            "..",
            "%2e%2e",
            "a/../b",
            "{{ upstream_token }}",
            "{% raw %}",
            "\u{10FFFE}0\u{10FFFE}",
            "\\u0022",
            "\", \"admin\": true, \"x\": \"",
            "x\r\nX-Evil: 1",
            "last",
            "https://evil.example/",
            "user@evil.example",
        ];
        if self.below(4) == 0 {
            return WHOLE[self.below(WHOLE.len())].to_owned();
        }
        let alphabet: Vec<char> = ALPHABET.chars().collect();
        let length = self.below(12);
        (0..length)
            .map(|_| alphabet[self.below(alphabet.len())])
            .collect()
    }

    /// Mostly a text, or with texts in it.
    fn value(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 8 } else { 10 };
        match self.below(kinds) {
            0 => json!(self.below(1 << 40)),
            1 => json!([-0.5, 1e300, 5e-324, 0.1][self.below(4)]),
            2 => [json!(null), json!(true), json!(false)][self.below(3)].clone(),
            8 => (0..self.below(3)).map(|_| self.value(depth - 1)).collect(),
            9 => {
                let entry = |_| (self.text(), self.value(depth - 1));
                Value::Object((0..2).map(entry).collect::<Map<_, _>>())
            }
            _ => json!(self.text()),
        }
    }
}

/// H3: a value can never break out into a header, another host or path, or the structure of the
/// JSON: what is not refused has each value where its template has it, and nothing else.
/// `HTTP_TOOL_ROUNDS` sets how often, and `HOSTILE_SEED` with which values; each
/// round renders ten templates.
#[test]
fn hostile_values_stay_at_their_places() {
    let rounds = env::var("HTTP_TOOL_ROUNDS").map_or(1_000, |n| n.parse().unwrap());
    let seed = env::var("HOSTILE_SEED").map_or(0, |n| n.parse().unwrap());
    println!("HOSTILE_SEED={seed}");
    let mut hostile = Hostile(0x9E37_79B9_7F4A_7C15 ^ seed);
    let cases = cases();
    let mut right = [0; 10];
    for _ in 0..rounds {
        let (a, b) = (hostile.value(2), hostile.value(2));
        let arguments = json!({ "a": a, "b": b, "request_id": a, "upstream_token": b });
        let call = ToolCall::new("order").with_id("call_1");
        let mut call = call.with_json(arguments).unwrap();
        call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
        for (case, right) in cases.iter().zip(&mut right) {
            match case.tool.request(&call) {
                Ok(request) => {
                    let is_right = (case.is_right)(&request, &a, &b);
                    assert!(is_right, "{}: {a} {b}: {request:?}", case.name);
                    *right += 1;
                }
                Err(error) => {
                    let (name, kind) = (case.name, error.kind());
                    assert_eq!(kind, ErrorKind::InvalidInput, "{name}: {a} {b}: {error}");
                }
            }
        }
    }
    for (case, right) in cases.iter().zip(right) {
        println!("{}: {right} right, {} refused", case.name, rounds - right);
        assert!((rounds / 20..rounds).contains(&right), "{}", case.name);
    }
}
