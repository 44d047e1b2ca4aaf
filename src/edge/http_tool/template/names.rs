//! Finds filters, tests and functions that do not exist, which the engine finds only when it meets
//! them.

use std::collections::BTreeSet;

use minijinja::{Environment, ErrorKind};

use super::marks::MARK;

/// Looks at the words of all tags, and collects those that may be variables. Gives the template's
/// own words, with the mark of value 0 for each value; `None` if it has statements, so that it may
/// be rendered in more than one way.
pub(super) fn check<'s>(
    env: &Environment<'_>,
    source: &'s str,
    is_url: bool,
    words: &mut BTreeSet<&'s str>,
) -> Result<Option<String>, String> {
    let (mut rest, mut sketch, mut is_one) = (source, String::new(), true);
    while let Some(at) = rest.find('{') {
        sketch.push_str(&rest[..at]);
        let found = &rest[at..];
        let (open, tag) = found.split_at_checked(2).unwrap_or((found, ""));
        let is_tag = matches!(open, "{#" | "{{" | "{%");
        // Takes the white space around it away.
        is_one &= !(is_tag && tag.starts_with('-'));
        rest = match open {
            "{#" => tag.split_once("#}").map_or("", |(_, after)| after),
            "{{" => {
                let in_path = is_url && !(is_one && sketch.contains('?'));
                sketch.extend([MARK, '0', MARK]);
                check_tag(env, tag, "}}", in_path, words)?
            }
            "{%" => {
                is_one = false;
                match behind_raw(tag) {
                    Some(after) => after,
                    None => check_tag(env, tag, "%}", is_url, words)?,
                }
            }
            _ => {
                sketch.push('{');
                &rest[at + 1..]
            }
        };
        is_one &= !source[..source.len() - rest.len()].ends_with("-}}");
    }
    sketch.push_str(rest);
    Ok(is_one.then_some(sketch))
}

/// What is behind the end of a block, if this tag begins one that is not looked into.
fn behind_raw(tag: &str) -> Option<&str> {
    let inside = bare(tag).strip_prefix("raw")?;
    let end = inside.trim_start().trim_start_matches(['-', '+']);
    let block = end.strip_prefix("%}")?;
    let mut tags = block.match_indices("{%");
    let after = tags.find_map(|(at, open)| {
        let end = bare(&block[at + open.len()..]).strip_prefix("endraw")?;
        end.split_once("%}").map(|(_, after)| after)
    });
    Some(after.unwrap_or_default())
}

/// A tag without its sign for white space.
fn bare(tag: &str) -> &str {
    tag.strip_prefix(['-', '+']).unwrap_or(tag).trim_start()
}

/// Looks at the words of one tag, and gives what is behind it.
fn check_tag<'s>(
    env: &Environment<'_>,
    tag: &'s str,
    close: &str,
    in_path: bool,
    words: &mut BTreeSet<&'s str>,
) -> Result<&'s str, String> {
    let (mut rest, mut before) = (bare(tag), Word::Other(""));
    // A block of this name begins with a filter. Elsewhere the word may be a variable.
    if close == "%}"
        && let Some(after) = rest.strip_prefix("filter ")
    {
        (rest, before) = (after, Word::Pipe);
    }
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(close) {
            return Ok(after);
        }
        let length = match c {
            '"' | '\'' => string(rest, c),
            c if c.is_alphanumeric() || c == '_' => {
                let is_end = |c: char| !c.is_alphanumeric() && c != '_';
                rest.find(is_end).unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        rest = after;
        if !word.trim().is_empty() {
            if !matches!(before, Word::Other(".")) {
                words.insert(word);
            }
            if matches!(before, Word::Pipe) && matches!(word, "path" | "segment") && !in_path {
                return Err(format!("uses the filter `{word}` outside of a URL's path"));
            }
            before = Word::check(env, before, word, after.trim_start().starts_with('('))?;
        }
    }
    Ok("")
}

/// How long a string is, with its quotes.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, c)| at + c.len_utf8())
}

/// What the word before says of the next one.
#[derive(Clone, Copy)]
enum Word<'s> {
    Pipe,
    Is,
    Other(&'s str),
}

impl<'s> Word<'s> {
    fn check(
        env: &Environment<'_>,
        before: Self,
        word: &'s str,
        called: bool,
    ) -> Result<Self, String> {
        let is_name = word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        match before {
            _ if word == "|" => return Ok(Self::Pipe),
            // A member of a value, whatever it is called.
            Self::Other(".") if is_name => {
                // Of a loop's methods the object is known by the template's author alone.
                let is_of_loop = matches!(word, "cycle" | "changed");
                refuse(called && !is_of_loop, "method", word)?;
                return Ok(Self::Other(word));
            }
            Self::Is if word == "not" => return Ok(Self::Is),
            Self::Pipe if is_name => {
                let tried = env.empty_state().apply_filter(word, &[]);
                let unknown = tried.is_err_and(|e| e.kind() == ErrorKind::UnknownFilter);
                refuse(unknown, "filter", word)?;
            }
            Self::Is if is_name => {
                let tried = env.empty_state().perform_test(word, &[]);
                let unknown = tried.is_err_and(|e| e.kind() == ErrorKind::UnknownTest);
                refuse(unknown, "test", word)?;
            }
            Self::Other(_) if is_name && called && !KEYWORDS.contains(&word) => {
                let known = env.globals().any(|(name, _)| name == word);
                refuse(!known, "function", word)?;
            }
            _ => {}
        }
        Ok(match word {
            "is" => Self::Is,
            _ => Self::Other(word),
        })
    }
}

/// Words that may stand before a parenthesis.
const KEYWORDS: &[&str] = &[
    "if", "elif", "else", "and", "or", "not", "in", "set", "for", "with",
];

/// Returns whether a template calls a function of this name, perhaps.
pub(super) fn may_call(source: &str, name: &str) -> bool {
    let mut found = source.match_indices(name);
    found.any(|(at, _)| source[at + name.len()..].trim_start().starts_with('('))
}

fn refuse(bad: bool, what: &str, word: &str) -> Result<(), String> {
    match bad {
        true => Err(format!("uses the {what} `{word}`, which does not exist")),
        false => Ok(()),
    }
}
