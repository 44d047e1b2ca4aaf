//! Everything public can go into any task: `Send`, `Sync`, `Unpin` and `'static` are part of the
//! API.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_toolcall::{
    AnyError, CallInfo, ConfigError, ErrorKind, Execution, Identity, Key, Observation, Outcome,
    Progress, ToolCall, ToolError, cache, catch_panic, check, circuit_breaker, concurrency_limit,
    deadline, fit, health, identity, normalize, once, outcome::ByError, policy, poll, quota,
    rate_limit, redact, repeat_guard, result, retry, sanitize, timeout, trace, transport,
};

type Tool = std::future::Ready<Result<(), ToolError>>;
type Svc = tower::util::BoxCloneSyncService<ToolCall, (), ToolError>;

assert_impl_all!(ToolCall: Send, Sync, Unpin, Clone);
assert_impl_all!(CallInfo: Send, Sync, Unpin, Clone);
assert_impl_all!(ToolError: Send, Sync, Unpin, Clone, std::error::Error);
assert_not_impl_any!(ToolError: From<(ErrorKind, Execution)>);
assert_impl_all!(AnyError: Send, Sync, Unpin);
assert_impl_all!(ConfigError: Send, Sync, Unpin, Clone, std::error::Error);
assert_impl_all!(ErrorKind: Send, Sync, Copy);
assert_impl_all!(Identity: Send, Sync, Unpin, Clone);
assert_impl_all!(Key: Send, Sync, Unpin, Clone);
assert_impl_all!(Observation: Send, Sync, Unpin);
assert_impl_all!(Outcome: Send, Sync, Copy);
assert_impl_all!(Progress: Send, Sync, Unpin, Clone);

assert_impl_all!(timeout::TimeoutLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(timeout::Timeout<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(timeout::ResponseFuture<Tool>: Send, Sync);
assert_impl_all!(deadline::DeadlineLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(deadline::Deadline<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(deadline::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(policy::PolicyLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(policy::PolicyService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(policy::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(policy::Rule: Send, Sync, Unpin, Clone);
assert_impl_all!(policy::Annotations: Send, Sync, Unpin, Copy);
assert_impl_all!(policy::Approval: Send, Sync, Unpin);
assert_impl_all!(policy::ApprovalDecision: Send, Sync, Unpin);
assert_not_impl_any!(policy::Approval: Clone);
assert_not_impl_any!(policy::ApprovalDecision: Clone);
assert_impl_all!(poll::PollLayer<()>: Send, Sync, Unpin, Clone);
assert_impl_all!(poll::Polling<Svc, ()>: Send, Sync, Unpin, Clone);
assert_impl_all!(poll::ResponseFuture<Svc, Tool, ()>: Send, Sync);
assert_impl_all!(tower_toolcall::call::JobRef: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::CircuitBreakerLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::CircuitBreakerBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::CircuitBreaker<Svc, ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
assert_impl_all!(circuit_breaker::CircuitBreakerHandle: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::Breaker: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::Permit: Send, Sync, Unpin);
assert_impl_all!(circuit_breaker::BreakerSnapshot: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::Transition: Send, Sync, Unpin, Clone);
assert_impl_all!(circuit_breaker::Transitions: Send, Sync, Unpin);
assert_impl_all!(concurrency_limit::ConcurrencyLimitLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(concurrency_limit::ConcurrencyLimitBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(concurrency_limit::ConcurrencyLimit<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(concurrency_limit::ConcurrencyLimitHandle: Send, Sync, Unpin, Clone);
assert_impl_all!(concurrency_limit::Load: Send, Sync, Unpin, Clone, serde::Serialize);
assert_impl_all!(concurrency_limit::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(health::Health: Send, Sync, Unpin, Clone);
assert_impl_all!(health::HealthBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(health::HealthLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(health::HealthService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(health::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(health::AvailabilityChange: Send, Sync, Unpin, Clone, serde::Serialize);
assert_impl_all!(health::ServerHealth: Send, Sync, Unpin, Clone, serde::Serialize);
assert_impl_all!(identity::IdentityLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(identity::IdentityService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(identity::ResponseFuture<Tool>: Send, Sync);
assert_impl_all!(catch_panic::CatchPanicLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(catch_panic::CatchPanic<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(catch_panic::ResponseFuture<Tool>: Send, Sync);
assert_impl_all!(normalize::NormalizeLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(normalize::Normalize<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(normalize::ResponseFuture<Tool>: Send, Sync);
assert_impl_all!(tower_toolcall_test::Script<()>: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::Step<()>: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::StepFuture<()>: Send, Sync);
assert_impl_all!(tower_toolcall_test::Faults: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::FaultLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::Fault<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::FaultFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(tower_toolcall_test::Capture: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::CaptureLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::CaptureService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::CaptureFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(tower_toolcall_test::Replay: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::Events<()>: Send, Sync, Unpin, Clone);
assert_impl_all!(tower_toolcall_test::RecordSnapshot: Send, Sync, Unpin, Clone);
assert_impl_all!(transport::TransportLayer: Send, Sync, Unpin, Copy);
assert_impl_all!(transport::Transport<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(transport::ResponseFuture<Tool>: Send, Sync);
assert_impl_all!(quota::Quota: Send, Sync, Unpin, Copy);
assert_impl_all!(quota::QuotaLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(quota::QuotaBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(quota::QuotaService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(quota::QuotaHandle: Send, Sync, Unpin, Clone);
assert_impl_all!(quota::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(rate_limit::RateLimitBackoffLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(rate_limit::RateLimitBackoffBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(rate_limit::RateLimitBackoff<Svc, ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(rate_limit::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
assert_impl_all!(cache::CacheLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(cache::CacheBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(cache::CacheHandle: Send, Sync, Unpin, Clone);
assert_impl_all!(cache::CacheCounts: Send, Sync, Unpin, Copy);
assert_impl_all!(cache::Cache<Svc, ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(cache::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
assert_impl_all!(once::OnceLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(once::OnceBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(once::Once<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(once::ResponseFuture<Svc, Tool>: Send, Sync);
assert_impl_all!(repeat_guard::RepeatGuardLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(repeat_guard::RepeatGuardBuilder: Send, Sync, Unpin, Clone);
assert_impl_all!(repeat_guard::RepeatGuard<Svc, ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(repeat_guard::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
assert_impl_all!(retry::RetryPolicy: Send, Sync, Unpin, Clone);
assert_impl_all!(retry::RetryBudget: Send, Sync, Unpin, Clone);
assert_impl_all!(retry::RetryLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(retry::Retry<Svc, ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(retry::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
// What they are pinned for may change, with features too.
assert_not_impl_any!(timeout::ResponseFuture<Tool>: Unpin);
assert_not_impl_any!(deadline::ResponseFuture<Svc, Tool>: Unpin);
assert_not_impl_any!(concurrency_limit::ResponseFuture<Svc, Tool>: Unpin);
assert_not_impl_any!(quota::ResponseFuture<Svc, Tool>: Unpin);
assert_not_impl_any!(rate_limit::ResponseFuture<Svc, Tool, ByError>: Unpin);
assert_not_impl_any!(retry::ResponseFuture<Svc, Tool, ByError>: Unpin);
assert_impl_all!(trace::TraceLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(trace::Trace<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(trace::ResponseFuture<Tool, trace::DefaultHooks, ()>: Send, Sync);

assert_impl_all!(result::ToolResultLayer: Send, Sync, Unpin, Copy);
assert_impl_all!(result::ToolResultService<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(result::ResponseFuture<Svc, Tool, ByError>: Send, Sync);
assert_impl_all!(result::ToolResult<()>: Send, Sync, Unpin, Clone);
assert_impl_all!(redact::Rules: Send, Sync, Unpin, Clone);
assert_impl_all!(sanitize::SanitizeLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(sanitize::Sanitize<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(check::CheckLayer<check::MaxBytes>: Send, Sync, Unpin, Copy);
assert_impl_all!(check::CheckService<Svc, check::MaxBytes>: Send, Sync, Unpin, Clone);
assert_impl_all!(check::ResponseFuture<Tool, check::MaxBytes>: Send, Sync);
assert_impl_all!(fit::FitLayer: Send, Sync, Unpin, Clone);
assert_impl_all!(fit::Fit<Svc>: Send, Sync, Unpin, Clone);
assert_impl_all!(fit::ResponseFuture<Tool>: Send, Sync);

/// A classifier that may move to another thread, and that threads cannot share.
#[derive(Clone)]
struct Unshared(#[expect(dead_code, reason = "for its traits")] std::cell::Cell<u8>);

assert_impl_all!(circuit_breaker::CircuitBreaker<Svc, Unshared>: Send);
assert_impl_all!(circuit_breaker::ResponseFuture<Svc, Tool, Unshared>: Send);
assert_impl_all!(repeat_guard::RepeatGuard<Svc, Unshared>: Send);
assert_impl_all!(cache::Cache<Svc, Unshared>: Send);
assert_impl_all!(cache::ResponseFuture<Svc, Tool, Unshared>: Send);
assert_impl_all!(result::ResponseFuture<Svc, Tool, Unshared>: Send);

mod metrics {
    use super::{ByError, Svc, Tool, assert_impl_all};
    use tower_toolcall::tool_metrics::{
        Interval, Labels, Metrics, MetricsBuilder, MetricsLayer, MetricsService, ResponseFuture,
        Snapshot,
    };

    assert_impl_all!(Metrics: Send, Sync, Unpin, Clone);
    assert_impl_all!(MetricsBuilder: Send, Sync, Unpin);
    assert_impl_all!(MetricsLayer: Send, Sync, Unpin, Clone);
    assert_impl_all!(MetricsService<Svc>: Send, Sync, Unpin, Clone);
    assert_impl_all!(ResponseFuture<Tool, ByError>: Send, Sync);
    assert_impl_all!(Interval: Send, Sync, Unpin);
    assert_impl_all!(Labels: Send, Sync, Unpin, Clone);
    assert_impl_all!(Snapshot: Send, Sync, Unpin, Clone);
}

mod router {
    use super::{Svc, Tool, assert_impl_all};
    use tower_toolcall::router::{
        Json, ResponseFuture, Router, RouterBuilder, ToolFn, ToolFnFuture, ToolFnWithCall, ToolList,
    };

    assert_impl_all!(Router: Send, Sync, Unpin, Clone, std::fmt::Debug);
    assert_impl_all!(Router<std::cell::Cell<u8>>: Send, Sync, Unpin, Clone);
    assert_impl_all!(RouterBuilder<()>: Send, Sync, Unpin);
    assert_impl_all!(ResponseFuture<()>: Send, Unpin);
    assert_impl_all!(ToolList: Send, Sync, Unpin, Clone);
    // The arguments are made and used up in a call: of what type they are is no matter.
    assert_impl_all!(ToolFn<fn(), *const u8>: Send, Sync, Unpin, Clone);
    assert_impl_all!(ToolFnWithCall<fn(), *const u8>: Send, Sync, Unpin, Clone);
    assert_impl_all!(ToolFnFuture<Tool>: Send, Sync);
    assert_impl_all!(Json<Svc>: Send, Sync, Unpin, Clone);
}

mod token {
    use super::{Svc, Tool, assert_impl_all};
    use tower_toolcall::token::{
        ResponseFuture, Secret, Target, Token, TokenHandle, TokenLayer, TokenRequest, Tokens,
    };

    assert_impl_all!(Secret: Send, Sync, Unpin, Clone, Eq, std::hash::Hash);
    assert_impl_all!(Target: Send, Sync, Unpin, Clone, Eq, std::hash::Hash);
    assert_impl_all!(TokenRequest: Send, Sync, Unpin, Clone, Eq, std::hash::Hash);
    assert_impl_all!(Token: Send, Sync, Unpin, Clone);
    assert_impl_all!(tower_toolcall::token::UpstreamToken: Send, Sync, Unpin, Clone, std::fmt::Debug);
    assert_impl_all!(TokenHandle: Send, Sync, Unpin, Clone);
    assert_impl_all!(TokenLayer<Svc>: Send, Sync, Unpin, Clone);
    assert_impl_all!(Tokens<Svc, Svc>: Send, Sync, Clone);
    assert_impl_all!(ResponseFuture<Svc, Tool, Svc>: Send);
}

#[cfg(feature = "validate")]
mod validate {
    use super::*;
    use tower_toolcall::validate;

    assert_impl_all!(validate::ValidateLayer: Send, Sync, Unpin, Clone);
    assert_impl_all!(validate::Validate<Svc>: Send, Sync, Unpin, Clone);
    assert_impl_all!(validate::ResponseFuture<Svc, Tool>: Send, Sync);
    assert_impl_all!(validate::Schema: Send, Sync, Unpin, Clone);
    assert_impl_all!(validate::Schemas: Send, Sync, Unpin, Clone);
    assert_impl_all!(validate::ValidationErrors: Send, Sync, Unpin, Clone, serde::Serialize);
    assert_impl_all!(validate::Validation: Send, Sync, Copy);
}
