//! `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10), structured fields
//! of RFC 9651. Malformed ones are ignored, as the draft asks.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

use super::{joined, quota::Limit};

pub(super) fn limits(headers: &HeaderMap) -> Vec<Limit> {
    let Some(field) = joined(headers, "ratelimit") else {
        return Vec::new();
    };
    if let Some(items) = list(&field) {
        let policy = joined(headers, "ratelimit-policy");
        let policies = policy.as_deref().and_then(list).unwrap_or_default();
        let limits = items.iter().filter_map(|item| of_item(item, &policies));
        return limits.collect();
    }
    of_dictionary(&field).into_iter().collect()
}

/// Names are strings, and were tokens in older drafts: anything will do.
fn list(field: &str) -> Option<Vec<Item>> {
    let list: List = Parser::new(field).parse().ok()?;
    let items = list.into_iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    });
    Some(items.collect())
}

/// `"default";r=0;t=30`. Where `t` is missing, a whole window of the policy of this name is enough.
fn of_item(item: &Item, policies: &[Item]) -> Option<Limit> {
    let remaining = integer(item.params.get("r")?)?;
    let window = || {
        let policy = policies.iter().find(|p| p.bare_item == item.bare_item)?;
        seconds(policy.params.get("w")?)
    };
    let wait = match item.params.get("t") {
        Some(seconds) => self::seconds(seconds)?,
        None => window()?,
    };
    Some(Limit {
        exhausted: Some(remaining <= 0),
        wait,
    })
}

/// `limit=100, remaining=0, reset=5`, of draft -07.
fn of_dictionary(field: &str) -> Option<Limit> {
    let fields: Dictionary = Parser::new(field).parse().ok()?;
    let value = |name: &str| match fields.get(name)? {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    Some(Limit {
        exhausted: value("remaining").and_then(integer).map(|n| n <= 0),
        wait: seconds(value("reset")?)?,
    })
}

fn integer(value: &BareItem) -> Option<i64> {
    value.as_integer().map(i64::from)
}

fn seconds(value: &BareItem) -> Option<Duration> {
    let seconds = u64::try_from(integer(value)?).ok()?;
    Some(Duration::from_secs(seconds))
}
