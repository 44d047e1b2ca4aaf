//! Code with a sensitive name and no secret beside it.

use super::prelude::*;

/// `password: str = "x"`: a type stands between the name and the value. Empty without a secret.
pub(super) fn typed(run: &Run<'_>, start: usize) -> Option<Range<usize>> {
    const TYPES: &str = "bool boolean float number str string option optional secretstr secretstring text char varchar \
        any bytes vec u8 static int u64 i64 null none undefined box cow a unknown object";
    #[rustfmt::skip]
    const POINTERS: &[&str] = &["&mut ", "*mut ", "*const ", "&'", "&dyn ", "impl Fn(", "impl FnOnce(", "impl FnMut(", "impl Into<", "impl AsRef<", "unsafe extern \"", "unsafe fn("];
    let text = run.text;
    let part = |c: char| c.is_alphanumeric() || "&<>'[]|_ .?*:!".contains(c);
    let near = ahead(text, start, 64);
    let (typed, rest) = near.split_at(skip(near, 0, part));
    let mut words = typed.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words = words.by_ref().filter(|word| !word.is_empty());
    let code = is_code_line(run);
    if !rest.starts_with('=') || rest.starts_with("==") || !typed.ends_with(' ') {
        let pointer = prefix_of(near, POINTERS).is_some();
        let end = rest.starts_of(",);={(") || rest.is_empty();
        let plain = !typed.is_empty() && words.all(|word| !is_mixed(word) || is_primitive(word));
        let generic = end && is_generic(typed);
        return (code && plain && end || pointer || generic).then_some(start..start);
    }
    let from = skip_blanks(text, start + typed.len() + 1);
    let secret = value::secret(text, from, |_| true)?;
    if !code && !words.all(|word| is_one_of(word, TYPES)) {
        return Some(start..secret.end);
    }
    let shown = &text[secret.clone()];
    let quoted = text[from..].starts_of("\"'`");
    let number = code && shown.starts_of(DIGITS);
    let computed = !quoted && (number || is_reference(text, &secret, true));
    let innocent = shape::is_innocent(shown, run.word());
    let absent = is_null(shown) || is_placeholder(shown) || computed || innocent;
    Some(if absent { start..start } else { secret })
}

/// Returns whether a text is a type such as `Option<Vec<u8>>`.
fn is_generic(typed: &str) -> bool {
    let is_type = |word: &str| word.starts_with(char::is_uppercase) || is_primitive(word);
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || byte == b':';
    let parts = typed.strip_suffix('>').and_then(|it| it.cut("<"));
    let (head, inner) = parts.unwrap_or_default();
    let named = head.starts_with(char::is_uppercase) && head.bytes().all(is_name);
    named && shape::pieces(inner).all(is_type)
}

fn is_primitive(word: &str) -> bool {
    let digits = word.trim_start_of("uif_nt");
    let digits = digits.strip_suffix("_t").unwrap_or(digits);
    matches!(digits, "8" | "16" | "32" | "64" | "128")
}

/// Returns whether the line up to the run is one of a program that declares something.
pub(super) fn is_code_line(run: &Run<'_>) -> bool {
    static KEYWORDS: Words =
        Words::of("let const pub fn static mut def function var val private public final readonly");
    let mut words = run.line_before(160).split(|c: char| !c.is_alphanumeric());
    words.any(|word| KEYWORDS.has(word))
}

/// `ApiKey("x")`, `Token(\n "x",\n)`: how Rust and others print a value that has a type of its own.
pub(super) fn newtype(run: &Run<'_>) -> Option<Range<usize>> {
    const TYPES: &str = "token key secret password passphrase credential credentials auth cookie bearer jwt pin otp \
        secretstr secretstring pass passcode apikey api_key access_token accesstoken secret_key secretkey bearer_auth";
    let text = run.text;
    let name = after_last(run.word(), |c| c == '.');
    let upper = name.starts_with(|c: char| c.is_ascii_uppercase());
    run.after().strip_prefix('(')?;
    // `.password("x")`, `setPassword("x")`: a builder or a setter.
    let mut verbs = ["set_", "with_", "set", "with"].iter();
    let noun = verbs.find_map(|verb| strip_ignore_case(name, verb));
    let noun = noun.unwrap_or(name);
    let sets = noun.len() < run.word().len() && is_one_of(noun, TYPES);
    let start = skip(text, run.end + 1, char::is_whitespace);
    let argument = text[start..].trim_start_of("\\");
    let typed = upper && ends_with_one_of(name, TYPES) && is_made_of(name, "");
    if !argument.starts_of("\"'") || !(typed || sets) || !run.rules.announces(name) {
        return None;
    }
    value::secret(text, start, |shown| {
        let absent = shown.is_empty() || is_placeholder(shown) || is_prose(shown);
        let loose = typed && (run.is_strong(name) || looks_secret(shown) || is_mixed(shown));
        !absent && (loose || is_mixed(shown) && has_secret(shown))
    })
}

/// `process.env.API_KEY || "x"`, `DB_PASSWORD ?? 'x'`: the default for a secret that is not set.
pub(super) fn fallback(run: &Run<'_>) -> Option<Range<usize>> {
    let sign = prefix_of(run.after(), &[" || ", " ?? ", " or "])?;
    let start = run.end + sign.len();
    let quoted = Quote::at(run.text, start).is_some();
    let looks = |shown: &str| looks_secret(shown) || is_mixed(shown);
    let looks = |shown: &str| looks(shown) && BUILT_IN.strength(shown) == Strength::Harmless;
    (quoted && run.rules.announces(run.word())).then(|| value::secret(run.text, start, looks))?
}

/// Returns whether the value is code that gets a secret from elsewhere: `process.env.TOKEN`,
/// `lexer.next()`. `sure` says that only secrets have such a name.
pub(super) fn is_expression(text: &str, name: &str, value: &Range<usize>, sure: bool) -> bool {
    // `self.token = token;`
    let same = text[value.clone()].trim_end_of(";");
    let object = name.strip_suffix(same).unwrap_or_default();
    object.ends_of("._->") || is_reference(text, value, sure) || is_cmdlet(text, value)
}

/// Returns whether the value refers to a secret or calls a function for it, and shows none:
/// `var.db_password`, `$(cat file)`, `input("Password: ")`.
fn is_reference(text: &str, value: &Range<usize>, sure: bool) -> bool {
    #[rustfmt::skip]
    const ROOTS: &[&str] = &[
        "process.env", "os.environ", "os.getenv", "os.Getenv", "getenv(", "env::var", "std::env", "System.getenv", "self.", "this.",
        "config.", "settings.", "req.", "request.", "ENV[", "args.", "opts.", "options.", "import.meta.env", "secrets.", "vault.",
        "getpass", "input(", "env(", "$ENV", "var.", "local.", "data.", "module.", "params.", "random_password.", "props.", "state.", "ctx.",
    ];
    let (shown, rest) = (&text[value.clone()], &text[value.end..]);
    // `$self->token`, `$Config::token`
    if let Some(name) = text[value.start..].strip_prefix('$') {
        let name = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        return prefix_of(name, &["->", "::", "[", "{"]).is_some();
    }
    let root = prefix_of(shown, ROOTS).is_some();
    let (path, arguments) = shown.split_at(shown.find_of("([{").unwrap_or(shown.len()));
    let called = !arguments.is_empty() || path.ends_with('!') && rest.starts_with(" {");
    let path = path.trim_end_of("!?; ");
    let is_path = shown.len() < 240 && !path.is_empty() && path_parts(path).all(is_identifier);
    if !is_path || is_random(path) {
        return root && !shown.has_of("\"'");
    }
    let constructs = path.starts_with(char::is_uppercase) && !path.has_of(".");
    if called {
        return (!constructs || !shown.has_of("\"'")) && !has_literal(arguments, sure);
    }
    // `DB_PASSWORD=secret.garden` and `password: correct.secret.horse` are settings.
    let names = |part: &str| BUILT_IN.strength(part) != Strength::Harmless;
    let last = || path_parts(path).last().is_some_and(names);
    let any = || path_parts(path).any(names);
    let named = if sure { last() } else { any() };
    let parted = path.has_of(".") || path.holds("::");
    let code = !sure || text[..value.start].ends_with(' ') || rest.starts_of("),");
    root || parted && (code && (path.holds("::") || named) || !sure && !constructs)
}

fn path_parts(path: &str) -> impl Iterator<Item = &str> {
    path.split_of(".:?!").filter(|part| !part.is_empty())
}

/// Returns whether a word may be a name in code, and not a secret.
fn is_identifier(word: &str) -> bool {
    is_made_of(word, "_") && !word.starts_of(DIGITS) && !is_mixed(word.trim_end_of(DIGITS))
}

/// Returns whether a string among arguments may be a secret. If a `sure` secret comes from the
/// call, every string counts that is not a name, a prompt or a path.
pub(super) fn has_literal(arguments: &str, sure: bool) -> bool {
    let mut at = 0;
    while let Some(i) = arguments[at..].find_of("\"'\\") {
        at += i;
        let Some(quote) = Quote::at(arguments, at) else {
            at += 1;
            continue;
        };
        let from = at + quote.len();
        let Some(close) = quote.close(arguments, from) else {
            return true;
        };
        let literal = &arguments[from..close.start];
        let names = literal.has_of(" /_-") || BUILT_IN.strength(literal) != Strength::Harmless;
        if looks_secret(literal) && !literal.has_of("_-")
            || is_mixed(literal)
            || sure && !names && literal.len() > 3
        {
            return true;
        }
        at = close.end;
    }
    false
}

/// Returns whether the value is a command of PowerShell: `$x = Read-Host -AsSecureString`.
fn is_cmdlet(text: &str, value: &Range<usize>) -> bool {
    const VERBS: &str = "Get New Read Import ConvertTo ConvertFrom Invoke Select Join Unprotect";
    let (verb, noun) = text[value.clone()].cut("-").unwrap_or_default();
    let cmdlet = is_one_of(verb, VERBS) && is_letters(noun) && noun.starts_with(char::is_uppercase);
    cmdlet && last_line(behind(text, value.start, 64)).has_of("$")
}
