//! Explains the effective settings and their reasons, in words.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Settings, VARIABLES, tools};

/// The sections that are in a stack, or around one, only if the program adds them.
const ADDED: &str = "validate fit once cache poll http shared token sequence parallel";

/// The keys without which a section is off.
const SWITCHES: [&str; 6] = ["enabled", "tools", "units", "max", "endpoint", "url"];

/// They may have a secret, by mistake.
const HIDDEN: [&str; 2] = ["token.endpoint", "token.client_secret_file"];

impl Settings {
    /// Explains in words what these settings run: one line for each section, then one for each
    /// tool.
    ///
    /// A line begins with `on` or `off`. Where it is off, the setting follows that switches it on.
    /// Where it is on, its values follow, without defaults that are `false`, `none` or empty. In
    /// brackets stands where a value comes from: a variable, the preset, or `set` by a file or in
    /// code. A value without brackets is the crate's default. A value that [gave
    /// way](super#defaults-give-way) has the one before it and the setting that it contradicted. No
    /// secret is shown.
    ///
    /// The text is for readers; its form may change.
    ///
    /// ```
    /// use tower_toolcall::settings::Settings;
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let settings = Settings::gateway().with_env_from([("TOOLCALL_TIMEOUT", "5s")])?;
    /// let text = settings.explain();
    /// assert!(text.contains("\ntimeout: on, default = 5s [TOOLCALL_TIMEOUT]"));
    /// assert!(text.contains("\nretry: off, `retry.attempts` is 1 [gateway]\n"));
    /// # Ok(()) }
    /// ```
    pub fn explain(&self) -> String {
        let values = |settings: &Self| serde_json::to_value(settings.file_of(true));
        let (in_force, gave_way) = self.give_way();
        let table = Table {
            written: values(self).unwrap_or_default(),
            in_force: values(&in_force).unwrap_or_default(),
            gave_way,
            preset: values(&Self::preset(self.preset)).unwrap_or_default(),
            default: values(&Self::default()).unwrap_or_default(),
            settings: self,
        };
        let mut text = format!("preset: {}\n", self.preset);
        let keys: Vec<_> = VARIABLES
            .iter()
            .filter_map(|v| v.key().split_once('.'))
            .collect();
        for keys in keys.chunk_by(|one, other| one.0 == other.0) {
            let section = keys[0].0;
            let line = table.off(section).unwrap_or_else(|| {
                let values = keys.iter().filter_map(|key| table.value(*key));
                values.fold("on".to_owned(), |line, value| line + ", " + &value)
            });
            let added = match ADDED.split(' ').any(|added| added == section) {
                true => " (if the program adds it)",
                false => "",
            };
            text += &format!("{section}{added}: {line}\n");
        }
        for (name, tool) in &self.tools {
            let values = serde_json::to_value(tool).unwrap_or_default();
            let values = values.as_object().into_iter().flatten();
            let values: Vec<_> = values
                .map(|(key, v)| format!("{key} = {}", show(v)))
                .collect();
            text += &format!("{}: {}\n", tools::of(name), values.join(", "));
        }
        text
    }
}

struct Table<'a> {
    settings: &'a Settings,
    written: Value,
    in_force: Value,
    gave_way: BTreeMap<&'static str, String>,
    preset: Value,
    default: Value,
}

impl Table<'_> {
    /// Returns why a section is off.
    fn off(&self, section: &str) -> Option<String> {
        let (s, values) = (self.settings, &self.written[section]);
        let switch = SWITCHES.iter().find(|key| values.get(key).is_some());
        let (key, is_off) = match section {
            "policy" => ("deny", matches!(s.policy_layer(), Ok(None))),
            "retry" if s.retry.enabled => ("attempts", !s.retries()),
            "concurrency" => ("max", s.concurrency_limit_builder().is_none()),
            "validate" if s.tools.values().any(|tool| tool.validate == Some(true)) => return None,
            _ => (*switch?, is_blank(&values[*switch?])),
        };
        let (is, origin) = (show(&values[key]), self.origin((section, key)));
        is_off.then(|| format!("off, `{section}.{key}` is {is}{origin}"))
    }

    fn value(&self, (section, name): (&str, &str)) -> Option<String> {
        let key = format!("{section}.{name}");
        let (was, is) = (&self.written[section][name], &self.in_force[section][name]);
        let origin = match self.gave_way.get(&*key) {
            _ if name == "enabled" => return None,
            None => self.origin((section, name)),
            Some(other) => {
                let other = self.settings.origin.in_text(&format!("`{other}`"));
                format!(" [{} gave way to {other}]", show(was))
            }
        };
        if is_blank(is) && origin.is_empty() {
            return None;
        }
        let is = if HIDDEN.contains(&&*key) {
            "..".to_owned()
        } else {
            show(is)
        };
        Some(format!("{name} = {is}{origin}"))
    }

    fn origin(&self, (section, name): (&str, &str)) -> String {
        let key = format!("{section}.{name}");
        let (s, of_preset) = (self.settings, &self.preset[section][name]);
        let value = &self.written[section][name];
        let is_set = s.origin.keys.contains(&*key) || value != of_preset;
        let mut names = s.origin.variables.iter();
        match names.find(|(of, _, was)| *of == key && was == value) {
            Some((_, variable, _)) => format!(" [{variable}]"),
            None if is_set => " [set]".to_owned(),
            None if *of_preset != self.default[section][name] => format!(" [{}]", s.preset),
            None => String::new(),
        }
    }
}

fn is_blank(value: &Value) -> bool {
    [
        Value::Null,
        false.into(),
        "none".into(),
        Value::Array(Vec::new()),
    ]
    .contains(value)
}

/// As a file has it, a text without its quotes.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
