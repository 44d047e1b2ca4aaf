//! HTTP statuses in text: a number is one only where the text says so.

/// The HTTP status that the text names, if it names one as such, and where.
pub(super) fn status(text: &str) -> Option<(u16, usize)> {
    let bytes = text.as_bytes();
    // Made for the first number that may be one.
    let mut lower = None;
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = at
            + bytes[at..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
        if end - at == 3
            && let Ok(number @ 400..=599) = text[at..end].parse()
        {
            let text: &str = lower.get_or_insert_with(|| text.to_ascii_lowercase());
            if is_status(&text[..at], &text[end..], number) {
                return Some((number, at));
            }
        }
        at = end;
    }
    None
}

fn is_status(head: &str, tail: &str, number: u16) -> bool {
    // Glued to something: `401k`, `1.429`, `-503`, `v429`, `#404`, `500%`, `10.0.0.503`.
    let glued_before = head
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || "-#$.,_+/@~".contains(c));
    let mut next = tail.chars();
    let glued_after = match next.next() {
        Some(c) if c.is_ascii_alphanumeric() || "%_/$°".contains(c) => true,
        // A decimal, a range, a thousands separator, a time of day.
        Some('.' | ',' | '-' | ':') => next.next().is_some_and(|c| c.is_ascii_digit()),
        _ => false,
    };
    if glued_before || glued_after {
        return false;
    }
    let follows = Follows::of(tail, number);
    if follows == Follows::Reason {
        return !matches!(last_word(head).0, "port" | "line" | "row");
    }
    let (word, between, rest) = last_word_and_rest(head);
    if word.is_empty() {
        // The text begins with it: `404`, `429: slow down`.
        return rest.is_empty() && follows == Follows::Clause;
    }
    let before_word = last_word(rest).0;
    let http_version =
        rest.ends_with("http/") || rest.ends_with("http/1.") || rest.ends_with("http/2.");
    // Behind another script the word may stand without a blank.
    let latin = word.trim_start_matches(|c: char| !c.is_ascii());
    let exited = before_word == "exit" || rest.ends_with("exited with ");
    let strong = http_version && word.len() <= 1
        || matches!(
            latin,
            "http" | "https" | "status" | "http_status" | "httpstatus"
        ) && !exited
        || ["statuscode", "status_code", "状态码"]
            .iter()
            .any(|w| word.ends_with(w));
    if strong {
        return follows != Follows::Counted;
    }
    let named = word == "code"
        && !matches!(
            before_word,
            "exit" | "zip" | "area" | "postal" | "country" | "return" | "line" | "dial"
        )
        && !exited
        || word.ends_with("error")
        || word.ends_with("exception")
        || matches!(
            word,
            "failed"
                | "failure"
                | "rejected"
                | "returned"
                | "returns"
                | "responded"
                | "response"
                | "answered"
                | "replied"
                | "got"
                | "received"
                | "fetch"
                | "upstream"
                | "server"
                | "api"
                | "request"
                | "unacceptable"
                | "occurred"
                | "success"
        )
        || word == "with"
            && matches!(
                before_word,
                "failed" | "responded" | "rejected" | "replied" | "answered" | "error" | "returned"
            )
        || word == "a" && matches!(before_word, "returned" | "got" | "received" | "with");
    // `Too Many Requests (429)`.
    let bracketed = between.contains(['(', '['])
        && matches!(
            word,
            "requests" | "unavailable" | "unauthorized" | "forbidden" | "found" | "gateway"
        );
    (named || bracketed) && matches!(follows, Follows::Reason | Follows::Clause | Follows::Word)
}

#[derive(PartialEq, Eq)]
enum Follows {
    /// The number's own reason phrase.
    Reason,
    /// The end, or a mark that ends a clause.
    Clause,
    /// A word that goes with a status.
    Word,
    /// A unit, or a noun that is counted.
    Counted,
    /// Anything else.
    Other,
}

impl Follows {
    fn of(tail: &str, number: u16) -> Self {
        let trimmed = tail.trim_start();
        let Some(first) = trimmed.chars().next() else {
            return Self::Clause;
        };
        if !first.is_alphanumeric() {
            // An opening bracket or a bare quote after a blank may hold anything.
            return Self::Clause;
        }
        let mut words = trimmed
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty());
        let two = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let reason = match number {
            400 => two == ("bad", "request"),
            401 => matches!(two.0, "unauthorized" | "unauthorised"),
            403 => two.0 == "forbidden",
            404 => two == ("not", "found") || two == ("page", "not"),
            408 => two == ("request", "timeout") || two == ("request", "time"),
            422 => two.0 == "unprocessable",
            429 => two == ("too", "many"),
            500 => two == ("internal", "server") || two == ("internal", "error"),
            502 => two == ("bad", "gateway"),
            503 => two == ("service", "unavailable") || two == ("service", "temporarily"),
            504 => two == ("gateway", "timeout") || two == ("gateway", "time"),
            _ => false,
        };
        if reason || matches!(two, ("client" | "server", "error")) {
            return Self::Reason;
        }
        match two.0 {
            "error" | "response" | "status" | "from" | "for" | "on" | "when" | "while"
            | "after" | "because" | "back" | "backend" | "due" | "by" | "returned"
            | "overloaded" | "retry" | "retrying" | "but" | "https" | "http" => Self::Word,
            "ms" | "s" | "sec" | "seconds" | "minutes" | "hours" | "days" | "times" | "bytes"
            | "kb" | "mb" | "gb" | "rows" | "items" | "records" | "lines" | "files" | "users"
            | "requests" | "entries" | "events" | "messages" | "tokens" | "characters"
            | "percent" | "of" | "k" => Self::Counted,
            _ => Self::Other,
        }
    }
}

/// The last word before a number, and what stands before that word. Marks and quotes in between
/// are passed over, blanks too.
fn last_word(text: &str) -> (&str, &str) {
    let (word, _, rest) = last_word_and_rest(text);
    (word, rest)
}

fn last_word_and_rest(text: &str) -> (&str, &str, &str) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let trimmed =
        text.trim_end_matches(|c: char| c.is_whitespace() || "\"':=([{<>*`|\\".contains(c));
    let start = trimmed
        .char_indices()
        .rev()
        .take_while(|(_, c)| is_word(*c))
        .last()
        .map_or(trimmed.len(), |(i, _)| i);
    (&trimmed[start..], &text[trimmed.len()..], &trimmed[..start])
}
