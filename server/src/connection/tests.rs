//! Requests as bytes on a socket, and what comes back.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Stage, serve};
use crate::config::HttpConfig;
use crate::gate::Gate;
use crate::ingest::IngestError;
use crate::metrics::Metrics;
use crate::problem::Problem;

struct Server {
    address: SocketAddr,
    stage: watch::Sender<Stage>,
    task: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

async fn length(body: Body) -> Response {
    match body.collect().await {
        Ok(body) => body.to_bytes().len().to_string().into_response(),
        Err(error) => Problem::from(IngestError::of_body(error)).into_response(),
    }
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

async fn pauses() -> &'static str {
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    "rested"
}

impl Server {
    async fn start(http: HttpConfig) -> Self {
        let metrics = Arc::new(Metrics::default());
        let router = Router::new()
            .route("/length", post(length))
            .route("/panics", get(panics))
            .route("/pauses", get(pauses));
        let gate = Arc::new(Gate::new(router, Arc::clone(&metrics), &http));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stage, seen) = watch::channel(Stage::Running);
        let task = tokio::spawn(async move { serve(listener, gate, &http, seen).await });
        Self {
            address,
            stage,
            task,
            metrics,
        }
    }

    /// Sends `bytes` and reads until the server closes, or is silent for a while.
    async fn exchange(&self, bytes: &[u8]) -> (String, bool) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let limit = std::time::Duration::from_secs(5);
        let read = tokio::time::timeout(limit, stream.read_to_end(&mut answer)).await;
        (String::from_utf8(answer).unwrap(), read.is_ok())
    }
}

fn quick() -> HttpConfig {
    HttpConfig {
        header_read_seconds: 1,
        body_idle_seconds: 1,
        ..HttpConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_http_forbids_is_refused_and_the_connection_closed() {
    let server = Server::start(quick()).await;
    let large = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nx: {}\r\n\r\n",
        "a".repeat(65_000)
    );
    let post = "POST /length HTTP/1.1\r\nHost: x\r\n";
    for (request, status, code) in [
        ("GET / HTTP/1.1\r\n\r\n", 400, "request_malformed"),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
            400,
            "request_malformed",
        ),
        (
            &format!("{post}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"),
            400,
            "request_malformed",
        ),
        (
            &format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX"),
            400,
            "request_malformed",
        ),
        (
            &large.replace("x: a", &format!("y: {}\r\nx: a", "b".repeat(999))),
            431,
            "",
        ),
        (
            &format!("{post}Content-Length: 6\r\n\r\nabc"),
            408,
            "body_too_slow",
        ),
        // Idle, and a head that never ends: closed without a word.
        ("", 0, ""),
        ("GET / HTTP/1.1\r\nHost:", 0, ""),
    ] {
        let (answer, closed) = server.exchange(request.as_bytes()).await;
        let shown: String = request.chars().take(80).collect();
        assert!(closed, "{shown:?} leaves the connection open: {answer}");
        let wanted = if status == 0 {
            String::new()
        } else {
            format!("HTTP/1.1 {status} ")
        };
        assert!(answer.starts_with(&wanted), "{shown:?}: {answer}");
        assert!(status != 0 || answer.is_empty(), "{shown:?}: {answer}");
        assert!(answer.contains(code), "{shown:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_problems_and_the_connection_goes_on() {
    let server = Server::start(quick()).await;
    let last = "POST /length HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: mine\r\n\
                Content-Length: 3\r\n\r\nabc";
    let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
    for (line, status, code) in [
        ("GET /nowhere", "404 Not Found", "route_not_found"),
        (
            "GET /length",
            "405 Method Not Allowed",
            "method_not_allowed",
        ),
        (
            "BREW /length",
            "405 Method Not Allowed",
            "method_not_allowed",
        ),
        ("GET /panics", "500 Internal Server Error", "internal_error"),
    ] {
        let (answer, _) = server
            .exchange(format!("{}{last}", request(line)).as_bytes())
            .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{line}: {answer}"
        );
        assert!(
            answer.contains("content-type: application/problem+json"),
            "{line}: {answer}"
        );
        assert!(
            answer.contains(&format!("\"code\":\"{code}\"")),
            "{line}: {answer}"
        );
        let (_, second) = answer.split_once("HTTP/1.1 200 OK\r\n").unwrap();
        assert!(second.contains("x-request-id: mine\r\n") && second.ends_with("\r\n\r\n3"));
    }
    let counted = String::from_utf8(server.metrics.render()).unwrap();
    assert!(
        counted.contains("tracehold_http_panics_total 1\n"),
        "{counted}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_answers_what_is_in_flight_and_drops_what_is_idle() {
    let server = Server::start(HttpConfig::default()).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    busy.write_all(b"GET /pauses HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    // The request is in flight once it is counted as such.
    while !String::from_utf8(server.metrics.render())
        .unwrap()
        .contains("requests_in_flight 1")
    {
        tokio::task::yield_now().await;
    }
    server.stage.send_replace(Stage::Draining);
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("rested"),
        "{answer}"
    );
    server.task.await.unwrap();
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err());
}
