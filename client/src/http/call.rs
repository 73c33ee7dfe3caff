use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::bearer::Bearer;
use super::problem::Problem;
use super::retry::{Retry, RetryReason, is_temporary, retry_after};
use super::server_url::ServerUrl;
use super::tls::{self, TlsFiles};
use super::waits::Waits;
use crate::ClientError;
use crate::clock;

/// Maximum size of a JSON response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of a problem document.
const PROBLEM_BYTES_MAX: u64 = 4 << 20;
/// Time that a response may take to start or to continue: finalizing a large storage is one
/// request.
const IDLE: Duration = Duration::from_secs(600);
/// Nodes to which a request is sent on.
const NODES_MAX: u32 = 3;
const CONNECT: Duration = Duration::from_secs(10);

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Client {
    server: ServerUrl,
    token: Option<Bearer>,
    /// Name of the reader, for the label `explored_by`.
    reader: Option<String>,
    retry: Retry,
    waits: Waits,
    http: reqwest::Client,
}

/// The body of a request, retained so that it can be sent again.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pub(super) content_type: &'static str,
    pub(super) chunks: Vec<Bytes>,
}

/// One request, before it is sent.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) content: Option<Content>,
    /// Sending it twice has the same effect as sending it once.
    pub(super) repeatable: bool,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: ClientError,
    /// Why a retry may help; `None` if it cannot.
    pub(super) reason: Option<RetryReason>,
}

/// The state of a request's retries.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    retry: Retry,
    attempt: u32,
    waited: Duration,
    waits: Waits,
}

impl Drop for RetryBudget {
    fn drop(&mut self) {
        if !self.waited.is_zero() {
            self.waits.over();
        }
    }
}

impl RetryBudget {
    /// Waits before a retry after a response that was cut. Returns any other error: what had no
    /// response was sent again as often as the policy allows, and waiting for it once more would
    /// multiply the two.
    pub(crate) async fn wait_after_cut(&mut self, error: ClientError) -> Result<(), ClientError> {
        let reason = match error {
            ClientError::Cut { .. } => Some(RetryReason::Broken),
            _ => None,
        };
        self.wait(Failed { error, reason }).await
    }

    /// Waits before the next attempt, or returns the error if there is none.
    pub(super) async fn wait(&mut self, failed: Failed) -> Result<(), ClientError> {
        let delay = failed
            .reason
            .and_then(|reason| self.retry.delay(self.attempt, reason, self.waited));
        let Some(delay) = delay else {
            return Err(failed.error);
        };
        self.waited += delay;
        self.waits.waiting(&failed.error, self.waited);
        tokio::time::sleep(delay).await;
        self.attempt += 1;
        Ok(())
    }
}

impl Call {
    /// A request without a body. All methods except POST are repeatable.
    pub(super) fn new(method: Method, url: String) -> Self {
        Self {
            repeatable: method != Method::POST,
            method,
            url,
            headers: Vec::new(),
            content: None,
        }
    }

    pub(super) fn json(mut self, body: &impl serde::Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("request bodies are plain data");
        self.content = Some(Content {
            content_type: "application/json",
            chunks: vec![Bytes::from(bytes)],
        });
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }
}

impl Client {
    /// A client of `server` that sends `token`, if there is one, with every request.
    pub fn new(
        server: ServerUrl,
        token: Option<String>,
        retry: Retry,
    ) -> Result<Self, ClientError> {
        Self::with_tls(server, token.map(Bearer::from), retry, &TlsFiles::default())
    }

    /// As [`Self::new`], with these files for HTTPS.
    pub fn with_tls(
        server: ServerUrl,
        token: Option<Bearer>,
        retry: Retry,
        files: &TlsFiles,
    ) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(files, server.is_encrypted())?)
            // A proxy that buffers bodies would defeat flow control.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("tracehold/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ClientError::input(format!("http client: {}", causes(&error))))?;
        Ok(Self {
            server,
            token,
            reader: None,
            retry,
            waits: Waits::default(),
            http,
        })
    }

    /// The same client, naming the reader: the server labels the storages that it reads.
    #[must_use]
    pub fn with_reader(mut self, reader: Option<String>) -> Self {
        self.reader = reader;
        self
    }

    /// The same client, which passes on what its requests wait for, if they wait for a second.
    #[must_use]
    pub fn with_waits(mut self, say: fn(&str)) -> Self {
        self.waits = Waits::new(say);
        self
    }

    /// The same client of another server.
    pub(super) fn with_server(mut self, server: ServerUrl) -> Self {
        self.server = server;
        self
    }

    /// The server.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// Sends a request, with retries while the server is busy or unreachable, as the policy allows.
    pub(super) async fn send(&self, call: Call) -> Result<Response, ClientError> {
        let mut budget = self.retry_budget();
        loop {
            match self.send_once(&call).await {
                Ok(response) => return Ok(response),
                Err(reason) => budget.wait(reason).await?,
            }
        }
    }

    /// A new retry state, for a request or for the rest of one that made progress.
    pub(crate) fn retry_budget(&self) -> RetryBudget {
        RetryBudget {
            retry: self.retry,
            attempt: 0,
            waited: Duration::ZERO,
            waits: self.waits.clone(),
        }
    }

    /// One attempt. The error says whether a retry may help.
    pub(super) async fn send_once(&self, call: &Call) -> Result<Response, Failed> {
        match self.attempt(call).await {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => {
                let requested = wait_requested(response.headers());
                let temporary = is_temporary(response.status().as_u16());
                let mut problem = read_problem(response).await;
                if problem.detail.is_empty() && problem.title.is_empty() {
                    // The response to a HEAD request has no body.
                    problem.detail = format!("{} {} was refused", call.method, call.url);
                }
                Err(Failed {
                    error: ClientError::Refused(Box::new(problem)),
                    reason: temporary.then_some(RetryReason::Busy(requested)),
                })
            }
            Err(error) => Err(Failed {
                // Without a connection, nothing of the request has reached the server.
                reason: if tls::is_refused(&error) || is_not_http(&error) {
                    None
                } else if error.is_connect() {
                    Some(RetryReason::Unreachable)
                } else {
                    call.repeatable.then_some(RetryReason::Broken)
                },
                error: transport(call, &error),
            }),
        }
    }

    /// Sends a request to the server, or to the node that it names: several servers share an object
    /// store, and a storage is written by one of them.
    async fn attempt(&self, call: &Call) -> Result<Response, reqwest::Error> {
        let mut url = call.url.clone();
        for _ in 0..NODES_MAX {
            let response = self.attempt_at(call, &url).await?;
            match node_url(&response, self.server.is_encrypted()) {
                Some(other) => url = other,
                None => return Ok(response),
            }
        }
        self.attempt_at(call, &url).await
    }

    async fn attempt_at(&self, call: &Call, url: &str) -> Result<Response, reqwest::Error> {
        let mut request = self.http.request(call.method.clone(), url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.as_str());
        }
        if let Some(reader) = &self.reader {
            request = request.header("tracehold-reader", reader);
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(content) = &call.content {
            request = request
                .header(CONTENT_TYPE, content.content_type)
                .body(reqwest::Body::wrap(Chunks::new(content.chunks.clone())));
        }
        request.send().await
    }

    /// Sends a streamed body, without retries.
    pub(super) async fn send_streamed(
        &self,
        call: &Call,
        content_type: &str,
        body: reqwest::Body,
    ) -> Result<Response, ClientError> {
        let mut request = self.http.request(call.method.clone(), &call.url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.as_str());
        }
        let request = request.header(CONTENT_TYPE, content_type).body(body);
        match request.send().await {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => Err(ClientError::Refused(Box::new(read_problem(response).await))),
            Err(error) => Err(transport(call, &error)),
        }
    }

    /// Sends a request and reads the JSON response.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let url = call.url.clone();
        let body = read_bounded(self.send(call).await?, RESPONSE_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
            url,
            what: format!("unexpected JSON: {error}"),
        })
    }

    /// Sends a request whose response has no content.
    pub(super) async fn done(&self, call: Call) -> Result<(), ClientError> {
        read_bounded(self.send(call).await?, RESPONSE_BYTES_MAX).await?;
        Ok(())
    }
}

/// Where another node takes the request, if the answer says so. A token is not sent in the clear to
/// a node when the server itself is encrypted.
fn node_url(response: &Response, is_encrypted: bool) -> Option<String> {
    if response.status() != StatusCode::TEMPORARY_REDIRECT {
        return None;
    }
    let url = response.headers().get(LOCATION)?.to_str().ok()?;
    let is_safe = url.starts_with("https://") || (!is_encrypted && url.starts_with("http://"));
    is_safe.then(|| url.to_owned())
}

fn wait_requested(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    retry_after(value, clock::now())
}

/// The body, which must not be longer than `max`.
pub(super) async fn read_bounded(mut response: Response, max: u64) -> Result<Vec<u8>, ClientError> {
    let url = response.url().to_string();
    let mut body = Vec::new();
    loop {
        let chunk = response
            .chunk()
            .await
            .map_err(|error| ClientError::Transport {
                method: "response of".to_owned(),
                url: url.clone(),
                what: causes(&error),
            })?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() as u64 + chunk.len() as u64 > max {
            let what = format!("the response is longer than {max} bytes");
            return Err(ClientError::Answer { url, what });
        }
        body.extend_from_slice(&chunk);
    }
}

async fn read_problem(response: Response) -> Problem {
    let status = response.status().as_u16();
    let content_type = response.headers().get(CONTENT_TYPE).cloned();
    // If the body cannot be read, the status alone is reported.
    let body = read_bounded(response, PROBLEM_BYTES_MAX)
        .await
        .unwrap_or_default();
    let content_type = content_type.as_ref().and_then(|value| value.to_str().ok());
    Problem::from_answer(status, content_type, &body)
}

fn transport(call: &Call, error: &reqwest::Error) -> ClientError {
    ClientError::Transport {
        method: call.method.to_string(),
        url: call.url.clone(),
        what: if error.is_connect() {
            format!("no connection to the server: {}", causes(error))
        } else if is_not_http(error) && call.url.starts_with("http://") {
            format!(
                "the answer is not HTTP; the address of a server with TLS begins with https:// ({})",
                causes(error)
            )
        } else {
            causes(error)
        },
    }
}

/// Whether the other side speaks something else than HTTP, such as TLS: it will again.
fn is_not_http(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_parse)
        {
            return true;
        }
        next = cause.source();
    }
    false
}

/// The two innermost causes; the outer ones of the HTTP stack only repeat the address.
pub(super) fn causes(error: &dyn Error) -> String {
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        chain.push(cause.to_string());
        next = cause.source();
    }
    let from = chain
        .len()
        .saturating_sub(2)
        .max(usize::from(chain.len() > 1));
    let mut shown = chain.split_off(from);
    shown.dedup();
    shown.join(": ")
}

/// A body of known length in shared buffers, which are not copied.
struct Chunks {
    rest: std::vec::IntoIter<Bytes>,
    length: u64,
}

impl Chunks {
    fn new(chunks: Vec<Bytes>) -> Self {
        Self {
            length: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            rest: chunks.into_iter(),
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let chunk = self.rest.next();
        if let Some(chunk) = &chunk {
            self.length -= chunk.len() as u64;
        }
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
