//! Environment variables.

use std::iter;

use serde::{
    Deserialize as _,
    de::value::{Error, MapDeserializer},
};

use super::{VARIABLES, sections::File, text::Text};

/// An environment variable and the setting that it holds. See [`VARIABLES`].
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) help: &'static str,
}

impl Variable {
    pub(super) const PRESET: Self = Self {
        name: "TOOL_PRESET",
        key: "preset",
        help: "the preset to begin with: default, agent_library, agent_loop, gateway or http_proxy",
    };

    /// Its name: `TOOL_TIMEOUT`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The setting's key in a file: `timeout.default`.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// What it means, in a line.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Reads its text as a file that has this key alone.
    pub(super) fn read(&self, text: &str) -> Result<File, Error> {
        let value = Text::new(text, SECONDS.contains(&self.name));
        match self.key.split_once('.') {
            Some((section, key)) => {
                let keys = MapDeserializer::new(iter::once((key, value)));
                File::deserialize(MapDeserializer::new(iter::once((section, keys))))
            }
            None => File::deserialize(MapDeserializer::new(iter::once((self.key, value)))),
        }
    }
}

/// Where a plain number is seconds, as in MCP gateways.
const SECONDS: [&str; 3] = [
    "TOOL_TIMEOUT",
    "TOOL_CIRCUIT_BREAKER_RESET",
    "TOOL_CIRCUIT_BREAKER_WINDOW",
];

/// The variable of this name.
pub(super) fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// Whether a variable of this name would be ours: it begins as the name of a section does (`TOOL_RETRY_`). One that is not
/// in the table is a typing error.
pub(super) fn is_ours(name: &str) -> bool {
    let begins = |variable: &Variable| {
        let section = variable.key.split_once('.').map(|(section, _)| section);
        section.is_some_and(|s| name.starts_with(&format!("TOOL_{}_", s.to_ascii_uppercase())))
    };
    find(name).is_some() || VARIABLES.iter().any(begins)
}
