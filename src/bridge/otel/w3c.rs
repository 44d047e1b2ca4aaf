//! W3C trace context: the default where no propagator is configured, and the guard before any.

use std::{str::FromStr, sync::LazyLock};

use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    propagation::{Extractor, Injector, TextMapPropagator, text_map_propagator::FieldIter},
    trace::{SpanContext, TraceContextExt, TraceState},
};

pub(super) const PARENT: &str = "traceparent";
pub(super) const STATE: &str = "tracestate";

static FIELDS: LazyLock<[String; 2]> = LazyLock::new(|| [PARENT.to_owned(), STATE.to_owned()]);

/// The bytes of a `traceparent` of version 00, with which those of later versions begin.
const LENGTH: usize = 55;

/// Trace context alone: baggage is for those who ask for it.
#[derive(Debug)]
pub(super) struct TraceContext;

impl TextMapPropagator for TraceContext {
    fn inject_context(&self, cx: &Context, injector: &mut dyn Injector) {
        let span = cx.span();
        let span = span.span_context();
        if !span.is_valid() {
            return;
        }
        let flags = span.trace_flags() & TraceFlags::SAMPLED;
        let parent = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
        injector.set(PARENT, parent);
        injector.set(STATE, span.trace_state().header());
    }

    fn extract_with_context(&self, cx: &Context, extractor: &dyn Extractor) -> Context {
        let Some((trace, span, flags)) = extractor.get(PARENT).and_then(parse) else {
            return cx.clone();
        };
        // One that is malformed is dropped, and the parent stays (Trace Context, 3.3).
        let state = extractor.get(STATE).map(TraceState::from_str);
        let state = state.and_then(Result::ok).unwrap_or_default();
        cx.with_remote_span_context(SpanContext::new(trace, span, flags, true, state))
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&*FIELDS)
    }
}

/// Parses a `traceparent`; `None` if it is malformed.
pub(super) fn parse(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let head = text.get(..LENGTH)?;
    let mut parts = head.split('-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let lower = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        (part.len() == digits && part.bytes().all(lower)).then_some(part)
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let known = match version {
        "00" => text.len() == LENGTH,
        "ff" => false,
        // What later versions may add.
        _ => matches!(text.as_bytes().get(LENGTH), None | Some(b'-')),
    };
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    (known && trace != TraceId::INVALID && span != SpanId::INVALID).then_some((trace, span, flags))
}

/// Returns whether this is a `tracestate`: a list of at most 32 `key=value`, with nothing or blanks
/// between commas.
pub(super) fn is_state(text: &str) -> bool {
    let members = text.split(',').map(|m| m.trim_matches([' ', '\t']));
    let mut members = members.filter(|m| !m.is_empty());
    members.by_ref().take(32).all(is_member) && members.next().is_none()
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else {
        return false;
    };
    let in_key = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'_' | b'-' | b'*' | b'/' | b'@');
    (1..=256).contains(&key.len())
        && key.starts_with(|c: char| c.is_ascii_alphanumeric())
        && key.bytes().all(in_key)
        && (1..=256).contains(&value.len())
        && value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn versions_are_read_as_the_specification_says() {
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("00-{TRACE}-{SPAN}-00"), false),
            (format!("00-{TRACE}-{SPAN}-ff"), true),
            (format!("cc-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-is-new"), true),
        ] {
            let (trace, span, flags) = parse(&text).expect(&text);
            assert_eq!(
                (trace.to_string(), span.to_string()),
                (TRACE.into(), SPAN.into())
            );
            assert_eq!(flags.is_sampled(), sampled, "{text}");
        }
    }

    #[test]
    fn a_state_is_a_list_of_at_most_32_members() {
        let members = |n| vec!["a@b=1"; n].join(",");
        for text in ["", "a=1", "a=1;b", "a=1, b/c=2 ,,0_x=~", &members(32)] {
            assert!(is_state(text), "{text}");
        }
        let long = format!("a={}", "1".repeat(257));
        for text in ["a", "=1", "a=", "A=1", "a==", "*=1", &members(33), &long] {
            assert!(!is_state(text), "{text}");
        }
    }

    /// Rule 8.
    #[test]
    fn anything_else_is_nothing() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            "-".repeat(55),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{SPAN}-{TRACE}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            "\u{1F980}".repeat(20),
            "00-".repeat(1 << 20),
        ] {
            assert!(parse(&text).is_none(), "{text:.80}");
        }
    }
}
