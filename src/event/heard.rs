//! Asks whether a subscriber listens to our events and spans.

/// Returns whether a subscriber listens to events or spans of ours at a level: `EVENT DEBUG`. It
/// does if some of its layers do, or if a filter decides each time.
///
/// `tracing::enabled!` stores its answer in the filters of layers, which then take it for the
/// answer to the next event: a layer at INFO beside one at DEBUG would miss that event.
macro_rules! heard {
    ($kind:ident $level:ident) => {{
        use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
        use tracing_core::{Kind, Level, Metadata, callsite::DefaultCallsite, metadata};
        static CALLSITE: DefaultCallsite = DefaultCallsite::new(&LIKE_OURS);
        static LIKE_OURS: Metadata<'static> = metadata! {
            name: "tool",
            target: $crate::event::TARGET,
            level: Level::$level,
            fields: &["tool", "code", "error"],
            callsite: &CALLSITE,
            kind: Kind::$kind,
        };
        Level::$level <= STATIC_MAX_LEVEL
            && Level::$level <= LevelFilter::current()
            && $crate::event::heard::is_heard(&CALLSITE, &LIKE_OURS)
    }};
}
pub(crate) use heard;
use tracing_core::{Metadata, callsite::DefaultCallsite, dispatcher};

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
