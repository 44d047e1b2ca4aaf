//! What a file says: its preset, its settings, and which keys stand in it.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        DeserializeSeed, MapAccess, Visitor,
        value::{MapAccessDeserializer, StrDeserializer},
    },
    ser::{self, SerializeMap as _},
};

use super::{
    CircuitBreakerSettings, DeadlineSettings, HealthSettings, ParallelSettings, Preset,
    RateLimitSettings, RetrySettings, SanitizeSettings, SequenceSettings, Settings,
    TimeoutSettings, ToolSettings, TraceSettings, base::Explicit,
};

macro_rules! sections {
    ($($name:ident: $settings:ty,)*) => {
        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct File {
            preset: Preset,
            $($name: Section<$settings>,)*
            tools: BTreeMap<String, ToolSettings>,
        }

        impl From<File> for Settings {
            /// The preset, with what the file says over it.
            fn from(file: File) -> Self {
                let mut explicit = Explicit::default();
                $(explicit.add(stringify!($name), &file.$name.keys);)*
                let mut settings = Self {
                    preset: Preset::Default,
                    explicit,
                    $($name: file.$name.settings,)*
                    tools: file.tools,
                };
                settings.rebase(file.preset);
                settings
            }
        }

        /// The preset, and what was set over it: a file again.
        impl Serialize for Settings {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let set = self.keys_set();
                let mut file = to.serialize_map(None)?;
                if self.preset != Preset::Default {
                    file.serialize_entry("preset", &self.preset)?;
                }
                $(
                    let name = stringify!($name);
                    let mut section = keys(&self.$name).map_err(ser::Error::custom)?;
                    section.retain(|key, value| value.is_some() && set.contains(&*format!("{name}.{key}")));
                    if !section.is_empty() {
                        file.serialize_entry(name, &section)?;
                    }
                )*
                if !self.tools.is_empty() {
                    file.serialize_entry("tools", &self.tools)?;
                }
                file.end()
            }
        }
    };
}

sections! {
    timeout: TimeoutSettings,
    deadline: DeadlineSettings,
    retry: RetrySettings,
    rate_limit: RateLimitSettings,
    health: HealthSettings,
    circuit_breaker: CircuitBreakerSettings,
    sequence: SequenceSettings,
    parallel: ParallelSettings,
    sanitize: SanitizeSettings,
    trace: TraceSettings,
}

/// What the value of a key may be. A [`Value`](serde_json::Value) has another form in a file of TOML if serde_json has its
/// feature `arbitrary_precision`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Plain {
    Flag(bool),
    Whole(u64),
    Fraction(f64),
    Text(String),
    Texts(Vec<String>),
}

/// The keys of a section that have values.
fn keys(section: &impl Serialize) -> serde_json::Result<BTreeMap<String, Option<Plain>>> {
    serde_json::from_value(serde_json::to_value(section)?)
}

/// A section of a file, and its keys.
#[derive(Default)]
struct Section<T> {
    settings: T,
    keys: Vec<String>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Keys<T> {
            type Value = Section<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section of settings")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Section<T>, A::Error> {
                let mut keys = Vec::new();
                let noting = Noting {
                    map,
                    keys: &mut keys,
                };
                let settings = T::deserialize(MapAccessDeserializer::new(noting))?;
                Ok(Section { settings, keys })
            }
        }
        from.deserialize_map(Keys(PhantomData))
    }
}

/// A map that notes the keys that are taken out of it.
struct Noting<'a, A> {
    map: A,
    keys: &'a mut Vec<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Noting<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error>
    where
        K: DeserializeSeed<'de>,
    {
        let keys = &mut *self.keys;
        self.map.next_key_seed(Key { seed, keys })
    }

    fn next_value_seed<V>(&mut self, seed: V) -> Result<V::Value, A::Error>
    where
        V: DeserializeSeed<'de>,
    {
        self.map.next_value_seed(seed)
    }
}

/// Within the map's own work, so that an error has the key's line.
struct Key<'a, K> {
    seed: K,
    keys: &'a mut Vec<String>,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<K::Value, D::Error> {
        let key = String::deserialize(from)?;
        let field = self.seed.deserialize(StrDeserializer::new(&key))?;
        self.keys.push(key);
        Ok(field)
    }
}
