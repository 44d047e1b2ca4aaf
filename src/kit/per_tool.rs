//! Settings of single tools, by name.

use crate::call::ToolCall;

/// Values by the names of tools, sorted: few tools have settings of their own.
#[derive(Clone, Debug)]
pub(crate) struct PerTool<T>(Vec<(Box<str>, T)>);

impl<T> PerTool<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Sets the value of a tool, by its own name or the flat one.
    pub(crate) fn set(&mut self, name: Box<str>, value: T) {
        match self.0.binary_search_by(|(other, _)| other.cmp(&name)) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (name, value)),
        }
    }

    /// The value by the flat name, if the call has a server, else by the tool's own: no server's tool has the value of another one by its name.
    pub(crate) fn get_of_server(&self, call: &ToolCall) -> Option<&T> {
        let is_it = |name: &str| match call.server() {
            Some(_) => call.cmp_flat(name).is_eq(),
            None => name == call.tool(),
        };
        let found = self.0.iter().find(|(name, _)| is_it(name));
        found.map(|(_, value)| value)
    }

    /// The value of the one tool that [`Key::Tool`](crate::Key::Tool) stands for. Those of a server whose list was not read share a key.
    pub(crate) fn get_of_key(&self, call: &ToolCall) -> Option<&T> {
        call.info().listed_tool()?;
        self.get(call)
    }

    /// The value by the flat name, which is of one server's tool; else that by the tool's own name.
    #[inline(never)]
    pub(crate) fn get(&self, call: &ToolCall) -> Option<&T> {
        let flat = || self.0.binary_search_by(|(name, _)| call.cmp_flat(name));
        let own = || {
            self.0
                .binary_search_by(|(name, _)| (**name).cmp(call.tool()))
        };
        let found = match call.server() {
            Some(_) => flat().or_else(|_| own()),
            None => own(),
        };
        Some(&self.0[found.ok()?].1)
    }
}

impl<T> Default for PerTool<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Identity;

    fn table() -> PerTool<u8> {
        let mut table = PerTool::default();
        for (name, value) in [
            ("charge", 1),
            ("pay__charge", 2),
            ("shop.charge", 3),
            ("b", 9),
        ] {
            table.set(name.into(), value);
        }
        table.set("b".into(), 4);
        table
    }

    /// V2: the more special name goes first.
    #[test]
    fn a_tool_is_found_by_both_names_however_it_was_spelled() {
        let of = |server: &str, tool: &str| {
            let identity = Identity::new(tool).with_server(server);
            table()
                .get(&ToolCall::new("any").resolved(&identity))
                .copied()
        };
        assert_eq!(of("pay", "charge"), Some(2));
        assert_eq!(of("shop", "charge"), Some(1));
        assert_eq!(of("pay", "b"), Some(4));
        assert_eq!(of("pay", "refund"), None);
        assert_eq!(table().get(&ToolCall::new("pay__charge")), Some(&2));
    }

    #[test]
    fn a_flat_name_has_the_separator_of_the_table() {
        let identity = Identity::new("charge")
            .with_server("shop")
            .with_separator(".");
        let call = ToolCall::new("any").resolved(&identity);
        assert_eq!(table().get(&call), Some(&3));
        assert!(call.is_named("shop.charge") && !call.is_named("shop__charge"));
    }
}
