//! The single entry point of requests and exit point of responses.
//!
//! What applies to all requests is implemented here and nowhere else: request ids, the rules of
//! HTTP, panics, problem documents, metrics, and the log of failures. Who may do what is decided
//! behind it, where the route is known (`access`).

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version, header};
use hyper::body::Incoming;
use io_trace::{Cause, Scope, Tracer};
use storage_core::StorageError;
use tower::Service;

use crate::access::{Proxy, share};
use crate::access_log::AccessLine;
use crate::changes::{Changes, is_change};
use crate::clock::http_date;
use crate::config::HttpConfig;
use crate::connection::Peer;
use crate::grpc;
use crate::metrics::{Metrics, RouteGroup};
use crate::origin::Origins;
use crate::problem::Problem;
use crate::request_body::{BodyPace, RequestBody};
use crate::request_id::{RequestId, RequestIds};
use crate::rpc_status::RpcStatus;

/// The id of a request, in requests and responses.
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is wrong with a request because of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Its head gave two lengths, so that its end is not certain.
    Ambiguous,
    /// All connections are in use: this one serves health and metrics only.
    NoConnection,
}

/// The entry point of the application, shared by all connections.
pub(crate) struct Gate {
    entrance: Entrance,
    changes: Changes,
    tracer: Arc<Tracer>,
    ids: RequestIds,
    header_bytes_max: usize,
    header_count_max: usize,
    origins: Origins,
    proxy: Proxy,
}

/// The application after the gate, for one request.
#[derive(Clone)]
struct Entrance {
    router: Router,
    metrics: Arc<Metrics>,
    pace: BodyPace,
}

impl Gate {
    /// A gate that calls `router`.
    pub(crate) fn new(
        router: Router,
        metrics: Arc<Metrics>,
        tracer: Arc<Tracer>,
        (http, proxy): (&HttpConfig, Proxy),
    ) -> Self {
        let pace = BodyPace {
            idle: http.body_idle(),
            bytes_per_second_min: http.body_bytes_per_second_min,
        };
        Self {
            entrance: Entrance {
                router,
                metrics,
                pace,
            },
            changes: Changes::default(),
            tracer,
            ids: RequestIds::default(),
            header_bytes_max: usize::try_from(http.header_bytes_max).unwrap_or(usize::MAX),
            header_count_max: usize::try_from(http.header_count_max).unwrap_or(usize::MAX),
            origins: Origins::new(http),
            proxy,
        }
    }

    /// The server's counters.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.entrance.metrics
    }

    /// Waits for the changes whose clients hung up.
    pub(crate) async fn finish_changes(&self) {
        self.changes.finish().await;
    }

    /// Answers one request of `peer`.
    pub(crate) async fn pass(
        &self,
        mut request: Request<Incoming>,
        (flaw, peer): (Option<Flaw>, IpAddr),
    ) -> Response {
        let started = Instant::now();
        // Before anything that could write the path somewhere.
        let is_shared = share::take(&mut request);
        self.proxy.take(&mut request, peer);
        request.extensions_mut().insert(Peer(peer));
        // gRPC needs HTTP/2: on HTTP/1.1 a refusal has its status, and may have to close.
        let is_call = request.version() == Version::HTTP_2 && grpc::is_grpc(request.headers());
        let id = self.ids.id_of(request.headers());
        request.extensions_mut().insert(RequestId(id.clone()));
        let group = RouteGroup::of(request.method(), request.uri().path());
        let line = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| format!("{} {}", request.method(), request.uri().path()));
        let access = AccessLine::of(&request);
        let _in_flight = self.entrance.metrics.request_began(group);
        let mut response = match self.refusal(&request, group, flaw) {
            Some(problem) => problem.into_response(),
            None => self.answer(request, group, &id).await,
        };
        let refused = self.finish(&mut response, &id, is_call);
        let status = refused.unwrap_or_else(|| response.status());
        if is_shared {
            // A page that follows a link would tell where it came from.
            let no_referrer = HeaderValue::from_static("no-referrer");
            let fields = response.headers_mut();
            fields.insert(header::REFERRER_POLICY, no_referrer);
        }
        let elapsed = started.elapsed();
        self.entrance.metrics.request_ended(group, status, elapsed);
        if let Some(access) = access {
            access.write(id.to_str().unwrap_or(""), status, &response, elapsed);
        }
        if let Some(line) = line {
            let (status, request_id) = (status.as_u16(), id.to_str().unwrap_or(""));
            let microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(request_id, line, status, microseconds, "request answered");
        }
        let fields = response.headers_mut();
        fields.insert(X_REQUEST_ID, id);
        // hyper's own stands still when the clock is set back.
        fields.insert(header::DATE, http_date());
        response
    }

    /// Answers a valid request, within a scope while I/O is traced.
    async fn answer(
        &self,
        request: Request<Incoming>,
        group: RouteGroup,
        id: &HeaderValue,
    ) -> Response {
        if is_change(request.method(), request.uri()) {
            return self.change(request, group, id).await;
        }
        // Pinned here because the future is several kilobytes and must not be moved again.
        let mut answer = pin!(self.entrance.route(request));
        if self.tracer.is_on() {
            self.scope(group, id).around(answer.as_mut()).await
        } else {
            answer.await
        }
    }

    /// Answers a request that changes state, in a task that outlives the connection.
    async fn change(
        &self,
        request: Request<Incoming>,
        group: RouteGroup,
        id: &HeaderValue,
    ) -> Response {
        let scope = self.tracer.is_on().then(|| self.scope(group, id));
        let entrance = self.entrance.clone();
        let change = async move {
            let mut answer = pin!(entrance.route(request));
            match scope {
                Some(scope) => scope.around(answer.as_mut()).await,
                None => answer.await,
            }
        };
        match self.changes.run(change).await {
            Some(response) => response,
            None => Problem::from(StorageError::Stopping).into_response(),
        }
    }

    /// The cause of the request's I/O.
    fn scope(&self, group: RouteGroup, id: &HeaderValue) -> Scope {
        let cause = match group {
            RouteGroup::Files => Cause::Range,
            RouteGroup::Packets => Cause::Ingest,
            _ => Cause::Manage,
        };
        Scope::new(&self.tracer, cause, id.to_str().ok().map(Arc::from), 1)
    }

    /// The problem of a request that HTTP forbids on any route.
    fn refusal(
        &self,
        request: &Request<Incoming>,
        group: RouteGroup,
        flaw: Option<Flaw>,
    ) -> Option<Problem> {
        let malformed = |detail: &'static str, cause: &'static str, remedy: &'static str| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "request_malformed",
                "the request is malformed",
            )
            .detail(detail)
            .cause(cause)
            .remedy(remedy)
            .closing()
        };
        if flaw == Some(Flaw::NoConnection) && group != RouteGroup::Health {
            return Some(connections_exhausted());
        }
        if flaw == Some(Flaw::Ambiguous) {
            return Some(malformed(
                "it is not clear where the request ends: it has both Content-Length and \
                 Transfer-Encoding, or a length in an unusual form, or a request before it had",
                "a proxy in front may see the end of the request elsewhere",
                "send one Content-Length in plain digits, or chunks",
            ));
        }
        let headers = request.headers();
        let hosts = headers.get_all(header::HOST).iter().count();
        if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
            return Some(malformed(
                "the request must have exactly one Host field",
                "HTTP/1.1 requires it (RFC 9112 section 3.2)",
                "send one Host field",
            ));
        }
        let (method, target) = (request.method(), request.uri());
        if let Some(problem) = self.origins.refusal(method, target, headers) {
            return Some(problem);
        }
        if has_unknown_transfer_coding(headers) {
            return Some(transfer_coding_unsupported());
        }
        let target = request
            .uri()
            .path_and_query()
            .map_or(0, |target| target.as_str().len());
        let fields: usize = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum();
        // hyper counts the fields of HTTP/1 only.
        if fields + target > self.header_bytes_max || headers.len() > self.header_count_max {
            return Some(
                Problem::new(
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "header_too_large",
                    "the request head is too large",
                )
                .cause(format!(
                    "the limits are {} bytes and {} fields",
                    self.header_bytes_max, self.header_count_max
                ))
                .remedy("send fewer or shorter header fields")
                .closing(),
            );
        }
        None
    }

    /// Turns every refusal into a problem document, or into the status of a call of gRPC, including
    /// those of the framework, and logs server errors. Returns the status of a refusal, which the
    /// response to a call does not have.
    fn finish(
        &self,
        response: &mut Response,
        id: &HeaderValue,
        is_call: bool,
    ) -> Option<StatusCode> {
        let status = response.status();
        if !status.is_client_error() && !status.is_server_error() {
            return None;
        }
        let problem = response
            .extensions_mut()
            .remove::<Problem>()
            .or_else(|| of_framework(response))?;
        let instance = id.to_str().unwrap_or("");
        self.entrance.metrics.refused(problem.code());
        let is_logged_once = LOGGED_ONCE.contains(&problem.code());
        if problem.status().is_server_error() && !is_logged_once {
            let (code, what) = (problem.code(), problem.what());
            tracing::error!(
                request_id = instance,
                code,
                what,
                "request failed with a server error"
            );
        }
        if is_call {
            *response = grpc::refusal(&RpcStatus::of_problem(&problem));
        } else {
            problem.render(instance, response);
        }
        Some(status)
    }
}

impl Entrance {
    async fn route(&self, request: Request<Incoming>) -> Response {
        let mut rest = None;
        let is_http_2 = request.version() == Version::HTTP_2;
        // It would be told to send what nobody wants.
        let asks_first = request.headers().contains_key(header::EXPECT);
        let request = request.map(|body| {
            // Most requests have no body and need no box for it.
            if http_body::Body::is_end_stream(&body) {
                Body::empty()
            } else {
                let rest = Arc::clone(rest.get_or_insert_default());
                Body::new(RequestBody::new(body, self.pace, rest))
            }
        });
        let mut response = self.call(request).await;
        if let Some(rest) = rest
            && !is_http_2
            && !rest.is_read()
            && (asks_first || !rest.read().await)
        {
            // The next request is behind the rest of the body, which hyper does not wait for, and
            // the client has to know (RFC 9112 section 9.6).
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    async fn call(&self, request: Request<Body>) -> Response {
        let mut router = self.router.clone();
        let answered = async move { router.call(request).await };
        match AssertUnwindSafe(answered).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(panic) => {
                self.metrics.panic_caught();
                let what = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "internal error",
                )
                .cause(what)
                .remedy("report it with the request id; other requests are not affected")
                .into_response()
            }
        }
    }
}

/// Whether the body is in a transfer coding besides `chunked`. hyper refuses one after it.
fn has_unknown_transfer_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn transfer_coding_unsupported() -> Problem {
    Problem::new(
        StatusCode::NOT_IMPLEMENTED,
        "transfer_coding_unsupported",
        "the transfer coding is not supported",
    )
    .cause("Transfer-Encoding has a coding other than chunked (RFC 9112 section 6.1)")
    .remedy("send the body chunked or with Content-Length; compress it with Content-Encoding")
    .closing()
}

/// Refusals of a state of the server that is logged when it begins, not for each request.
const LOGGED_ONCE: [&str; 5] = [
    CONNECTIONS_EXHAUSTED,
    "object_store_unavailable",
    "recovering",
    "storage_recovering",
    "storage_taken_over",
];

/// The code of a request that came when all connections were in use.
const CONNECTIONS_EXHAUSTED: &str = "connections_exhausted";

fn connections_exhausted() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        CONNECTIONS_EXHAUSTED,
        "all connections are in use",
    )
    .cause(
        "http.connections_max connections are answering requests, or \
         http.connections_per_peer_max of one address",
    )
    .remedy("send the request again after Retry-After, over fewer connections")
    .retry_after(1)
    .closing()
}

/// The problem for a response that the framework produced; `None` for complete responses of
/// handlers.
fn of_framework(response: &Response) -> Option<Problem> {
    let plain = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !plain {
        return None;
    }
    let status = response.status();
    let problem = match status {
        StatusCode::NOT_FOUND => Problem::new(status, "route_not_found", "route not found")
            .cause("no route matches the path")
            .remedy("GET /openapi.json lists all paths"),
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(status, "method_not_allowed", "method not allowed")
                .cause("the path exists, but not for this method")
                .remedy("use one of the methods in the Allow field")
        }
        StatusCode::BAD_REQUEST => {
            Problem::new(status, "request_malformed", "the request is malformed")
                .cause("its path, query string or head cannot be parsed")
                .remedy("GET /openapi.json describes every request")
        }
        _ => Problem::new(status, "request_refused", "the request was refused")
            .cause("the server cannot process it in this form")
            .remedy("GET /openapi.json describes every request"),
    };
    Some(problem)
}
