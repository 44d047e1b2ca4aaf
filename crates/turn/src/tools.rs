//! The tools of a request.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde_json::{Map, Value, json};
use tower_toolcall::router::Definition;

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

/// The longest name of a tool that all providers take, in bytes.
pub const MAX_TOOL_NAME: usize = 64;

/// Names of tools as providers take them, and back: letters, digits, `_` and `-`, at most
/// [`MAX_TOOL_NAME`], no digit and no `-` first.
///
/// A name that fits passes unchanged. In any other each character that does not fit becomes `_`,
/// and a hash of the whole name is appended, so that it is the same name in each turn and process,
/// whichever other tools there are.
///
/// ```
/// use tower_toolcall_turn::Names;
///
/// let names = Names::new(["docs/search", "docs__search"]);
/// assert_eq!(names.to_model("docs__search"), "docs__search");
/// assert_eq!(names.to_model("docs/search"), "docs_search_5af14947");
/// assert_eq!(names.to_tool("docs_search_5af14947"), "docs/search");
/// assert_eq!(names.to_tool("unknown"), "unknown");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Only those that differ.
    to_model: HashMap<String, String>,
    to_tool: HashMap<String, String>,
}

impl Names {
    /// Returns the names of the tools that the model may call.
    pub fn new<N: AsRef<str>>(tools: impl IntoIterator<Item = N>) -> Self {
        let tools: Vec<N> = tools.into_iter().collect();
        let mut taken: HashSet<String> = HashSet::new();
        let fits = |tool: &&N| is_name(tool.as_ref());
        let fitting = tools.iter().filter(fits);
        taken.extend(fitting.map(|tool| tool.as_ref().to_owned()));
        let mut names = Self::default();
        for tool in tools.iter().map(AsRef::as_ref) {
            if is_name(tool) || names.to_model.contains_key(tool) {
                continue;
            }
            // The first is free, but for a collision of hashes.
            let mut names_of = (0_u32..).map(|n| made(tool, n));
            let free = names_of.find(|name| !taken.contains(name));
            let name = free.unwrap_or_default();
            taken.insert(name.clone());
            names.to_tool.insert(name.clone(), tool.to_owned());
            names.to_model.insert(tool.to_owned(), name);
        }
        names
    }

    /// Returns the name under which the model knows a tool: for the list of tools in the request.
    pub fn to_model<'a>(&'a self, tool: &'a str) -> Cow<'a, str> {
        match self.to_model.get(tool) {
            Some(name) => Cow::Borrowed(name),
            None if is_name(tool) => Cow::Borrowed(tool),
            None => Cow::Owned(made(tool, 0)),
        }
    }

    /// Returns the tool of a name that the model used; an unknown name as it is.
    pub fn to_tool<'a>(&'a self, name: &'a str) -> &'a str {
        self.to_tool.get(name).map_or(name, String::as_str)
    }
}

fn is_name(name: &str) -> bool {
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MAX_TOOL_NAME
        && name.bytes().next().is_some_and(begins)
        && name.chars().all(is_allowed)
}

pub(super) fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A name that fits, made of any; `n` counts collisions.
pub(super) fn made(tool: &str, n: u32) -> String {
    let hash = hash(tool).wrapping_add(n);
    let begins_badly = tool.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let first = begins_badly.then_some('_');
    let fitting = tool.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let head = first.into_iter().chain(fitting).take(MAX_TOOL_NAME - 9);
    format!("{}_{hash:08x}", head.collect::<String>())
}

/// FNV-1a: the same in every process and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
