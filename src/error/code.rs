//! Codes of refusals that no kind has.

/// The code of a call that was not approved in time: it may be asked for again.
pub const APPROVAL_UNANSWERED: &str = "APPROVAL_UNANSWERED";
/// The code of a call when its approver failed. The approval may be requested again.
pub const APPROVAL_FAILED: &str = "APPROVAL_FAILED";
/// The code of a call that needs an approval where no approver is set, or none can be asked.
pub const APPROVAL_MISSING: &str = "APPROVAL_MISSING";
/// The code of a call that costs more than its quota ever grants.
pub const QUOTA_IMPOSSIBLE: &str = "QUOTA_IMPOSSIBLE";
