use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Settings, StackBuilder, check, sections::File};
use crate::{config::ConfigError, reader::Reader};

impl Settings {
    /// Returns the settings that work and look wrong, each with the reason; see the
    /// [table](super#warnings). [`StackBuilder::build`] emits each as the event `tool.settings`, at
    /// WARN.
    pub fn warnings(&self) -> Vec<ConfigError> {
        let warnings = check::warnings(self).into_iter();
        warnings
            .map(|warning| self.origin.rename(warning))
            .collect()
    }

    /// Checks that these settings can work together. [`StackBuilder::build`] and
    /// [`with_env_from`](Self::with_env_from) do so as well.
    ///
    /// # Errors
    ///
    /// If a layer refuses its settings, a disabled one too, or if two of them contradict each
    /// other; see the [module docs](super#errors). The error names the key, and its reason has all
    /// others.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::joined(check::whole(self))
    }

    /// Returns the documented stack with these settings, to be completed and built.
    pub fn stack(&self) -> StackBuilder {
        StackBuilder::new(self.clone())
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_file().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        File::deserialize(Reader::new(from)).map(Self::from)
    }
}

impl From<File> for Settings {
    fn from(file: File) -> Self {
        let mut settings = Self::default();
        settings.apply(file);
        settings
    }
}
