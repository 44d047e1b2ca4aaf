//! Bounds: of what is shown, of time, of depth.

use proptest::prelude::*;

use super::*;
use crate::text::bytes::LOOKED_AT;

fn shown(text: &str, max: usize) -> String {
    BUILT_IN.text(text, max).to_string()
}

const PEM: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----";

#[test]
fn a_private_key_goes_as_a_whole_whatever_its_field_is_called() {
    assert_eq!(redact_text(&format!("x {PEM} y")), "x [REDACTED] y");
    assert_eq!(
        redact_text(&format!("ssh_key={PEM} y")),
        "ssh_key=[REDACTED] y"
    );
    let json = json!({ "private_key": PEM, "q": 1 }).to_string();
    assert_eq!(redact_text(&json), r#"{"private_key":"[REDACTED]","q":1}"#);
    let nested = json!({ "file": json!({ "file": PEM }).to_string() }).to_string();
    assert!(!redact_text(&nested).contains("MIIE"));
    assert!(!redact_text(&format!("oops {nested}")).contains("MIIE"));
    assert!(!redact_text(&PEM[..PEM.len() - 30]).contains("MIIE"));
    for form in [
        "x -----BEGIN PGP PRIVATE KEY BLOCK-----\nMIIE\n-----END PGP PRIVATE KEY BLOCK----- y",
        "x -----BEGIN OPENSSH PRIVATE KEY-----\\nMIIE\\n-----END OPENSSH PRIVATE KEY----- y",
        "x ---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nMIIE\n---- END SSH2 ENCRYPTED PRIVATE KEY ---- y",
        "x PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\nMIIE\nPrivate-MAC: 00\n y",
    ] {
        let shown = redact_text(form);
        assert!(
            !shown.contains("MIIE") && shown.starts_with("x ") && shown.ends_with(" y"),
            "{shown}"
        );
    }
}

/// K-2: the lines of a key without its beginning, raw, escaped, as an array.
#[test]
fn the_tail_of_a_private_key_goes_as_well() {
    let lines = ["MIIEpAIBAAKCAQEAz6AevSpvGgyHolLK1NTxG437cTi6NfOoIPF6zExo3p4RBd/S"; 3];
    for between in ["\n", "\r\n", "\\n", "\\\\n", "\",\"", "\",\n  \"", "\n+"] {
        let text = format!(
            "x: {between}{}{between}b3A4=={between}-----END PRIVATE KEY----- y",
            lines.join(between)
        );
        let shown = redact_text(&text).into_owned();
        assert!(
            !shown.contains("MIIE") && !shown.contains("b3A4"),
            "{shown}"
        );
        assert!(shown.starts_with("x:") && shown.ends_with(" y"), "{shown}");
    }
    let certificate = "MIIEpAIBAAKCAQEAz6AevSpvGgyHolLK1NTxG437cTi6N\n-----END CERTIFICATE-----";
    assert_eq!(redact_text(certificate), certificate);
}

#[test]
fn a_secret_that_the_cut_has_halved_does_not_come_into_view() {
    for filler in 0..1200 {
        let text = format!(
            "Bearer {} postgres://ada:S3cr3tCanary9xLONGER@db/x",
            "a1".repeat(filler)
        );
        let shown = shown(&text, MAX_STRING);
        assert!(!shown.contains("S3cr"), "{shown}");
    }
    let shown = shown(&format!("{} end", "word ".repeat(400)), MAX_STRING);
    assert!(shown.ends_with(TRUNCATED));
}

#[test]
fn a_password_longer_than_the_window_is_redacted() {
    let text = format!("postgres://ada:{}@db/x end", "x".repeat(600));
    assert!(!redact_text(&text).contains("xxx"));
}

/// No text makes it slow or panic: four times the text, four times the bytes that are looked at.
#[test]
fn hostile_text_is_passed_in_linear_time() {
    let effort = |text: &str| {
        LOOKED_AT.set(0);
        let _ = redact_text(text);
        LOOKED_AT.get()
    };
    let mut slow = String::new();
    let deeper: String = (0..90).map(|i| " ".repeat(i) + "password:\n").collect();
    let wide = format!("{}\nx\n", "token,".repeat(160));
    let begun = [
        ("INSERT INTO t (password) VALUES (", "\\"),
        ("\"", "\\u{"),
        ("", "dGhpcyBpcyBhIHBsYWluIGxpbmUgb2YgdGV4dCwgb2sgISEh\n"),
        (
            "",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        ),
        ("", &wide),
        ("", "<tr><td>password</td>\n"),
        ("", "<tr><td>password</td></tr>\n"),
        ("", &deeper),
    ];
    // Each beside each: a value may be read again for the next name. `PAIR_STEP=1` takes all.
    let beside = |i| {
        PAIRED[i..]
            .iter()
            .map(move |next| PAIRED[i].to_owned() + next)
    };
    let step = std::env::var("PAIR_STEP").map_or(7, |n| n.parse().unwrap());
    let pairs: Vec<_> = (0..PAIRED.len()).flat_map(beside).step_by(step).collect();
    let parts = NASTY
        .iter()
        .copied()
        .chain(pairs.iter().map(String::as_str));
    for (begin, part) in parts.map(|part| ("", part)).chain(begun) {
        // Longer than all that is looked at for one decision.
        let times = (6 << 10) / part.len();
        let text = |times| begin.to_owned() + &part.repeat(times);
        let (short, long) = (effort(&text(times)), effort(&text(4 * times)));
        if long > 6 * short || long > 600 << 15 {
            slow += &format!("{part:?}: {short} {long}\n");
        }
    }
    assert!(slow.is_empty(), "\n{slow}");
}

#[rustfmt::skip]
const NASTY: &[&str] = &[
    "password=", "\"password\": ", "Bearer ", "://", "a:b@", "x://a:b", "sk-", "-----BEGIN", "-----BEGIN PRIVATE", "-----BEGIN PRIVATE KEY-----\n", "key:", "[", "Some(", "\\\"", "é=", "token\u{a0}:\u{2028}", "<key>", "<password>",
    "<password ", "--key ", "eyJ", "Authorization: \n ", "password:\n", "password: |\n", "password:\n  a", "\"token\",", "[\"token\",", "\"name\":\"token\",", "token is ", "password \"", "-p", "mysql -p", "curl -u ", "pass\\u0077",
    "password='''", "password=\"\"\"", "login password ", "machine login password", "a:1234:b:c:", "https://hooks.slack.com/services/", "/", ".", "-", "_", "password%3D", "%22", "token=a,", "token=a;", "token=\\", "\"", "{", "}", "&quot;password&quot;:&quot;",
    "PuTTY-User-Key-File-2", "Cookie: a\\", "x-amz-signature=", "aaaa", "é", " ", "\n", "password = a b\n", "key=\"a\"b", "-sk-", "sk-a1_", "AC", "SK0", "u=", "tokens:\n- a\n", "123456:AA", "key: [", "key: (", "token: {", "auth: 'a", "key: \"a b", "\"key\",\"[", "\"-key\",[", "name=\"password\">", "name=\"password\"\n\nx\n--", "value=\" name=\"password\"", "-----BEGIN PRIVATE KEY-----x-----END PRIVATE KEY----- ", "--key [", "password: str = [",
    "IDENTIFIED by ", "PASSWORD('", "set password for a = ", "echo a | ", "htpasswd -b a b ", "Token(\"", "input_value=", "key\u{1b}[1m", "password**", "https://h/key/", "a:1234,", "code=",
    "a,password\n", "user,password\na,b\n", "a,password\nb,\"", "|password|a|\n|---|\n", "a  password\n", "a;token\n;", "(password) VALUES (", "(password, a) VALUES ('", "INTO password VALUES ((",
    "password,", "[password,", "columns=['password'] rows=[", "<th>password</th>", "<tr><th>password</th>", "<tr><th>password</th></tr><tr>", "<td>password</td><td>", "-----END PRIVATE KEY-----\n", "-----END", "MIIE\n-----END PRIVATE",
    "LS0tLS1CRUdJTiBFQyBQUklW", "dXNlcjogYWRhCnBhc3N3b3Jk\n", "VTJGc2RHVmtYMTg9VTJGc2RHVmtYMTg9", "kind: Secret\n", "kind: Secret\ndata:\n", "data:\n  a: b\nkind: Secret\n", "kind: Secret\ndata:\n  a: b\n", "- kind: Secret\n  data:\n    a: b\n", "kind: SecretList\n", "<TD>password</b></TD>", "<th>password</th><td><b>", "token,a\nb\n", "$aa", "$params", "eyJ$", "--name token -value -[", "-value $((", "ConvertTo-SecureString -String $(", "(a,password) from stdin ", "token:\n file: x\n", "|token|a|\n", "ConvertTo-SecureString -String ", "ConvertTo-SecureString ", "'a' | ConvertTo-SecureString ",
    "' | ConvertTo-SecureString ", "--value ", "-name token -value ", "verification code is ", " is your login code", "seed phrase:\n", "backup codes:\n1. ", "a:b1!@c:12 ", "password -> ", "password for ", "key for a -> ", "[token] ", "token|",
    "&#112;", "pass&#119;ord=", "AKIA", "AKIA 6eOW4lhoDVqMRoUjJ45HlpVxrtqtDC5oQ+r0ggGT ", "net use \\\\h\\s ", " secret --from-literal=", "variable \"password\" {", "p4ssw0rd=", "'password: ", "\"Cookie: a", "Cookie: a=\\\"", "Cookie: a='b", "\"Cookie: \\\"",
    "id=\"a\", ", "token=id=\"a\", ", "password=\"a\" -> \"", "NetworkCredential('a', ", "connection_string=", "password from a to ", "a:{SHA}", "password=(\"", "password=a(\"", "let password: ", "password: \"\n", "**password:\n", "the password:\n\n",
    "masterauth ", "sentinel auth-pass a ", "a\tTRUE\t", "a\tTRUE\t/\tTRUE\t1\ta\tb\n", "SetBasicAuth(\"ada\", ", "login('a', '", "MNEMONIC=legal ", "legal ",
    "phrase legal winner ", "ParameterKey=DBPassword,ParameterValue=", "Unseal Key 1: ", "token=FlyV1 fm2_a1b2c3 ", "\"required\": [\"password\", ", "> name: token\n> value: ",
    "data:image/png;base64,", "\u{1b}[33mname\u{1b}[0m: token ", "\u{1b}[33mvalue\u{1b}[0m: ", "private String password;\n",
    "\"name\":\"password\",\" \\\n", "$ \\\nSome(\"kind\":\"Secret\",",
    "{\"name\":\"token\",\"a\":\"b\",\"value\":\"", "name: token, pw=abcd, value: [", "password's ", "rclone obscure ", "token=password: ", "user: a\npass: b\n", "C::password=", "echo -n a | docker login ",
    "- name: password\n", "password (", "password for ", "password | ", "\u{201c}password\u{201d}:\u{201c}",
];

#[rustfmt::skip]
const PAIRED: &[&str] = &[
    "Authorization: x ", "Cookie: ", "password,", "password: |\n  x\n", "password=", "if ", "PASSWORD ", "\"", "'", "\\\"", "[", "{\"",
    "\t", "--password ", "user,password\n", "%25", "\n", "\u{feff}> ", "name: token ", "||", "login(\"", "req 1 Authorization: ok ",
];

/// Found by the fuzz target: once the first part was redacted, the next one was near enough to be
/// looked at.
#[test]
fn a_url_whose_user_is_longer_than_what_is_read_is_redacted_to_its_end() {
    let url = format!(
        "sftp://svc_user:fgiP98wiKNhCNg6a@files2.hollg6a{}@filow.dev/in",
        "@filg6a".repeat(300)
    );
    let once = redact_text(&url);
    assert!(!once.contains("filg6a"), "{once}");
    assert_eq!(redact_text(&once), once);
}

/// An attack found each: a second pass took the end of the string around it for the secret.
#[test]
fn json_stays_json_when_it_is_redacted_twice() {
    for command in [
        r#"curl --user \"ada:Sommer!2024\" https://h"#,
        "htpasswd -b .htpasswd ada Sommer!2024",
        r#"xh -a \"ada:Sommer!2024\" h | jq"#,
    ] {
        let text = format!("{{\"output\":\"{command}\"}}");
        let once = redact_text(&text).into_owned();
        assert!(!once.contains("Sommer"), "{once}");
        assert_eq!(redact_text(&once), once);
        assert!(serde_json::from_str::<Value>(&once).is_ok(), "{once}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_redacted_without_a_panic_and_stays_so(
        parts in proptest::collection::vec(fragment(), 0..14),
        max in 0_usize..60,
    ) {
        let text = parts.concat();
        let once = redact_text(&text).into_owned();
        prop_assert_eq!(redact_text(&once), &*once, "{:?}", text);
        let shown = shown(&text, max);
        prop_assert!(shown.chars().count() <= max + TRUNCATED.len());
    }

    #[test]
    fn a_view_is_never_longer_than_its_limit(
        // Letters of which no name of a secret is made.
        strings in proptest::collection::vec("[fqzé\"\\\\]{0,40}", 0..40),
        max in 64_usize..600,
    ) {
        let rules = Rules::new().with_max_bytes(max).unwrap();
        let value = json!({ "a": strings });
        let whole = value.to_string();
        let shown = rules.json(&value).to_string();
        prop_assert!(shown.len() <= max);
        prop_assert_eq!(shown == whole, whole.len() <= max);
    }
}

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "password", "token", "Bearer", "://", "@", ":", "=", "\"", "'", "\\", "(", ")", "[", "]",
    "{", "}", "-----BEGIN PRIVATE", "-----END", " ", "\n", "  ", "é", "sk-", "name", "value",
    "key", ",", ";", "&", "%3D", "%26", "<", ">", "</", "--", "-p", "mysql", "curl", "-u",
    "Authorization", "Cookie", "is", "|", "\u{200b}", "\u{a0}", "arn:", "tcp(", "echo ",
    "--password-stdin", "$2b$", "\u{3000}", REDACTED, "Some", "hooks.slack.com/services/",
    "login", "machine", "eyJ", "ghp_", "\\n", "\\u0070", "&quot;", "...", "***", "null",
    "Basic", "auth", "http", "1", "- ", "`", "=>", "\"password\":\"", "\t", "---|---",
    "a,password\n", "| Token |\n|--|\n", "(password) VALUES (", "columns=[", "rows=[",
    "<th>token</th>", "<td>", "kind: Secret\n", "data:\n", "ConvertTo-SecureString", "-Value",
    "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCg", "AKIAIOSFODNN7EXAMPLE", "{\"", "\"}", "\\\"",
    "verification code", "backup codes:", "&#112;", " -> ", "\u{201e}", "\u{201c}", "{SSHA}",
    "from a to ", "{\"kty\":\"EC\",\"d\":\"", "connection_string", "password=", ": :", "$",
    "/", "#",
];

fn fragment() -> impl Strategy<Value = String> {
    let words = prop::sample::select(WORDS);
    prop_oneof![4 => words.prop_map(str::to_owned), 1 => "[a-z0-9A-Z]{1,24}"]
}

/// S3: a string is cut after 200 characters, between two of them, with a mark.
#[test]
fn output_is_bounded_in_depth_nodes_and_string_length() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    assert!(Redacted::of(&deep).to_string().contains("[...]"));
    let wide = Value::Array(vec![json!(1); 100_000]);
    assert!(Redacted::of(&wide).to_string().len() < 4 * MAX_NODES);
    let long = Value::String("ä".repeat(1 << 20));
    let shown = Redacted::of(&long).to_string();
    assert_eq!(shown, format!("\"{}...[truncated]\"", "ä".repeat(200)));
    let bulk = Value::Array(vec![json!("a".repeat(300)); 1_000]);
    assert_eq!(Redacted::of(&bulk).to_string().len(), MAX_BYTES);
    assert!(serde_json::to_string(&Redacted::of(&bulk)).unwrap().len() < 2 * MAX_BYTES);
}

/// A value that is serialised has no more bytes of strings than a view, and a mark.
#[test]
fn long_strings_and_keys_of_a_serialised_view_are_bounded() {
    let rules = Rules::new().with_max_bytes(64).unwrap();
    let rules = rules.with_max_string(1 << 16).unwrap();
    let long = "ä".repeat(50_000);
    for value in [
        json!({ "text": long.as_str() }),
        json!({ long.as_str(): 1 }),
        json!([long.as_str(), long.as_str()]),
        json!({ "data": "A".repeat(50_000), "mimeType": "image/png" }),
    ] {
        let shown = serde_json::to_string(&rules.json(&value)).unwrap();
        assert!(shown.len() < 64 + 80, "{}", shown.len());
    }
    let fits = json!({ "a_name_of_forty_letters_in_this_object": "twelve bytes" });
    assert_eq!(rules.json(&fits).to_string(), fits.to_string());
}

#[test]
fn ten_thousand_levels_do_not_overflow_the_stack() {
    let mut deep = json!("password=x");
    for i in 0..10_000 {
        deep = match i % 2 {
            0 => Value::Array(vec![deep]),
            _ => Value::Object([("a".to_owned(), deep)].into_iter().collect()),
        };
    }
    assert!(Redacted::of(&deep).to_string().contains("[...]"));
    while let Some(inner) = match &mut deep {
        Value::Array(items) => items.pop(),
        Value::Object(map) => map.get_mut("a").map(Value::take),
        _ => None,
    } {
        deep = inner;
    }
    for level in ["[", "{\"a\":", "(", "password=[", "\"\\\"", "<a>"] {
        let _ = redact_text(&level.repeat(10_000));
    }
}

/// Found by fuzzing: no JSON because of raw control characters in the secret, and JSON without it.
#[test]
fn a_text_that_becomes_json_stays_as_it_is() {
    let text = "{\"password\":\"a\0\0B0TnVNsxR7\",\"city\":\"Bonn\"}";
    let once = redact_text(text).into_owned();
    assert!(!once.contains("B0Tn"));
    assert_eq!(redact_text(&once), once);
}

/// Each of these was once a panic.
#[test]
fn marks_of_many_bytes_and_empty_arguments_do_no_harm() {
    for text in [
        "\u{a0}:password:",
        "\u{3000}x:y@tcp(h)",
        "echo |--password-stdin",
        "/usr/bin/sqlplus x",
        "printf -e | chpasswd",
        "$2b$\u{e9}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "password=:",
        "passwd=!!:",
        "password=.:",
        "\"password\": :",
    ] {
        let _ = redact_text(text);
    }
}
