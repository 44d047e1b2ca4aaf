//! What strangers, servers and operators may write, mutated at random: the targets of `cargo fuzz`,
//! on a stable compiler.
//!
//! | variable | is | default |
//! |---|---|---|
//! | `FUZZ_SECS` | how long each target runs | 1 |
//! | `FUZZ_SEED` | which inputs there are | 1 |
//! | `FUZZ_INPUT` | the only one of them that is run | |
//!
//! `FUZZ_SECS=600 cargo test --release -p whole-stacks --test fuzz -- --nocapture --test-threads 7`
//!
//! An input is a pure function of the seed, its number and the corpus: what fails prints both, and
//! the input.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod drive;
mod mutate;
mod targets {
    pub(crate) mod fit;
    pub(crate) mod hints;
    pub(crate) mod redact;
    pub(crate) mod rpc;
    pub(crate) mod schemas;
    pub(crate) mod settings;
    pub(crate) mod templates;
}

use drive::Target;

/// L2.
#[test]
fn hints() {
    #[rustfmt::skip]
    let tokens = &[
        "retry-after: ", "\n", "x-ratelimit-reset: ", "ratelimit: ", ";r=0;t=", ";w=",
        "date: ", " GMT", "try again in ", "retry_after", "ms", "h5m", "1e308", "NaN",
        "\"retryDelay\":\"", "{\"error\":", "+01:00",
    ];
    Target::new("hints", tokens, targets::hints::run).fuzz();
}

/// S1 to S5.
#[test]
fn redaction() {
    #[rustfmt::skip]
    let tokens = &[
        "password=", "\"token\":\"", "\\\"", "Bearer ", "-----BEGIN PRIVATE KEY-----\n",
        "eyJhbGciOiJIUzI1NiJ9.", "://ada:pw@", "\n", "\t", "| password |",
        "aHVudGVyMmh1bnRlcjJodW50ZXIy", "%22", "&quot;", "export ", "{\"", "\":{", "}}", ",\"",
        "[", "]", "\u{202e}", "\u{200b}", "рassword: ", "<key>", "</", "'", "--",
    ];
    let mut target = Target::new("redact", tokens, targets::redact::run);
    // Those of the tests of redaction, whose signs keep scanners quiet.
    for file in [
        include_str!("../../../../crates/redact/tests/redaction/secrets.json"),
        include_str!("../../../../crates/redact/tests/redaction/corpus/secrets.json"),
    ] {
        let entries: Vec<serde_json::Value> = serde_json::from_str(&file.replace('§', "")).unwrap();
        for entry in &entries {
            target.seed(match &entry["input"] {
                serde_json::Value::String(text) => text.clone(),
                json => json.to_string(),
            });
        }
    }
    target.fuzz();
}

/// V1 to V9.
#[test]
fn schemas() {
    #[rustfmt::skip]
    let tokens = &[
        "{\"$ref\":\"#", "/$defs/a", "\"allOf\":[", "\"anyOf\":[", "\"not\":",
        "\"pattern\":\"^(a+)+$\"", "\"uniqueItems\":true", "\"items\":", "\"properties\":{",
        "\"required\":[\"a\"]", "\"type\":\"integer\"", "\"enum\":[", "\"$id\":\"x\"", "\0",
        "{}", "[]", "null", "true", "1e400", "-0.0", "\"5\"", "{\"a\":", "}", "]", ",",
        "\"$dynamicRef\":\"#x\"", "\"unevaluatedProperties\":false", "\"multipleOf\":0.1",
        "\"const\":", "\\ud800",
    ];
    Target::new("schemas", tokens, targets::schemas::run).fuzz();
}

/// H1 to H4.
#[test]
fn templates() {
    #[rustfmt::skip]
    let tokens = &[
        "{{ a }}", "{{ a | tojson }}", "{% for x in a %}", "{% endfor %}", "{% if a %}",
        "{% endif %}", "{{", "}}", "{\"", "\": \"", "\", ", "[", "]", "\0", "\"\\u0000\"", "/",
        "?", "#", "@", "%2F", "..", "\r\n", "\u{10FFFE}", " | default('x')", " | urlencode",
        "[\"", "{\"a\":", "1e308", "null", "{% set a = 1 %}", "{# #}", "{% raw %}",
    ];
    Target::new("templates", tokens, targets::templates::run).fuzz();
}

/// E5.
#[test]
fn json_rpc() {
    #[rustfmt::skip]
    let tokens = &[
        "{\"jsonrpc\":\"2.0\",", "\"id\":1,", "\"id\":null,", "\"id\":\"x\",", "\"id\":1.0,",
        "\"method\":\"tools/call\",", "\"params\":{\"name\":\"t\"}",
        "\"params\":{\"name\":\"fails\"}", "}", "{", "[", "]", ",", "\"arguments\":{}",
        "1e999", "\\ud800", "\"notifications/x\"", "\"server\":\"s\"", "\u{0}",
    ];
    Target::new("rpc", tokens, targets::rpc::run).fuzz();
}

/// G1.
#[test]
fn settings() {
    #[rustfmt::skip]
    let tokens = &[
        "\n[timeout]\n", "default = ", "\"30s\"", "\n[tools.x]\n", "TOOLCALL_",
        "TOOLCALL_TIMEOUT=", "TOOLCALL_RETRY_ATTEMPTS=", "TOOL_CIRCUIT_BREAKER_", "=", "\n",
        "0", "-1", "18446744073709551615", "1e308", "NaN", "none", "true", "ms", "\"",
        "TOOLCALL_PRESET=gateway\n", "preset = \"agent_loop\"\n", "TOOLCALL_POLICY_DENY=*,",
        "1m30s", ",", "999999999d",
    ];
    Target::new("settings", tokens, targets::settings::run).fuzz();
}

#[test]
fn shortened_answers() {
    #[rustfmt::skip]
    let tokens = &[
        "\n", "\u{1F600}", "e\u{301}", "{\"a\":\"", "\"", "[", "]", "\\n", "\\u0000", "}", ",",
        "[... 5 of 7 characters left out]",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    Target::new("fit", tokens, targets::fit::run).fuzz();
}
