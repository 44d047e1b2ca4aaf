//! A name and its value: `name=value`, `"name": "value"`, `Header: value`, `--name value`, YAML,
//! INI.

use std::borrow::Cow;

use super::{code::*, field, lines::*, name::*, prelude::*, scheme::header};
use crate::keys::folded;

/// A sensitive name, and the value beside it as far as it was glanced at.
struct Pair<'a> {
    run: &'a Run<'a>,
    name: Cow<'a, str>,
    /// The name announces a secret in prose, too.
    strong: bool,
    mark: Mark,
    start: usize,
    seen: Range<usize>,
    /// Neither the name nor the value is quoted.
    bare: bool,
}

pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let text = run.text;
    if let Some(secret) = fallback(run) {
        return Some(secret);
    }
    let mark = Mark::after(text, run.end)?;
    let name = name(run, &mark);
    let strength = run.rules.strength(&name);
    let connection = strength <= Strength::Described && keys::is_connection(&name);
    let signature = !mark.colon && ends_with_one_of(&name, "signature");
    if strength <= Strength::Described && !signature && !connection {
        return None;
    }
    if names_no_value(run, &name, &mark) {
        return None;
    }
    let mut start = value_start(text, mark.end);
    if mark.colon && !mark.quoted {
        start = text.len() - untagged(&text[start..]).len();
    }
    start = assigned(run, start);
    let bare = !mark.quoted && !is_quoted(text, start);
    if strength == Strength::Strong
        && let Some(word) = shell_word(run, &name)
    {
        return Some(word);
    }
    if is_header(&name) && bare && !mark.compares {
        let value = !is_header_in_code(run, start, &mark);
        return value.then(|| header(run, start))?;
    }
    if let Some(lines) = lines_below(run, start, strength, &mark) {
        return Some(lines);
    }
    // `read -p "Password: "`: the name ends the quoted text.
    if !mark.quoted && Quote::at(text, start).is_some_and(|quote| quote.closes_line(text, start)) {
        return None;
    }
    let extent = if mark.encoded { encoded } else { extent };
    let seen = value::glance(extent, text, start);
    if connection {
        return is_opaque(&text[seen.clone()]).then_some(seen);
    }
    let pair = Pair {
        run,
        name,
        strong: strength == Strength::Strong,
        mark,
        start,
        seen,
        bare,
    };
    let found = pair.secret()?;
    Some(changed(text, value::whole(extent, text, start, found)))
}

/// Returns whether a name in front of a mark announces no value of its own.
fn names_no_value(run: &Run<'_>, name: &str, mark: &Mark) -> bool {
    const STATES: &str =
        "focus focus-within focus-visible hover active checked disabled invalid valid required";
    const TAGS: &str = "!Ref !GetAtt !ImportValue !secret !env_var !reference";
    // `:param token: The token`
    let before = run.behind(16).strip_suffix(' ').unwrap_or_default();
    let documented = ends_with_one_of(before, ":param :type @param \\param");
    // `Pin 1: GPIO17`
    let numbered = || run.text[run.end..mark.end].has_of(DIGITS);
    let is_pin = || name.eq_ignore_ascii_case("pin") && !mark.quoted && numbered();
    // `Kind::Token => x`, but `Config::TOKEN = "x"`
    let assigns = || run.text[..mark.end].ends_with('=') && !mark.compares;
    let rest = ahead(run.text, mark.end, 64);
    let near = rest.trim_start_of(" ");
    // `#password:focus {`
    let state = until(rest, " {,:");
    let styled = || prefix_of(&rest[state.len()..], &["{", ",", ":", " {"]).is_some();
    let kind = || until(near.trim_start_of("\"'`\\"), "\"'`\\");
    // `Password: !Ref DBPassword`
    let (tag, to) = near.cut(" ").unwrap_or_default();
    let is_value = || is_quoted(to, 0) || is_mixed(first_word(to)) && has_secret(first_word(to));
    let refers = || is_one_of(tag, TAGS) && !is_value();
    mark.quoted && mark.colon && is_operand(run)
        || (documented || is_resource(run)) && !assigns()
        || is_type(run)
        // `typeof token === "string"`
        || run.before().ends_with("typeof ") && mark.compares && is_kind(kind())
        || is_fragment(run, mark)
        || name == "token" && is_badge(run, mark.end)
        || is_working_directory(name, &run.text[mark.end..])
        || is_pin()
        || mark.colon && refers()
        || mark.colon && run.before().ends_with('#') && is_one_of(state, STATES) && styled()
}

/// Returns whether a macro takes an argument with this name: `$secret:expr`.
fn is_fragment(run: &Run<'_>, mark: &Mark) -> bool {
    const KINDS: &str = "block expr ident item lifetime literal meta pat path stmt tt ty vis";
    let kind = || until(ahead(run.text, mark.end, 16), ",) \t\r\n");
    run.before().ends_with('$') && mark.colon && is_one_of(kind(), KINDS)
}

/// Returns whether the name is in the URL of a badge, where the token is public: 10 letters and
/// digits.
fn is_badge(run: &Run<'_>, start: usize) -> bool {
    let url = after_last(run.behind(128), |c| " \t\n\"'()<>".contains(c));
    // A longer one may begin elsewhere.
    let whole = url.len() < 128 && url.starts_with("https://codecov.io/");
    let token = &run.text[start..run_end(run.text, start)];
    whole && url.ends_with("/badge.svg?") && token.len() == 10 && is_made_of(token, "")
}

/// Returns whether a header's name is that of a variable, and its value a part of code.
fn is_header_in_code(run: &Run<'_>, start: usize, mark: &Mark) -> bool {
    let seen = value::glance(value::extent, run.text, start);
    let (shown, rest) = (&run.text[seen.clone()], &run.text[seen.end..]);
    match shape::of(shown) {
        Shape::Secret => false,
        Shape::Format | Shape::Literal => true,
        Shape::Code if is_feature(run.word(), shown) => true,
        Shape::Code => !shown.starts_with('[') && !shown.has_of("=") && !has_literal(shown, true),
        _ => {
            let code = is_code_line(run) || !mark.colon || shape::ends_code(rest);
            code && !rest.starts_of("=;")
        }
    }
}

/// Returns whether a value is a list of the beginning of its name: `Security_Authorization =
/// ["Security"]`.
fn is_feature(name: &str, value: &str) -> bool {
    let list = value.strip_prefix("[\"");
    let list = list.and_then(|list| list.strip_suffix("\"]"));
    let more = list.and_then(|list| name.strip_prefix(list));
    let mut parts = ["Authori", "Authenti", "Credential"].iter();
    more.is_some_and(|more| more.starts_with('_'))
        && parts.any(|part| name.holds(part))
        && !holds_password(name)
}

/// Where the value of a name begins that is one of several: `user, password = "ada", "x"`.
fn assigned(run: &Run<'_>, start: usize) -> usize {
    let line = run.line_before(128).trim_start();
    let names = line.rsplit(": ").next().unwrap_or(line);
    if !names.ends_with(", ") || !is_made_of(names, "_, ") || !run.after().starts_with(" = ") {
        return start;
    }
    let next = |at: usize| {
        let end = Quote::string_end(&run.text[..floor(run.text, at + GLANCE)], at)?;
        run.text[end..].starts_with(", ").then_some(end + 2)
    };
    let mut names = names.split(", ").skip(1);
    names.try_fold(start, |at, _| next(at)).unwrap_or(start)
}

/// The word of a shell or of a file of settings in which brackets or quotes stand among letters:
/// `DB_PASSWORD=Ab3(xY7)Qz9`.
fn shell_word(run: &Run<'_>, name: &str) -> Option<Range<usize>> {
    let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let near = run.ahead(GLANCE).strip_prefix('=')?;
    let word = near.split(char::is_whitespace).next()?;
    let inner = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let parted = inner.has_of("([{<\"')") && inner == word;
    let ends = word.ends_with(char::is_alphanumeric) && near.len() + 1 < GLANCE;
    let line = run.line_before(256);
    let alone = !line.has_of("\"'`\\({<?&");
    (name.bytes().all(upper) && parted && ends && alone && is_mixed(word))
        .then(|| run.end + 1..run.end + 1 + word.len())
}

/// Returns the value behind a scheme: `Bearer {token}`, `f"Bearer {token}"`. A scheme alone counts
/// as a placeholder.
fn without_scheme(value: &str) -> &str {
    let quoted = value.trim_start_of("fb");
    let inner = quoted.trim_of("\"'`");
    let scheme = first_word(inner);
    if !SCHEMES.has(scheme) {
        return value;
    }
    match inner[scheme.len()..].trim() {
        "" => "...",
        rest => rest,
    }
}

/// Returns whether a value is quoted, or begins with an escape.
fn is_quoted(text: &str, start: usize) -> bool {
    text[start..].starts_with('\\') || Quote::at(text, start).is_some()
}

/// Extends a value by its new value: `"a" -> "b"`.
fn changed(text: &str, old: Range<usize>) -> Range<usize> {
    let quote = skip(text, old.end, |c| matches!(c, '"' | '\'' | '\\'));
    match prefix_of(&text[quote..], &[" -> ", " => "]) {
        Some(arrow) if quote > old.end => {
            let start = quote + arrow.len();
            let new = Quote::at(text, start).map(|_| value::extent(text, start));
            old.start..new.map_or(old.end, |new| new.end)
        }
        _ => old,
    }
}

impl Pair<'_> {
    /// Returns whether the value is a secret, and what of it.
    fn secret(&self) -> Option<Range<usize>> {
        let (run, name, mark) = (self.run, &*self.name, &self.mark);
        let (text, seen) = (run.text, self.seen.clone());
        // `"key": "password", "value": "x"`: the name of what follows.
        if let Some(value) = field::announced(run, &seen) {
            return Some(value);
        }
        let value = &text[seen.clone()];
        let letter = value.chars().nth(1).is_none() && !holds_password(name);
        // `${PASSWORD:?is not set}`
        let message = value.starts_with('?') && run.before().ends_with("${");
        let absent = is_null(value) || is_placeholder(without_scheme(value));
        let version = is_version(value, !holds_password(name)) || is_requirement(value);
        // An account of Windows, and when a token ends.
        let account = value.starts_with("S-1-") && is_digits(&value[1..].replace('-', ""));
        let of_time = ends_with_one_of(name, "time date expires expiry expiration");
        let time = of_time && is_moment(value) && !run.is_sure(name);
        let known = time || account && name.eq_ignore_ascii_case("sid");
        let code = || mark.index || is_expression(text, name, &seen, self.strong);
        let code = || !is_quoted(text, self.start) && code();
        if absent || version || letter || message || known || self.is_innocent(value) || code() {
            return None;
        }
        // `Cookie:"a=b; c=d"`
        let header = is_header(name) && !self.bare && !is_prose(first_word(value));
        if mark.encoded || mark.quoted || header {
            return Some(seen);
        }
        if mark.colon
            && self.bare
            && let Some(typed) = typed(run, seen.start)
        {
            return Some(typed);
        }
        let secret = match mark.colon {
            true => self.is_secret_after_colon(value),
            false => self.is_secret_assigned(value),
        };
        secret.then(|| whole_line(run, seen))
    }

    /// Returns whether the shape of the value is none of a secret with this name.
    fn is_innocent(&self, value: &str) -> bool {
        let (run, name) = (self.run, &*self.name);
        let quoted = is_quoted(run.text, self.start);
        let sure = run.is_sure(name) || is_login(run);
        // `password: &str = "x"`
        let literal = |typed: Range<usize>| {
            let quoted = run.text[typed.end..].starts_of("\"'");
            has_secret(&run.text[typed]) || sure && quoted
        };
        if self.mark.colon && self.bare && typed(run, self.seen.start).is_some_and(literal) {
            return false;
        }
        let rest = &run.text[self.seen.end..];
        if self.is_named(value, rest) || self.is_made(value, rest) {
            return true;
        }
        let member = name.holds("self.") || name.holds("this.") || name == value;
        let argument = name == value && rest.starts_of(",)");
        let upper = value.bytes().all(|b| b.is_ascii_uppercase());
        let code = || is_code_line(run) || member || shape::ends_code(rest);
        let apart = !self.mark.colon && run.text[..self.start].ends_with(' ');
        let number = value.len() > 2 && has_digit(value) && !value.starts_with("0x");
        let said = self.mark.colon && rest.starts_with(' ');
        let credential = value.has_of("=") || SCHEMES.has(first_word(value));
        // `"auth": "4917"`: a member of JSON.
        let digits = value.starts_of(DIGITS) && value.len() > 3;
        match shape::of(without_scheme(value)) {
            Shape::Format | Shape::Schema => true,
            Shape::Secret => false,
            _ if is_header(name) && credential => false,
            Shape::Literal | Shape::Word if self.mark.quoted && digits => false,
            Shape::Literal if sure => !quoted && !number,
            Shape::Literal => !(holds_password(name) && number),
            Shape::Code if sure => {
                let list = value.starts_with('[') && value.has_of("\"'");
                let block = value.starts_with("{\n");
                !quoted
                    && (code() && !list && !has_literal(value, true)
                        || block && shape::has_statements(value))
            }
            Shape::Name if sure => !quoted && code(),
            Shape::Word if number && holds_password(name) && !run.is_sure(name) => false,
            Shape::Word if sure => !quoted && (argument || apart && (member || is_code_line(run))),
            Shape::Code | Shape::Name => true,
            Shape::Word if keys::is_vague(name) => true,
            // `--creds=ID`
            Shape::Word if upper || is_one_of(value, "value name file") => true,
            Shape::Word if quoted => value.len() < 6 || run.rules.announces(value),
            Shape::Word => apart || said || code(),
        }
    }

    /// Returns whether a value repeats its name, or begins a sentence.
    fn is_named(&self, value: &str, rest: &str) -> bool {
        let (name, sure) = (&*self.name, self.run.is_sure(&self.name));
        let same = folded(name) == folded(value);
        let upper = value.bytes().all(|b| b.is_ascii_uppercase());
        // `{key: "getName", value: function() {}}`
        let words = shape::pieces(ahead(rest, 0, 32)).take(2);
        let method = name == "key" && words.eq(["value", "function"]);
        let capitals = value.chars().filter(|c| c.is_uppercase()).count();
        // `existingSecret: db-credentials`
        let existing = || folded(name).starts_with("existingsecret") && !has_secret(value);
        same && (upper || value.has_of("_-"))
            || is_feature(name, value)
            || !self.mark.quoted && existing()
            || method && !has_digit(value) && capitals * 4 <= value.len()
            || is_sentence(value, rest)
            || !sure && value.len() > 2 && folded(name).contains(&folded(value))
            || is_file(name) && self.mark.colon && rest.starts_with(' ')
    }

    /// Returns whether a value is code, a type of Windows, or the file of a key.
    fn is_made(&self, value: &str, rest: &str) -> bool {
        const FORMATS: &[&str] = &["\" % ", "' % ", "\".format(", "'.format("];
        const WINDOWS: &str = "ulong dword word byte handle bool lpvoid pvoid puchar pbyte pulong lpstr lpwstr lpcstr lpcwstr";
        let random = value.split(|c: char| !c.is_alphanumeric()).any(is_random);
        let formatted = value.has_of("%{") && prefix_of(rest, FORMATS).is_some();
        let formatted = formatted && !random && !self.run.is_sure(&self.name);
        let upper = || value.bytes().all(|b| b.is_ascii_uppercase());
        let typed = self.mark.colon && upper() && is_one_of(value, WINDOWS);
        // `user = passwd = name = ''`
        let name = !is_quoted(self.run.text, self.start) && !self.mark.colon && !has_digit(value);
        let name =
            name && is_made_of(value, "_.[]'\"") && self.run.text[..self.start].ends_with(' ');
        let chained = name && rest.starts_with(" = ") && !rest[3..].starts_with('\n');
        let file = ends_with_one_of(value, ".pem .crt .p12 .pfx .jks") && !random;
        let file = file && is_made_of(value, "_-./$") && !holds_password(&self.name);
        formatted || typed || chained || file
    }

    /// Returns whether the value is a secret in `name = value`, which code has as well.
    fn is_secret_assigned(&self, value: &str) -> bool {
        let (text, name) = (self.run.text, &*self.name);
        let word = first_word(value);
        let looks = looks_secret(word) || is_mixed(word);
        let compared = self.mark.compares && (word.holds("::") || !looks);
        let compared = compared && (!holds_password(name) || word.has_of("."));
        let tuple = text[self.start..].starts_of("([") && name.eq_ignore_ascii_case("auth");
        let query = in_query(self.run) && !is_small_number(word);
        let announced = self.strong || !is_weak_word(name) || query || tuple;
        !compared && (announced || looks && !is_composed(word))
    }

    /// Returns whether the value is a secret in `name: value`, which prose has as well.
    fn is_secret_after_colon(&self, value: &str) -> bool {
        let (run, name) = (self.run, &*self.name);
        let first = first_word(value);
        let prose = (is_prose(first) || first.is_empty()) && !SCHEMES.has(first);
        let place = self.seen.start == run.end + 1 && value.starts_of(DIGITS);
        // `src/password.js:40:9`
        let line = place && is_file(name) && value.split_of(":").all(is_small_number);
        // `KeyError: 'x'`, `missing key: x`
        let failure = ends_with_one_of(name, "error exception err failure missing invalid expired");
        if self.bare && prose || line {
            return false;
        }
        match self.strong {
            true if name.eq_ignore_ascii_case("pass") => {
                let alone = is_mixed(first) || !self.bare || is_indented(run) || is_login(run);
                is_random(first) || name != "PASS" && alone
            }
            true => !(is_small_number(value) && place && !holds_password(name)),
            false if follows_kind(run) => true,
            false if value.starts_of("{[") => !is_weak_word(name),
            false if value.has_of(":") || run.before().ends_with("GnuPG ") => false,
            false => looks_secret(inside(value)) && !place && !failure,
        }
    }
}

/// Returns whether the quoted name is an operand or a type, which a colon ends: `if kind ==
/// 'token':`, `-> "Token":`.
fn is_operand(run: &Run<'_>) -> bool {
    let before = run.behind(16).trim_end_of("\"'\\");
    let mut ends = ["== ", "!= ", "-> ", " in ", "case "].iter();
    ends.any(|end| before.ends_with(end))
}

/// Returns whether the run is `pass` beside the name of a user, a host or a service.
pub(super) fn is_login(run: &Run<'_>) -> bool {
    const BESIDE: &str = "user username login email host hostname server port smtp imap mail db database mysql \
        postgres redis ftp sftp proxy";
    let pass = ends_with_one_of(run.word(), "pass") && !ends_with_one_of(run.word(), "bypass");
    let near = &run.text[run.at - run.behind(128).len()..run.end + run.ahead(128).len()];
    let mut names = near.split(|c: char| !c.is_alphanumeric());
    pass && names.any(|name| is_one_of(name, BESIDE))
}

/// Returns whether a sentence begins with a word: four words at least, of which prose has one.
fn is_sentence(first: &str, rest: &str) -> bool {
    let line = until(ahead(rest, 0, 120), "\n");
    let is_plain = |word: &&str| is_letters(word.trim_of(".,()"));
    let mut words = line.split_of(" ").filter(|word| !word.is_empty());
    let plain = words.clone().take(3).filter(is_plain);
    let several = line.starts_with(' ') && plain.count() == 3;
    several && shape::of(first) == Shape::Word && words.any(is_prose)
}

/// Returns whether a value says which version of a package is needed: `{ version = "1.0" }`.
fn is_requirement(value: &str) -> bool {
    const PARTS: &str = "version workspace path git features optional";
    let parts = value.strip_prefix('{').and_then(|it| it.cut("="));
    parts.is_some_and(|(name, _)| is_one_of(name.trim(), PARTS))
}

/// Returns whether a name is that of a source file, followed by the number of a line:
/// `PasswordPolicy.java:12`.
fn is_file(name: &str) -> bool {
    let end = name.cut_last(".").map_or("", |(_, end)| end);
    (1..=5).contains(&end.len()) && BUILT_IN.strength(end) == Strength::Harmless
}

/// The text in `Some("x")`, over several lines or not.
fn inside(value: &str) -> &str {
    let (name, inner) = value.cut("(").unwrap_or_default();
    let called = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic());
    let marks = |c: char| c.is_whitespace() || "\"'\\,)(".contains(c);
    let quoted = called && value.has_of("\"");
    let inner = inner.trim_matches(marks);
    if quoted { inner } else { value }
}

/// `--password x`, `-token x`.
pub(super) fn flag(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    let name = word.trim_start_of("-");
    let escaped = run.after().starts_with('\\');
    let end = skip_colours(text, run.end);
    let quoted = skip(text, end, |c| matches!(c, '"' | '\'' | '\\' | ','));
    let skipped = match escaped {
        true => |c: char| c.is_whitespace() || c == '\\',
        false => char::is_whitespace,
    };
    let start = skip(text, quoted, skipped);
    let start = skip_colours(text, start);
    let next_line = text[run.end..start].has_of("\n") && !escaped && quoted == end;
    if name.len() == word.len() || start == run.end {
        return None;
    }
    let usage = run.before().ends_of("[\\") || run.after().starts_with("\\f");
    if usage || name.is_empty() || name.ends_with("-stdin") || !run.rules.announces(name) {
        return None;
    }
    value::secret(text, start, |value| {
        let shape = shape::of(value);
        // `--auto-key-locate wkd`
        let last = BUILT_IN.strength(after_last(name, |c| c == '-'));
        let about = last == Strength::Harmless && !run.is_sure(name);
        let looks_innocent = match keys::is_vague(name) {
            true => shape == Shape::Word || shape::is_innocent(value, name),
            false => matches!(shape, Shape::Format | Shape::Schema),
        };
        // The next line of a text is not an argument, unless it looks like a secret.
        let below = next_line && shape != Shape::Secret;
        let absent = is_prose(value) || is_placeholder(value) || value.len() < 2;
        let flag = prefix_of(value, &["-", "(-", "file://"]).is_some();
        let key = about && name.split_of("-").any(|part| part == "key");
        let kind = key && shape == Shape::Word && !is_digits(value);
        // `  -p, --password   ask for the password`
        let before = run.line_before(64);
        let begins = before.starts_of(" \t") && before.trim_of(" \t\"'`-,").len() <= 1;
        let apart = text[run.end..start].holds("  ") && !is_quoted(text, start);
        let help = begins && apart && is_sentence(value, &text[start + value.len()..]);
        !absent && !flag && !below && !looks_innocent && !kind && !help
    })
}
