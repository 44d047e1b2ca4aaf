//! The schemas of a server's tools, for a
//! [`ValidateLayer`](tower_toolcall::validate::ValidateLayer).

use std::{sync::Arc, time::Duration};

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use tokio::time::Instant;
use tower_toolcall::{
    ConfigError,
    call::CallInfo,
    check::{Check, warn_of_invalid_output},
    error::AnyError,
    validate::{Draft, Schema, Schemas},
};

use super::{Catalog, McpAnswer, McpTools, refuse_if};

/// How long the schemas of one list may take to compile, together: an honest list takes
/// milliseconds.
const MAX_TIME: Duration = Duration::from_secs(1);

/// Which schema of a tool.
type Of = fn(&Tool) -> Option<&Arc<JsonObject>>;

fn input(tool: &Tool) -> Option<&Arc<JsonObject>> {
    Some(&tool.input_schema)
}

fn output(tool: &Tool) -> Option<&Arc<JsonObject>> {
    tool.output_schema.as_ref()
}

impl Catalog {
    /// Replaces the table's schemas of this server.
    fn put(&self, schemas: &Schemas, of: Of) {
        let begun = Instant::now();
        let list = self.tools().filter_map(|tool| {
            let schema = of(tool)?;
            Some((&*tool.name, self.compiled(schema, begun)))
        });
        schemas.replace(self.server(), list);
    }

    /// MCP's default is draft 2020-12.
    fn compiled(&self, schema: &Arc<JsonObject>, begun: Instant) -> Result<Schema, ConfigError> {
        let late = begun.elapsed() > MAX_TIME;
        let reason = "is one of a list that takes longer than 1 s to compile";
        refuse_if(late, "schema", reason)?;
        let schema = Value::Object(JsonObject::clone(schema));
        match self.trusted {
            true => Schema::compile_trusted(&schema, Draft::Draft202012),
            false => Schema::compile_with(&schema, Draft::Draft202012),
        }
    }

    /// Replaces the table's schemas of this catalog's server by the input schemas of its tools; of
    /// a catalog without a server, those of all tools without one, such as the program's own.
    ///
    /// ```
    /// use rmcp::{handler::server::tool::schema_for_type, model::Tool};
    /// use schemars::JsonSchema;
    /// use serde_json::json;
    /// use tower_toolcall::validate::Schemas;
    /// use tower_toolcall_mcp::Catalog;
    ///
    /// #[derive(JsonSchema)]
    /// struct Count { text: String, at_most: Option<u32> }
    ///
    /// let schemas = Schemas::new();
    /// let tool = Tool::new("count_words", "Counts words", schema_for_type::<Count>());
    /// Catalog::new([tool]).put_schemas(&schemas);
    /// let schema = schemas.get(None, "count_words").unwrap();
    /// assert!(schema.is_valid(&json!({ "text": "a b" })) && !schema.is_valid(&json!({})));
    /// ```
    pub fn put_schemas(&self, schemas: &Schemas) {
        self.put(schemas, input);
    }

    /// Returns the output schemas of the tools, for an [`McpOutput`](super::McpOutput).
    pub fn output_schemas(&self) -> Schemas {
        let schemas = Schemas::new();
        self.put(&schemas, output);
        schemas
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#implementation-requirements
//# Clients and servers SHOULD document which schema dialects they support
/// The input schemas of the tools, of draft 2020-12 if they do not say otherwise.
impl From<&Catalog> for Schemas {
    fn from(catalog: &Catalog) -> Self {
        let schemas = Self::new();
        catalog.put_schemas(&schemas);
        schemas
    }
}

impl McpTools {
    /// Keeps the input schemas of the server's tools in this table, now and whenever the list
    /// changes: they are compiled in the task that has read the list, and never in a call. Those
    /// that do not say otherwise are of draft 2020-12. After 1 s the rest of a list is refused: see
    /// [`Schemas::refused`].
    ///
    /// Schemas are [measured](Schema#limits) unless the server is
    /// [trusted](Catalog::trust_annotations): those that refer to themselves are then not enforced.
    ///
    /// A table may have the schemas of several servers, if their [names](Catalog::with_server)
    /// differ. They are found by the server's name and the tool's: where calls name their server,
    /// as those through a router do, the catalog has to have this name too. A list without one
    /// replaces all schemas of tools without a server.
    ///
    /// They stay when the list is dropped, as another may have taken its place:
    /// [`Schemas::remove_server`] takes them out.
    ///
    /// ```
    /// use tower_toolcall::validate::{Schemas, ValidateLayer};
    /// use tower_toolcall_mcp::{Catalog, McpTools};
    ///
    /// let schemas = Schemas::new();
    /// let tools = McpTools::new(Catalog::default().with_server("docs")).with_schemas(&schemas);
    /// let layer = ValidateLayer::new(&schemas);
    /// // tools.refresh(client.peer()).await?;
    /// // and `tools` goes to McpNotifications, a router or a gateway
    /// # let _ = (tools, layer);
    /// ```
    #[must_use]
    pub fn with_schemas(self, schemas: &Schemas) -> Self {
        self.follow(schemas, input)
    }

    /// Keeps the output schemas of the server's tools likewise, for an
    /// [`McpOutput`](super::McpOutput).
    #[must_use]
    pub fn with_output_schemas(self, schemas: &Schemas) -> Self {
        self.follow(schemas, output)
    }

    fn follow(self, schemas: &Schemas, of: Of) -> Self {
        let (tools, table) = (self.downgrade(), schemas.clone());
        self.on_change(move || {
            if let Some(tools) = tools() {
                tools.put_current(&table, of);
            }
        });
        // After that: a change in between is not lost.
        self.put_current(schemas, of);
        self
    }

    /// Two tasks may compile concurrently, and the older list may finish last: then it finds the
    /// newer list here.
    fn put_current(&self, schemas: &Schemas, of: Of) {
        loop {
            let catalog = self.catalog();
            catalog.put(schemas, of);
            if Arc::ptr_eq(&catalog, &self.catalog()) {
                return;
            }
        }
    }
}

/// The effect of an answer that does not fit its tool's output schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnInvalid {
    /// The answer is not checked.
    Off,
    /// The answer is returned, with the event `tool.invalid_output`. The default.
    #[default]
    Warn,
    /// The answer becomes an error of the kind [`Reported`](tower_toolcall::ErrorKind::Reported).
    Report,
}

/// The `structuredContent` of answers against the `outputSchema` of their tools: for a
/// [`CheckLayer`](tower_toolcall::check::CheckLayer).
///
/// Answers with `isError` are not looked at: they have no structured content to be right. An answer
/// that lacks the structured content of which its tool has a schema is worth a warning
/// (`tool.invalid_output`) at the most.
///
/// ```
/// use tower_toolcall::{check::CheckLayer, validate::Schemas};
/// use tower_toolcall_mcp::{Catalog, McpOutput, McpTools, OnInvalid};
///
/// let outputs = Schemas::new();
/// let tools = McpTools::new(Catalog::default()).with_output_schemas(&outputs);
/// let layer = CheckLayer::new(McpOutput::new(&outputs).with_invalid(OnInvalid::Report));
/// # let _ = (tools, layer);
/// ```
#[derive(Clone, Debug)]
pub struct McpOutput {
    schemas: Schemas,
    invalid: OnInvalid,
}

impl McpOutput {
    /// Makes a check with these output schemas, also those that come later.
    pub fn new(schemas: &Schemas) -> Self {
        Self {
            schemas: schemas.clone(),
            invalid: OnInvalid::default(),
        }
    }

    /// Sets what becomes of an answer that does not fit. Default: [`OnInvalid::Warn`].
    #[must_use]
    pub fn with_invalid(mut self, invalid: OnInvalid) -> Self {
        self.invalid = invalid;
        self
    }
}

impl Check<McpAnswer> for McpOutput {
    fn check(&self, call: &CallInfo, answer: &McpAnswer) -> Result<(), AnyError> {
        let Some(result) = answer.result() else {
            return Ok(());
        };
        if self.invalid == OnInvalid::Off || result.is_error == Some(true) {
            return Ok(());
        }
        let Some(schema) = self.schemas.of_call(call) else {
            return Ok(());
        };
        let Some(content) = &result.structured_content else {
            warn_of_invalid_output(call, &"the structured content is missing");
            return Ok(());
        };
        let errors = schema.errors(content);
        if errors.is_empty() {
            return Ok(());
        }
        let text = format!("the structured content does not fit: {errors}");
        if self.invalid == OnInvalid::Report {
            return Err(text.into());
        }
        warn_of_invalid_output(call, &text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each one takes 0.4 s.
    fn slow(tool: &Tool) -> Option<&Arc<JsonObject>> {
        let time = tokio::time::advance(Duration::from_millis(400));
        let _ = tokio_test::task::spawn(time).poll();
        input(tool)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_slow_list_has_after_a_second_is_refused() {
        let tool = |n: usize| Tool::new(format!("t{n}"), "", Arc::default());
        let schemas = Schemas::new();
        Catalog::new((0..10).map(tool)).put(&schemas, slow);
        let refused = schemas.refused();
        assert_eq!((schemas.len(), refused.len()), (10, 8));
        let reason = refused[0].1.reason();
        assert!(reason.contains("longer than 1 s"), "{reason}");
    }

    thread_local! {
        static LIST: McpTools = McpTools::new(Catalog::new([Tool::new("old", "", Arc::default())]));
    }

    /// The list changes, and is compiled elsewhere, while the old one is compiled.
    fn overtaken(tool: &Tool) -> Option<&Arc<JsonObject>> {
        if tool.name == "old" {
            let new = Catalog::new([Tool::new("new", "", Arc::default())]);
            LIST.with(|tools| tools.set(new));
        }
        input(tool)
    }

    #[test]
    fn a_list_that_compiles_slowly_does_not_replace_a_newer_one() {
        let schemas = Schemas::new();
        LIST.with(|tools| tools.put_current(&schemas, overtaken));
        assert!(schemas.get(None, "new").is_some() && schemas.get(None, "old").is_none());
    }
}
