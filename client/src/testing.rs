//! An HTTP server for tests: real sockets, responses from a closure.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::http::{Client, Retry, ServerUrl};

pub(crate) type Request = hyper::Request<Bytes>;
pub(crate) type Response = hyper::Response<TestBody>;

/// Responds to requests until it is dropped.
pub(crate) struct TestServer {
    url: ServerUrl,
    seen: Arc<Mutex<Vec<String>>>,
    accepting: AbortHandle,
}

impl TestServer {
    /// `answer` returns `None` to break the connection.
    pub(crate) async fn start(
        answer: impl FnMut(&Request) -> Option<Response> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (requests, answer) = (Arc::clone(&seen), Arc::new(Mutex::new(answer)));
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                tokio::spawn(async move {
                    let service = service_fn(move |request: hyper::Request<_>| {
                        let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                        async move {
                            let (head, body) = request.into_parts();
                            let body: hyper::body::Incoming = body;
                            let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
                            let line = format!("{} {}", head.method, head.uri);
                            requests.lock().unwrap().push(line);
                            let request = hyper::Request::from_parts(head, body);
                            let answered = (answer.lock().unwrap())(&request);
                            answered.ok_or(Broken)
                        }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // Some tests break the connection on purpose.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            url: url.parse().unwrap(),
            seen,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> ServerUrl {
        self.url.clone()
    }

    /// A client of this server whose retries wait only milliseconds.
    pub(crate) fn client(&self) -> Client {
        let retry = Retry {
            delay_first: Duration::from_millis(1),
            delay_max: Duration::from_millis(2),
            wait_max: Duration::from_millis(8),
            wait_max_unreachable: Duration::ZERO,
        };
        Client::new(self.url(), Some("secret".to_owned()), retry).unwrap()
    }

    /// Method and path of all requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the test breaks the connection")]
pub(crate) struct Broken;

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response {
    let mut response = hyper::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let body = TestBody {
        bytes: Some(body.into()),
        breaks: false,
        flushed: false,
    };
    response.body(body).unwrap()
}

/// A response that declares `length` bytes, of which `body` is sent before the connection breaks.
pub(crate) fn broken(
    status: u16,
    headers: &[(&str, &str)],
    length: usize,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = answer(status, headers, body);
    response
        .headers_mut()
        .insert("content-length", length.into());
    response.body_mut().breaks = true;
    response
}

/// The body of a response.
pub(crate) struct TestBody {
    bytes: Option<Bytes>,
    breaks: bool,
    flushed: bool,
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = match self.bytes.take() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.breaks && !self.flushed => {
                // The bytes so far are sent only when the body is pending.
                self.flushed = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            None if self.breaks => Some(Err(Broken)),
            None => None,
        };
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if self.breaks {
            SizeHint::default()
        } else {
            SizeHint::with_exact(length)
        }
    }
}

pub(crate) fn json(status: u16, body: impl ToString) -> Response {
    let content_type = match status {
        200..300 => "application/json",
        _ => "application/problem+json",
    };
    answer(status, &[("content-type", content_type)], body.to_string())
}
