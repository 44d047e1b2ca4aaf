//! What an error's text means. The last resort: only for errors that no type explains.
//!
//! Two rules keep it from guessing. A number is a status only where the text says so (`HTTP 429`,
//! `status code 503`, `404: Not Found`), so `took 429 ms` and `port 503` are none. A phrase counts
//! only as whole words, and a word that is as often a setting's name (`timeout`, `rate limit`) not
//! where the text talks about the setting.

mod status;

use std::ops::Range;

use self::status::status;
use super::{ErrorKind, Execution};

type Verdict = (ErrorKind, Execution);

/// What the text means, if it is clear.
///
/// That the tool surely did not run is believed only of a text that says nothing else, and of a rate
/// limit that tells of no work: in `order placed; mail failed: HTTP 429` the limit met a later step.
pub(super) fn classify(text: &str) -> Option<Verdict> {
    let words = normalise(text);
    if find(&words, "message larger than ").is_some() {
        return None;
    }
    let (kind, execution, evidence) = match status(text) {
        Some((status, at)) => {
            let kind = ErrorKind::from_http_status(status)?;
            (kind, kind.execution(), Evidence::Status(at))
        }
        None => by_phrase(&words)?,
    };
    if execution != Execution::NotStarted {
        return Some((kind, execution));
    }
    let proved = match kind {
        // Servers say much about their limits, so here it is the signs of work that count.
        ErrorKind::RateLimited => !tells_of_work(&words),
        _ => evidence.is_all(text, &words) && first_meant(&words, is_ambiguous).is_none(),
    };
    let execution = if proved {
        Execution::NotStarted
    } else {
        Execution::Unknown
    };
    Some((kind, execution))
}

/// Whether the text tells that something was done, or of a second step.
fn tells_of_work(words: &str) -> bool {
    #[rustfmt::skip]
    const WORK: &[&str] = &[
        "placed", "captured", "charged", "paid", "sent", "saved", "created", "completed", "booked", "wrote", "written",
        "uploaded", "deleted", "updated", "succeeded", "succeed", "done", "finished", "processed", "submitted", "inserted", "moved",
        "but", "then", "partially", "partial", "already",
    ];
    words.split_whitespace().any(|w| WORK.contains(&w))
}

/// Where in the text a verdict comes from.
enum Evidence {
    /// The three digits at this place of the text.
    Status(usize),
    /// These words.
    Words(Range<usize>),
}

impl Evidence {
    /// Whether the text says nothing else.
    fn is_all(&self, text: &str, words: &str) -> bool {
        match self {
            Self::Status(at) => [&text[..*at], &text[at + 3..]]
                .iter()
                .all(|part| says_nothing_else(&normalise(part))),
            Self::Words(at) => [&words[..at.start], &words[at.end..]]
                .iter()
                .all(|part| says_nothing_else(part)),
        }
    }
}

/// The first phrase that is meant, and where.
fn by_phrase(words: &str) -> Option<(ErrorKind, Execution, Evidence)> {
    if let Some((&(phrase, kind, execution), at)) = first_meant(words, |_| true) {
        let execution = execution.unwrap_or(kind.execution());
        let evidence = Evidence::Words(at..at + phrase.len());
        return Some((kind, execution, evidence));
    }
    let kind = ErrorKind::NotFound;
    names_missing_tool(words).then(|| (kind, kind.execution(), Evidence::Words(0..words.len())))
}

/// A lost connection: whatever else the text says, something had begun.
fn is_ambiguous(&(_, kind, execution): &Phrase) -> bool {
    kind == ErrorKind::ConnectionFailed && execution.is_none()
}

/// Whether the words before or after the evidence only belong to it.
fn says_nothing_else(words: &str) -> bool {
    #[rustfmt::skip]
    const LEADS: &[&str] = &[
        "a", "an", "the", "error", "errors", "exception", "code", "status", "http", "https", "api", "mcp", "rpc",
        "desc", "request", "requests", "response", "failed", "failure", "fetch", "with", "returned", "responded",
        "replied", "got", "received", "from", "to", "for", "client", "server", "upstream", "service", "call",
        "connect", "connecting", "connection", "tcp", "tls", "dns", "dial", "socket", "reached", "exceeded", "you",
        "are", "being", "was", "is", "been", "has", "have", "reason", "cause", "caused", "by", "trying", "sending",
        "io", "os", "network", "type", "message", "grpc", "not", "does", "indicate", "success", "occurred", "unexpected",
        "unauthorized", "forbidden", "found", "bad", "page", "url", "refused", "econnrefused", "enotfound", "getaddrinfo",
        "localhost", "please", "try", "again", "later",
    ];
    words
        .split_whitespace()
        .all(|w| LEADS.contains(&w) || !w.starts_with(char::is_alphabetic))
}

const NOT_STARTED: Option<Execution> = Some(Execution::NotStarted);

type Phrase = (&'static str, ErrorKind, Option<Execution>);

/// The first that is mentioned decides: limits before timeouts, timeouts before lost connections.
#[rustfmt::skip]
const PHRASES: &[Phrase] = &[
    ("rate limit", ErrorKind::RateLimited, None),
    ("rate limits", ErrorKind::RateLimited, None),
    ("rate limited", ErrorKind::RateLimited, None),
    ("rate limiting", ErrorKind::RateLimited, None),
    ("ratelimit", ErrorKind::RateLimited, None),
    ("ratelimited", ErrorKind::RateLimited, None),
    ("too many requests", ErrorKind::RateLimited, None),
    ("quota exceeded", ErrorKind::RateLimited, None),
    ("insufficient quota", ErrorKind::RateLimited, None),
    ("exceeded your current quota", ErrorKind::RateLimited, None),
    ("resource exhausted", ErrorKind::RateLimited, None),
    ("throttled", ErrorKind::RateLimited, None),
    ("throttling", ErrorKind::RateLimited, None),

    ("timeout", ErrorKind::Timeout, None),
    ("timed out", ErrorKind::Timeout, None),
    ("request time out", ErrorKind::Timeout, None),
    ("gateway time out", ErrorKind::Timeout, None),
    ("deadline exceeded", ErrorKind::Timeout, None),
    ("deadline has elapsed", ErrorKind::Timeout, None),
    ("etimedout", ErrorKind::Timeout, None),
    ("esockettimedout", ErrorKind::Timeout, None),

    ("econnrefused", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("connection refused", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("connect error", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("enotfound", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("eai again", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("ehostunreach", ErrorKind::ConnectionFailed, None),
    ("enetunreach", ErrorKind::ConnectionFailed, None),
    ("getaddrinfo", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("dns error", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("no such host", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("name or service not known", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("name resolution", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("no route to host", ErrorKind::ConnectionFailed, None),
    ("host unreachable", ErrorKind::ConnectionFailed, None),
    ("host is unreachable", ErrorKind::ConnectionFailed, None),
    ("network unreachable", ErrorKind::ConnectionFailed, None),
    ("network is unreachable", ErrorKind::ConnectionFailed, None),
    ("network is down", ErrorKind::ConnectionFailed, None),

    ("connect call failed", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("cannot connect", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("could not connect", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("failed to connect", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("unable to connect", ErrorKind::ConnectionFailed, NOT_STARTED),
    ("no connection could be made", ErrorKind::ConnectionFailed, NOT_STARTED),

    ("econnreset", ErrorKind::ConnectionFailed, None),
    ("econnaborted", ErrorKind::ConnectionFailed, None),
    ("epipe", ErrorKind::ConnectionFailed, None),
    ("broken pipe", ErrorKind::ConnectionFailed, None),
    ("connection reset", ErrorKind::ConnectionFailed, None),
    ("connection aborted", ErrorKind::ConnectionFailed, None),
    ("connection abort", ErrorKind::ConnectionFailed, None),
    ("connection closed", ErrorKind::ConnectionFailed, None),
    ("connection was closed", ErrorKind::ConnectionFailed, None),
    ("connection lost", ErrorKind::ConnectionFailed, None),
    ("connection error", ErrorKind::ConnectionFailed, None),
    ("connection failed", ErrorKind::ConnectionFailed, None),
    ("transport closed", ErrorKind::ConnectionFailed, None),
    ("server disconnected", ErrorKind::ConnectionFailed, None),
    ("socket hang up", ErrorKind::ConnectionFailed, None),
    ("fetch failed", ErrorKind::ConnectionFailed, None),
    ("failed to fetch", ErrorKind::ConnectionFailed, None),
    ("network error", ErrorKind::ConnectionFailed, None),
    ("network failure", ErrorKind::ConnectionFailed, None),
    ("network connection", ErrorKind::ConnectionFailed, None),
    ("network request failed", ErrorKind::ConnectionFailed, None),
    ("network issue", ErrorKind::ConnectionFailed, None),
    ("network problem", ErrorKind::ConnectionFailed, None),

    ("abort error", ErrorKind::Cancelled, None),
    ("aborted", ErrorKind::Cancelled, None),
    ("context canceled", ErrorKind::Cancelled, None),
    ("request cancelled", ErrorKind::Cancelled, None),
    ("request canceled", ErrorKind::Cancelled, None),
    ("request was cancelled", ErrorKind::Cancelled, None),
    ("request was canceled", ErrorKind::Cancelled, None),
    ("operation cancelled", ErrorKind::Cancelled, None),
    ("operation canceled", ErrorKind::Cancelled, None),
    ("operation was cancelled", ErrorKind::Cancelled, None),
    ("operation was canceled", ErrorKind::Cancelled, None),
    ("task was cancelled", ErrorKind::Cancelled, None),
    ("task was canceled", ErrorKind::Cancelled, None),
    ("job was cancelled", ErrorKind::Cancelled, None),
    ("promise was canceled", ErrorKind::Cancelled, None),
    ("cancelled on client", ErrorKind::Cancelled, None),
    ("cancel error", ErrorKind::Cancelled, None),
    ("canceled error", ErrorKind::Cancelled, None),
    ("cancelled error", ErrorKind::Cancelled, None),
    ("canceled exception", ErrorKind::Cancelled, None),
    ("cancelled exception", ErrorKind::Cancelled, None),
    ("cancellation exception", ErrorKind::Cancelled, None),
    ("canceling statement due to user request", ErrorKind::Cancelled, None),

    ("internal server error", ErrorKind::Upstream, None),
    ("bad gateway", ErrorKind::Upstream, None),
    ("service unavailable", ErrorKind::Upstream, None),
    ("temporarily unavailable", ErrorKind::Upstream, None),
    ("overloaded error", ErrorKind::Upstream, None),

    ("unauthorized", ErrorKind::Denied, None),
    ("unauthorised", ErrorKind::Denied, None),
    ("unauthenticated", ErrorKind::Denied, None),
    ("forbidden", ErrorKind::Denied, None),
    ("access denied", ErrorKind::Denied, None),
    ("permission denied", ErrorKind::Denied, None),
    ("authentication failed", ErrorKind::Denied, None),
    ("authentication required", ErrorKind::Denied, None),
    ("authentication error", ErrorKind::Denied, None),
    ("invalid api key", ErrorKind::Denied, None),
    ("incorrect api key", ErrorKind::Denied, None),
    ("insufficient scope", ErrorKind::Denied, None),
    ("insufficient permissions", ErrorKind::Denied, None),

    ("unknown tool", ErrorKind::NotFound, None),
    ("tool not found", ErrorKind::NotFound, None),
    ("no such tool", ErrorKind::NotFound, None),
    ("method not found", ErrorKind::NotFound, None),

    ("bad request", ErrorKind::InvalidInput, None),
    ("unprocessable entity", ErrorKind::InvalidInput, None),
    ("unprocessable content", ErrorKind::InvalidInput, None),
    ("validation error", ErrorKind::InvalidInput, None),
    ("validation errors", ErrorKind::InvalidInput, None),
    ("validation failed", ErrorKind::InvalidInput, None),
    ("invalid params", ErrorKind::InvalidInput, None),
    ("invalid parameters", ErrorKind::InvalidInput, None),
    ("invalid argument", ErrorKind::InvalidInput, None),
    ("invalid arguments", ErrorKind::InvalidInput, None),
    ("invalid input", ErrorKind::InvalidInput, None),
    ("invalid request", ErrorKind::InvalidInput, None),
];

/// Lower case, words split where CamelCase, `_`, `-` and other marks split them, one blank between
/// and at both ends: `RateLimitError` and `rate_limit-error` are ` rate limit error `. Marks that end
/// a clause and quotes are kept as words, so that a phrase never spans two clauses; a point inside a
/// word, as in a file's name, is kept as `·`.
fn normalise(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    out.push(' ');
    let mark = |out: &mut String, mark: &str| {
        if !out.ends_with(' ') {
            out.push(' ');
        }
        if !mark.is_empty() {
            out.push_str(mark);
            out.push(' ');
        }
    };
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        if c.is_alphanumeric() {
            let starts_word = c.is_uppercase()
                && (before.is_lowercase() || before.is_uppercase() && next.is_lowercase());
            if starts_word {
                mark(&mut out, "");
            }
            match c.is_ascii() {
                true => out.push(c.to_ascii_lowercase()),
                false => out.extend(c.to_lowercase()),
            }
        } else {
            let inside = before.is_alphanumeric() && next.is_alphanumeric();
            match c {
                '.' if inside => mark(&mut out, "·"),
                '\'' | '`' if inside => {} // an apostrophe
                '"' | '\'' | '`' => mark(&mut out, "\""),
                ':' | ';' | ',' | '.' | '(' | ')' | '=' | '?' | '!' | '/' => {
                    mark(&mut out, c.encode_utf8(&mut [0; 4]));
                }
                _ => mark(&mut out, ""),
            }
        }
        before = c;
    }
    mark(&mut out, "");
    out
}

/// Of the phrases that stand in the text as whole words and are meant, the first of the list, and its first
/// place. One pass over the words, each of which is compared with the few phrases that begin with its letter.
fn first_meant(words: &str, counts: impl Fn(&Phrase) -> bool) -> Option<(&'static Phrase, usize)> {
    let mut best = None;
    for at in starts(words) {
        for &place in of_letter(words.as_bytes()[at]) {
            let place = usize::from(place);
            if best.is_some_and(|(found, _)| found <= place) {
                break;
            }
            let phrase = &PHRASES[place];
            if stands_at(words, at, phrase.0) && counts(phrase) {
                let (head, tail) = (&words[..at], &words[at + phrase.0.len()..]);
                if is_meant(phrase.0, head, tail) {
                    best = Some((place, at));
                }
            }
        }
    }
    best.map(|(place, at)| (&PHRASES[place], at))
}

/// Where words begin.
fn starts(words: &str) -> impl Iterator<Item = usize> {
    let blanks = words.bytes().enumerate().filter(|(_, byte)| *byte == b' ');
    blanks
        .map(|(at, _)| at + 1)
        .take_while(|at| *at < words.len())
}

/// Whether the words at a place are these, as a whole.
fn stands_at(words: &str, at: usize, phrase: &str) -> bool {
    let rest = &words.as_bytes()[at..];
    rest.get(phrase.len()) == Some(&b' ') && rest.starts_with(phrase.as_bytes())
}

/// Where a word begins that these characters follow from.
fn find(words: &str, text: &str) -> Option<usize> {
    starts(words).find(|at| words.as_bytes()[*at..].starts_with(text.as_bytes()))
}

/// The places of the phrases by their first letters, in the order of the list; those of a letter end where those of the
/// next begin.
static BY_LETTER: ([u8; PHRASES.len()], [u8; 27]) = {
    let (mut places, mut ends) = ([0; PHRASES.len()], [0; 27]);
    let mut len = 0;
    let mut letter = 0;
    while letter < 26 {
        let mut place = 0;
        while place < PHRASES.len() {
            if PHRASES[place].0.as_bytes()[0] == b'a' + letter {
                places[len] = place as u8;
                len += 1;
            }
            place += 1;
        }
        letter += 1;
        ends[letter as usize] = len as u8;
    }
    assert!(
        len == PHRASES.len() && len <= 255,
        "each begins with a letter"
    );
    (places, ends)
};

fn of_letter(letter: u8) -> &'static [u8] {
    let (places, ends) = &BY_LETTER;
    match letter {
        b'a'..=b'z' => {
            let n = usize::from(letter - b'a');
            &places[usize::from(ends[n])..usize::from(ends[n + 1])]
        }
        _ => &[],
    }
}

/// Whether the words around a phrase show that it is the error and not its subject.
fn is_meant(phrase: &str, head: &str, tail: &str) -> bool {
    // `option: timeout` talks about an option as `option timeout` does, and so does `option 'timeout'`.
    let mut preceding = head
        .split_whitespace()
        .rev()
        .filter(|w| !matches!(*w, ":" | "\""));
    let before = preceding.next().unwrap_or_default();
    let earlier = preceding.next().unwrap_or_default();
    let next = tail.split_whitespace().next().unwrap_or_default();
    let mut following = tail.split_whitespace().filter(|w| *w != "\"");
    let after = following.next().unwrap_or_default();
    let then = following.next().unwrap_or_default();
    let negated = |w: &str| matches!(w, "no" | "not" | "never" | "without" | "zero");
    if negated(before)
        || matches!(before, "a" | "an" | "any" | "the") && negated(earlier)
        || head.ends_with(" / ")
        || matches!(next, "·" | "/")
        || tail.starts_with(" \" : ")
        || is_title(head)
    {
        return false;
    }
    match phrase {
        "timeout" | "throttling" => !is_setting(before, after, then),
        _ if phrase.starts_with("rate") => {
            !is_setting(before, after, then) && !matches!(before, "first" | "second" | "flat")
        }
        "quota exceeded" => !matches!(before, "disk" | "storage" | "mailbox"),
        "aborted" => {
            let transaction = head.contains(" transaction ") && !head.contains(" request ");
            let crash = (after, then) == ("(", "core");
            !(transaction || crash || matches!(after, "false" | "="))
        }
        "forbidden" => {
            const SUBJECTS: &[&str] = &[
                "character",
                "characters",
                "word",
                "words",
                "pattern",
                "value",
                "values",
            ];
            !SUBJECTS.contains(&after) && !head.contains(" character ") && before != "substring"
        }
        _ => true,
    }
}

/// Whether a quotation is open that is the name of something: `column "`, `the song "`. That of an error
/// comes after a mark, or after a word that announces it.
fn is_title(head: &str) -> bool {
    const ANNOUNCE: &[&str] = &[
        "error",
        "errors",
        "reason",
        "message",
        "cause",
        "with",
        "code",
        "said",
        "returned",
        "failed",
        "status",
        "exception",
        "got",
        "response",
        "was",
    ];
    let Some(opened) = head.rfind('"') else {
        return false;
    };
    let before = head[..opened].split_whitespace().next_back();
    head.matches('"').count() % 2 == 1
        && before.is_some_and(|w| w.chars().all(char::is_alphabetic) && !ANNOUNCE.contains(&w))
}

/// Whether the words around a noun show that a setting of that name is meant.
#[rustfmt::skip]
fn is_setting(before: &str, after: &str, then: &str) -> bool {
    const BEFORE: &[&str] = &[
        "invalid", "unknown", "missing", "unexpected", "unsupported", "negative", "set", "setting",
        "configure", "default", "argument", "parameter", "option", "keyword", "field", "flag", "key",
        "variable", "property", "increase", "your", "checking", "within", "for",
    ];
    const AFTER: &[&str] = &[
        "must", "should", "cannot", "value", "parameter", "argument", "option", "setting", "settings",
        "config", "configuration", "configured", "field", "flag", "header", "headers", "is", "was",
        "not", "set", "remaining", "policy", "disabled", "enabled", "updated", "changed", "accepts",
        "expects", "=",
    ];
    let hit = matches!(then, "exceeded" | "reached" | "hit");
    BEFORE.contains(&before)
        || AFTER.contains(&after) && !hit
}

/// `tool 'x' not found`, `tool x does not exist`: the name, and nothing but it, stands in between.
fn names_missing_tool(words: &str) -> bool {
    let Some(at) = find(words, "tool ") else {
        return false;
    };
    const NO_NAMES: &[&str] = &[
        "failed",
        "execution",
        "error",
        "call",
        "result",
        "output",
        "returned",
    ];
    let rest = &words[at + 5..];
    ["not found ", "does not exist "].iter().any(|end| {
        find(rest, end).is_some_and(|end| {
            let name: Vec<&str> = rest[..end].split_whitespace().collect();
            let name = match &name[..] {
                ["\"", quoted @ .., "\""] => quoted,
                bare => bare,
            };
            let clause =
                |w: &&str| NO_NAMES.contains(w) || w.chars().all(|c| c.is_ascii_punctuation());
            name.len() <= 6 && !name.iter().any(clause)
        })
    })
}
