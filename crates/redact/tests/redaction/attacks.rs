//! Texts by which readers of the rules got a secret out, and frames of any text around one.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use serde::de::IgnoredAny;
use toolcall_redact::{Rule, Rules, Tail, redact_text};

use crate::{forms::secrets, none_of};

/// A text with `§` around its secret. All else stays.
#[rustfmt::skip]
const HIDDEN: &[&str] = &[
    // By the place in a line of a command or of settings, in any case and with any blanks
    "localhost:5432:é:u:§p§",
    "curl -u §ada:x9§ http://h", "curl\t-u\t§ada:x9§ http://h", "curl -su\t§ada:x9§",
    "net use * \\\\srv\\share §x9§", "NET USE\tZ: \\\\srv\\share §swordfish§ /user:ada", "net use Z: \"\\\\srv\\my share\" §hunter2§",
    "net use Z: \\\\srv\\share /user:ada \"§two words§\"", "net use Z: \\\\srv\\share §p*s:1\\x§ /user:ada",
    "CONFIG SET requirepass §x9§", "REQUIREPASS  §swordfish§", "requirepass\t\"§two words§\"\nport 1", "masterauth\t§geheim§\r\nport 1",
    "sentinel auth-pass  mymaster\t§swordfish§", "SENTINEL AUTH-PASS m §geheim§", "requirepass = §hunter2§",
    "echo  -n §x9§ | docker login", "echo  -n §geheim§ | docker login", "echo §hunter2§ | docker login", "echo\t-n -e §swordfish§|docker login --password-stdin",
    "printf  '%s'  §swordfish§ | docker login --password-stdin", "echo  §-neighbour§ | chpasswd", "ECHO §swordfish§ | sudo -S id",
    "/bin/echo -- §hunter2§ | sudo -S id", "echo -E §é§ | sudo -S id", "sentinel auth-pass \"my master\" §hunter2§", "bindpw  §{SSHA}Zq7hX2vT9kLw4bRnZq7hX2vT§",
    "htpasswd\t-b\tf\tada\t§swordfish§", "htpasswd  -nb  ada  \"§two words§\"",
    "rclone obscure §swordfish§", "rclone  obscure\t'§two words§'", "$ RCLONE -v obscure §é§",
    // Beside words of code and of prose, which do not make a value code
    "final password: §Zq7hunterX9§", "private key passphrase: §Zq7hunterX9§", "error in function login: password: §Zq7hunterX9§",
    "password = §os.environ.get(\"DB_PASSWORD\", \"swordfish\")§", "password = §getenv(\"X\", \"correcthorse\")§",
    "password=§Summer2024Beach§, retrying", "assertion failed: token == §9f8a7b6c5d4e3f2a§", "if api_key != \"§Zq7hX2vT9kLw4bRn§\"",
    "{\"type\":\"password\",\"value\":\"§hunter2§\"}", "password=§0x8Kj2Lm9QpZt§", "postgres://§ada:p;w!d=x§@db/app",
    "password=§$(8kd!Zq7x§", "password: §httpZq7hunter§", "password=§letmein.pem§",
    // Keys whose first line has a mark in front, or that are cut off behind a name
    "PRIVATE_KEY=§-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx8Zq7hX2vT9kLw4bRnMIIEowIBAAKCAQEA\n§",
    "/§-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx8Zq7hX2vT9kLw4bRn\n-----END PRIVATE KEY-----§",
    "x§-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx8Zq7hX2vT9kLw4bRn\n-----END PRIVATE KEY-----§",
    // Quoted words without digits
    "password is \"§swordfish§\"", "the password is '§correct horse§'", "password: \"§swordfish§\"", "password = §Some(\"swordfish\")§",
    "conf.set(\"password\",\"§x§\",true)", "conf.set( 'PASSWORD' ,\t'§swordfish§', 1)", "conf.put(\"db.password\",\n  \"§swordfish§\",\n  1)",
    // `pass` of a login
    "smtp:\n  host: h\n  pass: §swordfish§\n", "smtp:\r\n  pass: §swordfish§\r\n", "db:\n  pass: \"§swordfish§\"\n  user: ada\n",
    "[smtp]\nuser = ada\npass = §swordfish§\n", "smtp: {host: h, pass: §swordfish§}",
    "DB_PASS=§swordfish§", "SMTP_PASS=§💥boom§\nx: 1",
    // Beside texts that are shown: another host, another type, another member
    "https://evil.example/codecov.io/badge.svg?token=§hunter2x9abc§", "//codecov.io/ https://h/badge.svg?token=§hunter2x9abc§",
    "https://codecov.io/gh/badge.svg?access_token=§hunter2x9§", "$password:§hunter2§", "$secret: §hunter2§", "password: §S-1-2-3§",
    "typeof password = \"§hunter2§\"", "password: §unsafe§ hunter2", "Security_Authorization = §[\"hunter2\"]§",
    "{key:\"§SwordfishT1gerHorse§\",value:function(){}}", "{key:\"§AbCdEfGhIjKlMnOpQrStUv§\",value:1}", "token_date: §2026-01-31x9§",
    "x.example\tTRUE\t/\tTRUE\t\tname\t§hunter2§", "x.example\tFALSE\t/\tFALSE\t12\t\t§hunter2§",
    "ConvertTo-SecureString -force -asplaintext '§hunter2§'",
    // Possessives
    "my password's §hunter2§", "MY PASSWORD'S §HUNTER2§!", "ada's password\u{2019}s §Sommer!2024§, ok", "the token's §abc123def456§",
    // Members of classes and modules
    "Config::PASSWORD = \"§hunter2§\"", "$Foo::password = '§swordfish§';", "self::DB_PASSWORD='§swordfish§';",
    "type password=§hunter2§", ":param password=§hunter2§", "arn:aws:iam::1:role/x-password=§hunter2§",
    // Calls and schemas that begin with a secret
    // A date beside a name that tells of no time
    "pwd=§1990-05-17§", "DB_PW=§1990-05-17§", "psk=§1990-05-17§", "kennwort: §1990-05-17§", "access_token=§4917-28-33§", "got \"token\": \"§4917-28-33§\", ok",
    "auth_token=§1990-05-17§", "password_time=§1990-05-17§", "pw = '§1990-05-17§'", "connect.sid=§S-1-48213377§", "PHPSESSID=§S-1-48213377§",
    // Escapes of a name that are escaped
    "{\"\\\\u0070assword\": \"§hunter2§\"}", "x \"\\\\u0070assword\": \"§hunter2§\"", "x \"pass\\\\u0077ord\": \"§hunter2§\"",
    "x \"\\\\\\\\u0070assword\": \"§hunter2§\"", "<p pass&amp;#119;ord=\"§hunter2§\">",
    // Lists of names end
    "\"grant_types\": [\"code\"]; opts.set(\"password\", \"§hunter2§\")", "\"scopes_supported\": []; opts.set(\"password\", \"§hunter2§\")",
    "\"required\": [\"a\"]; opts.set(\"password\", \"§hunter2§\")", "{\"login_types\":[\"password\",\"§hunter2x9§\"]}", "x \"login_types\": [\"password\", \"§hunter2x9§\"]",
    "admin_password = §[\"admin\"]§", "root_password: §[\"root\"]§", "admin_pwd = §[\"admin\"]§", "db_secret: §[\"db\"]§",
    // Beside texts that are shown: lists of arguments, types, formats, names of files, sentences
    "openssl pkcs12 -export -passout pass:§correct§", "openssl rsa -passin \"pass:§winter.swordfish§\" -in k",
    "Map.of(\"user\",\"ada\",\"password\",\"§hunter2§\")", "config.set('db','password','§Summer2024§')",
    "slog.Info(\"login\",\"user\",\"ada\",\"password\",\"§Tiger!2021§\")", "redis.hset('u','password','§s3cr3t§')",
    "rawHeaders: ['Host','h','Authorization','§Xk29abQ7§']", "<User ada password: §Summer2024§>", "Password: §Summer2024§ <ada>",
    "(password: §Hunter2§>)", "headers.append(\"X-Api-Key: §\" + \"Xk29abQ7mN§\")", "puts \"password: §\" + \"hunter2§\"",
    "DB_PASSWORD: §hunter2 PORT = 5§", "password: §hunter2 timeout = 30§", "secret: §9zQ8x7W6v5 env = prod§", "password = \"§hunter2%s§\" % user",
    "connect(password=\"§winter1392%s§\" % h)", "API_KEY = \"§Xk29abQ7mNp4{}§\".format(x)", "the API key is §1D2BD1375BEC9A3F4E5D6C7B8A9F0E1D2C3B4A59§",
    "the license key is §1D2BD1375BEC9A3F4E5D6C7B8A9F0E1D2C3B4A59§", "got cookie: §aB3x from server a§", "Set-Cookie: §Xk29; secure; not x§",
    "unlock with PIN §12ab34§", "the PIN '§ab12cd§'", "INSERT INTO t (login,password) VALUES ROW('a','§hunter2x§')", "--token-value §correcthorse§",
    "--auth-user §ada:correct§", "--cookie-string §correcthorse§", "token=§a8Kd93jQx7LmP2/ca.crt§", "MYSQL_PWD: §P@pjQ.crt§",
    "password: §sunset§ for ada.smith at the office", "pass: \"§19583139§\"", "wallet key: §0x133457799BBCDFF1§", "password = §tr!cky$§ = x",
    "postgres://§:pserver:Sw0rdfish§@h",
    // What a login reads from a pipe
    "echo §AbCdEfGhIjKlMnOpQrStUv§ | docker login -u ada", "echo \"§correct horse 4a5b6c§\" | docker login", "echo §Zq7hX2vT9k§ | az acr login",
    "printf '%s' '§hunter%2§' | docker login --password-stdin", "printf '%s\\n' §a%b§ | docker login --password-stdin", "printf '§hunter2%%§' | docker login --password-stdin",
    "echo -n §Tiger'21§ | docker login --password-stdin", "htpasswd -b f ada §Tiger'21§",
    // Words of `net use`
    "net use Z: \\\\srv\\share §Tiger'21§ /user:ada", "net use Z: \\\\srv\\share §a<b9§", "net use Z: \\\\srv\\share §hunter2,x=1§", "net use Z: \\\\srv\\share §a(b}\"c§ /user:ada",
    "net use /user:ada §hunter2§ \\\\srv\\share", "net use Z: §swordfish§ \\\\srv\\share /user:ada",
    "let user = ada; let pass = §secret12§;", "let host = h; let db_pass = §tiger99§;",
    "the key is \"§CorrectHorseBatteryStaple§\"", "the key's \"§CorrectHorseBatteryStaple§\"",
    "{key:\"§AbCdEfGhIjKlMnOpQrStUv§\",value:function(){}}", "[{key:\"§QwErTyUiOpAsDfGhJkLzXc§\",value:function(e){}}]",
    // Signs
    "requirepass §!@#^%!§", "sentinel auth-pass m §!@#^%!§", "bindpw §%^*!§", "requirepass \"§!@#^%!§\"",
    // Forms of code that go on
    "$password:§vis!7Kq§", "$password:§ty-7Kq§", "if (typeof password === \"§hunter2x9§\")", "if (typeof password === \"§string!hunter2§\")", "typeof password == '§Function hunter2§'",
    "https://codecov.io/gh/badge.svg?token=§hunter2x9ab§", "https://h/%https://codecov.io/badge.svg?token=§hunter2x9abc§", "https://codecov.io/badge.svg?token=§hunter2x9-§",
    "db:\n  password: §impl Fnord42 horse§\n  port: 1", "db:\n  password: §impl FnOnceMore42 horse§\n  port: 1",
    "type password=§string!x9§", "echo §Zq7hX2vT9k§ $X | docker login",
    "password=§Zq57hX48vTkL('a')§", "password = §Zq36hX65vTkL{\"type\": \"string\"}§", "password=§a8Kx2pQ7z.b(c)§",
];

/// Texts of like forms without a secret.
#[rustfmt::skip]
const SHOWN: &[&str] = &[
    "net use Z: \\\\srv\\share * /user:ada", "net use of water", "net use", "net use Z: /delete", "requirepass", "requirepass is not set", "requirepass \"\"",
    "rclone obscure - < f", "rclone obscure\nnext line", "an obscure reference", "echo hello | docker login", "echo -n | docker login --password-stdin",
    "echo \"$TOKEN\" | docker login --password-stdin", "htpasswd -b f", "my password's expired", "the password's length is 8", "the token's sha256 digest",
    "the key's name is id2", "Kind::Token => next()", "TokenKind::Secret: 4", "type AuthToken = string", "arn:aws:secretsmanager:eu:1:secret:prod/db",
    "tests:\n  pass: first\n  fail: second\n", "shader:\n  pass: shadow\n", "password = hash(input)", "password = Sha256::new(input)", "token = Sha512Trunc256(input)",
    "\"tokenExpirationTime\": \"2022-03-16T03:45:09+00:00\",", "token_date: 2026-01-31", "\"SID\": \"S-1-2-34-5567891234\"", "x \"\\\\u0063ity\": \"Oslo\"",
    "x \"grant_types\": [\"password\", \"refresh_token\"]", "{\"grant_types\":[\"password\",\"urn:ietf:params:oauth:grant-type:saml2-bearer\"]}", "Security_Authorization_Access = [\"Security_Authorization\"]",
    "printf '%s' \"$TOKEN\" | docker login --password-stdin", "printf '%s' | docker login --password-stdin", "echo $PASS $X | sudo -S id", "echo $(cat f) | docker login --password-stdin",
    "net use Z: \\\\srv\\share", "net use /delete \\\\srv\\share", "let user = ada; let pass = secret;", "the key is \"id\"", "{key:\"getName\",value:function(){}}",
    "requirepass -", "($secret:expr, $key:ident)", "$token:tt", "if (typeof password === \"string\")", "if (typeof password !== 'undefined' && x)",
    "[![cov](https://codecov.io/gh/a/b/graph/badge.svg?token=33On0zmiCm)](https://codecov.io/gh/a/b)", "password: impl Fn(&str) -> bool,", "password: impl FnMut(&str),",
    "[\"mysql\",\"\",\"hello\"]", "type AuthToken=string", "type AuthToken=string;",
    "password: {\"type\": \"string\"}", ":param password: The password", "password: required",
];

#[test]
fn each_secret_is_hidden_and_all_around_it_stays() {
    let mut failed = Vec::new();
    for text in HIDDEN {
        let parts: Vec<_> = text.split('§').collect();
        let expected = format!("{}[REDACTED]{}", parts[0], parts[2]);
        let shown = redact_text(&parts.concat()).into_owned();
        failed.extend((shown != expected).then(|| format!("{text}: {shown}")));
    }
    none_of("forms", &failed);
}

#[test]
fn texts_of_like_forms_stay() {
    let changed = SHOWN.iter().filter(|text| redact_text(text) != **text);
    none_of(
        "texts",
        &changed
            .map(|text| redact_text(text).into_owned())
            .collect::<Vec<_>>(),
    );
}

/// A secret may stand far from its name, and another between them.
#[test]
fn a_secret_between_a_name_and_its_value_is_hidden_as_well() {
    for text in [
        "oops {\"name\":\"X-Api-Key\",\"token\":\"abc123def456\",\"value\":\"hunter2\"}",
        "oops {\"name\":\"X-Api-Key\",\"password\":\"abc123\",\"value\":\"hunter2\"} x",
        "<add key=\"ApiKey\" password=\"abc123\" value=\"hunter2\"/>",
        "- name: API_KEY\n  url: https://ada:abc123@h/x\n  value: hunter2\n",
        "ParameterKey=DBPassword,Token=abc123def456,ParameterValue=hunter2",
        "SET PASSWORD FOR api_key=abc123def456 = 'hunter2'",
        "password (token=abc123def): hunter2",
        "sentinel auth-pass token=abc123def456 hunter2",
        "login(token=\"abc123def456\", \"hunter2\")",
        "the key for api_token=abc123def456 -> hunter2Zq7hX2vT9k",
        "printf 'token=abc123def456 %s' hunter2 | chpasswd",
        "redirect=%3Fjwt%3DeyJabc123Ciabc123.eyJzdWIiOiIxIn0.dBjftJeZ4CVPhunter2%26x%3D1",
    ] {
        let shown = redact_text(text);
        assert!(
            !shown.contains("abc123") && !shown.contains("hunter2"),
            "{shown}"
        );
        assert_eq!(redact_text(&shown), shown);
    }
}

/// A value may end with a further name: the text behind it is that name's value.
#[test]
fn a_name_at_the_end_of_a_value_has_a_value_of_its_own() {
    for text in [
        "password: password: hunter2",
        "token=xpassword : hunter2",
        "create secret generic db --from-literal=password=xpassword: hunter2",
        "Bearer abc123-password = \"hunter2\"",
    ] {
        let shown = redact_text(text);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_table_in_json_hides_columns_among_its_first_64() {
    let mut heads = vec!["n"; 65];
    (heads[0], heads[64]) = ("password", "password");
    let table = serde_json::json!({ "columns": heads, "rows": [vec!["swordfish"; 65]] });
    let shown = toolcall_redact::Redacted::of(&table).to_string();
    let row = shown.rsplit_once("[[").unwrap().1;
    assert!(row.starts_with("\"[REDACTED]\",\"swordfish\""), "{shown}");
}

#[test]
fn own_rows_do_not_take_the_flags_of_a_command() {
    let own = Rule::behind("acme", "curl --acme ", Tail::Any, 4).with_example("curl --acme abcd1");
    let rules = Rules::new().with_rule(own).unwrap();
    let shown = rules.redact_text("curl --acme abcd1 -u ada:x9 h; curl -u ada:x9 h");
    assert_eq!(
        shown,
        "curl --acme [REDACTED] -u [REDACTED] h; curl -u [REDACTED] h"
    );
}

/// H-7: what was sent comes back in any of the escapes that servers use, and in Base64.
#[test]
fn registered_values_are_hidden_with_escapes_and_in_base64() {
    let rules = Rules::new().with_secrets(["Zq7/hunter+X=9", "Bearer q7hX2vT9kLw4bRnZ"]);
    for text in [
        "cb?code=Zq7%2fhunter%2bX%3d9&x=1",
        "cb?code=Zq7%252Fhunter%252BX%253D9&x=1",
        r#"{"a":"Zq7\/hunter\u002bX=9"}"#,
        r#"Err("{\"a\":\"Zq7\/hunter+X=9\"}")"#,
        "<a>Zq7&#x2F;hunter&#43;X&#61;9</a>",
        r#"{"n":{"Zq7/hunter+X=9":1}}"#,
        "no user of q7hX2vT9kLw4bRnZ",
        "got YWRhOlpxNy9odW50ZXIrWD05 back",
    ] {
        let shown = rules.redact_text(text);
        let parts = ["hunter", "q7hX2vT9", "odW50ZXIr"];
        assert!(!parts.iter().any(|part| shown.contains(part)), "{shown}");
    }
    assert_eq!(
        redact_text("got cGFzc3dvcmQ6IGh1bnRlcjI5 back"),
        "got [REDACTED] back"
    );
}

/// H-7: a string takes the place of a number.
#[test]
fn json_with_a_registered_number_stays_json() {
    let rules = Rules::new().with_secrets(["12345678", "marmalade7x"]);
    for text in [
        r#"{"pin": 12345678}"#,
        r#" {"n": [1.50, -12345678.5e1, 12345678], "s": "a 12345678"}"#,
        r#"{"s": "say \"12345678\", marmalade7x", "n":12345678}"#,
        "{\"pin\":12345678}\n{\"é\":[12345678,{\"a\":12345678}]}\n",
        r#"{"12345678":12345678}"#,
    ] {
        for shown in [rules.without_secrets(text), rules.redact_text(text)] {
            let mut values = serde_json::Deserializer::from_str(&shown).into_iter::<IgnoredAny>();
            assert!(values.all(|value| value.is_ok()), "{shown}");
            assert!(
                !shown.contains("12345678") && !shown.contains("marmalade"),
                "{shown}"
            );
        }
    }
    for (text, shown) in [
        ("{pin: 12345678}", "{pin: [REDACTED]}"),
        ("[12345678, oops", "[[REDACTED], oops"),
    ] {
        assert_eq!(rules.without_secrets(text), shown);
    }
}

/// A longer value may hold one that is a number: it is hidden as a whole.
#[test]
fn a_registered_number_within_a_longer_value_does_not_split_it() {
    let object = r#"{"pin":12345678,"kind":"marmalade"}"#;
    let items = r#"12345678, "marmalade""#;
    let rules = Rules::new().with_secrets(["12345678", object, items, "5678,\"orange\"]"]);
    for (text, expected) in [
        (object.to_owned(), "[REDACTED]"),
        (
            format!("[{object}, 12345678]"),
            "[[REDACTED], \"[REDACTED]\"]",
        ),
        (format!("[{items}]"), "[[REDACTED]]"),
        ("[12345678,\"orange\"]".to_owned(), "[\"[REDACTED]\""),
        (
            "[12345678,9,123456781234567812345678]".to_owned(),
            "[\"[REDACTED]\",9,\"[REDACTED]\"]",
        ),
    ] {
        assert_eq!(rules.without_secrets(&text), expected);
    }
}

/// Each number is not searched for all values again.
#[test]
#[allow(clippy::disallowed_methods, reason = "no clock is paused here")]
fn many_numbers_beside_a_long_registered_value_take_no_time() {
    let long = "x".repeat(60_000);
    let rules = Rules::new().with_secrets(["12345678", &long]);
    let numbers = ",1".repeat(500_000);
    let start = std::time::Instant::now();
    let shown = rules
        .without_secrets(&format!("[12345678{numbers}]"))
        .into_owned();
    assert_eq!(shown, format!("[\"[REDACTED]\"{numbers}]"));
    assert!(start.elapsed().as_secs() < 20);
}

/// Characters of several bytes, and marks that begin or end something, at any place of any form.
#[test]
fn no_character_within_a_form_makes_it_panic() {
    const MARKS: &[char] = &['é', '😀', '\u{200b}', '\u{a0}', '\\', '"', '\'', '(', '\r'];
    let texts = secrets().into_iter().map(|form| match form.input {
        serde_json::Value::String(text) => text,
        json => json.to_string(),
    });
    let own = HIDDEN.iter().map(|text| text.replace('§', ""));
    for (nth, text) in texts.chain(own).enumerate() {
        // Each form has other places and marks.
        for (place, (at, _)) in text.char_indices().enumerate().skip(nth % 7).step_by(7) {
            let mark = MARKS[(nth + place) % MARKS.len()];
            let _ = redact_text(&format!("{}{mark}{}", &text[..at], &text[at..]));
        }
    }
}

/// Any characters, and parts of texts that rules look for.
fn frame() -> impl Strategy<Value = String> {
    #[rustfmt::skip]
    let parts = prop::sample::select(vec![
        "password", "token: x", "Bearer ", "://", "a:b@", "\"", "'", "\\", "\\\"", "(", ")", "[", "]", "{", "}", "é", "😀", "\u{200b}", "\u{a0}",
        "\r\n", "\n", "\t", " ", "curl -u ", "net use \\\\h\\s ", "echo -n ", " | docker login", "requirepass ", "{\"a\": \"", "\": 1}", "'s ",
        "Config::", "let x", "user,password\n", "| Token |\n|--|\n", "-----END", "%3D", "&quot;", "=", ":", "data:image/png;base64,iVBORw0KGgo",
    ]);
    let part = prop_oneof![2 => parts.prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from), 1 => "\\PC{0,12}"];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(Config { cases: 2_000, failure_persistence: None, rng_seed: RngSeed::Fixed(49), ..Config::default() })]

    #[test]
    fn no_text_panics_and_a_registered_secret_never_shows(before in frame(), secret in "[A-Za-z0-9é]{8,20}", after in frame()) {
        let rules = Rules::new().with_secrets([&*secret]);
        let text = format!("{before}{secret}{after}");
        let shown = rules.redact_text(&text);
        prop_assert!(!shown.contains(&secret), "{:?}: {}", text, shown);
        let shown = rules.text(&text, 100).to_string();
        prop_assert!(!shown.contains(&secret), "{:?}: {}", text, shown);
    }

    #[test]
    fn a_secret_behind_its_name_never_shows(before in frame(), number in 10_u32..99, after in frame()) {
        let secret = format!("Zq{number}hX{number}vTkL");
        let text = format!("{before}\npassword={secret} {after}");
        let shown = redact_text(&text);
        prop_assert!(!shown.contains(&secret), "{:?}: {}", text, shown);
    }
}
