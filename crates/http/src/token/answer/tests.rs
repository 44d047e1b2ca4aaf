use serde_json::json;

use super::*;

fn target() -> Target {
    Target::audience("orders").with_scope("read write")
}

/// An answer with these changes; `null` takes a field out.
fn answer(changes: Value) -> Result<(Token, Vec<Gap>), &'static str> {
    let mut answer = json!({
        "access_token": "t0k3n", "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer",
        "expires_in": 300, "scope": "write read extra",
    });
    for (key, value) in changes.as_object().unwrap() {
        answer[key] = value.clone();
    }
    let fields = answer.as_object_mut().unwrap();
    fields.retain(|_, value| !value.is_null());
    issued(answer.to_string().as_bytes(), &target(), false)
}

fn jwt(claims: &Value) -> String {
    jwt_of(&claims.to_string())
}

fn jwt_of(claims: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

fn seconds(expires_in: Value) -> Option<Duration> {
    let (token, _) = answer(json!({ "expires_in": expires_in })).unwrap();
    token.lifetime()
}

/// E: type, scope and expiry of a token are known to those who ask for it.
#[tokio::test(start_paused = true)]
async fn a_token_says_its_type_scope_and_expiry() {
    let now = tokio::time::Instant::now();
    let (token, _) = answer(json!({})).unwrap();
    assert_eq!(token.token_type(), "Bearer");
    assert_eq!(token.scope(), Some("write read extra"));
    assert_eq!(token.expires_at(), Some(now + Duration::from_secs(300)));
    let (token, _) = answer(json!({ "scope": null, "expires_in": null })).unwrap();
    assert_eq!((token.scope(), token.expires_at()), (None, None));
}

#[test]
fn a_token_is_taken_as_it_was_issued() {
    let (token, gaps) = answer(json!({})).unwrap();
    assert_eq!(token.secret().expose(), "t0k3n");
    assert_eq!(token.lifetime(), Some(Duration::from_secs(300)));
    assert_eq!(gaps, []);
}

#[test]
fn a_lifetime_is_a_number_or_a_number_in_a_text() {
    let second = |n| Some(Duration::from_secs(n));
    for (value, lifetime) in [
        (json!("300"), second(300)),
        (json!(" 60 "), second(60)),
        (json!(0.5), Some(Duration::from_millis(500))),
        (json!(0), second(0)),
        (json!(-1), second(0)),
        (json!("-1"), second(0)),
        (json!(1e300), Some(Duration::MAX)),
        (json!("1e999"), Some(Duration::MAX)),
        (json!("NaN"), second(0)),
        (json!("-inf"), second(0)),
        (json!("soon"), second(0)),
        (json!([300]), second(0)),
        (json!(true), second(0)),
        (Value::Null, None),
    ] {
        assert_eq!(seconds(value.clone()), lifetime, "{value}");
    }
}

#[test]
fn the_scheme_is_bearer_in_whatever_case() {
    assert!(answer(json!({ "token_type": "bEARER" })).is_ok());
    for other in ["DPoP", "N_A", "mac", ""] {
        let error = answer(json!({ "token_type": other })).unwrap_err();
        assert_eq!(error, "the token is not a bearer token");
    }
    assert!(answer(json!({ "token_type": null })).is_err());
}

/// H2: litellm#31526.
#[test]
fn a_token_of_another_type_is_refused() {
    for other in ["refresh_token", "id_token", "saml2"] {
        let other = format!("urn:ietf:params:oauth:token-type:{other}");
        assert!(answer(json!({ "issued_token_type": other })).is_err());
    }
    let token = jwt(&json!({ "aud": "orders" }));
    assert!(answer(json!({ "issued_token_type": JWT, "access_token": token })).is_ok());
    let error = answer(json!({ "issued_token_type": JWT })).unwrap_err();
    assert_eq!(error, "the token is not a JWT that can be read");
    let (_, gaps) = answer(json!({ "issued_token_type": null })).unwrap();
    assert_eq!(gaps, [Gap::Type]);
}

/// H2: litellm#31526.
#[test]
fn a_narrower_scope_than_was_asked_for_is_refused() {
    for scope in ["read", "", "readwrite", "READ WRITE"] {
        let error = answer(json!({ "scope": scope })).unwrap_err();
        assert_eq!(error, "the token lacks a scope that was asked for");
    }
    assert!(answer(json!({ "scope": null })).is_ok());
}

/// H2: casdoor#5875.
#[test]
fn a_jwt_for_another_audience_is_refused() {
    let of = |claims: Value| answer(json!({ "access_token": jwt(&claims) }));
    for claims in [
        json!({ "aud": "payments" }),
        json!({ "aud": ["payments", "mail"] }),
        json!({ "aud": [] }),
        json!({ "aud": 7 }),
    ] {
        assert!(of(claims.clone()).is_err(), "{claims}");
    }
    assert_eq!(of(json!({ "aud": "orders" })).unwrap().1, []);
    assert_eq!(of(json!({ "aud": ["mail", "orders"] })).unwrap().1, []);
    assert_eq!(of(json!({ "sub": "a" })).unwrap().1, [Gap::Audience]);
}

#[test]
fn a_jwt_without_an_audience_is_refused_if_one_is_required() {
    let token = jwt(&json!({ "sub": "a" }));
    let body = json!({ "access_token": token, "token_type": "Bearer" }).to_string();
    let error = issued(body.as_bytes(), &target(), true).unwrap_err();
    assert_eq!(error, "the token names no audience");
    // Also of a target by its URL, and of a JWT that is written oddly.
    let url = Target::resource("https://orders.example");
    assert!(issued(body.as_bytes(), &url, true).is_err());
    let odd = json!({ "access_token": "e30.e30=.c2ln", "token_type": "Bearer" }).to_string();
    assert!(issued(odd.as_bytes(), &url, true).is_err());
    assert!(issued(odd.as_bytes(), &url, false).is_ok());
}

/// It may be for another audience: somebody has to know.
#[test]
fn claims_that_cannot_be_read_are_told_of() {
    let of = |token: &str| answer(json!({ "access_token": token }));
    for unreadable in ["e30.!.c2ln", "e30.e30.c2ln", "v4.local.payload"] {
        let gaps = of(unreadable).unwrap().1;
        assert_eq!(gaps, [Gap::Audience], "{unreadable}");
    }
    let twice = jwt_of(r#"{"aud":"payments","aud":"orders"}"#);
    assert_eq!(of(&twice).unwrap().1, [Gap::Audience]);
    for opaque in ["t0k3n", "a.b", "a.b.c.d"] {
        assert_eq!(of(opaque).unwrap().1, []);
    }
}

/// With what Base64 has at its end, and without.
#[test]
fn padding_hides_no_claims() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE};
    for (aud, is_ours) in [("orders", true), ("payment", false), ("payments1", false)] {
        let claims = json!({ "aud": aud }).to_string();
        let padded = format!("e30.{}.c2ln", URL_SAFE.encode(&claims));
        for token in [padded, jwt_of(&claims)] {
            let got = answer(json!({ "access_token": token }));
            assert_eq!(got.is_ok(), is_ours, "{token}");
        }
    }
}

#[test]
fn a_token_that_could_leave_its_header_is_refused() {
    let long = "x".repeat(MAX_TOKEN + 1);
    for token in ["", "a b", "a\r\nx: y", "a\0", "tök", &long] {
        assert!(answer(json!({ "access_token": token })).is_err());
    }
    assert!(answer(json!({ "access_token": "x".repeat(MAX_TOKEN) })).is_ok());
}

#[test]
fn what_is_no_answer_is_refused() {
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "<html>",
        r#"{"access_token": 7, "token_type": "Bearer"}"#,
    ] {
        assert!(issued(body.as_bytes(), &target(), false).is_err(), "{body}");
    }
}

#[test]
fn the_code_of_an_error_is_a_code() {
    let of = |body: Value| refused(body.to_string().as_bytes());
    let why = Some("the token is too old".to_owned());
    let body = json!({ "error": "invalid_grant", "error_description": why });
    assert_eq!(of(body), Some(("invalid_grant".to_owned(), why)));
    for other in ["", "no\nwords", "Invalid", &"x".repeat(65)] {
        assert_eq!(of(json!({ "error": other })), None);
    }
    assert_eq!(refused(b"<html>"), None);
}
