//! Secrets in free text, told by their looks.

use std::{borrow::Cow, ops::Range};

use super::{
    REDACTED,
    keys::{is_sensitive_key, words},
};

/// Free text without the secrets that can be told by their looks.
///
/// Values of sensitive keys (`key=x`, `"key": "x"`, `Header: x`, `--key x`, `<key>x</key>`), credentials after
/// `Bearer` and the like, `scheme://user:password@`, private-key blocks, and well-known vendors' key
/// prefixes. One pass; borrows the text if nothing is found.
///
/// ```
/// use tower_toolcall::redact::redact_text;
///
/// assert_eq!(redact_text("GET /?api_key=s3cr3t&q=1 failed"), "GET /?api_key=[REDACTED]&q=1 failed");
/// assert_eq!(redact_text("KeyError: 'city'"), "KeyError: 'city'");
/// ```
pub fn redact_text(text: &str) -> Cow<'_, str> {
    redact(text, false)
}

/// The same; `cut` says that the text goes on beyond its end.
pub(super) fn redact(text: &str, cut: bool) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let len = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if len == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let token = Token { text, at, len, cut };
        match token.secret() {
            Some(secret) => {
                out.push_str(&text[copied..secret.start]);
                out.push_str(REDACTED);
                (copied, at) = (secret.end, secret.end);
            }
            None => at += len,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Characters that names, keys and tokens are made of.
fn is_token(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~')
}

/// A run of [`is_token`] characters in its text.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    at: usize,
    len: usize,
    cut: bool,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.at + self.len
    }

    /// The secret that begins in this token, or that it announces. Never empty.
    fn secret(&self) -> Option<Range<usize>> {
        let found = self
            .private_key()
            .or_else(|| self.value_of_key())
            .or_else(|| self.after_scheme())
            .or_else(|| self.user_info())
            .or_else(|| self.vendor_key());
        found.filter(|secret| !secret.is_empty())
    }

    fn private_key(&self) -> Option<Range<usize>> {
        let token = &self.text[self.at..self.end()];
        let start = self.at + token.find("-----BEGIN")?;
        Some(start..private_key_end(self.text, start)?)
    }

    /// `key=value`, `"key": "value"`, `Header: value`, `--key value`, `<key>value</key>`.
    fn value_of_key(&self) -> Option<Range<usize>> {
        let token = &self.text[self.at..self.end()];
        let name = token.rsplit(['/', '.']).next().unwrap_or(token);
        let signature = name.to_ascii_lowercase().ends_with("signature");
        if !is_sensitive_key(name) && !signature {
            return None;
        }
        let rest = &self.text[self.end()..];
        if let Some(value) = rest.strip_prefix('>')
            && self.text[..self.at].ends_with('<')
        {
            let start = self.end() + 1;
            return Some(start..start + value.find('<').unwrap_or(value.len()));
        }
        if token.starts_with("--") && rest.starts_with(char::is_whitespace) {
            let start = skip(self.text, self.end(), char::is_whitespace);
            let is_flag = self.text[start..].starts_with('-');
            return (!is_flag).then(|| start..value_end(self.text, start));
        }
        let quote = |c: char| matches!(c, '"' | '\'' | '`' | '\\');
        let after = skip(self.text, self.end(), |c| quote(c) || c == ']');
        let quoted = after > self.end();
        let mark = skip(self.text, after, |c| c == ' ' || c == '\t');
        let marks = ["==", ":=", "=>", "=", "%3D", "%3d", ":"];
        let found = marks.iter().find(|m| self.text[mark..].starts_with(**m))?;
        let colon = *found == ":";
        if signature && colon {
            return None;
        }
        let header = is_header(name);
        // A value may stand on the next line; a header's does not, unless that line is indented.
        let start = skip(self.text, mark + found.len(), |c| {
            c.is_whitespace() && (!header || c != '\n')
        });
        if colon && self.text[mark..].starts_with("://") {
            return None;
        }
        if header && !quoted && !self.text[start..].starts_with(['"', '\'']) {
            return Some(start..self.line_end(start));
        }
        if colon && !quoted {
            let near = window(self.text, start);
            if !names_secret(name, &near[start..value_end(near, start)]) {
                return None;
            }
        }
        Some(start..value_end(self.text, start))
    }

    /// The end of a header's value: of the line and of those folded under it, or the quote that was
    /// opened before the header.
    fn line_end(&self, start: usize) -> usize {
        if let Some(quote) = self.text[..self.at].chars().next_back()
            && matches!(quote, '"' | '\'' | '`')
        {
            let end = self.text[start..].find([quote, '\n']);
            return end.map_or(self.text.len(), |i| start + i);
        }
        let mut from = start;
        while let Some(i) = self.text[from..].find('\n') {
            from += i;
            if !self.text[from + 1..].starts_with([' ', '\t']) {
                return from;
            }
            from += 1;
        }
        self.text.len()
    }

    /// `Bearer x`, `Basic x`: the credential after the name of its scheme.
    fn after_scheme(&self) -> Option<Range<usize>> {
        let token = &self.text[self.at..self.end()];
        let is = |scheme: &str| token.eq_ignore_ascii_case(scheme);
        let bearer = is("bearer");
        if !bearer
            && !["basic", "digest", "negotiate", "token", "apikey"]
                .into_iter()
                .any(is)
        {
            return None;
        }
        let between = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ':' | '=');
        let start = skip(self.text, self.end(), between);
        if start == self.end() {
            return None;
        }
        let end = word_end(self.text, start);
        let word = &self.text[start..end];
        // Prose says "bearer token required" and "basic auth failed".
        #[rustfmt::skip]
        const PROSE: &[&str] = &[
            "token", "tokens", "auth", "authentication", "authorization", "scheme", "realm", "header", "headers", "is",
            "was", "of", "or", "and", "not", "required", "missing", "invalid", "expired", "format", "credentials",
            "error", "type", "for", "in", "the",
        ];
        let prose = PROSE
            .iter()
            .any(|w| word.trim_end_matches('.').eq_ignore_ascii_case(w));
        let secret = if bearer { !prose } else { looks_secret(word) };
        secret.then_some(start..end)
    }

    /// `scheme://user:password@host`.
    fn user_info(&self) -> Option<Range<usize>> {
        let near = window(self.text, self.end());
        let rest = near[self.end()..].strip_prefix("://")?;
        let start = self.end() + 3;
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`'))
            .unwrap_or(rest.len());
        let url = &rest[..end];
        let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
        if let Some(sign) = authority.rfind('@') {
            let user = &authority[..sign];
            return (user.contains(':') || looks_secret(user)).then(|| start..start + sign);
        }
        // A password may hold a raw slash; a port is a number.
        let (_, port) = authority.split_once(':')?;
        if port.is_empty() || port.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let whole = word_end(self.text, start).max(start + end);
        match url.rfind('@') {
            Some(sign) => Some(start..start + sign),
            // Its end is beyond the window, or beyond the cut.
            None if start + end == near.len() && (near.len() < self.text.len() || self.cut) => {
                Some(start..whole)
            }
            None => None,
        }
    }

    fn vendor_key(&self) -> Option<Range<usize>> {
        let token = &self.text[self.at..self.end()];
        VENDORS.iter().find_map(|vendor| {
            token.match_indices(vendor.prefix).find_map(|(i, _)| {
                let starts = !token[..i].ends_with(|c: char| c.is_ascii_alphanumeric());
                let from = i + vendor.prefix.len();
                let part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
                let near = window(token, from);
                let fits = starts && vendor.fits(&near[from..skip(near, from, part)]);
                fits.then(|| self.at + i..self.at + skip(token, from, part))
            })
        })
    }
}

/// A vendor's prefix for its keys, and how much has to follow.
struct Vendor {
    prefix: &'static str,
    tail: usize,
    /// The prefix alone could begin a word: a digit has to follow somewhere.
    weak: bool,
}

impl Vendor {
    fn fits(&self, tail: &str) -> bool {
        let run = skip(tail, 0, |c| c != '.');
        let long = if self.prefix == "eyJ" {
            tail.len()
        } else {
            run
        };
        long >= self.tail && (!self.weak || tail.contains(|c: char| c.is_ascii_digit()))
    }
}

#[rustfmt::skip]
const VENDORS: &[Vendor] = &{
    const fn strong(prefix: &'static str) -> Vendor { Vendor { prefix, tail: 10, weak: false } }
    const fn weak(prefix: &'static str, tail: usize) -> Vendor { Vendor { prefix, tail, weak: true } }
    [
        strong("sk-proj-"), strong("sk-ant-"), strong("sk_live_"), strong("sk_test_"), strong("pk_live_"), strong("rk_live_"),
        strong("ghp_"), strong("gho_"), strong("ghu_"), strong("ghs_"), strong("ghr_"), strong("github_pat_"),
        strong("glpat-"), strong("xoxb-"), strong("xoxp-"), strong("xoxa-"), strong("xoxs-"), strong("xapp-"), strong("ya29."),
        strong("shpat_"), strong("whsec_"), strong("dop_v1_"), strong("glsa_"), strong("GOCSPX-"), strong("hvs."), strong("lsv2_"),
        weak("sk-", 16), weak("AKIA", 16), weak("ASIA", 16), weak("AIza", 30), weak("hf_", 20), weak("npm_", 30), weak("pypi-", 30),
        weak("SG.", 16), weak("gsk_", 20), weak("xai-", 20),
        Vendor { prefix: "eyJ", tail: 20, weak: false },
    ]
};

/// Whether `name: value` in prose announces a secret.
fn names_secret(name: &str, value: &str) -> bool {
    let words = words(name);
    let singular = |w: &str| {
        let w = w.trim_end_matches(|c: char| c.is_ascii_digit());
        w.strip_suffix('s').unwrap_or(w).to_owned()
    };
    let words: Vec<String> = words.iter().map(|w| singular(w)).collect();
    // `pass` has lost its end, too.
    let has = |parts: &[&str]| words.iter().any(|w| parts.contains(&&**w));
    if has(&[
        "password",
        "passwd",
        "passphrase",
        "pas",
        "secret",
        "pwd",
        "jwt",
        "otp",
        "apikey",
    ]) {
        return true;
    }
    // `api_key`, `mytoken`; but not `KeyError`, nor the words of `Missing key: city`.
    let last = words.last().map(String::as_str).unwrap_or_default();
    let nouns = [
        "key",
        "token",
        "credential",
        "auth",
        "cookie",
        "authorization",
    ];
    let names = words.len() > 1 && nouns.contains(&last)
        || ["token", "secret", "password"]
            .iter()
            .any(|s| last.len() > s.len() && last.ends_with(s));
    names || looks_secret(value)
}

/// Headers whose value is a secret as a whole, its scheme included.
fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// Where the value that begins at `start` ends: with its quote or bracket, or as a bare word.
fn value_end(text: &str, start: usize) -> usize {
    let rest = &text[start..];
    if rest.starts_with("-----BEGIN")
        && let Some(end) = private_key_end(text, start)
    {
        return end;
    }
    // JSON inside JSON escapes its quotes: the whole run of backslashes opens, and closes.
    let slashes = rest.len() - rest.trim_start_matches('\\').len();
    if let Some(quote @ ('"' | '\'' | '`')) = rest[slashes..].chars().next() {
        let from = slashes + 1;
        return start + from + quoted_end(&rest[from..], quote, slashes);
    }
    if rest.starts_with(['[', '{', '(']) {
        return start + bracket_end(rest);
    }
    let end = word_end(text, start);
    // `token=Bearer x`: the scheme goes with what it announces.
    let scheme = ["bearer", "basic", "digest", "negotiate", "apikey", "token"];
    let next = skip(text, end, |c| c == ' ' || c == '\t');
    if next > end
        && scheme
            .iter()
            .any(|s| text[start..end].eq_ignore_ascii_case(s))
    {
        return word_end(text, next);
    }
    // `Some("x")`, `b'x'`: the word only introduces the value.
    if end > start && text[end..].starts_with(['(', '"', '\'']) {
        return value_end(text, end);
    }
    end
}

/// The end of a quoted text, its closing quote included; the whole if there is none. The closing quote
/// has as many backslashes before it as the opening one had.
fn quoted_end(inner: &str, quote: char, slashes: usize) -> usize {
    let mut run = 0;
    for (i, c) in inner.char_indices() {
        if c == quote && run == slashes {
            return i + 1;
        }
        // Two backslashes are one that is written: `"a\\"` ends.
        run = match c {
            '\\' if slashes == 0 => (run + 1) % 2,
            '\\' => run + 1,
            _ => 0,
        };
    }
    inner.len()
}

/// The end of a bracketed text, its closing bracket included; the whole if there is none.
fn bracket_end(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut quoted = false;
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The end of the private-key block that begins at `start`; the text's if it has none. `None` for a
/// block of another kind.
fn private_key_end(text: &str, start: usize) -> Option<usize> {
    let block = &text[start..];
    let (label, _) = crate::text::prefix(block, 60);
    label.contains("PRIVATE").then(|| {
        let Some(end) = block.find("-----END") else {
            return text.len();
        };
        let tail = &block[end + 8..];
        tail.find("-----")
            .map_or(text.len(), |i| start + end + 8 + i + 5)
    })
}

/// Where a bare value ends: at a blank, a quote, a bracket, or a mark that separates fields.
fn word_end(text: &str, start: usize) -> usize {
    skip(text, start, |c| {
        !c.is_whitespace()
            && !matches!(
                c,
                '"' | '\'' | '`' | '&' | ',' | ';' | '(' | ')' | '}' | ']' | '<' | '\\'
            )
    })
}

/// The text up to a little beyond `at`: what is looked at before it is known to be a secret has to be
/// bounded, or a hostile text makes the pass quadratic.
fn window(text: &str, at: usize) -> &str {
    let mut end = text.len().min(at + 512);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The first place from `at` on whose character is not skipped.
fn skip(text: &str, at: usize, skipped: impl Fn(char) -> bool) -> usize {
    text[at..]
        .find(|c: char| !skipped(c))
        .map_or(text.len(), |i| at + i)
}

/// Whether a word is no word of prose: long, with a digit or with capitals inside.
fn looks_secret(word: &str) -> bool {
    let word = word.trim_matches(|c: char| matches!(c, '"' | '\'' | '`' | '\\' | '.'));
    let digit = word.contains(|c: char| c.is_ascii_digit());
    let lower = word.contains(|c: char| c.is_lowercase());
    let inner = word.chars().skip(1).any(char::is_uppercase);
    word.chars().count() >= 8 && !word.contains(char::is_whitespace) && (digit || lower && inner)
        || word.len() >= 32 && !word.contains(char::is_whitespace)
}
