use std::sync::Arc;

#[cfg(feature = "schemars")]
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use super::names;
use crate::{config::ConfigError, error::ToolError};

/// Converts a tool's answer to that of a router of `Res`.
///
/// Everything is its own answer. A router of [`Value`]s also takes strings, `()` and [`Json`]; with
/// the feature `mcp` a router of `McpAnswer`s takes rmcp's results and responses, strings (as
/// text), `()` (nothing), and [`Value`]s and [`Json`] (as structured content, and as text; `null`
/// is nothing).
pub trait IntoAnswer<Res> {
    /// The answer.
    ///
    /// # Errors
    ///
    /// [`Reported`](crate::ErrorKind::Reported): the tool has run; its answer cannot be written.
    fn into_answer(self) -> Result<Res, ToolError>;
}

/// An answer that is written as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> Json<T> {
    fn into_value(self) -> Result<Value, ToolError> {
        serde_json::to_value(self.0).map_err(|error| {
            let message = format!("the tool's answer cannot be written as JSON: {error}");
            ToolError::unusable(message)
        })
    }
}

impl<T> IntoAnswer<T> for T {
    fn into_answer(self) -> Result<T, ToolError> {
        Ok(self)
    }
}

/// Converts each of these types to an answer.
macro_rules! answers {
    ($answer:ty { $($from:ty: |$own:pat_param| $into:expr;)* }) => {$(
        impl IntoAnswer<$answer> for $from {
            fn into_answer(self) -> Result<$answer, ToolError> {
                let $own = self;
                Ok($into)
            }
        }
    )*};
}

answers!(Value {
    String: |text| text.into();
    &'static str: |text| text.into();
    (): |()| Value::Null;
});

impl<T: Serialize> IntoAnswer<Value> for Json<T> {
    fn into_answer(self) -> Result<Value, ToolError> {
        self.into_value()
    }
}

#[cfg(feature = "mcp")]
mod mcp {
    use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};

    use super::*;
    use crate::{answer::ModelText as _, edge::mcp::McpAnswer};

    fn text(text: impl Into<String>) -> McpAnswer {
        CallToolResult::success(vec![ContentBlock::text(text)]).into()
    }

    /// With a text that a model reads: a string has no quotes there.
    fn structured(value: Value) -> McpAnswer {
        if value.is_null() {
            return CallToolResult::success(Vec::new()).into();
        }
        let text = ContentBlock::text(value.model_text());
        let mut result = CallToolResult::structured(value);
        result.content = vec![text];
        result.into()
    }

    answers!(McpAnswer {
        CallToolResponse: |response| response.into();
        CallToolResult: |result| result.into();
        String: |own| text(own);
        &'static str: |own| text(own);
        (): |()| CallToolResult::success(Vec::new()).into();
        Value: |value| structured(value);
    });

    impl<T: Serialize> IntoAnswer<McpAnswer> for Json<T> {
        fn into_answer(self) -> Result<McpAnswer, ToolError> {
            self.into_value()?.into_answer()
        }
    }
}

/// The definition of a tool of this program: its name, its description for models, and the JSON
/// Schema of its arguments.
///
/// A [router](super::RouterBuilder::described_tool) lists it, checks arguments by it
/// (`Router::schemas`), and a model's request has it (`Format::tools` of `tower-toolcall-turn`).
/// Clones share the texts.
#[derive(Clone, Debug)]
pub struct Definition {
    name: Arc<str>,
    description: Arc<str>,
    schema: Arc<Map<String, Value>>,
}

impl Definition {
    /// A tool with a schema that is written by hand.
    pub fn new(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        schema: impl Into<Arc<Map<String, Value>>>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: schema.into(),
        }
    }

    /// A tool with the schema of the type `A` of its arguments, in draft 2020-12.
    ///
    /// Arguments are always an object: the schema of `()` is an object without properties, and that
    /// of `Option<T>` is that of `T`. A type that is no object in JSON fits no call, so
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

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a model is told of the tool.
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

    /// The JSON Schema of the arguments.
    pub fn schema(&self) -> &Map<String, Value> {
        &self.schema
    }
}

#[cfg(feature = "mcp")]
impl From<&Definition> for rmcp::model::Tool {
    fn from(of: &Definition) -> Self {
        Self::new(
            of.name.to_string(),
            of.description.to_string(),
            Arc::clone(&of.schema),
        )
    }
}

#[cfg(feature = "mcp")]
impl From<&rmcp::model::Tool> for Definition {
    fn from(tool: &rmcp::model::Tool) -> Self {
        let description = tool.description.as_deref().unwrap_or("");
        Self::new(&*tool.name, description, Arc::clone(&tool.input_schema))
    }
}
