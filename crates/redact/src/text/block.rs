//! Private keys that stand as blocks of lines.

use super::{prelude::*, token, url};

/// `-----BEGIN RSA PRIVATE KEY-----` to its end, or to the end of the text; PuTTY's files likewise.
/// A token that stands right before it comes first.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    if word.starts_with("PuTTY-User-Key-File") {
        return Some(run.at..putty_end(run.text, run.end));
    }
    let block = if let Some(lines) = word.strip_suffix("-----END") {
        tail(run.text, run.at + lines.len())?
    } else {
        // `-----BEGIN`, and SSH2's `---- BEGIN`.
        let spaced = run.after().starts_with(" BEGIN ");
        let mark = if spaced { "----" } else { "-----BEGIN" };
        let start = run.at + word.strip_suffix(mark)?.len();
        start..end(run.text, start)?
    };
    let start = block.start;
    let head = Run { end: start, ..*run };
    let token = || url::webhook(&head).or_else(|| Some(token::find(&head)?.1));
    let token = if start > run.at { token() } else { None };
    Some(token.map_or(block, |token| token.start..token.end.min(start)))
}

/// The lines of a private key that stand before its end, from `end` back: its beginning is missing,
/// or elsewhere.
fn tail(text: &str, end: usize) -> Option<Range<usize>> {
    let close = end + "-----END".len();
    let mark = ahead(text, close, 80);
    let (name, _) = mark.cut("----")?;
    name.find_str("PRIVATE")?;
    let mut start = end;
    loop {
        let head = between(&text[..start]);
        let line = after_last(head, |c| !c.is_ascii_alphanumeric() && !"+/=".contains(c));
        // The letter of a line's end that is escaped.
        let escaped = head[..head.len() - line.len()].ends_with('\\') && line.starts_of("nr");
        let line = &line[usize::from(escaped)..];
        looked_at(start - head.len() + line.len());
        // All lines but the last are of one length.
        let last = start == end;
        let word = last && line.bytes().all(|b| b.is_ascii_lowercase());
        if line.len() < if last { 4 } else { 40 } || word {
            break;
        }
        start = head.len() - line.len();
    }
    (start < end).then(|| start..dashes_end(&text[..close + mark.len()], close + name.len()))
}

/// A text without what stands between the lines of a key at its end: line ends, raw or escaped,
/// quotes, commas.
fn between(text: &str) -> &str {
    let head = text.trim_end_matches(|c: char| c.is_whitespace() || "\"',+>".contains(c));
    match head.strip_suffix("\\n").or(head.strip_suffix("\\r")) {
        Some(rest) => between(rest.trim_end_of("\\")),
        None => head,
    }
}

/// The end of the private-key block that begins at `start`. None for a block of another kind.
pub(super) fn end(text: &str, start: usize) -> Option<usize> {
    ahead(text, start, 80).find_str("PRIVATE")?;
    let block = &text[start..];
    let dashed = block.starts_with("-----");
    let mark = if dashed { "-----END" } else { "---- END" };
    let from = block.find_str(mark);
    looked_at(from.unwrap_or(block.len()));
    let close = from.and_then(|from| {
        let name = start + from + mark.len();
        Some(name + ahead(text, name, 80).find_str("----")?)
    });
    Some(close.map_or(text.len(), |close| dashes_end(text, close)))
}

/// The end of the dashes that begin at `at`.
fn dashes_end(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start_of("-").len()
}

fn putty_end(text: &str, at: usize) -> usize {
    let mac = text[at..].find_str("Private-MAC:").map(|mac| at + mac);
    looked_at(mac.unwrap_or(text.len()) - at);
    let line = mac.and_then(|mac| Some(mac + text[mac..].find_of("\n\\")?));
    line.unwrap_or(text.len())
}
