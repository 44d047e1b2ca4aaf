//! The phrases of errors: of the large runtimes, of their HTTP, gRPC and TLS clients, of databases
//! and vendors.

use crate::error::ErrorKind;

/// As [`normalise`](super::normalise) has them. The first of the list that is mentioned decides:
/// limits before timeouts, timeouts before lost connections, lost connections before cancellations.
#[rustfmt::skip]
pub(super) const PHRASES: &[(ErrorKind, &[&str])] = &[
    (ErrorKind::RateLimited, &[
        "rate limit", "rate limits", "rate limited", "rate limiting", "ratelimit", "ratelimited", "too many requests",
        "quota exceeded", "insufficient quota", "exceeded your current quota", "daily limit exceeded",
        "request limit exceeded", "request limit reached", "requests limit exceeded", "resource exhausted", "throttled", "throttling",
    ]),
    (ErrorKind::Timeout, &[
        "timeout", "timed out", "request time out", "gateway time out", "deadline exceeded", "deadline has elapsed", "etimedout",
        "esockettimedout",
        // Clients that give up name it so.
        "abort error", "request aborted", "request was aborted", "user aborted a request", "operation was aborted",
        "signal is aborted",
    ]),
    (ErrorKind::ConnectionFailed, &[
        // Names
        "enotfound", "eai again", "getaddrinfo", "dns error", "no such host", "name or service not known", "name resolution",
        "name not resolved", "name does not resolve", "unknown host exception", "unknown host",
        "nodename nor servname provided", "no address associated with hostname", "could not resolve host",
        "could not resolve hostname", "failed to lookup address information", "server misbehaving",
        "specified hostname could not be found", "unresolved address exception",
        // Ways
        "ehostunreach", "enetunreach", "no route to host", "host unreachable", "host is unreachable", "network unreachable",
        "network is unreachable", "network is down", "internet disconnected", "internet connection appears to be offline",
        // Connections that were not made
        "econnrefused", "connection refused", "connect error", "connect exception", "connect call failed", "cannot connect",
        "couldnt connect", "could not connect", "failed to connect", "unable to connect", "no connection could be made",
        "error trying to connect", "connection attempts failed", "max retries exceeded with url", "client connector error",
        "no connection established",
        // TLS
        "tls handshake", "ssl handshake", "handshake failure", "handshake failed", "handshake exception", "x509 : certificate",
        "ssl error", "ssl exception", "ssl routines", "wrong version number", "certificate verify failed",
        "failed to verify certificate", "certificate has expired", "cert has expired", "self signed certificate",
        "depth zero self signed cert", "unable to verify the first certificate", "unable to get local issuer certificate",
        "unable to verify leaf signature", "invalid peer certificate", "altname invalid", "received fatal alert",
        "pkix path building failed",
        // Connections that were lost
        "econnreset", "econnaborted", "epipe", "broken pipe", "connection reset", "connection aborted", "connection abort",
        "connection closed", "connection was closed", "connection lost", "connection error", "connection failed",
        "connection was not ready", "connection prematurely closed", "connection broken", "connection unexpectedly closed",
        "closed network connection", "closed idle connection", "closed connection", "closed the connection",
        "lost connection", "transport closed", "transport error", "channel closed", "server disconnected",
        "remote disconnected", "socket disconnected", "socket hang up", "socket exception", "socket is closed",
        "other side closed", "und err socket", "type error : terminated", "incomplete message", "incomplete read",
        "incomplete chunked read", "unexpected eof", "eof exception", "end of file from server", "unexpected end of stream",
        "server has gone away", "dispatch task is gone", "refused stream", "goaway", "http2 error",
        "error sending request", "client error ( connect )", "client error ( send request )",
        "error reading a body from connection",
        "fetch failed", "failed to fetch", "network error", "network failure", "network connection", "network request failed",
        "network issue", "network problem", "network down", "network outage", "network",
    ]),
    // What is cancelled on the other side, or by the tool's own runtime, is a failure there.
    (ErrorKind::Upstream, &[
        "ecanceled", "context canceled", "context cancelled", "request cancelled", "request canceled", "request was cancelled",
        "request was canceled", "operation cancelled", "operation canceled", "operation was cancelled",
        "operation was canceled", "task was cancelled", "task was canceled", "job was cancelled", "promise was canceled",
        "cancelled on client", "cancel error", "canceled error", "cancelled error", "canceled exception",
        "cancelled exception", "cancellation exception", "canceling statement due to user request",
        "internal server error", "bad gateway", "service unavailable", "temporarily unavailable", "overloaded error",
        "no healthy upstream",
    ]),
    (ErrorKind::Denied, &[
        "unauthorized", "unauthorised", "unauthenticated", "forbidden", "access denied", "permission denied",
        "authentication failed", "authentication required", "authentication error", "invalid api key", "incorrect api key",
        "insufficient scope", "insufficient permissions",
    ]),
    (ErrorKind::NotFound, &[
        "unknown tool", "tool not found", "no such tool", "method not found",
    ]),
    (ErrorKind::InvalidInput, &[
        "bad request", "unprocessable entity", "unprocessable content", "validation error", "validation errors",
        "validation failed", "invalid params", "invalid parameters", "invalid argument", "invalid arguments", "invalid input",
        "invalid request",
    ]),
];
