//! Secrets that are encoded, and those that are no words.

use super::*;

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |chunk: &[u8]| {
        let bits = (0..3).fold(0, |bits, i| {
            bits << 8 | usize::from(*chunk.get(i).unwrap_or(&0))
        });
        let digit = |i: usize| {
            if i > chunk.len() {
                '='
            } else {
                char::from(DIGITS[bits >> (18 - 6 * i) & 63])
            }
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// K-2: what is encoded is redacted as what it says.
#[test]
fn secrets_in_base64_vanish() {
    let texts = [
        format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
            "MHcCAQEEIEd3".repeat(12)
        ),
        "user: ada\npassword: Zq7hunterX\nhost: db".to_owned(),
        "{\"api_key\": \"Zq7hunterX\", \"n\": 1}".to_owned(),
    ];
    for text in texts {
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [text.as_bytes(), &wide] {
            let once = base64(bytes);
            let wrapped = once
                .as_bytes()
                .chunks(64)
                .map(String::from_utf8_lossy)
                .collect::<Vec<_>>();
            let twice = base64(once.as_bytes());
            let url = once.replace('+', "-").replace('/', "_").replace('=', "");
            for encoded in [
                once.clone(),
                wrapped.join("\n  "),
                wrapped.join("\\n"),
                twice,
                url,
            ] {
                assert_eq!(
                    redact_text(&format!("payload {encoded} end")),
                    "payload [REDACTED] end",
                    "{text}"
                );
            }
        }
    }
    let harmless = base64(b"The quick brown fox jumps over the lazy dog, and over the fence.");
    assert_eq!(redact_text(&harmless), harmless);
}

/// What sentences tell of is not always a word.
#[test]
fn codes_and_hashes_vanish() {
    for (text, shown) in [
        ("Your PIN is 4829.", "Your PIN is [REDACTED]."),
        (
            "Your verification code is 730 418. Do not share it.",
            "Your verification code is [REDACTED]. Do not share it.",
        ),
        (
            "G-482913 is your Google verification code.",
            "[REDACTED] is your Google verification code.",
        ),
        (
            "backup codes: 84392017, 11930284\nx",
            "backup codes: [REDACTED]\nx",
        ),
        (
            "key AKIAIOSFODNN7EXAMPLE / 6eOW4lhoDVqMRoUjJ45HlpVxrtqtDC5oQ+r0ggGT x",
            "key [REDACTED] / [REDACTED] x",
        ),
        (
            "a:500:3aeff8b063d26eede92bf4b3f125f369:b757f24882a7acc71b695aeb4ab8d536:::",
            "a:500:[REDACTED]:::",
        ),
    ] {
        assert_eq!(redact_text(text), shown);
    }
    for text in [
        "exit code is 137",
        "The pin is 13 mm",
        "status code: 4041",
        "Your verification code has expired",
    ] {
        assert_eq!(redact_text(text), text);
    }
}

/// A string with escapes changes only where its secret stands.
#[test]
fn the_rest_of_a_string_with_escapes_stays_as_it_is() {
    for (text, shown) in [
        (
            r#"Error("\ud83d\ude00\nuser,password\nada,Zq7hX2vT\n")"#,
            r#"Error("\ud83d\ude00\nuser,password\nada,[REDACTED]\n")"#,
        ),
        (
            r#"x: "\x41 a\/b \u0041\nuser,password\nada,Zq7hX2vT\nfor \e[0m\/""#,
            r#"x: "\x41 a\/b \u0041\nuser,password\nada,[REDACTED]\nfor \e[0m\/""#,
        ),
    ] {
        assert_eq!(redact_text(text), shown);
        assert_eq!(redact_text(shown), shown);
    }
}
