use tower_service::Service;

use super::{handle::RateLimitHandle, keyed::KeyGate, turn::Ticket};
use crate::{
    call::{Claim, ToolCall},
    error::ToolError,
    flow::again::{Enter, service},
    kit::{
        attempts::{Attempts, Resend, Template},
        lane::Spread,
    },
    outcome::{ByError, Classify},
};

service! {
    /// Waits out rate limits. See the [module docs](super) for an example.
    RateLimitBackoff<S, C = ByError>, Gates<S, C> => Ticket<S, C>,
    where { C: Classify<S::Response> + Clone, }
}

/// The gates of one layer value.
#[derive(Clone)]
pub(crate) struct Gates<S, C> {
    pub(super) shared: Spread<Template<S, RateLimitHandle>>,
    pub(super) classifier: C,
}

impl<S, C> Enter<S> for Gates<S, C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Ticket = Ticket<S, C>;

    #[inline]
    fn enter(&self, call: &mut ToolCall) -> Result<Ticket<S, C>, ToolError> {
        let gates = &self.shared.settings;
        let settings = &*gates.settings;
        // An outer layer that repeats calls waits out their limits as well.
        let ours = !call.is_claimed(Claim::Retry) && !call.claim(Claim::RateLimit);
        let repeats = ours && settings.attempts > 1;
        if repeats {
            call.record(|record| record.set_max_attempts(settings.attempts));
        }
        let info = call.info();
        let entry = gates.registry.keep(&info, || KeyGate::new(&gates.settings));
        let made = call.attempt().wrapping_sub(1);
        let attempts = match repeats {
            true => {
                let shared = self.shared.keep();
                let claim = (Claim::RateLimit, made);
                Attempts::Many(Resend::new(call.copy(), shared, claim, false))
            }
            false => Attempts::Once(info, made),
        };
        Ok(Ticket::new(attempts, entry, self.classifier.clone()))
    }
}
