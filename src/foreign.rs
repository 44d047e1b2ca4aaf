//! The core's questions about types of other crates: the bridges that are compiled in, and what
//! tool services make known.

use std::{iter, sync::OnceLock};

use tracing::Span;

use crate::error::KnownErrors;

/// The bridges that recognise errors of other crates.
pub(crate) const BRIDGES: &[&dyn KnownErrors] = &[
    #[cfg(feature = "tower")]
    &crate::bridge::tower::Errors,
    #[cfg(feature = "hyper")]
    &crate::bridge::hyper::Errors,
    #[cfg(any(feature = "hyper", feature = "tonic"))]
    &crate::bridge::h2::Errors,
    #[cfg(feature = "reqwest")]
    &crate::bridge::reqwest::Errors,
    #[cfg(feature = "tonic")]
    &crate::bridge::grpc_status::Errors,
];

/// How many values a [`Chain`] has at most.
const MAX_KNOWN: usize = 64;

/// A list that only grows. Reading it takes no lock.
pub(crate) struct Chain<T>(OnceLock<Box<(T, Self)>>);

impl<T: Copy> Chain<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Adds a value, unless another one `is_same`. `false`: the list is full.
    pub(crate) fn add(&self, value: T, is_same: impl Fn(&T) -> bool) -> bool {
        let mut end = self;
        for _ in 0..MAX_KNOWN {
            let (found, rest) = &**end.0.get_or_init(|| Box::new((value, Self::new())));
            if is_same(found) {
                return true;
            }
            end = rest;
        }
        false
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let links = iter::successors(self.0.get(), |link| link.1.0.get());
        links.map(|link| &link.0)
    }
}

/// Returns whether a layer of another crate exports the span. The span is new, and was not entered
/// yet.
pub(crate) fn is_exported(span: &Span) -> bool {
    #[cfg(feature = "otel")]
    return crate::bridge::otel::is_exported(span);
    #[cfg(not(feature = "otel"))]
    {
        let _ = span;
        false
    }
}

/// Returns whether the sampler of another crate drops a span.
pub(crate) fn is_sampled_out(span: &Span) -> bool {
    #[cfg(feature = "otel")]
    return crate::bridge::otel::is_sampled_out(span);
    #[cfg(not(feature = "otel"))]
    {
        let _ = span;
        false
    }
}
