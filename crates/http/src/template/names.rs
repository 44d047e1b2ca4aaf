//! Finds filters, tests and functions that do not exist, which the engine finds only when it meets
//! them.

use std::collections::BTreeSet;

use minijinja::{Environment, ErrorKind};

use super::marks::MARK;

/// The tags of a template that print.
#[derive(Default)]
pub(super) struct Prints<'s> {
    /// The template's own words, with the marks of the tags between them.
    pub(super) sketch: String,
    /// The sketch has the rendered words, whatever the values are.
    pub(super) is_one: bool,
    pub(super) tags: Vec<Print<'s>>,
}

/// A tag that prints.
pub(super) struct Print<'s> {
    pub(super) text: &'s str,
    pub(super) line: usize,
    /// The tag is outside all blocks, so each successful rendering reaches it.
    pub(super) is_always: bool,
}

/// Looks at the words of all tags, and collects those that may be variables.
pub(super) fn check<'s>(
    env: &Environment<'_>,
    source: &'s str,
    is_url: bool,
    words: &mut BTreeSet<&'s str>,
) -> Result<Prints<'s>, String> {
    let (mut rest, mut prints, mut depth) = (source, Prints::default(), 0_usize);
    prints.is_one = true;
    while let Some(at) = rest.find('{') {
        let Prints {
            sketch,
            is_one,
            tags,
        } = &mut prints;
        sketch.push_str(&rest[..at]);
        let found = &rest[at..];
        let (open, tag) = found.split_at_checked(2).unwrap_or((found, ""));
        let is_tag = matches!(open, "{#" | "{{" | "{%");
        // Takes the white space around it away.
        *is_one &= !(is_tag && tag.starts_with('-'));
        rest = match open {
            "{#" => tag.split_once("#}").map_or("", |(_, after)| after),
            "{{" => {
                let in_path = is_url && !(*is_one && sketch.contains('?'));
                sketch.push_str(&format!("{MARK}{}{MARK}", tags.len()));
                let after = check_tag(env, tag, "}}", in_path, words)?;
                tags.push(Print {
                    text: &found[..found.len() - after.len()],
                    line: source[..source.len() - found.len()].matches('\n').count() + 1,
                    is_always: depth == 0 && !source.contains("endset"),
                });
                after
            }
            "{%" => {
                *is_one = false;
                depth = depth_behind(depth, tag);
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
        *is_one &= !source[..source.len() - rest.len()].ends_with("-}}");
    }
    prints.sketch.push_str(rest);
    Ok(prints)
}

/// How many blocks are open behind this tag. One that `set` opens is not counted.
fn depth_behind(depth: usize, tag: &str) -> usize {
    let word = bare(tag).split(|c: char| !c.is_alphanumeric() && c != '_');
    match word.into_iter().next().unwrap_or_default() {
        "set" | "do" | "else" | "elif" | "raw" => depth,
        word if word.starts_with("end") => depth.saturating_sub(1),
        _ => depth + 1,
    }
}

/// Returns the text after the end of a block, if this tag begins a raw block.
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

/// Checks the words of one tag, and returns the text after it.
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

/// The previous word, which decides what the next one is.
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
