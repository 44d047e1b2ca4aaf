use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use super::{parts::UNEVALUATED, schema::Schema};
use crate::{
    call::{CallInfo, hash_of},
    config::ConfigError,
    event::{event, short},
    kit::registry::Table,
    lock::lock,
};

/// How many schemas are kept.
const MAX_SCHEMAS: usize = 10_000;

/// How many of one list: no server takes the room of others.
const MAX_OF_LIST: usize = 1_000;

/// The schemas of tools, by server and tool: 10,000 at most, and 1,000 of each list. Reading one is
/// an atomic load, whatever is being written.
///
/// Clones are the same table.
///
/// A schema that cannot be compiled, or is beyond the [limits](Schema#limits), is
/// [refused](Self::refused): it is not enforced, and calls of its tool pass, unless the layer is
/// [strict](super::ValidateLayer::strict).
///
/// ```
/// use serde_json::json;
/// use tower_toolcall::validate::{Schema, Schemas};
///
/// let schemas = Schemas::new();
/// // What the program has itself:
/// schemas.insert(None, "weather", Schema::compile(&json!({ "required": ["city"] }))?);
/// // Replaces the schemas of a server's tools:
/// let list = [("search", json!({ "type": "object" })), ("odd", json!({ "type": 7 }))];
/// schemas.replace(
///     Some("docs"),
///     list.iter().map(|(tool, schema)| (*tool, Schema::compile(schema))),
/// );
///
/// assert_eq!(schemas.len(), 3);
/// assert_eq!(schemas.refused()[0].0, "docs/odd");
/// # Ok::<_, tower_toolcall::ConfigError>(())
/// ```
///
/// Types of the program, as tools of `router::tool_fn` have them, may have schemas by
/// [schemars](https://docs.rs/schemars):
///
/// ```
/// use schemars::{JsonSchema, schema_for};
/// use tower_toolcall::validate::{Draft, Schema, Schemas};
///
/// #[derive(JsonSchema)]
/// struct Weather { city: String, days: u8 }
///
/// let schemas = Schemas::new();
/// let schema = Schema::compile_trusted(schema_for!(Weather).as_value(), Draft::Draft202012)?;
/// schemas.insert(None, "weather", schema);
/// # Ok::<_, tower_toolcall::ConfigError>(())
/// ```
///
/// `McpServer::with_schemas` of `tower-toolcall-mcp` follows the list of an MCP server, and
/// `Schemas::from(&catalog)` has those of one list.
#[derive(Clone, Default)]
pub struct Schemas(Arc<Inner>);

#[derive(Default)]
struct Inner {
    table: ArcSwap<Schemata>,
    writing: Mutex<()>,
}

/// By the hash of server and tool, which calls know. Of two names with one hash, the first has the
/// place.
type Schemata = Table<Arc<Entry>>;

struct Entry {
    server: Option<Box<str>>,
    tool: Box<str>,
    schema: Result<Schema, ConfigError>,
}

impl Entry {
    fn is_of(&self, server: Option<&str>) -> bool {
        self.server.as_deref() == server
    }

    fn name(&self) -> String {
        match &self.server {
            Some(server) => format!("{}/{}", short(server), short(&self.tool)),
            None => short(&self.tool).to_string(),
        }
    }

    /// Returns why some of the schema, or all of it, is not checked.
    fn refusal(&self) -> Option<ConfigError> {
        match &self.schema {
            Err(error) => Some(error.clone()),
            Ok(schema) => {
                let part = schema.omitted().next()?;
                let is_keyword = UNEVALUATED.contains(&part);
                let kind = if is_keyword { "keyword" } else { "pattern" };
                let reason = format!("has a {kind} that is left out: {}", short(part));
                Some(ConfigError::new("schema", reason))
            }
        }
    }
}

impl Schemas {
    /// Makes a table without schemas.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the schema of a tool. Returns `false`, and does not set it, if 10,000 other tools have
    /// one. The table is copied each time: use [`replace`](Self::replace) for many.
    pub fn insert(&self, server: Option<&str>, tool: &str, schema: Schema) -> bool {
        self.write(|table| add(table, MAX_SCHEMAS, server, tool, Ok(schema)))
    }

    /// Replaces the schemas of a server's tools, or of those without a server, by those of a list,
    /// in one step. One warning, `tool.schema`, names those that are refused, have an
    /// [omitted](Schema::omitted) pattern, or are beyond the first 1,000 of the list or 10,000 of
    /// all. Tools that are beyond have no schema, so that their calls are not checked.
    pub fn replace<N: AsRef<str>>(
        &self,
        server: Option<&str>,
        list: impl IntoIterator<Item = (N, Result<Schema, ConfigError>)>,
    ) {
        let mut new = Schemata::default();
        let (mut tools, mut lost) = (0_usize, 0_usize);
        for (tool, schema) in list {
            tools += 1;
            lost += usize::from(!add(&mut new, MAX_OF_LIST, server, tool.as_ref(), schema));
        }
        let mut unchecked: Vec<(String, ConfigError)> = Vec::new();
        for entry in new.values() {
            unchecked.extend(entry.refusal().map(|error| (entry.tool.to_string(), error)));
        }
        self.write(|table| {
            table.retain(|_, entry| !entry.is_of(server));
            for (hash, entry) in new {
                match table.len() < MAX_SCHEMAS {
                    true => _ = table.entry(hash).or_insert(entry),
                    false => lost += 1,
                }
            }
        });
        unchecked.sort_by(|a, b| a.0.cmp(&b.0));
        let first = unchecked.first();
        if first.is_some() || lost > 0 {
            event!(WARN SCHEMA, SERVER = server.map(short), TOOL = first.map(|(tool, _)| short(tool)),
                ERROR = first.map(|(_, error)| error.reason()), TOOLS = tools,
                UNCHECKED = unchecked.len() + lost);
        }
    }

    /// Takes out the schema of a tool.
    pub fn remove(&self, server: Option<&str>, tool: &str) {
        let is_it = |entry: &Entry| entry.is_of(server) && *entry.tool == *tool;
        self.write(|table| table.retain(|_, entry| !is_it(entry)));
    }

    /// Takes out the schemas of a server's tools, or of those without a server. A list that is
    /// still followed puts them back when it changes: drop it first.
    pub fn remove_server(&self, server: Option<&str>) {
        self.write(|table| table.retain(|_, entry| !entry.is_of(server)));
    }

    /// Returns the schema of a tool, unless it has none or was refused.
    pub fn get(&self, server: Option<&str>, tool: &str) -> Option<Schema> {
        let hash = hash_of(server, Some(tool));
        self.read(hash, server, tool, |schema| schema.clone().ok())?
    }

    /// Returns the schema of a call's tool, unless it has none or was refused.
    pub fn of_call(&self, call: &CallInfo) -> Option<Schema> {
        self.of(call, |schema| schema.clone().ok())?
    }

    /// Returns the schemas that are not enforced, and why: `server/tool`, or the tool's name alone.
    /// Sorted by name.
    ///
    /// They are those that cannot be compiled, are too large or refer to themselves, and those of
    /// which a pattern or `unevaluated...` is [left out](Schema::omitted) while the rest is
    /// enforced. A server that is trusted has most of them compiled by [`Schema::compile_trusted`].
    pub fn refused(&self) -> Vec<(String, ConfigError)> {
        let table = self.0.table.load();
        let mut refused: Vec<_> = table
            .values()
            .filter_map(|entry| Some((entry.name(), entry.refusal()?)))
            .collect();
        refused.sort_by(|a, b| a.0.cmp(&b.0));
        refused
    }

    /// Returns the number of schemas, with those that were refused.
    pub fn len(&self) -> usize {
        self.0.table.load().len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the schema of a call's tool in its place. `None`: the tool has none.
    #[inline]
    pub(crate) fn of<T>(
        &self,
        call: &CallInfo,
        read: impl FnOnce(&Result<Schema, ConfigError>) -> T,
    ) -> Option<T> {
        let hash = match call.listed_tool() {
            Some(_) => call.tool_hash(),
            // The call's own hash is then that of all tools of the server.
            None => hash_of(call.server(), Some(call.tool())),
        };
        self.read(hash, call.server(), call.tool(), read)
    }

    #[inline]
    fn read<T>(
        &self,
        hash: u64,
        server: Option<&str>,
        tool: &str,
        read: impl FnOnce(&Result<Schema, ConfigError>) -> T,
    ) -> Option<T> {
        let table = self.0.table.load();
        let entry = table.get(&hash)?;
        (entry.is_of(server) && *entry.tool == *tool).then(|| read(&entry.schema))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Schemata) -> T) -> T {
        let _writing = lock(&self.0.writing);
        let mut table = Schemata::clone(&self.0.table.load());
        let changed = change(&mut table);
        self.0.table.store(Arc::new(table));
        changed
    }
}

/// Returns whether there was room for it.
fn add(
    table: &mut Schemata,
    most: usize,
    server: Option<&str>,
    tool: &str,
    schema: Result<Schema, ConfigError>,
) -> bool {
    let hash = hash_of(server, Some(tool));
    let has_room = table.len() < most || table.contains_key(&hash);
    if has_room {
        let entry = Entry {
            server: server.map(Into::into),
            tool: tool.into(),
            schema,
        };
        table.insert(hash, Arc::new(entry));
    }
    has_room
}

crate::text::debug_fields! { {} |this| Schemas { len: this.len(), .. } }
