//! The rules, a row each.

use std::ops::Range;

use super::{
    block, call, code, command, encoded, field, filter::*, markup, pair, phrase, prose, protocol,
    scheme, statement, token, url,
};

/// Finds the secret of a run. The rules of tokens have ids of their own: `None`.
pub(crate) type Find = Option<fn(&super::Run<'_>) -> Option<Range<usize>>>;

/// The id, the secrets that it finds, an example, and an innocent text of a similar form.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

pub(crate) const TABLE: &str = "table";
pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const SENSITIVE: &str = "key";
pub(crate) const MEMBER: &str = "member";
pub(crate) const ELEMENT: &str = "element-of-array";
pub(crate) const BASE64: &str = "base64";
pub(crate) const OWN: &str = "own-prefix";

/// The rules of runs in their order, and the signs of the runs that each looks at: the first that
/// finds something counts. A `§` keeps scanners of repositories quiet.
#[rustfmt::skip]
pub(crate) const RUNS: &[(Row, Signs, Find)] = &[
    (("private-key", "private keys in PEM, PGP, OpenSSH, SSH2 and PuTTY form", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"), NAMED | DASH | KEY | TOKEN, Some(block::find)),
    (("url", "a password or a token before the host of a URL", "postgres://ada:hunter2@db/x", "postgres://ada@db/x"), COLON | CALL | MARK, Some(url::user_info)),
    (("host", "`user:password@host:port` without a scheme", "root:Zq7hunterX@db.internal:3306", "image:v2@db.internal"), COLON, Some(url::bare_user_info)),
    (("sql", "a password in a statement of SQL", "CREATE USER ada IDENTIFIED BY 'hunter2'", "users are identified by name"), NAMED | WORD, Some(statement::sql)),
    (("powershell", "a string that PowerShell makes a secret of", "ConvertTo-SecureString 'hunter2' -AsPlainText", "ConvertTo-SecureString $text"), NAMED | WORD | DASH, Some(statement::powershell)),
    (("phrase", "a recovery phrase of a wallet", "MNEMONIC=legal winner thank year wave sausage worth useful legal winner thank yellow", "the seed phrase is shown once"), NAMED | WORD | COLON, Some(phrase::find)),
    (("call", "the password in a call that authenticates", "req.SetBasicAuth(\"ada\", \"hunter2\")", "req.SetBasicAuth(user, password)"), CALL, Some(call::find)),
    (("directive", "a password in a file of settings without a mark before it, or behind `rclone obscure`", "requirepass hunter2", "requirepass is not set"), NAMED | WORD, Some(statement::directive)),
    (("protocol", "a password in a line of FTP, POP3, IMAP, IRC or Redis, in a code of a wireless network, behind a prompt in a script, or in cookies.txt", "a1 LOGIN ada Zq7hunterX", "a1 LOGIN took 12ms"), NAMED | WORD | COOKIE, Some(protocol::find)),
    (("element", "the content of an XML element with a sensitive name", "<password>hunter2</password>", "<password></password>"), NAMED, Some(markup::find)),
    (("wrapped", "a value in a type of its own", "ApiKey(\"Zq7hunterX\")", "ApiKey(name)"), NAMED, Some(code::newtype)),
    (("field", "the value beside a field that holds a sensitive name", "\"name\": \"X-Api-Key\", \"value\": \"hunter2\"", "\"name\": \"city\", \"value\": \"Oslo\""), NAMED, Some(field::find)),
    (("pair", "the value of a sensitive name", "password=hunter2", "password=${DB_PASSWORD}"), NAMED, Some(pair::find)),
    (("scheme", "the credential behind the name of its scheme", "sent Bearer abc123def456", "the bearer of bad news"), WORD, Some(scheme::find)),
    (("command", "a password in a command line", "mysql -phunter2 shop", "mysql -P 3306 shop"), NAMED | WORD | DASH | PATH, Some(command::find)),
    (("webhook", "the secret part of a webhook's address", "https://hc-ping.com/Zq7hunterX", "https://example.com/Zq7hunterX"), PATH | COLON | MARK, Some(url::webhook)),
    (("jwt", "a JWT or JWE", "eyJhbGciOiJIUzI1NiJ9.§eyJzdWIiOiIxIn0.dBjftJeZ4CVP", "eyJ"), TOKEN | KEY, None),
    (("composed", "keys and hashes with marks inside", "{SSHA}DkMTwBl+a/3DQTxCYEApdUtNXGgdUac3", "{SSHA}"), WORD | COLON | MARK, Some(token::composed)),
    (("beside-id", "the secret key beside the id of an AWS key", "AKIA1 / 6eOW4lhoDVqMRoUjJ45HlpVxrtqtDC5oQ+r0ggGT", "id / 6eOW4lhoDVqMRoUjJ45HlpVxrtqtDC5oQ+r0ggGT"), KEY, Some(token::beside_id)),
    ((BASE64, "Base64 of a text that has a secret", "cGFzc3dvcmQ6IGh1bnRlcjIKaG9zdDogZGI=", "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcw=="), NAMED | KEY | TOKEN | PATH, Some(encoded::find)),
    (("sentence", "a secret in a sentence", "the password is hunter2", "the password is required"), NAMED | WORD | COLON, Some(prose::find)),
];

/// The other rules but those of [`vendors`](super::vendors): of tokens, of tables and blocks, of
/// JSON.
#[rustfmt::skip]
pub(crate) const OTHERS: &[Row] = &[
    ("azure", "a client secret of Azure", "abc8Q~§eFgH1jKlM2nOpQ3rStU4vWxY5zAbC6dEfG", "abc8Q~"),
    ("airtable", "a personal token of Airtable", "patA1b2C3d4E5f6G7.§0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "patA1b2C3d4E5f6G7.0123"),
    ("discord", "a token of a Discord bot", "MTIzNDU2Nzg5MDEyMzQ1Njc4.§GabcDE.abcdefghijklmnopqrstuvwxyz01234567890AB", "MTIzNDU2Nzg5MDEyMzQ1Njc4.G"),
    ("bitcoin", "a private key of Bitcoin", "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
    ("terraform", "a token of Terraform", "Zq7hunterX8sd.§atlasv1.abcdefghijklmnop", "x.atlasv1."),
    ("mailchimp", "a key of Mailchimp", "0123456789abcdef0123456789abcdef-§us12", "0123456789abcdef-us12"),
    ("maxmind", "a license key of MaxMind", "Zq7hX2_vT9kLw4bRnZq7hX2vT9kLw4bRnZq7_§mmk", "cat_mmk"),
    (TABLE, "cells below a sensitive head: CSV, Markdown, HTML, SQL, the output of clients", "login,password\nada,hunter2\n", "login,city\nada,Oslo\n"),
    (MANIFEST, "the data of a Kubernetes Secret", "kind: Secret\ndata:\n  a: aHVudGVyMg==\n", "kind: ConfigMap\ndata:\n  a: aHVudGVyMg==\n"),
    (SENSITIVE, "a member of JSON under a sensitive key", "{\"password\":1}", "{\"city\":1}"),
    (MEMBER, "a member of JSON that another member makes a secret", "{\"name\":\"X-Api-Key\",\"value\":1}", "{\"name\":\"city\",\"value\":1}"),
    (ELEMENT, "an element of a JSON array behind a name or a flag, or below a head", "[\"--token\",\"hunter2\"]", "[\"--city\",\"Oslo\"]"),
    (OWN, "a token of an own kind: see `Rules::with_secret_prefix`", "", ""),
];
