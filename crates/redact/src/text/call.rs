//! Calls of functions that authenticate: `SetBasicAuth("ada", "x")`, `client.login("ada", "x")`.

use super::{prelude::*, table::elements};
use crate::REDACTED;

/// Ends of names of functions, and which argument is the password. A `true` says that it is one
/// whatever it looks like, beside a first argument that is a string, too.
#[rustfmt::skip]
const CALLS: &[(&str, usize, bool)] = &[
    ("plainauth clientsecretcredential", 2, true),
    ("pdo mysqli mysqli_connect", 2, false),
    ("basicauth basic_auth digestauth digest_auth proxyauth proxy_auth passwordcredentials networkcredential passwordauthentication", 1, true),
    ("login log_in signin sign_in authenticate auth connect_with_password with_credentials withcredentials jwt.sign jwt.verify jwt.encode jwt.decode", 1, false),
];

/// How many bytes of the arguments are read.
const NEAR: usize = 512;

/// The password among the arguments.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    run.after().strip_prefix('(')?;
    let (_, place, sure) = CALLS.iter().find(|call| ends_with_one_of(name, call.0))?;
    let near = &text[..run.end + ahead(text, run.end, NEAR).len()];
    let (arguments, _) = elements(near, run.end);
    let secret = literal(near, arguments.get(*place)?)?;
    let shown = &text[secret.clone()];
    let sure = *sure && literal(near, &arguments[place - 1]).is_some();
    let named = BUILT_IN.strength(shown) != Strength::Harmless && !is_mixed(shown);
    let looks = sure || is_mixed(shown) || looks_secret(shown) || shown == REDACTED;
    let absent = shown.is_empty() || is_placeholder(shown) || named;
    (looks && !absent).then_some(secret)
}

/// The inside of an argument that is a string, or of the one in `Some("x")`.
fn literal(text: &str, argument: &Range<usize>) -> Option<Range<usize>> {
    let shown = &text[argument.clone()];
    let inner = shown.strip_prefix("Some(").unwrap_or(shown);
    let string = inner.trim_start_of("bfr");
    let start = argument.end - string.len();
    let inner = start + Quote::at(text, start)?.len();
    Some(inner..Quote::at(text, start)?.close(text, inner)?.start)
}
