//! Private keys that stand as blocks of lines.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, looked_at},
};

/// `-----BEGIN RSA PRIVATE KEY-----` to its end, or to the end of the text; PuTTY's files likewise.
pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word.starts_with("PuTTY-User-Key-File") {
        let end = putty_end(scan.after(run));
        return Some(run.at..run.end + end);
    }
    if let Some(lines) = word.strip_suffix("-----END") {
        return tail(scan, run.at + lines.len());
    }
    // `-----BEGIN`, and SSH2's `---- BEGIN`.
    let start = if let Some(i) = word.strip_suffix("-----BEGIN") {
        run.at + i.len()
    } else if word.ends_with("----") && scan.after(run).starts_with(" BEGIN ") {
        run.end - 4
    } else {
        return None;
    };
    Some(start..end(scan.text, start)?)
}

/// The lines of a private key that stand before its end, from `end` back: its beginning is missing, or elsewhere.
fn tail(scan: &Scan<'_>, end: usize) -> Option<Range<usize>> {
    let text = scan.text;
    let close = end + "-----END".len();
    let mark = ahead(text, close, 80);
    let dashes = mark
        .find("----")
        .filter(|i| mark[..*i].contains("PRIVATE"))?;
    let mut start = end;
    loop {
        let head = between(&text[..start]);
        let line = head
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c))
            .next()?;
        // The letter of a line's end that is escaped.
        let escaped =
            head[..head.len() - line.len()].ends_with('\\') && line.starts_with(['n', 'r']);
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
    let after = &mark[dashes..];
    let dashes = dashes + after.len() - after.trim_start_matches('-').len();
    (start < end).then_some(start..close + dashes)
}

/// A text without what stands between the lines of a key at its end: line ends, raw or escaped, quotes, commas.
fn between(mut text: &str) -> &str {
    loop {
        let head = text.trim_end_matches(|c: char| c.is_whitespace() || "\"',+>".contains(c));
        let escaped = ["\\n", "\\r"].iter().find_map(|end| head.strip_suffix(end));
        match escaped {
            Some(rest) => text = rest.trim_end_matches('\\'),
            None => return head,
        }
    }
}

/// The end of the private-key block that begins at `start`. None for a block of another kind.
pub(super) fn end(text: &str, start: usize) -> Option<usize> {
    if !ahead(text, start, 80).contains("PRIVATE") {
        return None;
    }
    let block = &text[start..];
    let mark = if block.starts_with("-----") {
        "-----END"
    } else {
        "---- END"
    };
    let from = block.find(mark);
    looked_at(from.unwrap_or(block.len()));
    let Some(from) = from else {
        return Some(text.len());
    };
    let tail = &block[from + 8..];
    let close = ahead(tail, 0, 80).find("----").map(|i| i + 4);
    let Some(close) = close else {
        return Some(text.len());
    };
    let dashes = tail[close..].len() - tail[close..].trim_start_matches('-').len();
    Some(start + from + 8 + close + dashes)
}

fn putty_end(rest: &str) -> usize {
    let mac = rest.find("Private-MAC:");
    looked_at(mac.unwrap_or(rest.len()));
    let Some(mac) = mac else {
        return rest.len();
    };
    let line = rest[mac..].find(['\n', '\\']);
    line.map_or(rest.len(), |i| mac + i)
}
