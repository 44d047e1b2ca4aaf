//! A corpus by an author who had not seen the code: 0 leaks of what any reader expects to be
//! hidden, 2 % of the rest, 0.5 % of harmless texts changed.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};
use toolcall_redact::{REDACTED, Rules, redact_text};

use crate::{none_of, shows};

#[derive(Deserialize)]
struct Entry {
    class: String,
    name: String,
    /// Whether any reader expects it to be hidden.
    must: bool,
    /// Arguments, or a text.
    input: Value,
    /// What may not be seen.
    secrets: Vec<String>,
    /// What stands beside it and should be seen.
    keep: Option<String>,
}

#[derive(Deserialize)]
struct Template {
    class: String,
    template: String,
}

fn entries() -> Vec<Entry> {
    let file = include_str!("corpus/secrets.json").replace('§', "");
    serde_json::from_str(&file).unwrap()
}

/// What is shown of an entry: as a text, or as arguments.
fn views(input: &Value) -> Vec<String> {
    let rules = Rules::new().with_max_string(1 << 16).unwrap();
    match input {
        Value::String(text) => vec![
            redact_text(text).into_owned(),
            rules.json(&json!({ "input": text })).to_string(),
        ],
        json => vec![
            rules.json(json).to_string(),
            redact_text(&json.to_string()).into_owned(),
        ],
    }
}

fn leaks(entry: &Entry) -> Option<String> {
    let leak = |view: &String| entry.secrets.iter().any(|secret| shows(view, secret));
    views(&entry.input).into_iter().find(leak)
}

/// What leaks of the entries that `must`, or need not, be hidden; and how many entries there are.
fn leaks_of(must: bool) -> (Vec<String>, usize) {
    let entries: Vec<_> = entries().into_iter().filter(|e| e.must == must).collect();
    let leak = |e: &Entry| Some(format!("{}, {}: {}", e.class, e.name, leaks(e)?));
    (entries.iter().filter_map(leak).collect(), entries.len())
}

/// K-2: what any reader expects to be hidden.
#[test]
fn every_secret_of_the_corpus_that_must_be_hidden_is() {
    let (leaked, count) = leaks_of(true);
    assert!(count >= 400);
    none_of("leaks", &leaked);
}

/// S5: wherever the text stands: in an error, in debug output, in JSON inside a text.
#[test]
fn a_secret_that_must_be_hidden_is_hidden_inside_other_texts() {
    let mut failed = Vec::new();
    for entry in entries().into_iter().filter(|e| e.must) {
        let text = match &entry.input {
            Value::String(text) => text.clone(),
            json => json.to_string(),
        };
        let body = json!({ "body": text });
        for text in [
            format!("503: {text}"),
            format!("Error({text:?})"),
            format!("failed: {body} at line 3"),
            format!("{text} was refused"),
            format!("before\n{text}\nafter"),
        ] {
            let shown = redact_text(&text);
            if entry.secrets.iter().any(|secret| shows(&shown, secret)) {
                failed.push(format!("{}: {shown}", entry.name));
            }
        }
    }
    none_of("leaks", &failed);
}

/// K-2: the forms that are hard to tell, or arguable.
#[test]
fn of_the_secrets_that_are_hard_to_tell_2_percent_leak_at_most() {
    let (leaked, count) = leaks_of(false);
    let shown = leaked.join("\n");
    assert!(
        leaked.len() * 50 <= count,
        "{} of {count}:\n{shown}",
        leaked.len()
    );
}

/// What stands beside a secret stays readable.
#[test]
fn nineteen_of_twenty_neighbours_of_secrets_are_kept() {
    let kept = |e: &Entry| {
        let keep = e.keep.as_ref()?;
        Some(views(&e.input).iter().all(|view| shows(view, keep)))
    };
    let kept: Vec<_> = entries().iter().filter_map(kept).collect();
    let lost = kept.iter().filter(|kept| !**kept).count();
    assert!(
        kept.len() >= 400 && lost * 20 <= kept.len(),
        "{lost} of {}",
        kept.len()
    );
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    fn word(&mut self) -> &'static str {
        self.one_of(WORDS)
    }

    fn hex(&mut self, digits: usize) -> String {
        let digit = |_| char::from(b"0123456789abcdef"[self.below(16)]);
        (0..digits).map(digit).collect()
    }

    /// What stands in a slot, None if there is no slot of this name.
    fn slot(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "word" => self.word().to_owned(),
            "num" => (1 + self.below(9_999)).to_string(),
            "hex8" => self.hex(8),
            "hex40" => self.hex(40),
            "uuid" => {
                let variant = self.one_of(&["8", "9", "a", "b"]);
                let (a, b, c) = (self.hex(8), self.hex(4), self.hex(3));
                format!("{a}-{b}-4{c}-{variant}{}-{}", self.hex(3), self.hex(12))
            }
            "date" => {
                let (year, month) = (2015 + self.below(11), 1 + self.below(12));
                format!("{year}-{month:02}-{:02}", 1 + self.below(28))
            }
            "time" => {
                let (hour, minute) = (self.below(24), self.below(60));
                format!("{hour:02}:{minute:02}:{:02}", self.below(60))
            }
            "ip" => {
                let net = self.one_of(&["10.0.7", "10.20.30", "192.0.2", "198.51.100"]);
                format!("{net}.{}", 1 + self.below(254))
            }
            "ipv6" => match self.below(3) {
                0 => format!("2001:db8::{}", self.hex(2)),
                1 => format!("2001:db8:{}::{}", self.hex(4), self.hex(4)),
                _ => format!("2001:db8:{}:0:0:0:{}:1", self.hex(4), self.hex(4)),
            },
            "path" => {
                let mut path = String::new();
                for _ in 0..2 + self.below(3) {
                    let _ = write!(path, "/{}", self.word());
                }
                path + self.one_of(&["", ".txt", ".rs", ".log"])
            }
            "ident" => format!("{}_{}", self.word(), self.word()),
            "email" => match self.below(2) {
                0 => format!("{}@{}.example", self.word(), self.word()),
                _ => format!("{}.{}@example.com", self.word(), self.word()),
            },
            "ver" => format!("{}.{}.{}", self.below(41), self.below(41), self.below(41)),
            "host" => {
                self.word().to_owned() + self.one_of(&[".example.com", ".internal", ".example"])
            }
            "name" => format!("{} {}", self.one_of(GIVEN), self.one_of(FAMILY)),
            "float" => format!(
                "{:.*}",
                1 + self.below(3),
                self.below(1_000_000) as f64 / 1_000.0
            ),
            _ => return None,
        })
    }

    /// A template with its slots filled; other braces are text.
    fn fill(&mut self, template: &str) -> String {
        let (mut out, mut rest) = (String::new(), template);
        while let Some((head, tail)) = rest.split_once("{{") {
            out += head;
            let filled = tail
                .split_once("}}")
                .and_then(|(name, tail)| Some((self.slot(name)?, tail)));
            rest = match filled {
                Some((value, tail)) => {
                    out += &value;
                    tail
                }
                None => {
                    out += "{{";
                    tail
                }
            };
        }
        out + rest
    }
}

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "river", "stone", "lake", "anchor", "basket", "bridge", "candle", "copper", "desert", "eagle", "engine", "fabric", "forest",
    "garden", "glass", "harbor", "hollow", "island", "jacket", "kettle", "ladder", "lemon", "marble", "market", "meadow", "mirror",
    "narrow", "needle", "ocean", "orange", "orchard", "paper", "pebble", "pencil", "planet", "quiet", "rapid", "ribbon", "saddle",
    "sailor", "shadow", "silver", "spring", "summer", "table", "timber", "tunnel", "valley", "velvet", "violet", "wagon", "winter",
    "yellow", "zebra", "amber", "bright", "cloud", "dusty", "early", "fresh",
];

const GIVEN: &[&str] = &[
    "Anna", "Björn", "Clara", "David", "Jürgen", "Maria", "Olga", "Tom",
];

const FAMILY: &[&str] = &[
    "Weber", "Müller", "Smith", "Larsen", "Rossi", "Novak", "Okafor",
];

/// Code, prose, logs, tables, addresses, settings, commands and JSON in which nothing is a secret:
/// of 24 texts of each template none is changed.
#[test]
fn of_the_templates_of_harmless_texts_1_in_200_is_changed_at_most() {
    let templates: Vec<Template> =
        serde_json::from_str(include_str!("corpus/harmless.json")).unwrap();
    assert!(templates.len() >= 400);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut changed = |t: &Template| {
        let mut texts = (0..24).map(|_| random.fill(&t.template));
        let text = texts.find(|text| redact_text(text) != *text)?;
        Some(format!("{}: {text}\n    {}", t.class, redact_text(&text)))
    };
    let changed: Vec<_> = templates.iter().filter_map(&mut changed).collect();
    let count = format!("{} of {}", changed.len(), templates.len());
    assert!(
        changed.len() * 200 <= templates.len(),
        "{count}:\n{}",
        changed.join("\n")
    );
}

/// S2: templates that the author thought harmless, but whose member is a secret by its key,
/// whatever its value.
#[test]
fn a_member_under_a_sensitive_key_is_hidden_though_its_value_tells_of_none() {
    let templates: Vec<String> = serde_json::from_str(include_str!("corpus/by_key.json")).unwrap();
    let mut random = Random(1);
    for template in templates {
        let text = random.fill(&template);
        assert!(redact_text(&text).contains(REDACTED), "{text}");
    }
}

/// K-3: what JSON says is the data of a picture is not read as text, nor is that of a `data:` URL.
#[test]
fn pictures_in_base64_stay_whole() {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = Random(11);
    let mut data = |beginning: &str| {
        let digits = (0..2_000).map(|_| char::from(DIGITS[random.below(64)]));
        beginning.to_owned() + &digits.collect::<String>()
    };
    let rules = Rules::new().with_max_string(1 << 16).unwrap();
    let mut changed = Vec::new();
    for _ in 0..500 {
        let picture =
            json!({ "type": "image", "mimeType": "image/png", "data": data("iVBORw0KGgo") });
        let sound = json!({ "source": { "media_type": "audio/wav", "data": data("") + "==" } });
        let url = format!("<img src=\"data:image/png;base64,{}\">", data(""));
        let cut = format!("{{\"data\":\"{}", data("/9j/4AAQ"));
        for json in [picture, sound, json!({ "url": url })] {
            changed.extend(
                (serde_json::to_value(rules.json(&json)).unwrap() != json)
                    .then(|| json.to_string()),
            );
            let text = json.to_string();
            changed.extend((redact_text(&text) != text).then_some(text));
        }
        changed.extend((redact_text(&cut) != cut).then_some(cut));
    }
    assert!(
        changed.is_empty(),
        "{} of 3,500, such as {:.200}",
        changed.len(),
        changed[0]
    );
    let secret =
        json!({ "mimeType": "image/png", "data": "password=hunter2", "note": "token=hunter2" });
    assert!(!rules.json(&secret).to_string().contains("hunter2"));
}
