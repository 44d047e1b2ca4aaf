//! Public types go into any task; names of this crate and the collection hide no crate.

use std::fmt::Debug;

use static_assertions::assert_impl_all;
use tower_toolcall_mcp::{
    Catalog, GatewayHandler, McpClassifier, McpConnection, McpExtras, McpNotifications,
    McpProgress, McpReconnect, McpService, McpTools, ResponseFuture,
};

assert_impl_all!(GatewayHandler: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(McpExtras: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(McpNotifications: Send, Sync, Unpin, Clone);
assert_impl_all!(McpTools: Send, Sync, Unpin, Clone);
assert_impl_all!(McpConnection: Send, Sync, Unpin, Debug);
assert_impl_all!(McpReconnect: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(McpService: Send, Sync, Unpin, Clone);
assert_impl_all!(McpProgress: Send, Sync, Unpin, Clone);
assert_impl_all!(McpClassifier: Send, Sync, Copy);
assert_impl_all!(Catalog: Send, Sync, Unpin, Clone);
assert_impl_all!(ResponseFuture: Send, Unpin);

/// P17.
#[test]
#[allow(unused_imports, reason = "to import them is the test")]
fn a_glob_import_does_not_hide_rmcp() {
    use rmcp as _;
    use tower_toolcall::*;
    use tower_toolcall_mcp::*;
    let _: rmcp::model::CallToolResult = rmcp::model::CallToolResult::success(Vec::new());
}
