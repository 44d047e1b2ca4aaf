//! Finds secrets in free text by their form.
//!
//! [`pass`] iterates over the runs of a text: letters, digits and the marks of [`bytes::is_run`].
//! It passes each run to the rules of the [`catalog`], one after the other. A rule returns the
//! place of a secret that begins in the run or is announced by it; the first answer counts. The
//! [`Scan`] keeps a secret far from the run until its place is reached. Most runs of prose reach no
//! detector, because [`filter`] sorts them out.
//!
//! - **several secrets together, also kept in the [`Scan`]**: `table`, `html`, `lines::manifest`
//! - **a form of its own, without a name**: `block`, `url`, `scheme`, `token` and `vendors`,
//!   `encoded`
//! - **a name and its value**: `markup`, `code::newtype`, `field`, `pair` (with `name`, `scheme`,
//!   `lines`, `code`)
//! - **statements, protocols and command lines**: `statement`, `protocol`, `command`
//! - **sentences**: `prose`
//!
//! They share `bytes` (moving along a text), `quote` (where a string ends), `value` (where a value
//! ends), `look` (what a word looks like) and `shape` (what a value is made of). A detector reads a
//! bounded number of bytes around its run, or a secret that the scan then skips, immediately or
//! later. So the time is linear: hence [`Run::ahead`], [`Run::behind`] and [`value::glance`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::REDACTED;
use crate::pairs::{DATA_FIELDS, KIND_FIELDS, KINDS};
use crate::rules::Rules;

mod block;
pub(super) mod bytes;
mod call;
pub(super) mod catalog;
mod code;
pub(super) mod command;
mod encoded;
mod field;
pub(crate) mod filter;
mod html;
mod lines;
mod look;
mod markup;
mod name;
mod pair;
mod phrase;
mod prose;
mod protocol;
pub(super) mod quote;
mod scheme;
mod shape;
mod statement;
mod table;
mod token;
mod url;
pub(super) mod value;
pub(crate) mod vendors;

/// Names that all detectors use.
mod prelude {
    pub(super) use std::ops::Range;

    pub(super) use super::{Run, bytes::*, look::*, quote::*, shape::*, value::*};
    pub(super) use super::{shape, value};
    pub(super) use crate::keys::{self, Strength};
    pub(super) use crate::rules::BUILT_IN;
}

use self::catalog::{MANIFEST, RUNS, TABLE};
use self::filter::{NAMED, Signs};
pub(super) use self::look::{is_mixed, is_moment, is_opaque};
use self::{command::Command, prelude::*};

/// Redacted text has to stay as it is when it is redacted again. But beside a mark, a name may take
/// more for its value than before. Two further passes were enough for every text of the property
/// tests and corpora; that they are enough for all is not proved.
const MAX_PASSES: usize = 3;

/// The first `limit` bytes of `text` without secrets; the bytes behind them are only read. The text
/// is `nested` times inside others.
pub(super) fn redact<'t>(
    rules: &Rules,
    text: &'t str,
    limit: usize,
    nested: usize,
) -> Cow<'t, str> {
    let Some(mut out) = pass(rules, text, limit, nested) else {
        return Cow::Borrowed(&text[..limit]);
    };
    for _ in 1..MAX_PASSES {
        let Some(next) = pass(rules, &out, out.len(), nested) else {
            break;
        };
        out = next;
    }
    Cow::Owned(out)
}

/// The shortest picture, in digits of Base64.
const MEDIA: usize = 64;

/// Between a name and a secret that begins further behind it, in bytes, there may be others:
/// `pw=abcd`.
const NEAR: usize = 8;

/// One pass. None if there is nothing to redact.
fn pass(rules: &Rules, text: &str, limit: usize, nested: usize) -> Option<String> {
    let mut scan = Scan::default();
    let mut out = String::new();
    scan.nested = nested;
    let (mut copied, mut at) = (0, 0);
    let mut hide = |(rule, secret): &Secret<'_>| {
        let shown = &text[secret.start.max(copied).min(secret.end)..secret.end];
        let hidden = shown != REDACTED && !shown.is_empty() && secret.start < limit;
        if hidden {
            // Its beginning may be hidden.
            if secret.start >= copied {
                out += &text[copied..secret.start];
                out += REDACTED;
            }
            copied = secret.end;
            rules.note(rule, shown);
        }
        hidden
    };
    let own = if rules.has_own() { Signs::MAX } else { 0 };
    while let Some((place, signs)) = filter::next_run(text, at)
        && place.start < limit
    {
        if let Some(cell) = scan.cell_before(place.start) {
            hide(&cell);
            at = at.max(scan_from(rules, text, &cell.1));
            continue;
        }
        at = place.end;
        let run = Run {
            rules,
            scan: &scan,
            text,
            at: place.start,
            end: place.end,
            signs: signs | own,
        };
        if run.signs != 0
            && let Some(secret) = run.secret()
        {
            while let Some(cell) = scan.cell_before(secret.1.start) {
                hide(&cell);
            }
            let next = scan_from(rules, text, &secret.1);
            at = if hide(&secret) { next } else { at.max(next) };
        }
    }
    for cell in scan.cells.take() {
        hide(&cell);
    }
    (copied > 0).then(|| out + text.get(copied..limit).unwrap_or_default())
}

/// Where the scan goes on behind a hidden text: at its end, or at a name there that has a value of
/// its own (`token=abcpassword: x`).
fn scan_from(rules: &Rules, text: &str, hidden: &Range<usize>) -> usize {
    let name = text[hidden.clone()].trim_end_of(":=");
    let end = hidden.start + name.len();
    let word = bytes::after_last(name, |c| !bytes::is_run(c));
    let named = word.len() <= 64
        && name::Mark::after(text, end).is_some()
        && rules.strength(word) == Strength::Strong;
    if named { end - word.len() } else { hidden.end }
}

/// The id of a rule, and the place of what it found.
type Secret<'r> = (&'r str, Range<usize>);

/// The state of a pass over a text.
#[derive(Default)]
struct Scan {
    /// The number of texts that this text is nested in.
    nested: usize,
    /// The command with arguments on this line, and its place.
    command: Cell<Option<(&'static Command, usize)>>,
    /// Secrets that the scan has not reached yet, in order: cells of tables, blocks of manifests,
    /// and values far behind their names.
    cells: RefCell<VecDeque<Secret<'static>>>,
    /// Where the last table ends.
    tabled: Cell<usize>,
    /// Where the last manifest ends.
    manifest: Cell<usize>,
    /// The end of the part where no block of YAML has a secret, for strong names and for others.
    plain: [Cell<usize>; 2],
    /// The end of the part where no line is the head of a table.
    headless: Cell<usize>,
    /// Up to where nothing is an encoded text with a secret.
    decoded: Cell<usize>,
}

impl Scan {
    /// Keeps what a rule found until its place is reached. Returns whether there is any.
    fn keep(&self, rule: &'static str, found: Vec<Range<usize>>) -> bool {
        let any = !found.is_empty();
        let mut cells = self.cells.borrow_mut();
        for secret in found {
            let at = cells.partition_point(|(_, cell)| cell.start <= secret.start);
            cells.insert(at, (rule, secret));
        }
        any
    }

    /// The next secret that is kept, if it begins up to `at`.
    fn cell_before(&self, at: usize) -> Option<Secret<'static>> {
        let mut cells = self.cells.borrow_mut();
        let next = cells.front().is_some_and(|(_, cell)| cell.start <= at);
        next.then(|| cells.pop_front())?
    }
}

/// A run of characters that names, words and tokens are made of, and the text around it.
pub(super) struct Run<'a> {
    rules: &'a Rules,
    scan: &'a Scan,
    text: &'a str,
    at: usize,
    end: usize,
    signs: Signs,
}

impl<'a> Run<'a> {
    /// Returns whether the run may hold the name of a secret.
    fn is_named(&self) -> bool {
        self.signs & NAMED != 0
    }

    /// The secret that begins in the run, or is announced by it and stands near it. One that stands
    /// far is kept in the scan. A detector's empty one is a decision that there is none.
    fn secret(&self) -> Option<Secret<'a>> {
        if self.is_media() {
            return None;
        }
        let allows = |rule| self.rules.allows(rule);
        let table = || allows(TABLE) && table::find(self);
        if self.is_named() && (table() || allows(MANIFEST) && lines::manifest(self)) {
            return None;
        }
        let mut rules = RUNS.iter().filter(|(_, signs, _)| signs & self.signs != 0);
        let found = rules.find_map(|((rule, ..), _, find)| {
            let Some(find) = find else {
                return token::find(self);
            };
            let place = find(self).filter(|place| place.is_empty() || allows(rule))?;
            if place.start <= self.end + NEAR {
                return Some((*rule, place));
            }
            self.scan.keep(rule, vec![place]);
            Some((*rule, self.end..self.end))
        });
        found.filter(|(_, secret)| !secret.is_empty())
    }

    /// Returns whether the run is a picture or a sound in Base64.
    fn is_media(&self) -> bool {
        // PNG, JPEG, GIF, and what RIFF holds: WebP, WAV.
        const BEGINNINGS: &[&str] = &["iVBORw0KGgo", "/9j/", "R0lGODdh", "R0lGODlh", "UklGR"];
        let has_one_of = |near: &str, parts: &[&str]| parts.iter().any(|part| near.holds(part));
        let url = || {
            let url = self.behind(64).strip_suffix(";base64,");
            let kind = url.and_then(|url| url.cut("data:"));
            kind.is_some_and(|(_, kind)| prefix_of(kind, KINDS).is_some())
        };
        // `"data":"x","mimeType":"image/png"`
        let of_media = |near| has_one_of(near, KIND_FIELDS) && has_one_of(near, KINDS);
        let member = || {
            let name = self.behind(32).trim_end_of("\"\\: ");
            ends_with_one_of(name, DATA_FIELDS)
                && (of_media(self.behind(128)) || of_media(self.ahead(96)))
        };
        let data = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
        self.word().len() >= MEDIA
            && (prefix_of(self.word(), BEGINNINGS).is_some() || url() || member())
            && self.word().bytes().all(data)
    }

    fn word(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    fn after(&self) -> &'a str {
        &self.text[self.end..]
    }

    fn before(&self) -> &'a str {
        &self.text[..self.at]
    }

    /// The text after the run, `len` bytes of it at most.
    fn ahead(&self, len: usize) -> &'a str {
        bytes::ahead(self.text, self.end, len)
    }

    /// The text before the run, `len` bytes of it at most.
    fn behind(&self, len: usize) -> &'a str {
        bytes::behind(self.text, self.at, len)
    }

    /// The line up to the run, `len` bytes of it at most.
    fn line_before(&self, len: usize) -> &'a str {
        bytes::last_line(self.behind(len))
    }

    /// Returns whether `name` announces a secret in prose, too.
    fn is_strong(&self, name: &str) -> bool {
        self.rules.strength(name) == Strength::Strong
    }

    /// Returns whether `name` is never that of something else than a secret.
    fn is_sure(&self, name: &str) -> bool {
        keys::is_sure(name) || self.rules.announces(name) && !BUILT_IN.announces(name)
    }

    /// The command that the run is an argument of.
    fn command(&self) -> Option<&'static Command> {
        let (command, at) = self.scan.command.get()?;
        let near = self.at.checked_sub(at)? <= command::LINE;
        (near && !self.text[at..self.at].has_of("\n")).then_some(command)
    }

    /// Returns whether the run is an argument of the command with these names.
    fn is_argument_of(&self, names: &str) -> bool {
        self.command().is_some_and(|command| command.names == names)
    }
}
