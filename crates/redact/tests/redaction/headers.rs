//! Headers in every quoting: nothing of their values is seen, and what follows is.

use serde_json::json;
use toolcall_redact::{REDACTED, redact_text};

use crate::none_of;

/// What is hidden: one word that looks like a secret, and one that does not.
const CANARIES: [[&str; 2]; 2] = [
    ["zK7qVt2nWx9", "pL4mHs8dRf3"],
    ["correcthorse", "batterystaple"],
];

/// Headers with `{0}` and `{1}` for the canaries.
const HEADERS: &[&str] = &[
    "Cookie: sid={0}; theme=dark; csrf={1}",
    "Cookie: sid=\"{0}\"; theme=\"dark\"; csrf=\"{1}\"",
    "Cookie: theme=\"\"; sid=\"{0}\"; csrf={1}",
    "Cookie: prefs={\"a\":\"b\"}; sid=\"{0}\"; csrf=\"{1}\"",
    "Set-Cookie: sid={0}; Path=/; HttpOnly; Secure; x={1}",
    "Set-Cookie: sid=\"{0}\"; Path=\"/\"; Max-Age=60; x=\"{1}\"",
    "Authorization: Basic {0}{1}==",
    "Authorization: Basic {0}{1}=",
    "Authorization: Bearer {0}.{1}",
    "Authorization: Bearer \"{0}.{1}\"",
    "Authorization: Token {0}{1}",
    "Authorization: Token token=\"{0}\", nonce=\"{1}\"",
    "Authorization: ApiKey {0}:{1}",
    "Authorization: ApiKey \"{0}:{1}\"",
    "Authorization: Digest username=\"ada\", realm=\"a b\", uri=\"/x,y\", qop=auth, nonce=\"{0}\", response=\"{1}\"",
    "Authorization: Digest username=\"CORP\\\\nancy\", realm=\"\", nonce=\"{0}\", response=\"{1}\"",
    "Authorization: Hawk id=\"ada\", ts=\"1\", nonce=\"{0}\", ext=\"some-app\", mac=\"{1}=\"",
    "Authorization: AWS4-HMAC-SHA256 Credential={0}/20240101/eu/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature={1}",
    "Authorization: Negotiate {0}{1}==",
    "Authorization: OAuth oauth_consumer_key=\"{0}\", oauth_signature=\"{1}%3D\"",
    "Authorization: {0} {1}",
    "Proxy-Authorization: Basic {0}{1}==",
    "Proxy-Authorization: Digest username=\"ada\", nonce=\"{0}\", response=\"{1}\"",
    "proxy-authorization: Negotiate \"{0}{1}\"",
    "X-Api-Key: {0}{1}",
    "X-Api-Key: \"{0}{1}\"",
    "X-Api-Key: id=\"{0}\", mac=\"{1}\"",
    "X-Auth-Token: {0}{1}",
    "X-Auth-Token: \"{0}{1}\"",
    "X-Auth-Token: a=\"{0}\"; b=\"{1}\"",
    "X-Amz-Security-Token: {0}/{1}=",
];

/// Where a header stands in a text, with what follows it.
const PLACES: &[(&str, &str)] = &[
    ("{}", ""),
    ("sent {}", ""),
    (
        "GET / HTTP/1.1\r\n{}\r\nHost: kept.example\r\n\r\n",
        "kept.example",
    ),
    ("> GET /\n> {}\n> Host: kept.example\n", "kept.example"),
    ("{}\nAccept: kept", "Accept: kept"),
];

type Quoting = (&'static str, fn(&str) -> String);

/// Ways to quote a text, with a neighbour that is kept.
const QUOTINGS: &[Quoting] = &[
    ("plain", str::to_owned),
    ("JSON", |t| in_json(t)),
    ("JSON in JSON", |t| in_json(&in_json(t))),
    ("JSON three deep", |t| in_json(&in_json(&in_json(t)))),
    ("pretty JSON", |t| {
        serde_json::to_string_pretty(&json!({ "raw": t, "next": "neighbour" })).unwrap()
    }),
    ("array", |t| json!([t, "neighbour"]).to_string()),
    ("Debug", |t| {
        format!("Sent {{ raw: {t:?}, next: \"neighbour\" }}")
    }),
    ("Debug of Some", |t| {
        format!("Sent {{ raw: {:?}, next: \"neighbour\" }}", Some(t))
    }),
    ("Debug of JSON", |t| {
        format!("Sent {{ body: {:?}, next: 1 }}", in_json(t))
    }),
    ("Debug of Debug", |t| {
        format!("Error({:?}, \"neighbour\")", format!("raw: {t:?}"))
    }),
    ("Python", |t| {
        format!("{{'raw': {}, 'next': 'neighbour'}}", python(t))
    }),
    ("Python of JSON", |t| {
        format!("{{'raw': {}, 'next': 'neighbour'}}", python(&in_json(t)))
    }),
    ("Python in JSON", |t| {
        in_json(&format!("{{'raw': {}, 'next': 'neighbour'}}", python(t)))
    }),
    ("JSON of Debug", |t| in_json(&format!("raw: {t:?}"))),
    ("curl, double quotes", |t| {
        format!("curl -H {} https://neighbour", in_double(t))
    }),
    ("curl, single quotes", |t| {
        format!("curl -H {} https://neighbour", in_single(t))
    }),
    ("curl in JSON", |t| {
        in_json(&format!("curl -H {} https://neighbour", in_double(t)))
    }),
    ("curl in JSON, single quotes", |t| {
        in_json(&format!("curl -H {} https://neighbour", in_single(t)))
    }),
    ("curl in Debug", |t| {
        format!(
            "{:?}",
            format!("curl -H {} https://neighbour", in_double(t))
        )
    }),
    ("curl of an array", |t| {
        json!(["curl", "-H", t, "https://neighbour"]).to_string()
    }),
];

type Print = (&'static str, fn(&str, &str) -> String);

/// Ways to print a name and a value.
const PRINTS: &[Print] = &[
    ("JSON", |n, v| {
        json!({ n: v, "next": "neighbour" }).to_string()
    }),
    ("JSON array", |n, v| {
        json!({ n: [v], "next": "neighbour" }).to_string()
    }),
    ("pairs", |n, v| {
        json!([[n, v], ["next", "neighbour"]]).to_string()
    }),
    ("name and value", |n, v| {
        json!([{ "name": n, "value": v }, { "name": "next", "value": "neighbour" }]).to_string()
    }),
    ("Debug", |n, v| {
        format!("{{{n:?}: {v:?}, \"next\": \"neighbour\"}}")
    }),
    ("Debug of pairs", |n, v| {
        format!("[({n:?}, {v:?}), (\"next\", \"neighbour\")]")
    }),
    ("Python", |n, v| {
        format!("{{{}: {}, 'next': 'neighbour'}}", python(n), python(v))
    }),
    ("Python pairs", |n, v| {
        format!(
            "[(b{}, b{}), (b'next', b'neighbour')]",
            python(n),
            python(v)
        )
    }),
    ("Go", |n, v| format!("map[{n}:[{v}] Next:[neighbour]]")),
    ("Go in a struct", |n, v| {
        format!("{{Method:GET Header:map[{n}:[{v}] Next:[neighbour]] Body:<nil>}}")
    }),
    ("Go, %#v", |n, v| {
        format!("http.Header{{{n:?}:[]string{{{v:?}}}, \"Next\":[]string{{\"neighbour\"}}}}")
    }),
    ("Ruby", |n, v| {
        format!("{{{n:?}=>{v:?}, \"next\"=>\"neighbour\"}}")
    }),
];

/// What is put around a print.
const AROUND: &[Quoting] = &[
    ("", str::to_owned),
    (" in JSON", |t| in_json(t)),
    (" in JSON in JSON", |t| in_json(&in_json(t))),
    (" in Debug", |t| format!("Error {{ text: {t:?}, code: 7 }}")),
    (" in Python", |t| {
        format!("{{'text': {}, 'code': 7}}", python(t))
    }),
];

fn in_json(text: &str) -> String {
    json!({ "raw": text, "next": "neighbour" }).to_string()
}

fn in_double(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' | '$' | '`' => format!("\\{c}"),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn in_single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// As Python's `repr` has it.
fn python(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let escaped = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c == quote || c == '\\' => format!("\\{c}"),
        c => c.to_string(),
    };
    format!(
        "{quote}{}{quote}",
        text.chars().map(escaped).collect::<String>()
    )
}

/// What is wrong with the redaction of `text`, as it is and among other text.
fn wrong(what: &str, text: &str, canaries: &[&str], kept: &[&str], failed: &mut Vec<String>) {
    for text in [
        text.to_owned(),
        format!("request failed: {text}"),
        format!("it's 5\" from {text}\nand more"),
    ] {
        let shown = redact_text(&text);
        let leaks = canaries.iter().any(|canary| shown.contains(canary));
        let loses = kept.iter().any(|kept| !shown.contains(kept));
        let changes = redact_text(&shown) != shown;
        if leaks || loses || changes || !shown.contains(REDACTED) {
            let fault = [(leaks, "leaks"), (loses, "loses"), (changes, "changes")];
            let fault = fault.iter().find(|(is, _)| *is).map_or("misses", |f| f.1);
            failed.push(format!("{fault}, {what}: {text}\n    {shown}"));
        }
    }
}

/// K-1: whatever the quotes around a header, and in its value.
#[test]
fn a_header_in_a_quoted_text_shows_nothing_of_its_value() {
    let mut failed = Vec::new();
    for canaries in CANARIES {
        for header in HEADERS {
            let header = header
                .replace("{0}", canaries[0])
                .replace("{1}", canaries[1]);
            for (place, kept) in PLACES {
                let text = place.replace("{}", &header);
                for (name, quote) in QUOTINGS {
                    if name.starts_with("curl") && !kept.is_empty() {
                        continue;
                    }
                    let quoted = quote(&text);
                    let next = if quoted.contains("neighbour") {
                        "neighbour"
                    } else {
                        ""
                    };
                    wrong(name, &quoted, &canaries, &[kept, next], &mut failed);
                }
            }
        }
    }
    none_of("headers in texts", &failed);
}

/// K-1: whatever prints the name beside the value.
#[test]
fn a_header_as_a_name_and_a_value_shows_nothing_of_it() {
    let mut failed = Vec::new();
    for canaries in CANARIES {
        for header in HEADERS {
            let header = header
                .replace("{0}", canaries[0])
                .replace("{1}", canaries[1]);
            let (header, value) = header.split_once(": ").unwrap();
            for (name, print) in PRINTS {
                for (around, quote) in AROUND {
                    let text = quote(&print(header, value));
                    let what = format!("{name}{around}");
                    wrong(&what, &text, &canaries, &["neighbour"], &mut failed);
                }
            }
        }
    }
    none_of("headers in maps", &failed);
}

#[test]
fn a_header_whose_value_alone_is_quoted_shows_nothing_of_it() {
    for text in [
        "Cookie:\"a=b; c=d-canary\"",
        "Cookie: \"session=abc123canary; path=/\"",
        "cookie='id=canary'",
    ] {
        let shown = redact_text(text);
        assert!(!shown.contains("canary"), "{shown}");
    }
}
