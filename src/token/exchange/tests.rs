use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{super::layer::TokenLayer, *};

/// The wall clock of these tests.
const NOW: u64 = 1_800_000_000;

fn jwt(expires: f64) -> Secret {
    let claims = format!(r#"{{"exp":{expires}}}"#);
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)).into()
}

/// For how many seconds a token is used that was asked for `ago` seconds ago.
fn used(
    token: &Token,
    subject: &Secret,
    ago: u64,
    change: impl Fn(TokenLayer<()>) -> TokenLayer<()>,
) -> Option<u64> {
    let layer = change(TokenLayer::new(()));
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    let since = Instant::now() - Duration::from_secs(ago);
    let until = layer.settings().until(since, token, subject, now)?;
    Some((until - Instant::now()).as_secs())
}

fn of(seconds: u64) -> Token {
    Token::new("t0k3n").with_lifetime(Duration::from_secs(seconds))
}

fn subject() -> Secret {
    "opaque".into()
}

/// H2: 300 s where the provider does not say, 30 s before the end, half of a short one.
#[tokio::test(start_paused = true)]
async fn a_token_is_used_until_shortly_before_its_end() {
    tokio::time::advance(Duration::from_secs(1_000)).await;
    let same = |layer| layer;
    for (token, ago, seconds) in [
        (of(300), 0, Some(270)),
        (Token::new("t0k3n"), 0, Some(270)),
        (of(40), 0, Some(20)),
        (of(300), 100, Some(170)),
        (of(300), 270, None),
        (of(0), 0, None),
        (of(u64::MAX), 0, Some(24 * 3600 - 30)),
    ] {
        assert_eq!(used(&token, &subject(), ago, same), seconds, "{token:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_can_be_set() {
    let second = Duration::from_secs;
    let leeway = |layer: TokenLayer<()>| layer.with_leeway(second(5));
    assert_eq!(used(&of(300), &subject(), 0, leeway), Some(295));
    let most = |layer: TokenLayer<()>| layer.with_max_lifetime(second(100)).unwrap();
    assert_eq!(used(&of(300), &subject(), 0, most), Some(70));
    let lifetime = |layer: TokenLayer<()>| layer.with_default_lifetime(second(60));
    assert_eq!(used(&Token::new("t"), &subject(), 0, lifetime), Some(30));
}

/// H2: never beyond the `exp` of either.
#[tokio::test(start_paused = true)]
async fn no_token_outlives_its_jwt_or_that_of_its_subject() {
    let same = |layer| layer;
    let at = |seconds: i64| (NOW as i64 + seconds) as f64;
    let issued = |seconds| Token::new(jwt(at(seconds))).with_lifetime(Duration::from_secs(300));
    assert_eq!(used(&issued(100), &subject(), 0, same), Some(70));
    assert_eq!(used(&issued(-1), &subject(), 0, same), None);
    assert_eq!(used(&issued(1_000), &subject(), 0, same), Some(270));
    // By its own word, where that is there, and not by this machine's clock.
    let both = format!(r#"{{"iat":{},"exp":{}}}"#, at(-360), at(-60));
    let both = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(both));
    let both = Token::new(both).with_lifetime(Duration::from_secs(600));
    assert_eq!(used(&both, &subject(), 0, same), Some(270));
    assert_eq!(used(&of(300), &jwt(at(100)), 0, same), Some(100));
    assert_eq!(used(&of(300), &jwt(at(0)), 0, same), None);
    assert_eq!(used(&of(300), &jwt(f64::MAX), 0, same), Some(270));
}

/// Where its provider says nothing, the clock of this machine is all there is.
#[tokio::test(start_paused = true)]
async fn a_token_without_a_stated_lifetime_ends_with_its_jwt() {
    let same = |layer| layer;
    let at = |seconds: i64| (NOW as i64 + seconds) as f64;
    for (issued, expires, seconds) in [
        (-100, 100, Some(70)),
        (-600, -300, None),
        (-10, 40, Some(20)),
        // A clock that is ahead of this one.
        (500, 700, Some(170)),
        (0, 3_600, Some(270)),
    ] {
        let claims = format!(r#"{{"iat":{},"exp":{}}}"#, at(issued), at(expires));
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        let used = used(&Token::new(token), &subject(), 0, same);
        assert_eq!(used, seconds, "{issued} {expires}");
    }
}
