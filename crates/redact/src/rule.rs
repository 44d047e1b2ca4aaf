//! Rules as their users see them: to list, to explain what was found, and to switch off.

use std::{borrow::Cow, fmt, sync::Mutex};

use crate::text::{
    catalog::{OTHERS, RUNS},
    vendors::{Tail, VENDORS},
};

/// A kind of secret that is found. [`Rules::explain`](crate::Rules::explain) names it, and
/// [`Rules::without_rule`](crate::Rules::without_rule) switches it off.
#[derive(Clone, Debug)]
pub struct Rule {
    id: &'static str,
    finds: Cow<'static, str>,
    example: String,
    counter_example: String,
}

impl Rule {
    /// Returns the name of the rule: `pair`, `github`.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// Returns a description of the secrets that the rule finds.
    pub fn finds(&self) -> &str {
        &self.finds
    }

    /// Returns a text in which the rule finds a secret. Empty for tokens of an own kind.
    pub fn example(&self) -> &str {
        &self.example
    }

    /// Returns a text of a like form in which the rule finds nothing.
    pub fn counter_example(&self) -> &str {
        &self.counter_example
    }
}

/// Returns all built-in rules. A rule of a vendor's tokens comes once for each of their prefixes.
///
#[doc = include_str!("rules.md")]
pub fn rules() -> impl Iterator<Item = Rule> {
    let rows = RUNS.iter().map(|(row, _)| row).chain(OTHERS);
    let rows = rows.map(|(id, finds, example, innocent)| Rule {
        id,
        finds: Cow::Borrowed(finds),
        example: example.replace('§', ""),
        counter_example: (*innocent).to_owned(),
    });
    let vendors = VENDORS.iter().map(|(id, prefix, tail, min)| {
        let (of, digits) = match tail {
            Tail::Any => ("letters, digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Tail::Digit => ("letters and digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Tail::Dotted => ("letters, digits, `_`, `-` and dots", "Zq7hX2vT9kLw4bRn"),
            Tail::Hex => ("hexadecimal digits", "0a1b2c3d4e5f6789"),
            Tail::Plain => ("letters and digits", "Zq7hX2vT9kLw4bRn"),
            Tail::Lower => (
                "letters, digits, `_` and `-`, a small letter first",
                "q7hX2vT9kLw4bRnZ",
            ),
            Tail::Upper => ("capitals and digits", "Z7X2V9K4B1N8M3Q6"),
        };
        // Tokens are longer than `token::MIN`, their prefix included.
        let min = (*min).max(12_usize.saturating_sub(prefix.len()));
        let example: String = digits.chars().cycle().take(min).collect();
        Rule {
            id,
            finds: Cow::Owned(format!("`{prefix}` and {min} or more {of}")),
            example: format!("{prefix}{example}"),
            counter_example: format!("{prefix}§"),
        }
    });
    rows.chain(vendors)
}

/// Returns whether a rule has this id.
pub(crate) fn is_known(id: &str) -> bool {
    RUNS.iter().any(|(row, _)| row.0 == id)
        || OTHERS.iter().any(|row| row.0 == id)
        || VENDORS.iter().any(|vendor| vendor.0 == id)
}

/// A secret that was found, and the rule that found it. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding {
    rule: &'static str,
    secret: String,
}

impl Finding {
    /// Returns the [id](Rule::id) of the rule.
    pub fn rule(&self) -> &'static str {
        self.rule
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

/// The findings of a text that is explained.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Finding>>);

impl Log {
    pub(crate) fn add(&self, rule: &'static str, secret: String) {
        self.findings().push(Finding { rule, secret });
    }

    pub(crate) fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut self.findings())
    }

    fn findings(&self) -> std::sync::MutexGuard<'_, Vec<Finding>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
