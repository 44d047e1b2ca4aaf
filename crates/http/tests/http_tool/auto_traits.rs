//! Public types go into any task.

use std::fmt::Debug;

use static_assertions::assert_impl_all;
use tower_toolcall::ToolError;
use tower_toolcall_http::{
    HttpAnswer, HttpClassifier, HttpService, HttpTool, ReqwestClient, ReqwestFuture,
    ResponseFuture,
    token::{ClientAuth, ExchangeFuture, TokenEndpoint},
};

type Tool = std::future::Ready<Result<(), ToolError>>;

assert_impl_all!(HttpTool: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(HttpService<(), Tool>: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(HttpAnswer: Send, Sync, Unpin, Clone, Debug, serde::Serialize);
assert_impl_all!(HttpClassifier: Send, Sync, Copy);
assert_impl_all!(ResponseFuture: Send, Unpin);
assert_impl_all!(ReqwestClient: Send, Sync, Unpin, Clone);
assert_impl_all!(ReqwestFuture: Send, Unpin);
assert_impl_all!(ClientAuth: Send, Sync, Unpin, Clone);
assert_impl_all!(TokenEndpoint<(), Tool>: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(ExchangeFuture: Send, Unpin);
