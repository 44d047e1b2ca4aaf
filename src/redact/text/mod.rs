//! Secrets in free text, told by their looks.
//!
//! One pass over the runs of letters, digits and the marks of [`bytes::is_run`]. Each run is looked at
//! by one detector after the other; a detector gives the place of a secret that begins in the run or is
//! announced by it. What a detector looks at is either bounded or, if there is a secret, passed over, so
//! that the whole is linear.

use std::{borrow::Cow, cell::Cell, collections::VecDeque, ops::Range};

use super::{REDACTED, rules::Rules};

mod block;
pub(super) mod bytes;
mod code;
pub(super) mod command;
mod encoded;
mod field;
mod filter;
mod header;
mod html;
mod lines;
mod look;
mod mark;
mod markup;
mod name;
mod pair;
mod powershell;
mod prose;
pub(super) mod quote;
mod scheme;
mod sql;
mod table;
mod token;
mod url;
pub(super) mod value;
mod vendors;

use self::command::Command;
pub(super) use self::look::is_opaque;

/// One pass finds the secrets. Once a mark stands there, a name beside it may take more for its value, and then no
/// more: what is redacted has to stay as it is when it is redacted again. Two further passes have settled every
/// text that property tests and corpora have met; that they settle any is not proved.
const MAX_PASSES: usize = 3;

/// The first `limit` bytes of `text` without secrets; what stands behind them is looked at only. The text stands
/// `nested` times inside others.
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
        match pass(rules, &out, out.len(), nested) {
            Some(next) => out = next,
            None => break,
        }
    }
    Cow::Owned(out)
}

/// One pass. None if there is nothing to redact.
fn pass(rules: &Rules, text: &str, limit: usize, nested: usize) -> Option<String> {
    let mut scan = Scan {
        text,
        rules,
        nested,
        command: None,
        cells: VecDeque::new(),
        tabled: 0,
        manifest: 0,
        plain: Default::default(),
        headless: Cell::new(0),
        decoded: Cell::new(0),
    };
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    let mut hide = |secret: &Range<usize>| {
        let shown = &text[secret.clone()];
        let hidden = shown != REDACTED && (copied..limit).contains(&secret.start);
        if hidden {
            out.push_str(&text[copied..secret.start]);
            out.push_str(REDACTED);
            copied = secret.end;
        }
        hidden
    };
    while let Some(run) = filter::next_run(text, at)
        && run.at < limit
    {
        if let Some(cell) = scan.cell_before(run.at) {
            hide(&cell);
            at = at.max(cell.end);
            continue;
        }
        at = run.end;
        if run.plain && !rules.has_own() {
            continue;
        }
        let run = Run {
            at: run.at,
            end: run.end,
        };
        let Some(secret) = scan.secret(run) else {
            at = bytes::skip_colour(text, run.at, run.end);
            continue;
        };
        at = if hide(&secret) {
            secret.end
        } else {
            at.max(secret.end)
        };
    }
    scan.cells.iter().for_each(|cell| {
        hide(cell);
    });
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..limit).unwrap_or_default());
    Some(out)
}

/// A run of characters that names, words and tokens are made of.
#[derive(Clone, Copy)]
struct Run {
    at: usize,
    end: usize,
}

/// The text, and what was seen of it so far.
struct Scan<'a> {
    text: &'a str,
    rules: &'a Rules,
    /// How often the text is one inside another.
    nested: usize,
    /// The command whose arguments follow on this line, and where it stands.
    command: Option<(Command, usize)>,
    /// Cells of tables and blocks of manifests that are secrets.
    cells: VecDeque<Range<usize>>,
    /// Where the last table ends.
    tabled: usize,
    /// Where the last manifest ends.
    manifest: usize,
    /// Up to where no block of YAML has a secret, for names that are strong and for others.
    plain: [Cell<usize>; 2],
    /// Up to where no line is the head of a table.
    headless: Cell<usize>,
    /// Up to where nothing is an encoded text with a secret.
    decoded: Cell<usize>,
}

impl<'a> Scan<'a> {
    /// Keeps cells that are secrets, in the order in which they stand.
    fn keep(&mut self, cells: Vec<Range<usize>>) {
        self.cells.extend(cells);
        self.cells.make_contiguous().sort_by_key(|cell| cell.start);
    }

    /// The next cell that is a secret, if it begins up to `at`.
    fn cell_before(&mut self, at: usize) -> Option<Range<usize>> {
        let next = self.cells.front().is_some_and(|cell| cell.start <= at);
        next.then(|| self.cells.pop_front())?
    }

    /// The text of a run.
    fn word(&self, run: Run) -> &'a str {
        &self.text[run.at..run.end]
    }

    fn after(&self, run: Run) -> &'a str {
        &self.text[run.end..]
    }

    fn before(&self, run: Run) -> &'a str {
        &self.text[..run.at]
    }

    /// The command among whose arguments the run stands: not a command itself.
    fn command_of(&self, run: Run) -> Option<Command> {
        let (command, at) = self.command?;
        let near = run.at.checked_sub(at)? <= command::LINE;
        (near && !self.text[at..run.at].contains('\n')).then_some(command)
    }

    /// Whether the run stands among the arguments of this command.
    fn is_command(&self, command: Command, run: Run) -> bool {
        self.command_of(run) == Some(command)
    }

    /// The secret that begins in this run, or that it announces.
    fn secret(&mut self, run: Run) -> Option<Range<usize>> {
        let named =
            self.rules.may_be_sensitive(self.word(run)) || self.before(run).ends_with(['\\', ';']);
        if named && (table::find(self, run) || lines::manifest(self, run)) {
            return None;
        }
        let block = block::find(self, run);
        if let Some(block) = &block
            && block.start > run.at
        {
            // A token that stands right before the block.
            let end = block.start;
            let head = Run { at: run.at, end };
            let token = url::webhook(self, head).or_else(|| token::find(self, head));
            if let Some(token) = token {
                return Some(token.start..token.end.min(end));
            }
        }
        let found = block
            .or_else(|| url::user_info(self, run))
            .or_else(|| url::bare_user_info(self, run))
            .or_else(|| sql::find(self, run))
            .or_else(|| powershell::find(self, run))
            .or_else(|| named.then(|| self.named(run))?)
            .or_else(|| scheme::find(self, run))
            .or_else(|| command::find(self, run, named))
            .or_else(|| url::webhook(self, run))
            .or_else(|| token::find(self, run))
            .or_else(|| token::composed(self, run))
            .or_else(|| token::beside_id(self, run))
            .or_else(|| encoded::find(self, run))
            .or_else(|| prose::find(self, run, named));
        found.filter(|secret| !secret.is_empty())
    }

    /// The same for a run that may hold the name of a secret.
    fn named(&self, run: Run) -> Option<Range<usize>> {
        markup::find(self, run)
            .or_else(|| code::newtype(self, run))
            .or_else(|| field::find(self, run))
            .or_else(|| pair::find(self, run))
    }
}
