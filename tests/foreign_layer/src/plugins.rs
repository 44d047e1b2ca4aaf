//! A protocol of another author: its tools come and go, and its answers are pages.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use tower_toolcall::{
    ReplaySafety, ToolError,
    router::{Definition, IntoAnswer, Json, ToolList, Tools},
};

/// An answer of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page(pub String);

impl IntoAnswer<Page> for String {
    fn into_answer(self) -> Result<Page, ToolError> {
        Ok(Page(self))
    }
}

impl<T: Serialize> IntoAnswer<Page> for Json<T> {
    fn into_answer(self) -> Result<Page, ToolError> {
        let value: serde_json::Value = self.into_answer()?;
        value.to_string().into_answer()
    }
}

/// A tool as the protocol lists it.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Calls change nothing.
    pub reads: bool,
    /// Its version.
    pub version: u32,
}

type List = Option<BTreeMap<Arc<str>, Plugin>>;

/// The tools of a host, which come and go; `None` until it was asked.
#[derive(Clone, Debug, Default)]
pub struct Plugins(Arc<Mutex<List>>);

impl Plugins {
    /// Replaces the list.
    pub fn read(&self, list: impl IntoIterator<Item = (&'static str, Plugin)>) {
        let list = list.into_iter().map(|(name, of)| (name.into(), of));
        *self.list() = Some(list.collect());
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plugin(&self, name: &str) -> Option<Plugin> {
        self.list().as_ref()?.get(name).cloned()
    }
}

impl Tools for Plugins {
    fn find(&self, tool: &str) -> Option<Arc<str>> {
        let list = self.list();
        list.as_ref()?
            .get_key_value(tool)
            .map(|(name, _)| Arc::clone(name))
    }

    fn try_each(&self, f: &mut dyn FnMut(&Arc<str>) -> ControlFlow<()>) -> ControlFlow<()> {
        let list = self.list();
        list.iter().flatten().try_for_each(|(name, _)| f(name))
    }

    fn definition(&self, tool: &str) -> Option<Definition> {
        let schema = serde_json::Map::from_iter([("type".to_owned(), "object".into())]);
        let definition = Definition::new(tool, "a plugin", schema);
        // The claim of the plugin. The router believes `replay_safety`.
        let definition = definition.with_replay_safety(ReplaySafety::Safe);
        Some(definition.with_original(self.plugin(tool)?))
    }

    fn replay_safety(&self, tool: &str) -> ReplaySafety {
        match self.plugin(tool) {
            Some(plugin) if plugin.reads => ReplaySafety::Safe,
            _ => ReplaySafety::Unknown,
        }
    }

    fn is_read(&self) -> bool {
        self.list().is_some()
    }
}

impl From<Plugins> for ToolList {
    fn from(plugins: Plugins) -> Self {
        Self::new(plugins)
    }
}
