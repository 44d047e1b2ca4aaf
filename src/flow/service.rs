/// A layer's service and response future: `$Gate` decides about its calls.
macro_rules! service {
    (
        $(#[$doc:meta])*
        $Service:ident<S $(, $C:ident)?>, $Gate:ty => $Ticket:ty
        $(, where S::Response: $($bounds:tt)+)?
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $Service<S $(, $C = $crate::outcome::ByError)?> {
            inner: $crate::kit::ready::Prepared<S>,
            pub(super) gate: $Gate,
        }

        impl<S $(, $C)?> $Service<S $(, $C)?> {
            pub(super) fn new(inner: S, gate: $Gate) -> Self {
                let inner = $crate::kit::ready::Prepared::new(inner);
                Self { inner, gate }
            }
        }

        $crate::kit::inner::accessors!(@kept {S $(, $C)?} $Service<S $(, $C)?>, inner.svc);

        impl<S $(, $C)?> tower_service::Service<$crate::call::ToolCall> for $Service<S $(, $C)?>
        where
            S: tower_service::Service<$crate::call::ToolCall, Error: Into<$crate::error::ToolError>>
                + Clone,
            $($C: $crate::outcome::Classify<S::Response> + Clone,)?
            $(S::Response: $($bounds)+,)?
        {
            type Response = S::Response;
            type Error = $crate::error::ToolError;
            type Future = ResponseFuture<S, S::Future $(, $C)?>;

            /// Always ready.
            #[inline]
            fn poll_ready(
                &mut self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Self::Error>> {
                self.inner.poll(cx);
                std::task::Poll::Ready(Ok(()))
            }

            #[inline(never)]
            fn call(&mut self, call: $crate::call::ToolCall) -> Self::Future {
                $crate::flow::Flow::send(&mut self.inner, &self.gate, call, |flow| ResponseFuture {
                    flow,
                })
            }
        }

        impl<S: std::fmt::Debug $(, $C)?> std::fmt::Debug for $Service<S $(, $C)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($Service));
                debug.field("inner", &self.inner).finish_non_exhaustive()
            }
        }

        pin_project_lite::pin_project! {
            #[doc = concat!("Response future for [`", stringify!($Service), "`].")]
            #[project(!Unpin)]
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F $(, $C)?> {
                #[pin]
                flow: $crate::flow::Flow<S, F, $Ticket>,
            }
        }

        impl<S $(, $C)?> std::future::Future for ResponseFuture<S, S::Future $(, $C)?>
        where
            S: tower_service::Service<$crate::call::ToolCall, Error: Into<$crate::error::ToolError>>
                + Clone,
            $($C: $crate::outcome::Classify<S::Response> + Clone,)?
            $(S::Response: $($bounds)+,)?
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            #[inline]
            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().flow.poll(cx)
            }
        }

        impl<S, F $(, $C)?> std::fmt::Debug for ResponseFuture<S, F $(, $C)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct("ResponseFuture");
                debug.field("state", &self.flow).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use service;
