use std::{any::Any, sync::Arc};

#[cfg(feature = "schemars")]
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use super::names;
use crate::{call::ReplaySafety, config::ConfigError, error::ToolError};

/// Converts a tool's answer to that of a router of `Res`.
///
/// Each type converts to itself. A router of [`Value`]s also takes strings, `()` and [`Json`]. A
/// crate with a type of answers implements the trait for what its routers take, also for types of
/// other crates:
///
/// ```
/// use serde::Serialize;
/// use tower_toolcall::{ToolError, router::{IntoAnswer, Json}};
///
/// struct Page(String);
///
/// impl IntoAnswer<Page> for &'static str {
///     fn into_answer(self) -> Result<Page, ToolError> {
///         Ok(Page(self.to_owned()))
///     }
/// }
///
/// impl<T: Serialize> IntoAnswer<Page> for Json<T> {
///     fn into_answer(self) -> Result<Page, ToolError> {
///         let value: serde_json::Value = self.into_answer()?;
///         Ok(Page(value.to_string()))
///     }
/// }
/// ```
pub trait IntoAnswer<Res> {
    /// Returns the answer.
    ///
    /// # Errors
    ///
    /// [`Reported`](crate::ErrorKind::Reported): the tool has run; its answer cannot be written.
    fn into_answer(self) -> Result<Res, ToolError>;
}

/// An answer that is written as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T> IntoAnswer<T> for T {
    fn into_answer(self) -> Result<T, ToolError> {
        Ok(self)
    }
}

impl IntoAnswer<Value> for String {
    fn into_answer(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl IntoAnswer<Value> for &'static str {
    fn into_answer(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl IntoAnswer<Value> for () {
    fn into_answer(self) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}

impl<T: Serialize> IntoAnswer<Value> for Json<T> {
    fn into_answer(self) -> Result<Value, ToolError> {
        serde_json::to_value(self.0).map_err(|error| {
            let message = format!("the tool's answer cannot be written as JSON: {error}");
            ToolError::unusable(message)
        })
    }
}

/// The definition of a tool: its name, its description for models, and the JSON Schema of its
/// arguments.
///
/// A [router](super::RouterBuilder::described_tool) lists it, checks the arguments of the program's
/// own tools by it (`Router::schemas`), and a model's request has it (`Format::tools` of
/// `tower-toolcall-turn`). Clones share the texts.
#[derive(Clone, Debug)]
#[must_use]
pub struct Definition {
    name: Arc<str>,
    description: Arc<str>,
    schema: Arc<Map<String, Value>>,
    replay: ReplaySafety,
    original: Option<Arc<dyn Any + Send + Sync>>,
}

impl Definition {
    /// Makes a tool with a schema that is written by hand.
    pub fn new(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        schema: impl Into<Arc<Map<String, Value>>>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: schema.into(),
            replay: ReplaySafety::Unknown,
            original: None,
        }
    }

    /// Sets whether calls of the tool may run twice. Default: [`ReplaySafety::Unknown`].
    ///
    /// A router believes it of the program's own tools. Of a server's tools it asks the
    /// [list](super::Tools::replay_safety).
    pub fn with_replay_safety(mut self, replay: ReplaySafety) -> Self {
        self.replay = replay;
        self
    }

    /// Keeps the definition that a protocol has of the tool, for an adapter of this protocol that
    /// lists the tools of a router. Default: none.
    pub fn with_original<T: Send + Sync + 'static>(mut self, original: impl Into<Arc<T>>) -> Self {
        self.original = Some(original.into());
        self
    }

    /// Renames the tool to what callers call it.
    pub(super) fn renamed(mut self, name: String) -> Self {
        self.name = name.into();
        self
    }

    /// Makes a tool with the schema of the type `A` of its arguments, in draft 2020-12.
    ///
    /// Arguments are always an object: the schema of `()` is an object without properties, and that
    /// of `Option<T>` is that of `T`. A type that is not an object in JSON fits no call, so
    /// [`RouterBuilder::build`](super::RouterBuilder::build) refuses its definition.
    #[cfg(feature = "schemars")]
    pub fn of<A: JsonSchema>(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        let schema =
            SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<A>();
        let mut schema = match schema.to_value() {
            Value::Object(map) => map,
            _ => Map::new(), // `true`
        };
        let is_object = match schema.get("type") {
            Some(Value::String(of)) => of == "null",
            Some(Value::Array(of)) => of.contains(&"object".into()),
            _ => true,
        };
        if is_object {
            schema.insert("type".to_owned(), "object".into());
        }
        Self::new(name, description, schema)
    }

    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description that a model reads.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Fails if the schema is that of another type than an object.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let is_object = |of: &Value| match of {
            Value::Array(of) => of.contains(&"object".into()),
            of => of == "object",
        };
        match self.schema.get("type") {
            Some(of) if !is_object(of) => {
                let reason = format!("has a schema of type {of}, and arguments are an object");
                Err(names::of("tool", &self.name, &reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns the JSON Schema of the arguments. Clones of the `Arc` share it.
    pub fn schema(&self) -> &Arc<Map<String, Value>> {
        &self.schema
    }

    /// Returns whether calls of the tool may run twice.
    pub fn replay_safety(&self) -> ReplaySafety {
        self.replay
    }

    /// Returns the [original](Self::with_original) definition, if it is of this type. Its name is
    /// the tool's own one, without the server's.
    pub fn original<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.original.as_ref()?.downcast_ref()
    }
}
