//! How a flat name is split: pure.

use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    text::Short,
};

/// Server and tool of a flat name: at the first separator.
pub(super) fn split<'a>(name: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    name.split_once(separator)
}

/// Returns the flat name of a server's tool.
pub(super) fn flat(server: &str, separator: &str, tool: &str) -> String {
    [server, separator, tool].concat()
}

pub(super) fn check_separator(separator: &str) -> Result<(), ConfigError> {
    refuse_if(separator.is_empty(), "separator", "it is empty")?;
    check_usable("separator", separator)
}

/// A server's name is usable if every flat name that begins with it is split right behind it.
pub(super) fn check_server(server: &str, separator: &str) -> Result<(), ConfigError> {
    check_usable("server", server)?;
    let start = flat(server, separator, "");
    if start.find(separator) == Some(server.len()) {
        return Ok(());
    }
    let reason = if server.contains(separator) {
        "has the separator in it"
    } else {
        "ends with what the separator begins with"
    };
    Err(of("server", server, reason))
}

/// A name is usable if a call can have it.
pub(super) fn check_usable(field: &'static str, name: &str) -> Result<(), ConfigError> {
    match ToolCall::new(name).check() {
        Ok(()) => Ok(()),
        Err(_) if name.is_empty() => Err(ConfigError::new(field, "the name is empty")),
        Err(_) => Err(of(
            field,
            name,
            "is too long or has control characters in it",
        )),
    }
}

/// Returns the error that names a name.
pub(super) fn of(field: &'static str, name: &str, reason: &str) -> ConfigError {
    ConfigError::new(field, format!("`{}` {reason}", Short::name(name)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_separator() {
        assert_eq!(split("docs__search", "__"), Some(("docs", "search")));
        assert_eq!(split("docs__a__b", "__"), Some(("docs", "a__b")));
        assert_eq!(split("docs___a", "__"), Some(("docs", "_a")));
        assert_eq!(split("search", "__"), None);
    }

    /// `a_` and `a` would both have `a___b`.
    #[test]
    fn a_server_that_ends_with_half_a_separator_is_refused() {
        for (server, separator) in [("a_", "__"), ("a__b", "__"), ("", "__"), ("xa", "aa")] {
            let refused = check_server(server, separator);
            assert!(refused.is_err(), "{server} {separator}");
        }
        assert!(check_server("_a", "__").is_ok());
        assert!(check_server("a_b", "__").is_ok());
    }

    proptest! {
        /// X4: a flat name is split into what it was made of, whatever the tool is called.
        #[test]
        fn every_flat_name_is_split_in_one_way(
            server in "[ab_.:]{1,6}",
            tool in "[ab_.:]{0,8}",
            separator in "[_.:]{1,3}",
        ) {
            let flat = flat(&server, &separator, &tool);
            let is_same = split(&flat, &separator) == Some((&*server, &*tool));
            prop_assert!(is_same || check_server(&server, &separator).is_err());
        }

        /// Only ambiguous names are refused.
        #[test]
        fn a_server_that_is_refused_could_be_split_elsewhere(
            server in "[ab_]{1,6}",
            separator in "[_b]{1,3}",
        ) {
            let flat = flat(&server, &separator, "t");
            let is_same = split(&flat, &separator) == Some((&*server, "t"));
            prop_assert!(!is_same || check_server(&server, &separator).is_ok());
        }
    }
}
