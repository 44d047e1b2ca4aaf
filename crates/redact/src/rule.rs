//! Rules as their users see them: to list, to explain what was found, and to switch off.

use std::{borrow::Cow, fmt, sync::Mutex};

use crate::config::{ConfigError, refuse_if, within};
use crate::text::bytes::is_made_of;
use crate::text::catalog::{OTHERS, RUNS, Row};
use crate::text::vendors::{Tail, vendors};

/// A kind of secret that is found. [`Rules::explain`](crate::Rules::explain) names it,
/// [`Rules::without_rule`](crate::Rules::without_rule) switches it off, and
/// [`Rules::with_rule`](crate::Rules::with_rule) adds an own one.
#[derive(Clone, Debug)]
pub struct Rule {
    id: Cow<'static, str>,
    finds: Cow<'static, str>,
    example: Cow<'static, str>,
    counter_example: Cow<'static, str>,
    /// The text before a token of an own kind, which is shown.
    pub(crate) anchor: Cow<'static, str>,
    pub(crate) prefix: Cow<'static, str>,
    pub(crate) tail: Tail,
    pub(crate) min: usize,
}

impl Rule {
    /// Makes a rule of tokens that begin with `prefix` and have at least `min` characters of the
    /// form `tail` behind it. The whole token is hidden.
    pub fn of_tokens(id: &str, prefix: &str, tail: Tail, min: usize) -> Self {
        let form = tail.form().0;
        Self {
            id: Cow::Owned(id.to_owned()),
            finds: Cow::Owned(format!("`{prefix}` and {min} or more {form}")),
            prefix: Cow::Owned(prefix.to_owned()),
            min,
            ..Self::of_row(&("", "", "", ""), tail)
        }
    }

    /// Makes a rule of what stands directly behind `anchor` and has at least `min` characters of
    /// the form `tail`. The anchor is shown.
    pub fn behind(id: &str, anchor: &str, tail: Tail, min: usize) -> Self {
        let rule = Self::of_tokens(id, "", tail, min);
        Self {
            finds: Cow::Owned(format!("{min} or more {} behind `{anchor}`", tail.form().0)),
            anchor: Cow::Owned(anchor.to_owned()),
            ..rule
        }
    }

    /// Sets a text in which the rule finds a secret. An own rule has to have one.
    #[must_use]
    pub fn with_example(mut self, text: &str) -> Self {
        self.example = Cow::Owned(text.to_owned());
        self
    }

    /// Sets a text of a like form in which the rule finds nothing. Default: empty.
    #[must_use]
    pub fn with_counter_example(mut self, text: &str) -> Self {
        self.counter_example = Cow::Owned(text.to_owned());
        self
    }

    /// Returns the name of the rule: `pair`, `github`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a description of the secrets that the rule finds.
    pub fn finds(&self) -> &str {
        &self.finds
    }

    /// Returns a text in which the rule finds a secret. Empty for the rule of own prefixes.
    pub fn example(&self) -> &str {
        &self.example
    }

    /// Returns a text of a like form in which the rule finds nothing.
    pub fn counter_example(&self) -> &str {
        &self.counter_example
    }

    fn of_row((id, finds, example, innocent): &Row, tail: Tail) -> Self {
        Self {
            id: Cow::Borrowed(id),
            finds: Cow::Borrowed(finds),
            example: Cow::Owned(example.replace('§', "")),
            counter_example: Cow::Borrowed(innocent),
            anchor: Cow::Borrowed(""),
            prefix: Cow::Borrowed(""),
            tail,
            min: 0,
        }
    }

    /// Returns an error unless it can be a rule beside the built-in ones.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (id, anchor, prefix) = (&*self.id, &*self.anchor, &*self.prefix);
        let refuse =
            |bad, field, of: &str, reason| refuse_if(bad, field, format!("`{of:.64}` {reason}"));
        let fits = (1..=64).contains(&id.len()) && is_made_of(id, "-_");
        let reason = "must be 1 to 64 ASCII letters, digits, `-` or `_`";
        refuse(!fits, "rule.id", id, reason)?;
        refuse(is_known(id), "rule.id", id, "is a built-in rule")?;
        let mark = prefix.starts_with(|c: char| !c.is_ascii_alphanumeric());
        let least = if anchor.is_empty() { 3 } else { 0 };
        let fits = (least..=64).contains(&prefix.len()) && is_made_of(prefix, "_-.") && !mark;
        let reason =
            "must be 3 to 64 ASCII letters, digits, `_`, `-` or `.`, a letter or digit first";
        refuse(!fits, "rule.prefix", prefix, reason)?;
        let fits = (3..=64).contains(&anchor.len()) && !anchor.ends_with(char::is_alphanumeric);
        let reason = "must be 3 to 64 bytes, and end with a mark or blank";
        refuse(!fits && !anchor.is_empty(), "rule.anchor", anchor, reason)?;
        within("rule.min", self.min, 1..=256)?;
        within("rule.example", self.example.len(), 1..=1024)?;
        within("rule.counter_example", self.counter_example.len(), 0..=1024)
    }
}

/// Returns all built-in rules. A rule of a vendor's tokens comes once for each of their prefixes.
///
#[doc = include_str!("rules.md")]
pub fn rules() -> impl Iterator<Item = Rule> {
    let rows = RUNS.iter().map(|(row, ..)| row).chain(OTHERS);
    let rows = rows.map(|row| Rule::of_row(row, Tail::Any));
    let vendors = vendors().map(|(id, prefix, tail, min)| {
        // Tokens are longer than `token::MIN`, their prefix included.
        let min = min.max(12_usize.saturating_sub(prefix.len()));
        let example: String = tail.form().1.chars().cycle().take(min).collect();
        Rule::of_tokens(id, prefix, tail, min)
            .with_example(&format!("{prefix}{example}"))
            .with_counter_example(&format!("{prefix}§"))
    });
    rows.chain(vendors)
}

/// Returns whether a rule has this id.
pub(crate) fn is_known(id: &str) -> bool {
    rules().any(|rule| rule.id == id)
}

/// A secret that was found, and the rule that found it. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding {
    pub(crate) rule: String,
    pub(crate) secret: String,
}

impl Finding {
    /// Returns the [id](Rule::id) of the rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the text that was hidden.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finding")
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

/// The findings of a text that is explained. Nothing panics while it is locked.
pub(crate) type Log = Mutex<Vec<Finding>>;
