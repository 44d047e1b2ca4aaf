use tower_service::Service;

use super::{handle::RateLimitHandle, keyed::KeyGate, turn::Ticket};
use crate::{
    call::{Claim, ToolCall},
    error::ToolError,
    flow::again::{Enter, Repeated, Repeats},
    kit::{
        attempts::{Attempts, Resend, Template},
        lane::Spread,
    },
    outcome::{ByError, Classify},
};

/// Waits out rate limits. See the [module docs](super) for an example.
pub type RateLimitBackoff<S, C = ByError> = Repeats<S, Gates<S, C>>;

/// Response future for [`RateLimitBackoff`].
pub type ResponseFuture<S, F, C = ByError> = Repeated<S, F, Ticket<S, C>>;

/// The gates of one layer value.
#[derive(Clone)]
pub struct Gates<S, C> {
    pub(super) shared: Spread<Template<S, RateLimitHandle>>,
    pub(super) classifier: C,
}

crate::text::debug_fields!({S, C} |this| Gates<S, C> { settings: this.shared.settings, .. });

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
