//! Whether a subscriber listens to events and spans like ours.

/// Whether a subscriber listens to events or spans of ours at a level: `EVENT DEBUG`. If only some of its
/// layers do, or a filter decides each time, it does.
///
/// `tracing::enabled!` would leave its answer with the filters of layers, which take it for that to the next
/// event: a layer at INFO beside one at DEBUG would miss that event.
macro_rules! heard {
    ($kind:ident $level:ident) => {{
        use tracing::{Metadata, callsite, field::FieldSet, metadata::Kind};
        static CALLSITE: callsite::DefaultCallsite = callsite::DefaultCallsite::new(&LIKE_OURS);
        static LIKE_OURS: Metadata<'static> = Metadata::new(
            "tool",
            $crate::event::TARGET,
            tracing::Level::$level,
            None,
            None,
            None,
            FieldSet::new(&["tool", "code", "error"], callsite::Identifier(&CALLSITE)),
            Kind::$kind,
        );
        tracing::level_enabled!(tracing::Level::$level)
            && $crate::event::heard::is_heard(&CALLSITE, &LIKE_OURS)
    }};
}
pub(crate) use heard;
use tracing::{Metadata, callsite::DefaultCallsite, dispatcher};

pub(crate) fn is_heard(
    callsite: &'static DefaultCallsite,
    like_ours: &'static Metadata<'static>,
) -> bool {
    let interest = callsite.interest();
    // Of several subscribers the current one decides.
    interest.is_always()
        || interest.is_sometimes()
            && dispatcher::get_default(|current| !current.register_callsite(like_ours).is_never())
}
