use tower_service::Service;

use super::{keyed::KeyGate, layer::RateLimitBackoffLayer, turn::Ticket};
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
pub type RateLimitBackoff<S, C = ByError> = Repeats<S, RateLimitBackoffLayer<C>>;

/// Response future for [`RateLimitBackoff`].
pub type ResponseFuture<S, F, C = ByError> = Repeated<S, F, Ticket<S, C>>;

impl<S, C> Enter<S> for RateLimitBackoffLayer<C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Ticket = Ticket<S, C>;

    #[inline]
    fn enter(
        shared: &Spread<Template<S, Self>>,
        call: &mut ToolCall,
    ) -> Result<Ticket<S, C>, ToolError> {
        let Self { gates, classifier } = &shared.settings;
        let settings = &gates.shared.settings;
        // An outer layer that repeats calls waits out their limits as well.
        let ours = !call.is_claimed(Claim::Retry) && !call.claim(Claim::RateLimit);
        let repeats = ours && settings.attempts > 1;
        if repeats {
            call.record(|record| record.set_max_attempts(settings.attempts));
        }
        let info = call.info();
        let entry = gates.registry.keep(&info, || KeyGate::new(&gates.shared));
        let made = call.attempt().wrapping_sub(1);
        let attempts = match repeats {
            true => {
                let claim = (Claim::RateLimit, made);
                Attempts::Many(Resend::new(call.copy(), shared.keep(), claim, false))
            }
            false => Attempts::Once(info, made),
        };
        Ok(Ticket::new(attempts, entry, classifier.clone()))
    }
}
