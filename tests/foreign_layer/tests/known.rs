//! The types of another author's leaf, once it has made them known.

use std::{error::Error, fmt, io, time::Duration};

use foreign_layer::{ShardError, Shards};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Execution, ToolCall, ToolError,
    error::{KnownErrors, recognise},
    normalize::NormalizeLayer,
    transport::transport,
};

/// An error of a third crate above another one.
#[derive(Debug)]
struct Above(BoxError);

impl fmt::Display for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search failed")
    }
}

impl Error for Above {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

fn busy() -> BoxError {
    ShardError::Busy(7).into()
}

#[test]
fn a_known_error_is_recognised_wherever_it_is_wrapped() {
    Shards::new();
    let relayed = ShardError::Relayed(busy()).into();
    let wrapped: [BoxError; 4] = [
        busy(),
        Above(busy()).into(),
        io::Error::other(Above(busy())).into(),
        Above(relayed).into(),
    ];
    for error in wrapped {
        let error = ToolError::from_box(error);
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error.evidence(), Evidence::Inferred);
        assert_eq!(error.execution(), Execution::Unknown);
    }
}

#[tokio::test]
async fn a_known_error_is_the_word_of_a_transport() {
    let tool = transport(Shards::new());
    let error = tool.oneshot(ToolCall::new("busy")).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::Word);
    assert_eq!(error.execution(), Execution::NotStarted);
}

#[test]
fn the_text_of_a_known_error_is_for_people_and_has_no_address() {
    Shards::new();
    let error = ToolError::from_box(Above(busy()).into());
    let text = "the search failed: the shard is busy: E42 at the shard";
    assert_eq!(error.message(), text);
}

#[test]
fn a_known_wrapper_takes_nothing_from_an_error_of_ours() {
    Shards::new();
    let ours = || ToolError::new(ErrorKind::RateLimited, "slow down");
    let relayed = ToolError::from_box(ShardError::Relayed(ours().into()).into());
    assert_eq!(relayed.evidence(), Evidence::Word);
    let above = ToolError::from_box(Above(ours().into()).into());
    assert_eq!(above.evidence(), Evidence::Inferred);
}

/// Its one error is a refusal.
struct Shedder;

/// The error of [`Shedder`].
#[derive(Debug)]
struct Shed;

impl fmt::Display for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many")
    }
}

impl Error for Shed {}

impl KnownErrors for Shedder {
    fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
        let shed = || ToolError::new(ErrorKind::Overloaded, "");
        error.is::<Shed>().then(shed)
    }

    fn is_refusal(&self, error: &(dyn Error + 'static)) -> bool {
        error.is::<Shed>()
    }
}

#[tokio::test]
async fn a_known_refusal_is_one_of_ours() {
    assert!(recognise(&Shedder));
    let tool = tower::service_fn(|_: ToolCall| async { Err::<(), BoxError>(Shed.into()) });
    let tool = ServiceBuilder::new()
        .layer(NormalizeLayer::new())
        .service(tool);
    let error = tool.oneshot(ToolCall::new("search")).await.unwrap_err();
    assert!(error.is_own_refusal());
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

/// Recognises the same error as [`Shards`] does, as something else, if it were first.
struct Late;

impl KnownErrors for Late {
    fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
        let denied = || ToolError::new(ErrorKind::Denied, "");
        matches!(error.downcast_ref(), Some(ShardError::Busy(_))).then(denied)
    }
}

#[test]
fn to_make_errors_known_again_changes_nothing() {
    Shards::new();
    for _ in 0..1_000 {
        assert!(recognise(&Late));
        Shards::new();
    }
    let error = ToolError::from_box(busy());
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}
