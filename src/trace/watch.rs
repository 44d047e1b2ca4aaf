use std::fmt;

use tracing::Span;

use super::{hooks::TraceHooks, observer::Observer};
use crate::{call::CallInfo, error::ToolError, kit::in_flight::InFlight, outcome::Outcome};

/// What is kept of a call while it runs: next to nothing where nobody could hear of it.
pub(super) enum Watch<H, Res>
where
    H: TraceHooks<Res>,
{
    // There was neither a subscriber nor a listener when it began: names for an error, and who classifies. The names
    // are always there: an option can be moved in without a check that might panic.
    Unheard { info: Option<CallInfo>, hooks: H },
    // Its end is reported, whichever it is.
    Heard { flight: InFlight<Observer<H, Res>> },
}

impl<H: TraceHooks<Res>, Res> Watch<H, Res> {
    /// The span, until the end.
    #[inline]
    pub(super) fn span(&self) -> Option<&Span> {
        match self {
            Self::Unheard { .. } => None,
            Self::Heard { flight } => flight.reporter().and_then(Observer::span),
        }
    }

    /// A poll begins.
    #[inline]
    pub(super) fn begin_poll(&mut self) -> &Self {
        if let Self::Heard { flight } = self {
            flight.begin_poll();
        }
        self
    }

    /// The poll was `Pending`.
    #[inline]
    pub(super) fn wait(&mut self) {
        if let Self::Heard { flight } = self {
            flight.wait();
        }
    }

    /// The error, stamped with the call's names.
    pub(super) fn about(&self, error: ToolError) -> ToolError {
        error.about(match self {
            Self::Unheard { info, .. } => info.as_ref().expect("there from the beginning"),
            Self::Heard { flight } => flight.report().call(),
        })
    }

    #[inline]
    pub(super) fn classify(&self, result: &Result<Res, ToolError>) -> Outcome {
        let hooks = match self {
            Self::Unheard { hooks, .. } => hooks,
            Self::Heard { flight } => flight.report().hooks(),
        };
        hooks.classify(result.as_ref())
    }

    /// The call has a result. Its span ends here, and not with the future.
    #[inline]
    pub(super) fn end(&mut self, result: &Result<Res, ToolError>, outcome: &Outcome) {
        if let Self::Heard { flight } = self {
            flight.end(|observer| observer.ended(result, outcome));
        }
    }
}

impl<H: TraceHooks<Res>, Res> fmt::Debug for Watch<H, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unheard { info, .. } => f.debug_tuple("Unheard").field(info).finish(),
            Self::Heard { flight } => f.debug_tuple("Heard").field(flight).finish(),
        }
    }
}
