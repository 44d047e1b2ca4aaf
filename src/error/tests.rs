use std::{error::Error as StdError, fmt, io, sync::Arc, time::Duration};

use expect_test::{Expect, expect};

use super::{BoxError, ErrorKind, Evidence, Execution, MAX_TEXT, TimeoutLimit, ToolError};
use crate::{ReplaySafety, ToolCall, redact::Rules};

/// Error texts as they are met in the wild, and what they mean; what is not known is `Failed`.
fn wild() -> Expect {
    expect![[r##"
        # Rate limits.
        RateLimited: 429 Too Many Requests
        RateLimited: Request failed with status code 429
        RateLimited: Error code: 429 - {'error': {'message': 'Rate limit reached for gpt-4o'}}
        RateLimited: HTTP 429
        RateLimited: HTTP/1.1 429 Too Many Requests
        RateLimited: API rate limit exceeded for user ID 12345.
        RateLimited: RateLimitError: slow down
        RateLimited: rate_limit_exceeded
        RateLimited: You exceeded your current quota, please check your plan and billing details
        RateLimited: ThrottlingException: Rate exceeded
        RateLimited: rpc error: code = ResourceExhausted desc = quota
        RateLimited: server returned 429 from upstream
        RateLimited: Quota exceeded for quota metric 'Read requests'
        # Timeouts.
        Timeout: timeout of 30000ms exceeded
        Timeout: Request timed out.
        Timeout: ReadTimeout: HTTPSConnectionPool(host='api', port=443): Read timed out. (read timeout=30)
        Timeout: TimeoutError: The operation was aborted due to timeout
        Timeout: context deadline exceeded
        Timeout: rpc error: code = DeadlineExceeded desc = took too long
        Timeout: connect ETIMEDOUT 10.0.0.1:443
        Timeout: MCP error -32001: Request timed out
        Timeout: 408 Request Timeout
        Timeout: net/http: request canceled (Client.Timeout exceeded while awaiting headers)
        Timeout: operation timed out
        # Connections.
        ConnectionFailed: connect ECONNREFUSED 127.0.0.1:3000
        ConnectionFailed: read ECONNRESET
        ConnectionFailed: fetch failed
        ConnectionFailed: TypeError: Failed to fetch
        ConnectionFailed: socket hang up
        ConnectionFailed: getaddrinfo ENOTFOUND api.example.com
        ConnectionFailed: tcp connect error: Connection refused (os error 111)
        ConnectionFailed: Network Error
        ConnectionFailed: NetworkError when attempting to fetch resource.
        ConnectionFailed: network is unreachable
        ConnectionFailed: dial tcp: lookup db.internal: no such host
        ConnectionFailed: write: broken pipe
        ConnectionFailed: Connection reset by peer
        ConnectionFailed: MCP error -32000: Connection closed
        ConnectionFailed: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))
        ConnectionFailed: temporary failure in name resolution
        # What clients that gave up say, and what others cancelled.
        Timeout: This operation was aborted
        Timeout: AbortError: signal is aborted without reason
        Timeout: The user aborted a request.
        Upstream: context canceled
        # The server's failures.
        Upstream: Request failed with status code 500
        Upstream: 502 Bad Gateway
        Upstream: upstream responded with 503
        Upstream: 503 Service Temporarily Unavailable
        Upstream: HTTP error: status: 504
        Upstream: 529 {"type":"error","error":{"type":"overloaded_error"}}
        Upstream: Server error '500 Internal Server Error' for url 'https://api.example.com'
        Upstream: Internal Server Error
        Upstream: statusCode=502
        Upstream: "GET /v1/x HTTP/1.1" 503 1234
        # Denials.
        Denied: 401 Unauthorized
        Denied: Request failed with status code 403
        # H-1: beside words of a limit a 403 is none. Of Google's client for Python, and of GitHub's.
        RateLimited: <HttpError 403 when requesting https://www.googleapis.com/x returned "Rate Limit Exceeded". Details: "[{'reason': 'rateLimitExceeded'}]">
        RateLimited: 403 {"message": "API rate limit exceeded for user ID 1."}
        Denied: HTTP 403: Resource not accessible by integration
        Denied: Incorrect API key provided: sk-abc
        Denied: 403 Client Error: Forbidden for url: https://example.com
        Denied: AccessDenied: Access Denied
        Denied: rpc error: code = Unauthenticated desc = bad token
        Denied: Error: 401
        # Nothing there.
        NotFound: 404 page not found
        NotFound: 404 Client Error: Not Found for url: http://x
        NotFound: Unknown tool: get_wether
        NotFound: MCP error -32602: Tool nope not found
        NotFound: status code 404
        # Wrong input.
        InvalidInput: 400 Bad Request
        InvalidInput: 422 Unprocessable Entity
        InvalidInput: HTTPError(400)
        InvalidInput: 1 validation error for WeatherArgs
        InvalidInput: Invalid arguments for tool search
        InvalidInput: Error code: 400 - invalid_request_error
        # A size that is too large stays so.
        Failed: rpc error: code = ResourceExhausted desc = MessageLargerThanMax
        # Numbers that are no status.
        Failed: took 4290 ms
        Failed: took 429 ms
        Failed: user 401k plan
        Failed: port 5003
        Failed: cannot open port 503
        Failed: processed 429 records, 3 invalid
        Failed: received 500 rows, expected 10
        Failed: 404 rows deleted
        Failed: order 404 has no address
        Failed: error at line 500, column 12
        Failed: error: 503 items could not be sorted
        Failed: process exited with exit code 401
        Failed: exit status 500
        Failed: balance is $429.00
        Failed: only 1,429 of 2,000 done
        Failed: version 4.0.4 is not supported
        Failed: row 400: bad date
        Failed: 10.0.0.503 is no address
        Failed: model gpt-500 does not fit
        Failed: got 429k tokens
        Failed: limit is 500
        Failed: zip code 404 is too short
        Failed: id=503 is taken
        Failed: HTTP 4290
        Failed: disk 500GB full
        Failed: event on 404-500 street
        # Words that mean something else.
        Failed: timeout must be a positive integer
        Failed: unknown option: timeout
        Failed: unexpected keyword argument 'timeout'
        Failed: invalid timeout value
        Failed: corporate limit exceeded
        Failed: neural network failed to converge
        Failed: social network profile is private
        Failed: current transaction is aborted, commands ignored until end of block
        Failed: name contains forbidden characters
        Failed: the subscription was cancelled in May
        Failed: rate limit header is missing
        Failed: completed without timeout, but empty
        Failed: division by zero
        Failed: key 'network' not in config
        Failed: no rate limit configured
        # What a first version got wrong.
        RateLimited: Error: A rate limit was exceeded (url: conversations.history)
        ConnectionFailed: Cannot connect to host localhost:5000 ssl:default [Connect call failed]
        ConnectionFailed: No connection could be made because the target machine actively refused it. (localhost:5001)
        Upstream: CanceledError: canceled
        Upstream: System.Threading.Tasks.TaskCanceledException: A task was canceled.
        Upstream: kotlinx.coroutines.JobCancellationException: Job was cancelled
        NotFound: An error occurred (404) when calling the HeadObject operation: Not Found
        NotFound: Response status code does not indicate success: 404 (Not Found).
        Failed: Process exited with code 401
        Failed: Module not found: Error: Can't resolve './timeout' in '/app/src'
        Failed: Substring "forbidden" not found in the document
        Failed: Invalid value for 'timeout' in config.yaml: expected a number, got 'soon'
        Failed: would be overwritten by merge:\n   src/timeout.ts\n Please commit
        Failed: Aborted (core dumped)
        Failed: The character '<' is forbidden in file names
        # What a second version got wrong.
        RateLimited: 请求失败，状态码 429
        Upstream: サーバーがHTTP 500を返しました
        Upstream: statuscode 503 ontvangen van leverancier
        Upstream: varnish: Error 503 Backend fetch failed, XID: 404291
        InvalidInput: botocore: HTTPStatusCode: 400, Code: ValidationException
        Failed: expected 500 rows, found 499
        Failed: {"retries":3,"timeout":30000,"error":"checksum mismatch"}
        Failed: aborted.csv has no header row
        Failed: column "timeout" does not exist
        Failed: this is not a network problem: the spreadsheet has a circular formula
        Failed: song "Mission Aborted" has no lyrics
        Failed: invalid regex /timeout|aborted/: missing group name
        # V10: work that was aborted, and cancellations that nobody here asked for.
        Failed: build aborted: 3 tests failed
        Failed: deploy aborted after migration 14 of 20
        Failed: status: aborted
        Timeout: Request aborted
        Timeout: The operation was aborted.
        Timeout: APIUserAbortError: Request was aborted.
        Failed: rpc error: code = Aborted desc = lost a race
        Upstream: rpc error: code = Canceled desc = context canceled
        Upstream: ECANCELED: operation canceled, fsync
        Upstream: canceling statement due to user request
        Upstream: status code 499
        # V17: a connection that is gone.
        ConnectionFailed: operation was canceled: connection was not ready
        ConnectionFailed: operation was canceled: connection closed
        ConnectionFailed: http2 error: stream error received: refused stream before processing any application logic
        # V12: redirects and conflicts are statuses of no kind of their own.
        Failed: HTTP 304 Not Modified
        Failed: HTTP 409: version 3 is not the latest
        Failed: 418 I'm a teapot
        # V13: a number needs a status around it.
        Failed: expected 500 rows, got 401
        Failed: expected 429 items, received 429
        Failed: tests failed: 404
        Failed: backup of server 404, disk full
        Failed: request 503 is still queued
        Failed: fetch 404 of 500 done
        Failed: got 401
        Upstream: the API returned 503
        Denied: request failed: 401
        NotFound: GET https://api.example.com/v1 returned 404
        NotFound: it returned a 404
        # V13: gRPC's codes by their names.
        Upstream: rpc error: code = Unavailable desc = connection error
        NotFound: rpc error: code = NotFound desc = no such row
        Denied: rpc error: code = PermissionDenied desc = timeout of the session
        InvalidInput: rpc error: code = InvalidArgument desc = city
        InvalidInput: rpc error: code = FailedPrecondition desc = not open
        InvalidInput: rpc error: code = OutOfRange desc = page 9
        NotFound: rpc error: code = Unimplemented desc = unknown method
        Upstream: rpc error: code = Internal desc = x
        Upstream: rpc error: code = DataLoss desc = x
        Failed: rpc error: code = AlreadyExists desc = x
        RateLimited: rpc error: code = Unknown desc = HTTP 429
        Upstream: <_InactiveRpcError of RPC that terminated with: status = StatusCode.UNAVAILABLE
        Timeout: io.grpc.StatusRuntimeException: DEADLINE_EXCEEDED: 3s
        Upstream: 14 UNAVAILABLE: No connection established
        # V13: names, TLS and connections, as the runtimes say it.
        ConnectionFailed: error sending request for url (https://api.example.com/)
        ConnectionFailed: client error (Connect)
        ConnectionFailed: Get "https://api.example.com/": EOF
        ConnectionFailed: unexpected EOF
        ConnectionFailed: error:0A000126:SSL routines::unexpected eof while reading
        Failed: SyntaxError: unexpected EOF while parsing
        Failed: syntax error: unexpected EOF
        ConnectionFailed: tls handshake eof
        ConnectionFailed: x509: certificate signed by unknown authority
        ConnectionFailed: curl: (35) OpenSSL SSL_connect: SSL_ERROR_SYSCALL
        ConnectionFailed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed
        ConnectionFailed: javax.net.ssl.SSLHandshakeException: PKIX path building failed
        ConnectionFailed: unable to verify the first certificate
        ConnectionFailed: DEPTH_ZERO_SELF_SIGNED_CERT
        ConnectionFailed: java.net.UnknownHostException: api.example.com
        ConnectionFailed: java.io.EOFException: SSL peer shut down incorrectly
        ConnectionFailed: nodename nor servname provided, or not known
        ConnectionFailed: [Errno -3] Temporary failure in name resolution
        ConnectionFailed: getaddrinfo EAI_AGAIN api.example.com
        ConnectionFailed: SocketError: other side closed
        ConnectionFailed: UND_ERR_SOCKET
        ConnectionFailed: TypeError: terminated
        ConnectionFailed: http: server closed idle connection
        ConnectionFailed: use of closed network connection
        ConnectionFailed: Connection prematurely closed BEFORE response
        ConnectionFailed: curl: (6) Could not resolve host: api.example.com
        # V13: a delay alone is no limit.
        Failed: Retry in 31 seconds
        Failed: try again in 5m
        RateLimited: Usage limit reached. Retry in 2 hours
    "##]]
}

/// The error that a line of the table is read as.
fn of_wild(line: &str) -> ToolError {
    let text = line.split_once(": ").map_or("", |(_, text)| text);
    ToolError::from_box(text.replace("\\n", "\n").into())
}

/// E2: text is the last resort, and never mistakes a number inside other text for a status.
#[test]
fn texts_from_the_wild_are_recognised_and_look_alikes_are_not() {
    let wild = wild();
    let lines = wild.data().lines().map(str::trim_start);
    let read = lines
        .filter(|line| !line.is_empty())
        .map(|line| match line.split_once(": ") {
            Some((_, text)) if !line.starts_with('#') => {
                format!("{:?}: {text}\n", of_wild(line).kind())
            }
            _ => format!("{line}\n"),
        });
    wild.assert_eq(&read.collect::<String>());
    assert_eq!(ToolError::from_box("".into()).kind(), ErrorKind::Failed);
}

/// V1, R6: text chooses the kind, and proves nothing.
#[test]
fn no_text_proves_that_a_tool_did_not_run() {
    for line in wild().data().lines() {
        let error = of_wild(line);
        assert_eq!(
            (error.execution(), error.evidence()),
            (Execution::Unknown, Evidence::Inferred),
            "{line}"
        );
    }
}

/// V1, R6: nor does a type, bare or with context above it: the tool may have met it after its work.
#[test]
fn no_foreign_type_proves_that_a_tool_did_not_run() {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let context = Context("order placed, then mail failed", Some(refused().into()));
    for error in [
        ToolError::from(refused()),
        ToolError::from_box(refused().into()),
        ToolError::from_box(context.into()),
    ] {
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(
            (error.execution(), error.evidence()),
            (Execution::Unknown, Evidence::Inferred)
        );
    }
}

/// V1: a delay that is added to an inferred 503 does not make it one that was turned away.
#[test]
fn a_delay_beside_an_inferred_503_proves_nothing() {
    let error = ToolError::from_box("HTTP 503, retry in 5s".into());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    let error = error.with_retry_after(Duration::from_secs(7));
    assert_eq!(error.execution(), Execution::Unknown);
}

/// V11: the status that a text names stays on the error, and words it.
#[test]
fn a_tools_own_404_is_not_told_as_a_missing_tool() {
    let error = ToolError::from_box("HTTP 404: issue PROJ-7 not found".into()).with_tool("jira");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.status(), Some(http::StatusCode::NOT_FOUND));
    assert!(error.is_recoverable());
    for text in [error.model_message(), error.user_message()] {
        assert!(
            text.contains("did not find what it was asked for"),
            "{text}"
        );
    }
    for text in [
        "rpc error: code = NotFound desc = no such row",
        "404 page not found",
    ] {
        assert!(ToolError::from_box(text.into()).is_recoverable(), "{text}");
    }
    let missing = ToolError::from_box("Unknown tool: x".into());
    assert_eq!((missing.status(), missing.is_recoverable()), (None, false));
    expect!["Tool 'tool' does not exist. Call only tools that you were given."]
        .assert_eq(&missing.model_message());
}

/// V12, C5: a 3xx, and a 4xx other than 408 and 429, is the caller's, known by text too.
#[test]
fn a_redirect_and_a_conflict_do_not_count_against_the_tool() {
    use crate::outcome::{ByError, Classify as _, Count};
    for status in [301, 304, 405, 406, 409, 412, 418, 423, 424, 428, 431] {
        for text in [
            format!("HTTP {status}"),
            format!("status code {status}: no"),
        ] {
            let error = ToolError::from_box(text.clone().into());
            assert_eq!(error.kind(), ErrorKind::Failed, "{text}");
            assert_eq!(error.status().map(|s| s.as_u16()), Some(status), "{text}");
            let outcome = ByError.classify(Err::<&(), _>(&error));
            assert_eq!(outcome.count(), Count::Neutral, "{text}");
        }
    }
}

/// V13: a delay is kept whatever the error is.
#[test]
fn the_delay_of_a_text_is_kept_for_any_kind() {
    for (text, kind, seconds) in [
        ("Retry in 31 seconds", ErrorKind::Failed, 31),
        (
            "connection refused, try again in 5m",
            ErrorKind::ConnectionFailed,
            300,
        ),
        ("rate limit, retry after 3 s", ErrorKind::RateLimited, 3),
        (
            "rate limit, retry after 3 s; daily quota: try again in 2 hours",
            ErrorKind::RateLimited,
            7200,
        ),
    ] {
        let error = ToolError::from_box(text.into());
        assert_eq!(error.kind(), kind, "{text}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)));
    }
}

/// V13: text is read in a bounded time, whatever it repeats.
#[test]
fn absurd_texts_are_read_quickly() {
    for part in [
        "429 ",
        "got 401 ",
        "timeout option ",
        "rpc error: code = ",
        "\"aborted ",
        "retry in ",
    ] {
        let error = ToolError::from_box(part.repeat(1 << 16).into());
        assert_eq!(error.execution(), Execution::Unknown);
    }
}

/// R6: another tool's refusal, met by a tool that had begun, proves nothing of that tool.
#[test]
fn a_refusal_with_context_above_it_is_ambiguous() {
    let open = ToolError::new(ErrorKind::CircuitOpen, "open");
    let wrapped: BoxError = Context("after charging the card", Some(open.into())).into();
    let found = ToolError::from_box(wrapped);
    assert_eq!(found.execution(), Execution::Unknown);
    assert_eq!(found.evidence(), Evidence::Inferred);

    let inner = ToolCall::new("mail").with_id("2").info();
    let outer = ToolCall::new("pay").with_id("1").info();
    let error = ToolError::new(ErrorKind::RateLimited, "slow down").for_call(&inner);
    assert_eq!(
        error.clone().for_call(&inner).execution(),
        Execution::NotStarted
    );
    assert_eq!(error.for_call(&outer).execution(), Execution::Unknown);

    // Without ids the names tell.
    let refused = ToolError::new(ErrorKind::CircuitOpen, "open").with_tool("mail");
    let order = ToolCall::new("order").info();
    assert_eq!(refused.for_call(&order).execution(), Execution::Unknown);

    // One's own flat name is one's own.
    let pay = ToolCall::new("charge").with_server("pay").info();
    let late = || ToolError::new(ErrorKind::Timeout, "late");
    let flat = late().with_tool("pay__charge").for_call(&pay);
    assert_eq!(flat.evidence(), Evidence::Reported);
    let other = late().with_tool("shop__charge").for_call(&pay);
    assert_eq!(other.evidence(), Evidence::Inferred);

    // Whatever was known of the other tool, a leaf's word or a gate's refusal, is merely inferred
    // of this one.
    for error in [
        ToolError::new(ErrorKind::Timeout, "late"),
        ToolError::refusal(ErrorKind::Timeout, "no time left"),
    ] {
        let error = error.with_execution(Execution::Unknown).for_call(&inner);
        assert_ne!(
            error.clone().for_call(&inner).evidence(),
            Evidence::Inferred
        );
        let error = error.for_call(&outer);
        assert_eq!(error.evidence(), Evidence::Inferred);
        assert!(!error.is_own_refusal());
    }
}

/// A token exchange may succeed later if its cause may.
#[test]
fn a_failed_token_exchange_is_as_retryable_as_its_cause() {
    let exchange = |cause| {
        ToolError::new(ErrorKind::TokenExchange, "no token")
            .with_source(ToolError::new(cause, "x"))
            .is_retryable()
    };
    assert!(exchange(ErrorKind::Timeout));
    assert!(!exchange(ErrorKind::Denied));
}

/// A peer's text goes into logs: no line of its own, no terminal codes.
#[test]
fn control_characters_in_a_message_become_blanks() {
    let error = ToolError::from_box("a\nFORGED \u{1b}[31m".into());
    assert_eq!(error.message(), "a FORGED  [31m");
}

#[derive(Debug)]
struct Context(&'static str, Option<BoxError>);

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Context {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.1.as_deref().map(|e| e as _)
    }
}

/// E2: by type through the source chain first, our own error before all others.
#[test]
fn our_own_error_is_found_under_foreign_ones() {
    let ours = ToolError::new(ErrorKind::RateLimited, "slow down")
        .with_retry_after(Duration::from_secs(3));
    let wrapped: BoxError = Context("connection timed out", Some(ours.into())).into();
    let found = ToolError::from_box(wrapped);
    assert_eq!(found.kind(), ErrorKind::RateLimited);
    assert_eq!(found.retry_after(), Some(Duration::from_secs(3)));
}

#[test]
fn our_own_error_passes_without_another_box() {
    let ours = ToolError::new(ErrorKind::Denied, "no");
    let inner = Arc::as_ptr(&ours.0);
    let found = ToolError::from_box(BoxError::from(ours));
    assert_eq!(Arc::as_ptr(&found.0), inner);
}

/// A foreign error of which clones were changed is still their source, and gives them its message.
#[test]
fn changed_clones_share_the_source() {
    let error = ToolError::from_box("password=hunter2 is refused".into());
    let named = error.clone().with_tool("a");
    let again = named.clone().with_attempts(2);
    for copy in [&error, &named, &again] {
        assert_eq!(copy.message(), "password=[REDACTED] is refused");
        let source = copy.source().unwrap();
        assert!(std::ptr::addr_eq(source, error.source().unwrap()));
    }
    let replaced = error.clone().with_source("another");
    assert_eq!(replaced.message(), error.message());
    assert_eq!(replaced.source().unwrap().to_string(), "another");
}

/// A message is printed when somebody asks for it, and redacted by the rules of the call that came
/// before.
#[test]
fn the_rules_of_a_call_hold_for_a_message_that_was_not_printed_yet() {
    let rules = Rules::new().with_secret_prefix("acme_", 4).unwrap();
    let rules = rules.with_secrets(["marmalade7x"]);
    let call = ToolCall::new("a").with_rules(rules).info();
    let error = ToolError::from_box("acme_12345, password=hunter2".into()).for_call(&call);
    assert_eq!(error.message(), "[REDACTED], password=[REDACTED]");
    // Also for a code that is set later, and kept.
    let kept = error.with_code("marmalade7x".to_owned()).without_source();
    assert_eq!(kept.code(), "[REDACTED]");
}

/// Who asks for a message does not meet a panic in the source's own code.
#[test]
fn a_text_that_panics_where_it_is_shown_is_replaced() {
    #[derive(Debug, Default)]
    struct Once(std::sync::OnceLock<()>);
    impl fmt::Display for Once {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            assert!(self.0.set(()).is_ok(), "shown twice");
            f.write_str("request timed out")
        }
    }
    impl StdError for Once {}
    let error = ToolError::from_box(Once::default().into());
    assert_eq!(error.kind(), ErrorKind::Timeout);
    expect!["the text of this error panicked"].assert_eq(error.message());
}

/// A text may be made of another foreign error, while it is looked at.
#[test]
fn a_text_that_is_made_of_another_error_is_read() {
    #[derive(Debug)]
    struct Nested(u32);
    impl fmt::Display for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                0 => f.write_str("HTTP 503"),
                n => write!(
                    f,
                    "{n}, {}",
                    ToolError::from_box(Nested(n - 1).into()).message()
                ),
            }
        }
    }
    impl StdError for Nested {}
    let error = ToolError::from_box(Nested(5).into());
    assert_eq!(error.message(), "5, 4, 3, 2, 1, HTTP 503");
    assert_eq!(error.kind(), ErrorKind::Upstream);
}

/// E2: an I/O error's kind beats whatever the texts around it say.
#[test]
fn a_type_in_the_chain_beats_the_text_above_it() {
    let io = io::Error::new(io::ErrorKind::ConnectionRefused, "nobody there");
    let found = ToolError::from_box(Context("429 records lost: timeout", Some(io.into())).into());
    assert_eq!(found.kind(), ErrorKind::ConnectionFailed);
    expect!["429 records lost: timeout: nobody there"].assert_eq(found.message());
}

#[test]
fn an_error_hidden_in_an_io_error_is_found() {
    let io = io::Error::other(ToolError::new(ErrorKind::NotFound, "gone"));
    assert_eq!(ToolError::from(io).kind(), ErrorKind::NotFound);
}

/// E2: I/O errors by kind.
#[test]
fn io_errors_are_recognised_by_kind() {
    use io::ErrorKind as Io;
    for (io, kind) in [
        (Io::ConnectionRefused, ErrorKind::ConnectionFailed),
        (Io::HostUnreachable, ErrorKind::ConnectionFailed),
        (Io::ConnectionReset, ErrorKind::ConnectionFailed),
        (Io::BrokenPipe, ErrorKind::ConnectionFailed),
        (Io::UnexpectedEof, ErrorKind::ConnectionFailed),
        (Io::TimedOut, ErrorKind::Timeout),
        (Io::PermissionDenied, ErrorKind::Denied),
        (Io::NotFound, ErrorKind::Failed),
    ] {
        let found = ToolError::from(io::Error::from(io));
        assert_eq!(
            (found.kind(), found.execution()),
            (kind, Execution::Unknown),
            "{io:?}"
        );
        let seen = ToolError::from_transport(io::Error::from(io));
        let not_sent = seen.execution() == Execution::NotStarted;
        assert_eq!((seen.kind(), not_sent), (kind, io == Io::ConnectionRefused));
    }
}

/// E2: tower's own errors.
#[cfg(feature = "tower")]
#[test]
fn towers_errors_are_recognised_by_type() {
    use tower::{load_shed, timeout};
    let kind = |e: BoxError| ToolError::from_box(e).kind();
    assert_eq!(
        kind(timeout::error::Elapsed::new().into()),
        ErrorKind::Timeout
    );
    assert_eq!(
        kind(load_shed::error::Overloaded::new().into()),
        ErrorKind::Overloaded
    );
}

/// E2: tokio's own errors, so that a spawned tool that panicked is told from one that failed.
#[tokio::test]
async fn a_panicked_task_is_recognised() {
    let join = tokio::spawn(async { panic!("boom") }).await.unwrap_err();
    assert_eq!(ToolError::from_box(join.into()).kind(), ErrorKind::Panicked);
}

#[test]
fn a_circular_source_chain_ends() {
    #[derive(Debug)]
    struct Circle;
    impl fmt::Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round")
        }
    }
    impl StdError for Circle {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&Circle)
        }
    }
    assert_eq!(ToolError::from_box(Circle.into()).message(), "round");
}

/// Bad input: a peer may send text of any size.
#[test]
fn a_message_of_16_mebibytes_is_cut() {
    let error = ToolError::from_box("ä".repeat(16 << 20).into());
    assert!(error.message().chars().count() <= MAX_TEXT + 14);
}

/// E2: what an HTTP status means.
#[test]
fn http_statuses_map_to_kinds() {
    for (status, kind) in [
        (400, Some(ErrorKind::InvalidInput)),
        (422, Some(ErrorKind::InvalidInput)),
        (401, Some(ErrorKind::Denied)),
        (403, Some(ErrorKind::Denied)),
        (404, Some(ErrorKind::NotFound)),
        (408, Some(ErrorKind::Timeout)),
        (429, Some(ErrorKind::RateLimited)),
        (418, Some(ErrorKind::Failed)),
        (500, Some(ErrorKind::Upstream)),
        (599, Some(ErrorKind::Upstream)),
        (200, None),
        (302, Some(ErrorKind::Failed)),
        (499, Some(ErrorKind::Upstream)),
        (999, None),
    ] {
        assert_eq!(ErrorKind::from_http_status(status), kind, "{status}");
    }
}

/// R2: a 503 that says when to come back has turned the request away.
#[test]
fn a_503_with_a_delay_has_not_started() {
    let error = ToolError::from_status(http::StatusCode::SERVICE_UNAVAILABLE, "busy");
    assert_eq!(error.execution(), Execution::Unknown);
    let error = error.with_retry_after(Duration::from_secs(1));
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// E8, W11: recoverable for all kinds but these.
#[test]
fn recoverable_means_that_the_agent_can_go_on() {
    let lost: Vec<_> = ErrorKind::ALL
        .iter()
        .filter(|k| !k.is_recoverable())
        .collect();
    assert_eq!(
        lost,
        [
            &ErrorKind::NotFound,
            &ErrorKind::Cancelled,
            &ErrorKind::Internal
        ]
    );
}

/// F-2: the model reads as much of a reason as there is room for.
#[test]
fn the_model_reads_as_much_of_a_reason_as_200_characters_allow() {
    let place = "the value at line 1, column 17 of the query is not valid JSON".to_owned();
    let call = ToolCall::new("search")
        .with_json_str("{ not JSON")
        .unwrap_err();
    expect!["Tool 'search' refused its arguments: tool arguments are not valid JSON (line 1, column 3). Correct them and call it again."].assert_eq(&call.model_message());
    for kind in [
        ErrorKind::InvalidInput,
        ErrorKind::Failed,
        ErrorKind::Reported,
    ] {
        let text = ToolError::new(kind, place.clone())
            .with_tool("search")
            .model_message();
        assert!(text.contains(&place), "{text}");
        let long = ToolError::new(kind, "ä".repeat(300))
            .with_tool("search")
            .model_message();
        assert!(
            long.chars().count() >= 195 && long.chars().count() <= 200,
            "{long}"
        );
        assert!(long.contains("ä... ") && !long.contains("...."), "{long}");
        // What to do next is there whatever the reason.
        assert!(
            long.ends_with(&text[text.find(&place).unwrap() + place.len()..]),
            "{long}"
        );
    }
}

/// E4: one sentence for each kind, short, naming the tool; bounded for a monstrous name.
#[test]
fn messages_name_the_tool_and_stay_within_200_characters() {
    let monster = "tool\n".repeat(1 << 18);
    for &kind in ErrorKind::ALL {
        for tool in ["search", &monster] {
            let error = ToolError::new(kind, "x".repeat(600))
                .with_tool(tool)
                .with_retry_after(Duration::from_millis(12_345));
            let texts = [true, false].map(|retryable| {
                let error = error.clone().with_retryable(retryable);
                [error.user_message(), error.model_message()]
            });
            for text in texts.concat() {
                assert!(text.chars().count() <= 200, "{kind:?}: {text}");
                assert!(text.contains(&tool[..4]), "{kind:?}: {text}");
                assert!(!text.contains('\n'), "{kind:?}: {text}");
            }
        }
    }
}

/// E4: no sentence invites an endless loop.
#[test]
fn only_what_may_help_later_invites_to_try_again() {
    for &kind in ErrorKind::ALL {
        let text = ToolError::new(kind, "no").with_tool("t").model_message();
        let invites = text.contains("ry again");
        let may_help = matches!(kind, ErrorKind::RateLimited | ErrorKind::Overloaded);
        assert_eq!(invites, may_help, "{text}");
    }
}

/// P9, E4: what the model and the user read does not contradict `retryable`.
#[test]
fn texts_and_retryable_agree() {
    let unsafe_call = ToolCall::new("t").with_replay_safety(ReplaySafety::Unsafe);
    for call in [ToolCall::new("t"), unsafe_call] {
        for &kind in ErrorKind::ALL {
            for execution in [
                Execution::NotStarted,
                Execution::Unknown,
                Execution::Completed,
            ] {
                for retryable in [true, false] {
                    for wait in [None, Some(Duration::from_secs(9))] {
                        let error = ToolError::new(kind, "no")
                            .with_execution(execution)
                            .with_retryable(retryable)
                            .for_call(&call.info());
                        let error = match wait {
                            Some(wait) => error.with_retry_after(wait),
                            None => error,
                        };
                        let (model, user) = (error.model_message(), error.user_message());
                        let texts = format!("{kind:?} {execution:?}: {model} {user}");
                        if execution == Execution::Completed {
                            assert!(!texts.contains("may have run"), "{texts}");
                        }
                        match error.is_retryable() {
                            true => assert!(!model.contains("Do not"), "{texts}"),
                            false => {
                                let invites = |text: &str| text.contains("ry again");
                                assert!(!invites(&model) && !invites(&user), "{texts}");
                                assert!(!model.contains("Repeat it only if it may"), "{texts}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// E4: both texts can be replaced.
#[test]
fn messages_can_be_replaced() {
    let error = ToolError::new(ErrorKind::Failed, "x")
        .with_user_message("Sorry.")
        .with_model_message("Stop.");
    assert_eq!(
        (error.user_message(), error.model_message()),
        ("Sorry.".into(), "Stop.".into())
    );
}

/// E5: the JSON-RPC object of a timeout, field by field.
#[test]
fn a_timeout_as_a_json_rpc_error() {
    let call = ToolCall::new("search").with_server("docs").info();
    let ms = Duration::from_millis;
    let error = ToolError::timed_out(&call, ms(4500), ms(5000), super::TimeoutLimit::Deadline)
        .with_attempts(2);
    expect![[r#"{"code":-32000,"data":{"attempts":2,"code":"TOOL_TIMEOUT","configured_timeout_ms":5000,"execution":"unknown","retryable":true,"server":"docs","timeout_ms":4500,"tool_id":"search"},"message":"Tool invocation timed out"}"#]].assert_eq(&error.to_json_rpc().to_string());
}

/// E5: HTTP and gRPC codes come from the same table.
#[test]
fn codes_on_three_wires() {
    for (kind, json_rpc, http, grpc) in [
        (ErrorKind::Timeout, -32000, 504, 4),
        (ErrorKind::CircuitOpen, -32001, 503, 14),
        (ErrorKind::RateLimited, -32603, 429, 8),
        (ErrorKind::InvalidInput, -32602, 400, 3),
        (ErrorKind::NotFound, -32602, 404, 5),
        (ErrorKind::ConnectionFailed, -32603, 502, 14),
        (ErrorKind::Cancelled, -32603, 499, 1),
        (ErrorKind::Internal, -32603, 500, 13),
    ] {
        let codes = (
            kind.json_rpc_code(),
            kind.http_status().as_u16(),
            kind.grpc_code(),
        );
        assert_eq!(codes, (json_rpc, http, grpc), "{kind:?}");
    }
}

/// E5: whole seconds, rounded up, at least 1.
#[test]
fn retry_after_in_seconds_never_comes_too_early() {
    for (delay, seconds) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (30_000, 30)] {
        let error = ToolError::new(ErrorKind::RateLimited, "")
            .with_retry_after(Duration::from_millis(delay));
        assert_eq!(error.retry_after_seconds(), Some(seconds));
    }
    let never = ToolError::new(ErrorKind::RateLimited, "").with_retry_after(Duration::MAX);
    assert_eq!(never.retry_after_seconds(), Some(31 * 24 * 3600));
}

/// E1: everything that an error carries, and that the first writer of a name wins.
#[test]
fn the_first_writer_of_a_name_wins() {
    let call = ToolCall::new("outer").with_server("s").with_id("c1").info();
    let error = ToolError::new(ErrorKind::Failed, "x")
        .with_tool("inner")
        .for_call(&call);
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some("inner"), Some("s"), Some("c1"))
    );
}

/// E1: details and upstream bodies are redacted and bounded.
#[test]
fn what_an_error_keeps_of_a_peer_is_redacted() {
    let error = ToolError::new(ErrorKind::Upstream, "token=s3cr3t-canary failed".to_owned())
        .with_body(&format!(
            "{{\"password\": \"s3cr3t-canary\"}} {}",
            "x".repeat(1000)
        ))
        .with_detail("api_key", "s3cr3t-canary")
        .with_source("Bearer s3cr3t-canary");
    let shown = format!(
        "{error} {error:?} {} {} {} {}",
        error.details().unwrap(),
        error.user_message(),
        error.model_message(),
        error.to_json_rpc()
    );
    assert!(!shown.contains("s3cr3t-canary"), "{shown}");
    assert!(error.body().unwrap().chars().count() <= MAX_TEXT + 14);
}

/// Issue 48, D12: one name that only a newer peer knows does not make the error unreadable.
#[test]
fn names_of_a_newer_peer_are_read_as_not_known() {
    let mut written = serde_json::json!(ToolError::new(ErrorKind::Timeout, "late"));
    for field in ["kind", "execution", "timeout_limit"] {
        written[field] = "of_the_next_release".into();
    }
    written["timeout_ms"] = 5.into();
    let read: ToolError = serde_json::from_value(written).unwrap();
    assert_eq!(
        (read.kind(), read.code()),
        (ErrorKind::Failed, "TOOL_TIMEOUT")
    );
    assert_eq!(read.execution(), Execution::Unknown);
    assert_eq!(read.timeout_limit(), Some(TimeoutLimit::Timeout));
}

/// E7: an own code in the place of ours.
#[test]
fn a_code_can_be_replaced() {
    let error = ToolError::new(ErrorKind::Timeout, "late").with_code("TOOL_EXECUTION_FAILED");
    assert_eq!(error.to_string(), "TOOL_EXECUTION_FAILED: late");
}

#[test]
fn an_error_is_one_word_wide() {
    assert_eq!(size_of::<ToolError>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), ToolError>>(), size_of::<usize>());
}

/// E4: a connection that was lost midway is no "could not be reached": another tool might do twice
/// what this one has done.
#[test]
fn a_connection_lost_midway_does_not_invite_a_second_run() {
    let lost = ToolError::new(ErrorKind::ConnectionFailed, "closed").with_tool("pay");
    for text in [lost.model_message(), lost.user_message()] {
        assert!(
            text.contains("lost") && !text.contains("another tool"),
            "{text}"
        );
    }
    let refused = lost.with_execution(Execution::NotStarted);
    expect!["Tool 'pay' could not be reached. Use another tool or continue without it."]
        .assert_eq(&refused.model_message());
}
