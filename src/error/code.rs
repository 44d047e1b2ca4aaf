//! Codes of refusals that no kind has.

/// The code of a call that was not approved in time: it may be asked for again.
pub const APPROVAL_UNANSWERED: &str = "APPROVAL_UNANSWERED";
/// The code of a call when its approver failed. The approval may be requested again.
pub const APPROVAL_FAILED: &str = "APPROVAL_FAILED";
/// The code of a call that needs an approval where no approver is set, or none can be asked.
pub const APPROVAL_MISSING: &str = "APPROVAL_MISSING";
/// The code of a call that costs more than its quota ever grants.
pub const QUOTA_IMPOSSIBLE: &str = "QUOTA_IMPOSSIBLE";

/// The detail with the code by which an identity provider has refused a token (RFC 6749, section
/// 5.2).
pub const OAUTH_ERROR: &str = "oauth_error";

/// The detail that names the limit which ended the wait for a job.
pub(crate) const POLL_LIMIT: &str = "limit";
/// Its value if that was time.
pub(crate) const LIMIT_TIME: &str = "time";
/// Its value if that was the number of polls.
pub(crate) const LIMIT_POLLS: &str = "polls";
