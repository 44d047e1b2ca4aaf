//! The rules of redaction: the built-in words and what a user adds.

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::{Map, Value};

use crate::config::{ConfigError, refuse_if, within};
use crate::hidden::{misleads_in_text, visible};
use crate::keys::{self, Strength, folded};
use crate::rule::{self, Finding, Log, Rule};
use crate::text::{bytes::*, catalog::OWN, vendors::Tail};
use crate::{REDACTED, Redacted, TRUNCATED, registered::Registered, shown, view::Source};

/// Added keys, words, prefixes and rules together; more are refused.
pub const MAX_ENTRIES: usize = 256;

/// The rules that find secrets, and the bounds of the shown text.
///
/// The default has the built-in words and allocates nothing; a clone is one reference count.
///
/// ```
/// use serde_json::json;
/// use toolcall_redact::Rules;
///
/// let rules = Rules::default()
///     .with_sensitive_key("customer_no")?
///     .with_harmless_key("idempotency_key")?
///     .with_secret_prefix("acme_live_", 8)?
///     .with_max_string(500)?;
///
/// let arguments =
///     json!({ "customer_no": 4711, "note": "by acme_live_1234abcd", "idempotency_key": "a" });
/// assert_eq!(
///     rules.json(&arguments).to_string(),
///     r#"{"customer_no":"[REDACTED]","idempotency_key":"a","note":"by [REDACTED]"}"#,
/// );
/// # Ok::<(), toolcall_redact::ConfigError>(())
/// ```
///
/// # Limits
///
/// | setting | default | highest |
/// |---|---|---|
/// | characters of a string | 200 | 65,536 |
/// | levels | 16 | 64 |
/// | values | 1,000 | 100,000 |
/// | bytes of a whole view | 16 KiB (at least 64) | 1 MiB |
/// | entries added | | [`MAX_ENTRIES`], of 64 bytes each |
#[derive(Clone)]
pub struct Rules(pub(super) Option<Arc<Custom>>, pub(super) Registered);

impl Default for Rules {
    fn default() -> Self {
        BUILT_IN.clone()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Custom {
    /// Words that were added, folded.
    pub(super) sensitive: Vec<Box<str>>,
    pub(super) harmless: Vec<Box<str>>,
    /// Rules of own tokens.
    rows: Vec<Rule>,
    /// Rules that are switched off.
    off: Vec<Box<str>>,
    /// Where findings are kept, while a text is explained.
    log: Option<Arc<Log>>,
    limits: Limits,
}

/// The built-in rules have no entries of their own.
static NONE: Custom = Custom {
    sensitive: Vec::new(),
    harmless: Vec::new(),
    rows: Vec::new(),
    off: Vec::new(),
    log: None,
    limits: Limits {
        string: super::MAX_STRING,
        depth: super::MAX_DEPTH,
        nodes: super::MAX_NODES,
        bytes: super::MAX_BYTES,
    },
};

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) string: usize,
    pub(super) depth: usize,
    pub(super) nodes: usize,
    pub(super) bytes: usize,
}

impl Limits {
    /// Nothing is cut.
    pub(super) const NONE: Self = Self {
        string: usize::MAX,
        depth: usize::MAX,
        nodes: usize::MAX,
        bytes: usize::MAX,
    };
}

/// The built-in rules, to borrow.
pub(super) static BUILT_IN: Rules = Rules(None, Registered::NONE);

impl Rules {
    /// Returns the built-in rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes keys sensitive that contain `part`, whatever their case and separators.
    ///
    /// # Errors
    ///
    /// If `part` has no letter or digit, is longer than 64 bytes, or there are too many entries.
    pub fn with_sensitive_key(self, part: &str) -> Result<Self, ConfigError> {
        let part = entry("sensitive_key", part)?;
        self.add("sensitive_key", |custom| custom.sensitive.push(part))
    }

    /// Removes `word` from a key before the key is judged. It counts where words of the key begin
    /// and end, so that `monkey` does not hide `common_key`.
    ///
    /// # Errors
    ///
    /// If `word` has no letter or digit, is longer than 64 bytes, or there are too many entries.
    pub fn with_harmless_key(self, word: &str) -> Result<Self, ConfigError> {
        let word = entry("harmless_key", word)?;
        self.add("harmless_key", |custom| custom.harmless.push(word))
    }

    /// Redacts words that begin with `prefix` and have at least `min_tail` letters, digits, `_` or
    /// `-` after it: tokens of an own kind. `.`, `+`, `~` and `/` between those belong to the
    /// token, and do not count.
    ///
    /// # Errors
    ///
    /// If `prefix` is not 3 to 64 ASCII letters, digits, `_`, `-` or `.`, or does not begin with a
    /// letter or digit, if `min_tail` is above 256, or there are too many entries.
    pub fn with_secret_prefix(self, prefix: &str, min_tail: usize) -> Result<Self, ConfigError> {
        const FIELD: &str = "secret_prefix";
        let fits = (3..=64).contains(&prefix.len()) && is_made_of(prefix, "_-.");
        let reason = "must be 3 to 64 ASCII letters, digits, `_`, `-` or `.`";
        refuse_if(!fits, FIELD, reason)?;
        let mark = prefix.starts_of("_-.");
        refuse_if(mark, FIELD, "must begin with a letter or digit")?;
        within(FIELD, min_tail, 0..=256)?;
        let row = Rule::of_tokens(OWN, prefix, Tail::Dotted, min_tail);
        self.add(FIELD, |custom| custom.rows.push(row))
    }

    /// Adds a rule of own tokens. It comes before the built-in rules of tokens.
    ///
    /// ```
    /// use toolcall_redact::{Rule, Rules, Tail};
    ///
    /// let key = Rule::of_tokens("acme", "acme_live_", Tail::Plain, 8)
    ///     .with_example("acme_live_1234abcd")
    ///     .with_counter_example("acme_live_key");
    /// let hook = Rule::behind("acme-hook", "acme.example/in/", Tail::Hex, 12)
    ///     .with_example("https://acme.example/in/0123456789ab");
    /// let rules = Rules::new().with_rule(key)?.with_rule(hook)?;
    ///
    /// let text = "by acme_live_5678efgh to https://acme.example/in/ba9876543210";
    /// assert_eq!(rules.redact_text(text), "by [REDACTED] to https://acme.example/in/[REDACTED]");
    /// assert_eq!(rules.explain(text)[1].rule(), "acme-hook");
    /// # Ok::<(), toolcall_redact::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a rule has this id, or there are too many entries. If the prefix or the anchor cannot
    /// begin a token (3 to 64 bytes), or fewer than 1 or more than 256 characters have to follow.
    /// If the rule does not find its example, or finds its counter-example (1 KiB each).
    pub fn with_rule(self, rule: Rule) -> Result<Self, ConfigError> {
        rule.check()?;
        let taken = self.rows().iter().any(|row| row.id() == rule.id());
        let reason = format!("`{}` was added before", rule.id());
        refuse_if(taken, "rule.id", reason)?;
        let new = self.add("rule", |custom| custom.rows.push(rule.clone()))?;
        let finds = |text: &str| {
            let found = new.explain(text);
            found.iter().any(|finding| finding.rule() == rule.id())
        };
        let (id, example, innocent) = (rule.id(), rule.example(), rule.counter_example());
        let reason = format!("`{id}` finds nothing in `{example}`");
        refuse_if(!finds(example), "rule.example", reason)?;
        let reason = format!("`{id}` finds a secret in `{innocent}`");
        refuse_if(finds(innocent), "rule.counter_example", reason)?;
        Ok(new)
    }

    /// Switches a rule off that hides an innocent text; [`explain`](Self::explain) names it.
    /// Another rule may still find the same secret.
    ///
    /// # Errors
    ///
    /// If no [rule](super::rules) has this id, or there are too many entries.
    pub fn without_rule(self, id: &str) -> Result<Self, ConfigError> {
        const FIELD: &str = "rule";
        let reason = format!("`{id}` is not a rule, see `toolcall_redact::rules()`");
        let own = self.rows().iter().any(|row| row.id() == id);
        refuse_if(!own && !rule::is_known(id), FIELD, reason)?;
        self.add(FIELD, |custom| custom.off.push(id.into()))
    }

    /// Sets the number of characters after which a string is cut. Default: 200.
    ///
    /// # Errors
    ///
    /// If it is 0 or above 65,536.
    pub fn with_max_string(self, chars: usize) -> Result<Self, ConfigError> {
        within("max_string", chars, 1..=1 << 16)?;
        Ok(self.edit(|custom| custom.limits.string = chars))
    }

    /// Sets how many levels are shown. Default: 16.
    ///
    /// # Errors
    ///
    /// If it is 0 or above 64.
    pub fn with_max_depth(self, levels: usize) -> Result<Self, ConfigError> {
        within("max_depth", levels, 1..=64)?;
        Ok(self.edit(|custom| custom.limits.depth = levels))
    }

    /// Sets how many values are shown. Default: 1,000.
    ///
    /// # Errors
    ///
    /// If it is 0 or above 100,000.
    pub fn with_max_nodes(self, values: usize) -> Result<Self, ConfigError> {
        within("max_nodes", values, 1..=100_000)?;
        Ok(self.edit(|custom| custom.limits.nodes = values))
    }

    /// Sets how many bytes a printed view has at most, and the keys and strings of a serialised
    /// one together. Default: 16 KiB.
    ///
    /// # Errors
    ///
    /// If it is below 64 or above 1 MiB.
    pub fn with_max_bytes(self, bytes: usize) -> Result<Self, ConfigError> {
        within("max_bytes", bytes, 64..=1 << 20)?;
        Ok(self.edit(|custom| custom.limits.bytes = bytes))
    }

    /// Returns whether values under this key are secrets. See
    /// [`is_sensitive_key`](super::is_sensitive_key).
    pub fn is_sensitive_key(&self, key: &str) -> bool {
        self.strength(key) != Strength::Harmless
    }

    /// Returns a text without its secrets. See [`redact_text`](super::redact_text).
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        shown::redacted(self, text, 0)
    }

    /// Returns a view of a text without its secrets, cut after `max_chars` characters. Control
    /// characters but tabs and line ends are escaped (`\\u{1b}`). The work is done when it is
    /// printed.
    pub fn text<'a>(&'a self, text: &'a str, max_chars: usize) -> RedactedText<'a> {
        RedactedText {
            rules: self,
            text,
            max: max_chars,
        }
    }

    /// Returns each secret that [`redact_text`](Self::redact_text) hides in a text, and the rule
    /// that found it.
    ///
    /// ```
    /// use toolcall_redact::Rules;
    ///
    /// let found = Rules::new().explain("GET /?token=s3cr3t&q=1 failed");
    /// assert_eq!((found[0].rule(), found[0].secret()), ("pair", "s3cr3t"));
    /// ```
    pub fn explain(&self, text: &str) -> Vec<Finding> {
        self.logged(|rules| drop(rules.redact_text(text)))
    }

    /// Returns each secret that the [view](Self::json) of a value hides, and the rule that found
    /// it.
    pub fn explain_json(&self, value: &Value) -> Vec<Finding> {
        self.logged(|rules| drop(serde_json::to_value(rules.json(value))))
    }

    fn logged(&self, show: impl FnOnce(&Self)) -> Vec<Finding> {
        let log = Arc::<Log>::default();
        let kept = log.clone();
        show(&self.clone().edit(|custom| custom.log = Some(log)));
        kept.lock()
            .map_or_else(|_| Vec::new(), |mut log| std::mem::take(&mut log))
    }

    /// Returns the view of any JSON value.
    pub fn json<'a>(&'a self, value: &'a Value) -> Redacted<'a> {
        Redacted::new(self, Source::Value(value))
    }

    /// Returns how many levels are shown.
    pub fn max_depth(&self) -> usize {
        self.limits().depth
    }

    /// Returns how many values are shown.
    pub fn max_nodes(&self) -> usize {
        self.limits().nodes
    }

    /// Returns the first `max` characters of a text without its secrets, and whether any are
    /// missing.
    pub fn head<'t>(&self, text: &'t str, max: usize) -> (Cow<'t, str>, bool) {
        shown::head(self, text, max, 0)
    }

    /// Hides a token of an own kind, or the beginning of a [registered](Self::with_secrets) value,
    /// at the end of a text that was cut elsewhere and ends with [`TRUNCATED`](super::TRUNCATED):
    /// half a token may be too short to be recognised.
    pub fn without_cut_secret<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(head) = text.strip_suffix(TRUNCATED) else {
            return Cow::Borrowed(text);
        };
        let word = head.rsplit(char::is_whitespace).next().unwrap_or(head);
        let last = head.len() - word.len();
        let prefixes = self.rows().iter().map(|row| &*row.prefix);
        let secret = prefixes.filter(|prefix| !prefix.is_empty());
        let secret = secret.filter_map(|prefix| word.find(prefix));
        let secret = secret.map(|at| last + at).chain(self.1.cut_at(head));
        match secret.min() {
            Some(at) => Cow::Owned(format!("{}{REDACTED}{TRUNCATED}", &head[..at])),
            None => Cow::Borrowed(text),
        }
    }

    /// Returns the view of a JSON object.
    pub fn object<'a>(&'a self, object: &'a Map<String, Value>) -> Redacted<'a> {
        Redacted::new(self, Source::Map(object))
    }

    pub(super) fn custom(&self) -> &Custom {
        self.0.as_deref().unwrap_or(&NONE)
    }

    pub(super) fn limits(&self) -> Limits {
        self.custom().limits
    }

    /// Returns the rules of own tokens.
    pub(super) fn rows(&self) -> &[Rule] {
        &self.custom().rows
    }

    /// Returns whether a rule is not switched off.
    pub(super) fn allows(&self, rule: &str) -> bool {
        self.custom().off.iter().all(|off| **off != *rule)
    }

    /// Returns these rules without a log of findings.
    pub(super) fn silent(&self) -> Self {
        match self.custom().log {
            Some(_) => self.clone().edit(|custom| custom.log = None),
            None => self.clone(),
        }
    }

    /// Records what a rule has hidden, if a text is explained.
    pub(super) fn note(&self, rule: &str, secret: impl ToString) {
        if let Some(mut log) = self.custom().log.as_ref().and_then(|log| log.lock().ok()) {
            let (rule, secret) = (rule.to_owned(), secret.to_string());
            log.push(Finding { rule, secret });
        }
    }

    pub(super) fn strength(&self, key: &str) -> Strength {
        keys::strength(key, self.custom())
    }

    /// Returns whether a name in a text says that the value beside it is a secret.
    pub(super) fn announces(&self, name: &str) -> bool {
        self.strength(name) > Strength::Described
    }

    /// Returns whether words or rules were added that the built-in filters do not know.
    pub(super) fn has_own(&self) -> bool {
        !self.custom().sensitive.is_empty() || !self.rows().is_empty()
    }

    fn add(
        self,
        field: &'static str,
        change: impl FnOnce(&mut Custom),
    ) -> Result<Self, ConfigError> {
        let custom = self.custom();
        let words = custom.sensitive.len() + custom.harmless.len();
        let entries = words + custom.rows.len() + custom.off.len();
        let reason = format!("more than {MAX_ENTRIES} entries were added");
        refuse_if(entries >= MAX_ENTRIES, field, reason)?;
        Ok(self.edit(change))
    }

    fn edit(mut self, change: impl FnOnce(&mut Custom)) -> Self {
        let custom = self.0.get_or_insert_with(|| Arc::new(NONE.clone()));
        change(Arc::make_mut(custom));
        self
    }

    /// Hides the secrets of a sent header: its value, the part after a scheme, and the values of
    /// cookies. `is_sure` marks the header as secret; `Authorization` and `Cookie` always are. For
    /// other headers the name decides, like [a key](Self::with_secrets_in).
    ///
    /// ```
    /// use toolcall_redact::Rules;
    ///
    /// let rules =
    ///     Rules::new().with_secrets_of_header("authorization", "Bearer marmalade7x", false);
    /// assert_eq!(rules.redact_text("who is marmalade7x?"), "who is [REDACTED]?");
    /// ```
    #[must_use]
    pub fn with_secrets_of_header(self, name: &str, value: &str, is_sure: bool) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let mut values = vec![value];
        values.extend(value.cut(" ").map(|(_, credential)| credential));
        if is("cookie") {
            let pairs = value.split_of(";").filter_map(|pair| pair.cut("="));
            values.extend(pairs.map(|(_, value)| value));
        }
        if is_sure || is("authorization") || is("cookie") {
            return self.with_secrets(values);
        }
        let values = values.into_iter().map(Value::from).collect();
        self.with_secrets_in(&Map::from_iter([(name.to_owned(), values)]))
    }
}

/// Two values are equal if one is a clone of the other, or both are the built-in rules.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr) && self.1.is(&other.1)
    }
}

impl Eq for Rules {}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(custom) => f.debug_tuple("Rules").field(custom).finish(),
            None => f.write_str("Rules(built-in)"),
        }
    }
}

/// A redacted and bounded view of text, made when it is printed. Prints at most the given number of
/// characters, and a mark if something is missing.
#[derive(Clone, Copy)]
pub struct RedactedText<'a> {
    rules: &'a Rules,
    text: &'a str,
    max: usize,
}

impl fmt::Display for RedactedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, cut) = shown::head(self.rules, self.text, self.max, 0);
        let (head, more) = visible(head, self.max, misleads_in_text);
        f.write_str(&head)?;
        f.write_str(if cut || more { TRUNCATED } else { "" })
    }
}

impl fmt::Debug for RedactedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

fn entry(field: &'static str, word: &str) -> Result<Box<str>, ConfigError> {
    refuse_if(word.len() > 64, field, "is longer than 64 bytes")?;
    let word = folded(word);
    refuse_if(word.is_empty(), field, "has neither a letter nor a digit")?;
    Ok(word.into())
}
