//! Accessors for the inner service of a layer's service, and a poll that drops the inner future
//! with its answer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use crate::call::ToolCall;

/// Calls a service, and builds a future around the returned one.
///
/// The inner future is made in its place and not copied there, which a large one would cost at
/// every layer, if three things hold: this is not inlined, the `call` that ends in it is not
/// (`#[inline(never)]`), and `build` cannot panic and owns nothing, so that there is nothing to
/// drop. It takes what it needs by [`Option::take`]. The clone of a classifier is made there too:
/// should it panic, the call counts as abandoned.
///
/// A layer that can hold a call back [releases](ToolCall::release) it before.
#[inline(never)]
pub(crate) fn call_in_place<S, T>(
    svc: &mut S,
    call: ToolCall,
    build: impl FnOnce(S::Future) -> T,
) -> T
where
    S: Service<ToolCall>,
{
    build(svc.call(call))
}

/// Polls `fut`, and drops it as soon as it is ready: its permits and connections are free then, not
/// when the future around it is dropped.
#[inline]
pub(crate) fn poll<F: Future>(
    mut fut: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let running = fut.as_mut().as_pin_mut();
    let output = ready!(running.expect("polled after completion").poll(cx));
    fut.set(None);
    Poll::Ready(output)
}

/// The accessors of every layer's service. `@kept`: without `get_mut`, because the layer keeps the
/// readiness or a copy of the inner service.
macro_rules! accessors {
    ({$($param:ident),+} $service:ty, $field:ident) => {
        $crate::kit::inner::accessors!(@kept {$($param),+} $service, $field);

        impl<$($param),+> $service {
            /// Returns the inner service, to be changed. Do not use up what it has reserved for
            /// the next call.
            pub fn get_mut(&mut self) -> &mut S {
                &mut self.$field
            }
        }
    };
    (@kept {$($param:ident),+} $service:ty, $($field:ident).+) => {
        impl<$($param),+> $service {
            /// Returns the inner service.
            pub fn get_ref(&self) -> &S {
                &self.$($field).+
            }

            /// Takes the inner service out.
            pub fn into_inner(self) -> S {
                self.$($field).+
            }
        }
    };
}
pub(crate) use accessors;
