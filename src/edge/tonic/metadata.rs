use std::time::Duration;

use ::tonic::metadata::MetadataMap;
use tokio::time::Instant;

use crate::call::{ToolCall, Trust};
use crate::edge::headers::{digits, the_only};

/// How long the client waits, as the request's `grpc-timeout` has it: at most eight digits and a
/// unit.
///
/// ```
/// use std::time::Duration;
/// use tonic::metadata::MetadataMap;
///
/// let mut metadata = MetadataMap::new();
/// metadata.insert("grpc-timeout", "1500m".parse()?);
/// assert_eq!(tower_toolcall::tonic::timeout(&metadata), Some(Duration::from_millis(1500)));
/// # Ok::<_, tower_toolcall::BoxError>(())
/// ```
pub fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let value = the_only(metadata.as_ref(), "grpc-timeout")?;
    let (unit, number) = (value.chars().next_back()?, value.get(..value.len() - 1)?);
    let n = Some(number).filter(|n| n.len() <= 8).and_then(digits)?;
    Some(match unit {
        'H' => Duration::from_secs(n * 3600),
        'M' => Duration::from_secs(n * 60),
        'S' => Duration::from_secs(n),
        'm' => Duration::from_millis(n),
        'u' => Duration::from_micros(n),
        'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

impl ToolCall {
    /// Takes up what the metadata of a gRPC request says of the call: what
    /// [`with_request_headers`](Self::with_request_headers) does, so no deadline.
    #[must_use]
    pub fn with_grpc_metadata(self, metadata: &MetadataMap) -> Self {
        self.with_request_headers(metadata.as_ref())
    }

    /// Takes up how long the client waits: `grpc-timeout` becomes the call's deadline, if that is
    /// earlier than the one it has, and what [`with_request_deadline`](Self::with_request_deadline)
    /// reads, which says what `trust` means.
    #[must_use]
    pub fn with_grpc_deadline(self, metadata: &MetadataMap, trust: Trust) -> Self {
        let mut call = self.with_request_deadline(metadata.as_ref(), trust);
        if let Some(at) = timeout(metadata).and_then(|t| Instant::now().checked_add(t)) {
            call.tighten_from_wire(at, trust);
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 8: a value, or nothing.
    #[test]
    fn a_timeout_is_eight_digits_and_a_unit() {
        for (value, nanos) in [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("4m", Some(4_000_000)),
            ("5u", Some(5_000)),
            ("6n", Some(6)),
            ("0S", Some(0)),
            ("99999999H", Some(359_999_996_400_000_000_000)),
            ("100000000n", None),
            ("1s", None),
            ("1", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("+1S", None),
            ("1.5S", None),
            ("1 S", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", value.parse().unwrap());
            assert_eq!(timeout(&metadata).map(|d| d.as_nanos()), nanos, "{value}");
        }
    }
}
