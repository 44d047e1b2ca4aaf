//! The list of tools in pages.

use std::num::NonZeroUsize;

use rmcp::model::{ErrorData, ListToolsResult, Tool};
use tower_toolcall::answer::json_bytes;

/// The size of a page's tools at most, unless one alone is larger: half of what rmcp's line-based
/// transports let through.
const MAX_PAGE_BYTES: u64 = 8 << 20;

/// The beginning of a cursor; the name of the last tool of the page before follows.
const AFTER: &str = "after:";

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#implementation-guidelines
//# Servers SHOULD:
//# Handle invalid cursors gracefully
//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#error-handling
//# Invalid cursors SHOULD result in an error with code -32602 (Invalid params).
/// The page that a cursor asks for. By names, so that a list that changes in between loses none
/// that stays.
pub(super) fn page_of(
    mut tools: Vec<Tool>,
    cursor: Option<&str>,
    size: NonZeroUsize,
) -> Result<ListToolsResult, ErrorData> {
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    if let Some(cursor) = cursor {
        let Some(last) = cursor.strip_prefix(AFTER) else {
            return Err(ErrorData::invalid_params(
                "the cursor is not one of this list",
                None,
            ));
        };
        let seen = tools.partition_point(|tool| &*tool.name <= last);
        tools.drain(..seen);
    }
    let mut result = ListToolsResult::default();
    let end = fitting(&tools).clamp(1, size.get());
    if end < tools.len() {
        tools.truncate(end);
        result.next_cursor = tools.last().map(|tool| format!("{AFTER}{}", tool.name));
    }
    result.tools = tools;
    Ok(result)
}

/// How many of them a message has room for.
fn fitting(tools: &[Tool]) -> usize {
    let mut room = MAX_PAGE_BYTES;
    let fits = |tool: &&Tool| match json_bytes(tool, room) {
        Ok(bytes) => {
            room -= bytes;
            true
        }
        Err(_) => false,
    };
    tools.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool(name: &'static str) -> Tool {
        Tool::new(name, "", Arc::default())
    }

    fn names(result: &ListToolsResult) -> Vec<&str> {
        result.tools.iter().map(|tool| &*tool.name).collect()
    }

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn pages_are_in_order_and_have_everything_once() {
        let tools = || ["d", "a", "e", "c", "b"].map(tool).to_vec();
        let mut cursor = None;
        let mut all = Vec::new();
        for _ in 0..3 {
            let listed = page_of(tools(), cursor.as_deref(), TWO).unwrap();
            all.extend(names(&listed).into_iter().map(str::to_owned));
            cursor = listed.next_cursor;
        }
        assert_eq!((all.join(""), cursor), ("abcde".into(), None));
    }

    //= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#implementation-guidelines
    //# Servers SHOULD:
    //# Provide stable cursors
    #[test]
    fn a_tool_that_stays_is_in_some_page_though_others_go() {
        let first = page_of(["a", "b", "c"].map(tool).to_vec(), None, TWO).unwrap();
        let rest = page_of(vec![tool("c")], first.next_cursor.as_deref(), TWO).unwrap();
        assert_eq!(names(&rest), ["c"]);
        assert_eq!(rest.next_cursor, None);
    }

    #[test]
    fn a_page_ends_before_it_is_too_large() {
        let large = |name| Tool::new(name, "x".repeat(5 << 20), Arc::default());
        let huge = Tool::new("a", "x".repeat(9 << 20), Arc::default());
        let tools = vec![huge, large("b"), large("c")];
        let mut cursor = None;
        for name in ["a", "b", "c"] {
            let listed = page_of(tools.clone(), cursor.as_deref(), TWO).unwrap();
            assert_eq!(names(&listed), [name]);
            cursor = listed.next_cursor;
        }
        assert_eq!(cursor, None);
    }

    #[test]
    fn a_foreign_cursor_is_refused_and_nothing_is_a_page_too() {
        assert!(page_of(vec![tool("a")], Some("2"), TWO).is_err());
        assert_eq!(names(&page_of(Vec::new(), None, TWO).unwrap()), [""; 0]);
    }
}
