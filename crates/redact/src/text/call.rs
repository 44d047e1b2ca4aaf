//! Calls of functions that authenticate: `SetBasicAuth("ada", "x")`, `client.login("ada", "x")`.

use std::ops::Range;

use super::{
    Run,
    bytes::{ahead, ends_with_one_of, skip},
    look::{is_mixed, is_placeholder, looks_secret},
    quote::Quote,
    table::elements,
};
use crate::{REDACTED, keys::Strength, rules::BUILT_IN};

/// Functions that take nothing but a user and a password.
#[rustfmt::skip]
const SURE: &[&str] = &[
    "basicauth", "basic_auth", "digestauth", "digest_auth", "proxyauth", "proxy_auth", "passwordcredentials", "networkcredential",
    "passwordauthentication",
];

/// Functions whose second argument may be something else.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "login", "log_in", "signin", "sign_in", "authenticate", "auth", "connect_with_password", "with_credentials", "withcredentials",
];

/// How many bytes of the arguments are read.
const NEAR: usize = 512;

/// The password among the arguments.
pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    if !run.after().starts_with('(') {
        return None;
    }
    let plain = ends_with_one_of(name, &["plainauth"]);
    let sure = plain || ends_with_one_of(name, SURE);
    if !sure && !ends_with_one_of(name, OTHERS) {
        return None;
    }
    let near = &text[..run.end + ahead(text, run.end, NEAR).len()];
    let (arguments, _) = elements(near, run.end);
    let literals: Vec<_> = arguments.iter().map(|of| literal(near, of)).collect();
    // `PlainAuth(identity, user, password, host)`
    let user = usize::from(plain);
    let [Some(_), Some(secret), ..] = literals.get(user..)? else {
        return None;
    };
    let shown = &text[secret.clone()];
    let named = BUILT_IN.strength(shown) != Strength::Harmless && !is_mixed(shown);
    let looks = sure || is_mixed(shown) || looks_secret(shown) || shown == REDACTED;
    let absent = shown.is_empty() || is_placeholder(shown) || named;
    (looks && !absent).then(|| secret.clone())
}

/// The inside of an argument that is a string, or of the one in `Some("x")`.
fn literal(text: &str, argument: &Range<usize>) -> Option<Range<usize>> {
    let wrapped = text[argument.clone()].strip_prefix("Some(");
    let start = wrapped.map_or(argument.start, |inner| argument.end - inner.len());
    let start = skip(&text[..argument.end], start, |c| {
        matches!(c, 'b' | 'f' | 'r')
    });
    let quote = Quote::at(text, start)?;
    let inner = start + quote.len();
    Some(inner..quote.close(text, inner)?.start)
}
