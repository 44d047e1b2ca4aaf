//! Passwords in texts with a form of their own: lines of FTP, POP3, IMAP, IRC and Redis, codes of
//! wireless networks, scripts that wait for a prompt, cookies.txt.

use super::command::{argument, words};
use super::{prelude::*, statement::*};

pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    match run.word() {
        "PASS" => login_line(run, &[1]),
        "LOGIN" => login_line(run, &[2]),
        "IDENTIFY" => login_line(run, &[1, 2]),
        word if is_one_of(word, "setuser") => passwords_of_user(run),
        word if is_one_of(word, "wifi") => wireless(run),
        word if is_one_of(word, "assword assphrase password passphrase") => prompted(run),
        _ => cookie(run),
    }
}

/// `WIFI:S:home;P:x;;`
fn wireless(run: &Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(96);
    let start = near.find_str(";P:").or_else(|| near.find_str(":P:"))? + ";P:".len();
    let shown = |shown: &str| is_set(shown) && !is_one_of(shown, "password secret");
    value::secret(run.text, run.end + start, shown)
}

/// The last word of a line of FTP, POP3, IMAP or IRC: `PASS x`, `a1 LOGIN ada x`, `LOGIN "a" "x"`.
/// A quote around the line may follow it, and one tag may stand before the command.
fn login_line(run: &Run<'_>, count: &[usize]) -> Option<Range<usize>> {
    let before = after_last(run.line_before(64), |c| "\"'`:>".contains(c));
    let line = until(run.ahead(NEAR), "\r\n");
    let nth = |count: &usize| Some(argument(line, words(line).nth(count - 1)?));
    let secret = count.iter().filter_map(nth).find(|secret| {
        let (word, rest) = (&line[secret.clone()], &line[secret.end..]);
        // `PASS token.test.ts`
        let file = word.has_of("/_") || word.cut_last(".").is_some_and(|(_, end)| end.len() <= 5);
        let last = rest.trim().is_empty() || rest.starts_of("\"'`\\");
        let unit = word.trim_start_of("(0123456789.").trim_end_of(")");
        let measured =
            word.starts_of("(0123456789") && is_one_of(unit, "ms s us ns m h d kb mb gb");
        last && !file && !measured && is_mixed(word) && has_secret(&word.replace('.', ""))
    })?;
    let first = before.split_whitespace().count() <= 1;
    first.then(|| run.end + secret.start..run.end + secret.end)
}

/// All passwords of `ACL SETUSER ada on >x >y`, which are kept in the scan.
fn passwords_of_user(run: &Run<'_>) -> Option<Range<usize>> {
    let line = until(run.ahead(NEAR), "\r\n");
    let secrets = words(line).filter(|(_, word)| word.starts_with('>') && word.len() > 1);
    let secrets = secrets.filter_map(|(at, _)| value::secret(run.text, run.end + at + 1, is_set));
    let found = || run.scan.keep("protocol", secrets.collect());
    (run.rules.allows("protocol") && found()).then_some(run.end..run.end)
}

/// The string that a script sends after a prompt: `expect "Password:"`, `send "x\r"`, or
/// `child.sendline("x")`. Only blanks, brackets and the name of an object stand between them.
fn prompted(run: &Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(64);
    let closed = near.trim_start_of(":*? ").strip_prefix(['"', '\'']);
    let (between, rest) = closed?.cut("send")?;
    let object = between.trim_start_of(" \t\r\n{;)");
    let verb = &rest[..rest.find_of("\"'")?];
    let sends = match object {
        // `send -i $id -- "x"`
        "" => verb.starts_of(" \t") && verb.split_whitespace().all(|it| it.starts_of("-$")),
        _ => object.ends_with('.') && is_made_of(object, "._") && is_one_of(verb, "( line("),
    };
    let shown = |shown: &str| sends && is_set(shown) && !shown.starts_with('$');
    let start = run.end + near.len() - rest.len() + verb.len();
    value::secret(run.text, start, shown)
}

/// `example.com TRUE / FALSE 0 name x`, with tabs between them.
fn cookie(run: &Run<'_>) -> Option<Range<usize>> {
    prefix_of(run.after(), &["\tTRUE\t", "\tFALSE\t"])?;
    let line = until(run.ahead(NEAR), "\r\n");
    let fields: Vec<_> = line.splitn(7, '\t').collect();
    let [_, _, _, "TRUE" | "FALSE", expires, _, value] = fields[..] else {
        return None;
    };
    let start = run.end + line.len() - value.len();
    is_digits(expires).then(|| start..skip(run.text, start, |c| c != '\n' && c != '\r'))
}
