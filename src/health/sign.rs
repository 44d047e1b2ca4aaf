//! The effect of a call's end on the availability of its server. Pure.

use crate::{
    circuit_breaker::Sign,
    error::{ErrorKind, Evidence, TimeoutLimit, ToolError},
    event::availability::Reason,
};

impl Sign {
    pub(crate) fn of(error: &ToolError) -> Self {
        if error.is_own_refusal() || error.is_counted() {
            return Self::Nothing;
        }
        // A text may report connections to other servers, and a caller may leave a server no time.
        let is_evidence = error.evidence() == Evidence::Reported
            && error.timeout_limit() != Some(TimeoutLimit::Caller);
        match error.kind() {
            ErrorKind::Timeout | ErrorKind::ConnectionFailed if !is_evidence => Self::Nothing,
            // A status is an answer.
            ErrorKind::Timeout | ErrorKind::ConnectionFailed if error.status().is_some() => {
                Self::Answer
            }
            ErrorKind::Timeout => Self::Failure(Reason::Timeout),
            ErrorKind::ConnectionFailed => Self::Failure(Reason::ConnectionFailed),
            ErrorKind::Failed
            | ErrorKind::Reported
            | ErrorKind::Upstream
            | ErrorKind::RateLimited
            | ErrorKind::PollTimeout => Self::Answer,
            // Without a source or a status, a layer or a tool service of this side may have made
            // it.
            ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::Denied
                if error.status().is_some() || std::error::Error::source(error).is_some() =>
            {
                Self::Answer
            }
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_calls_are_answers_or_failures_or_neutral() {
        let sign = |kind| Sign::of(&ToolError::new(kind, ""));
        for &kind in ErrorKind::ALL {
            let expected = match kind {
                ErrorKind::Timeout => Sign::Failure(Reason::Timeout),
                ErrorKind::ConnectionFailed => Sign::Failure(Reason::ConnectionFailed),
                ErrorKind::Failed
                | ErrorKind::Reported
                | ErrorKind::Upstream
                | ErrorKind::RateLimited
                | ErrorKind::PollTimeout => Sign::Answer,
                _ => Sign::Nothing,
            };
            assert_eq!(sign(kind), expected, "{kind:?}");
        }
        let refused = ToolError::refusal(ErrorKind::ConnectionFailed, "");
        assert_eq!(Sign::of(&refused), Sign::Nothing);
        let counted = ToolError::new(ErrorKind::Timeout, "").counted();
        assert_eq!(Sign::of(&counted), Sign::Nothing);
        for status in [
            http::StatusCode::NOT_FOUND,
            http::StatusCode::GATEWAY_TIMEOUT,
            http::StatusCode::REQUEST_TIMEOUT,
        ] {
            assert_eq!(Sign::of(&ToolError::from_status(status, "")), Sign::Answer);
        }
    }
}
