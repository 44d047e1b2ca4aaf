use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Runs both until one ends: `Ok` if that is `call`, which is polled before `other`.
pub(super) async fn first<A, B>(
    call: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> Result<A, B> {
    let (mut call, mut other) = (pin!(call), pin!(other));
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
        Poll::Pending => other.as_mut().poll(cx).map(Err),
    })
    .await
}
