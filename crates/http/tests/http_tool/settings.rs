//! `[http]` of settings (G1).

use std::collections::BTreeSet;

use tower_toolcall::settings::{Settings, VARIABLES};
use tower_toolcall_http::HttpTool;

fn same(ours: &HttpTool, by_hand: &HttpTool) {
    assert_eq!(format!("{ours:?}"), format!("{by_hand:?}"));
}

#[test]
fn each_setting_reaches_the_tool() {
    let new = || HttpTool::new(http::Method::POST, "https://shop.test/orders").unwrap();
    let mut settings = Settings::default();
    settings.http.max_bytes = 65_536;
    settings.http.empty_undefined = true;
    settings.http.bare_idempotency_key = true;
    let by_hand = new()
        .with_max_bytes(65_536)
        .unwrap()
        .with_empty_undefined()
        .with_bare_idempotency_key();
    same(&new().with_settings(&settings).unwrap(), &by_hand);
    assert_ne!(format!("{by_hand:?}"), format!("{:?}", new()));
    let unset = new()
        .with_max_bytes(7)
        .unwrap()
        .with_settings(&Settings::default());
    same(&unset.unwrap(), &new().with_max_bytes(7).unwrap());
}

/// Compiles if each key has the name of a method.
#[test]
fn a_key_has_the_name_of_its_method() {
    let _ = (
        HttpTool::with_max_bytes,
        HttpTool::with_empty_undefined,
        HttpTool::with_bare_idempotency_key,
    );
    let keys = VARIABLES.iter().map(|variable| variable.key());
    let keys: BTreeSet<_> = keys.filter_map(|key| key.strip_prefix("http.")).collect();
    let methods = ["bare_idempotency_key", "empty_undefined", "max_bytes"];
    assert_eq!(keys, BTreeSet::from(methods));
}
