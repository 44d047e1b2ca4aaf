//! Names of tools that no tool has, with the nearest that one has.

use super::nearest::Nearest;
use crate::{
    config::ConfigError,
    identity::{Identity, Resolve, ToolNames},
    kit::per_tool::Name,
    text::did_you_mean,
};

impl ToolNames {
    /// Checks that each name matches a tool. A table that does not have all tools yet passes.
    ///
    /// # Errors
    ///
    /// The name of the layer, with the first name or pattern that matches no tool, and the nearest
    /// tools.
    pub fn check(&self, tools: &impl Resolve) -> Result<(), ConfigError> {
        let tools = tools.identities();
        tools.map_or(Ok(()), |tools| self.check_all(&tools))
    }

    pub(crate) fn check_all(&self, tools: &[Identity]) -> Result<(), ConfigError> {
        let mut names = self.0.iter();
        names.try_for_each(|(layer, name)| check(*layer, name, tools))
    }
}

impl Name {
    /// Returns whether it is for this tool.
    fn is_of(&self, tool: &Identity) -> bool {
        let is_of_server = match (&self.server, tool.server()) {
            (Some(glob), server) => server.is_some_and(|server| glob.matches(server)),
            (None, _) => true,
        };
        is_of_server && (self.tool.matches(tool.tool()) || self.tool.matches(&tool.flat()))
    }
}

/// Returns an error of the setting `field` if the name matches none of the tools.
pub(crate) fn check(
    field: impl Into<std::borrow::Cow<'static, str>>,
    name: &Name,
    tools: &[Identity],
) -> Result<(), ConfigError> {
    if tools.iter().any(|tool| name.is_of(tool)) {
        return Ok(());
    }
    let asked = name.tool.as_str().replace('*', "");
    let bare = asked.rsplit_once("__").map_or(&*asked, |(_, tool)| tool);
    let mut nearest = Nearest::to(&asked, bare);
    let _ = tools.iter().try_for_each(|tool| match tool.server() {
        Some(_) => nearest.offer(&tool.flat(), tool.tool()),
        None => nearest.offer_local(tool.tool()),
    });
    let text = name.text();
    let reason = match did_you_mean(&nearest.into_names()) {
        Some(meant) => format!("`{text}` matches no tool; {meant}"),
        None => format!("`{text}` matches no tool"),
    };
    Err(ConfigError::new(field, reason))
}
