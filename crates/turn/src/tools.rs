//! The tools of a request.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tower_toolcall::router::{Definition, Names};

use crate::format::Format;

/// The definition of a tool for the model.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct ToolDefinition<'a> {
    name: &'a str,
    description: Option<&'a str>,
    schema: &'a Map<String, Value>,
}

impl<'a> ToolDefinition<'a> {
    /// Makes a tool with the JSON Schema of its arguments, and no description.
    pub fn new(name: &'a str, schema: &'a Map<String, Value>) -> Self {
        Self {
            name,
            description: None,
            schema,
        }
    }

    /// Sets the description for the model.
    pub fn with_description(mut self, description: &'a str) -> Self {
        self.description = Some(description);
        self
    }

    /// Returns the fields in the form of most providers.
    fn fields(self, names: &Names, schema_key: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".into(), names.to_model(self.name).into());
        // Converse refuses a blank one.
        if let Some(text) = self.description.filter(|text| !text.trim().is_empty()) {
            fields.insert("description".into(), text.into());
        }
        fields.insert(schema_key.into(), self.object_schema());
        fields
    }

    /// The schema, with what OpenAI and Anthropic ask of it, and servers leave out of tools without
    /// arguments, or write as null.
    fn object_schema(self) -> Value {
        let mut schema = self.schema.clone();
        schema.retain(|_, value| !value.is_null());
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.into()
    }
}

/// A tool of this program, by its definition in a router.
impl<'a> From<&'a Definition> for ToolDefinition<'a> {
    fn from(of: &'a Definition) -> Self {
        Self::new(of.name(), of.schema()).with_description(of.description())
    }
}

/// A tool of an MCP server's list.
#[cfg(feature = "rmcp")]
impl<'a> From<&'a rmcp::model::Tool> for ToolDefinition<'a> {
    fn from(tool: &'a rmcp::model::Tool) -> Self {
        Self {
            name: &tool.name,
            description: tool.description.as_deref(),
            schema: &tool.input_schema,
        }
    }
}

impl Format {
    /// Returns the tools of a request, under the names that
    /// [`Turn::with_names`](crate::Turn::with_names) maps back: the value of its field `tools`, and
    /// of `toolConfig` in Bedrock's. Some providers refuse an empty list: leave the field out then.
    ///
    /// Of several tools with one name the first stays. A schema gets `type` and `properties` where
    /// it has none; otherwise it goes as it is: as `parametersJsonSchema` to Gemini, and not
    /// `strict` to OpenAI, which refuses most schemas of tools in that mode.
    ///
    /// ```
    /// use serde_json::{Map, json};
    /// use tower_toolcall_turn::{Format, Names, ToolDefinition};
    ///
    /// let schema = Map::from_iter([("type".to_owned(), json!("object"))]);
    /// let search =
    ///     ToolDefinition::new("docs/search", &schema).with_description("Searches the docs");
    /// let tools = Format::Anthropic.tools(&Names::new(["docs/search"]), [search]);
    /// assert_eq!(tools, json!([{
    ///     "name": "docs_search_5af14947",
    ///     "description": "Searches the docs",
    ///     "input_schema": { "type": "object", "properties": {} },
    /// }]));
    /// ```
    pub fn tools<'a, D: Into<ToolDefinition<'a>>>(
        self,
        names: &Names,
        tools: impl IntoIterator<Item = D>,
    ) -> Value {
        let mut seen = HashSet::new();
        let tools = tools.into_iter().map(Into::into);
        let tools = tools.filter(|tool: &ToolDefinition<'a>| seen.insert(tool.name));
        let schema_key = match self {
            Self::OpenAiChat | Self::OpenAiResponses => "parameters",
            Self::Anthropic => "input_schema",
            Self::Gemini => "parametersJsonSchema",
            Self::Bedrock => "inputSchema",
        };
        let list = tools.map(|tool| {
            let mut fields = tool.fields(names, schema_key);
            match self {
                Self::OpenAiChat => json!({ "type": "function", "function": fields }),
                Self::OpenAiResponses => {
                    fields.insert("type".into(), "function".into());
                    // True by default.
                    fields.insert("strict".into(), false.into());
                    fields.into()
                }
                Self::Anthropic | Self::Gemini => fields.into(),
                Self::Bedrock => {
                    if let Some(schema) = fields.get_mut(schema_key) {
                        *schema = json!({ "json": schema.take() });
                    }
                    json!({ "toolSpec": fields })
                }
            }
        });
        let list: Vec<Value> = list.collect();
        match self {
            Self::Gemini if list.is_empty() => json!([]),
            Self::Gemini => json!([{ "functionDeclarations": list }]),
            Self::Bedrock => json!({ "tools": list }),
            _ => list.into(),
        }
    }
}

pub(super) fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
