//! The schemas of a server's tools, for a [`ValidateLayer`](crate::validate::ValidateLayer).

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use super::{Catalog, McpTools};
use crate::{
    config::ConfigError,
    validate::{Draft, Schema, Schemas},
};

/// Which schema of a tool.
type Of = fn(&Tool) -> Option<&Arc<JsonObject>>;

fn input(tool: &Tool) -> Option<&Arc<JsonObject>> {
    Some(&tool.input_schema)
}

fn output(tool: &Tool) -> Option<&Arc<JsonObject>> {
    tool.output_schema.as_ref()
}

impl Catalog {
    /// Puts the schemas of the tools in the place of those that the table has of this server.
    fn put(&self, schemas: &Schemas, of: Of) {
        let list = self.tools().filter_map(|tool| {
            let schema = of(tool)?;
            Some((&*tool.name, compiled(schema)))
        });
        schemas.replace(self.server(), list);
    }

    /// Puts the input schemas of the tools in the place of those that the table has of this server, or of tools without a
    /// server: those of a program's own tools, for example.
    ///
    /// ```
    /// use rmcp::{handler::server::tool::schema_for_type, model::Tool};
    /// use schemars::JsonSchema;
    /// use serde_json::json;
    /// use tower_toolcall::{mcp::Catalog, validate::Schemas};
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

    /// The output schemas of the tools, for an [`McpOutput`](super::McpOutput).
    pub fn output_schemas(&self) -> Schemas {
        let schemas = Schemas::new();
        self.put(&schemas, output);
        schemas
    }
}

/// MCP's default is draft 2020-12.
fn compiled(schema: &Arc<JsonObject>) -> Result<Schema, ConfigError> {
    let schema = Value::Object(JsonObject::clone(schema));
    Schema::compile_with(&schema, Draft::Draft202012)
}

/// The input schemas of the tools, of draft 2020-12 if they do not say otherwise.
impl From<&Catalog> for Schemas {
    fn from(catalog: &Catalog) -> Self {
        let schemas = Self::new();
        catalog.put_schemas(&schemas);
        schemas
    }
}

impl McpTools {
    /// Keeps the input schemas of the server's tools in this table, now and whenever the list changes: they are compiled in the
    /// task that has read the list, and never in a call. Those that do not say otherwise are of draft 2020-12.
    ///
    /// A table may have the schemas of several servers, if their [names](Catalog::with_server) differ.
    ///
    /// ```
    /// use tower_toolcall::{mcp::{Catalog, McpTools}, validate::{Schemas, ValidateLayer}};
    ///
    /// let schemas = Schemas::new();
    /// let tools = McpTools::new(Catalog::default().with_server("docs")).with_schemas(&schemas);
    /// let layer = ValidateLayer::new(&schemas);
    /// // tools.refresh(client.peer()).await?; and `tools` goes to McpNotifications, a router or a gateway
    /// # let _ = (tools, layer);
    /// ```
    #[must_use]
    pub fn with_schemas(self, schemas: &Schemas) -> Self {
        self.follow(schemas, input)
    }

    /// The same with the output schemas, for an [`McpOutput`](super::McpOutput).
    #[must_use]
    pub fn with_output_schemas(self, schemas: &Schemas) -> Self {
        self.follow(schemas, output)
    }

    fn follow(self, schemas: &Schemas, of: Of) -> Self {
        self.catalog().put(schemas, of);
        let (tools, schemas) = (self.downgrade(), schemas.clone());
        self.on_change(move || {
            if let Some(tools) = tools() {
                tools.catalog().put(&schemas, of);
            }
        });
        self
    }
}
