//! Requests as raw bytes on a socket, and the responses to them.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::{Door, Stage, serve};
use crate::access::Proxy;
use crate::config::HttpConfig;
use crate::gate::Gate;
use crate::ingest::IngestError;
use crate::metrics::{Metrics, Port};
use crate::problem::Problem;
use crate::range::{Buffers, Content, RangeFile, Resource, respond};
use crate::tls::{Tls, tests as testing};

mod http2;
mod reads;

const FILE_BYTES: usize = 3 << 20;

/// No two ranges of it are equal.
#[expect(clippy::disallowed_methods, reason = "a test serves its own file")]
static FILE: LazyLock<NamedTempFile> = LazyLock::new(|| {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), file_bytes()).unwrap();
    file
});

fn file_bytes() -> Vec<u8> {
    (0..u32::try_from(FILE_BYTES / 4).unwrap())
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

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

/// Answers once the client has released it.
static RELEASE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(0));

async fn waits() -> &'static str {
    RELEASE.acquire().await.unwrap().forget();
    "released"
}

impl Server {
    async fn start(http: HttpConfig) -> Self {
        Self::start_with(http, None).await
    }

    async fn start_with(http: HttpConfig, tls: Option<Arc<Tls>>) -> Self {
        let metrics = Arc::new(Metrics::default());
        let content = Content::File {
            file: Arc::new(RangeFile::untraced(FILE.reopen().unwrap())),
            length: FILE_BYTES as u64,
        };
        let file = Arc::new(Resource::new(content, "x", None, true));
        let buffers = Buffers::new(1 << 20, Arc::clone(&metrics));
        let ranges = get(move |request: Request| async move {
            let (method, headers) = (request.method(), request.headers());
            respond(method, headers, &file, &buffers, request.extensions().get()).await
        });
        let router = Router::new()
            .route("/file", ranges)
            .route("/length", post(length))
            .route("/pieces", post(reads::largest_piece))
            .route("/panics", get(panics))
            .route("/pauses", get(pauses))
            .route("/waits", get(waits))
            .route("/livez", get(|| async { "alive" }));
        let gate = Arc::new(Gate::new(
            router,
            Arc::clone(&metrics),
            Arc::default(),
            (&http, Proxy::default()),
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stage, seen) = watch::channel(Stage::Running);
        let port = Port::Main;
        let door = Door {
            listener,
            gate,
            port,
        };
        let (doors, counters) = (vec![door], Arc::clone(&metrics));
        let task = tokio::spawn(async move { serve(doors, counters, (&http, tls), seen).await });
        Self {
            address,
            stage,
            task,
            metrics,
        }
    }

    /// A connection that has sent `bytes`.
    async fn connect(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// Waits until the metrics contain `line`.
    async fn reaches(&self, line: &str) {
        while !String::from_utf8(self.metrics.render())
            .unwrap()
            .contains(line)
        {
            tokio::task::yield_now().await;
        }
    }

    /// Sends `bytes` and reads until the server closes the connection or stays silent for a while.
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
async fn invalid_http_is_refused_and_the_connection_closed() {
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
        (
            &format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            501,
            "transfer_coding_unsupported",
        ),
        (
            "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            421,
            "host_not_allowed",
        ),
        (
            &format!("{post}Origin: http://evil\r\nContent-Length: 1\r\n\r\na"),
            403,
            "origin_not_allowed",
        ),
        // An idle connection and an incomplete head: closed without a response.
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
async fn refusals_are_problems_and_the_connection_stays_open() {
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

/// A request after which the server closes the connection.
fn last_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

async fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_for_new_ones() {
    let http = HttpConfig {
        connections_max: 2,
        ..HttpConfig::default()
    };
    let server = Server::start(http).await;
    let silent = server.connect("").await;
    server.reaches("connections_total 1\n").await;
    let mut used = server
        .connect("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut first = [0; 17];
    used.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK\r\n");
    for _ in 0..100 {
        let answer = rest(server.connect(&last_request("/livez")).await).await;
        assert!(answer.ends_with("alive"), "{answer}");
    }
    // Neither of them was closed but for a new connection.
    assert_eq!(rest(silent).await, "");
    server
        .reaches("tracehold_http_idle_connections_closed_total")
        .await;
    let begun: Vec<TcpStream> = vec![
        server.connect("GET /livez HTTP/1.1\r\n").await,
        server.connect("GET /livez HTTP/1.1\r\n").await,
        server.connect("GET /livez HTTP/1.1\r\n").await,
    ];
    let answer = rest(server.connect(&last_request("/livez")).await).await;
    assert!(answer.ends_with("alive"), "{answer}");
    drop((used, begun));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_only_health_is_served() {
    let http = HttpConfig {
        connections_max: 1,
        ..HttpConfig::default()
    };
    let server = Server::start(http).await;
    let busy = server.connect(&last_request("/waits")).await;
    server.reaches("requests_in_flight 1\n").await;
    let answer = rest(server.connect(&last_request("/livez")).await).await;
    assert!(answer.ends_with("alive"), "{answer}");
    let kept = "GET /file HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = rest(server.connect(kept).await).await;
    for wanted in [
        "HTTP/1.1 503 ",
        "retry-after: 1\r\n",
        "connection: close\r\n",
        "\"code\":\"connections_exhausted\"",
    ] {
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    RELEASE.add_permits(1);
    assert!(rest(busy).await.ends_with("released"));
    server.reaches("tracehold_http_connections 0\n").await;
    let answer = rest(server.connect(&last_request("/pauses")).await).await;
    assert!(answer.ends_with("rested"), "{answer}");
}

/// More connections come at once than may be open, and each has sent its request before the server
/// looks at any of them: those that make room for the next ones are answered first.
#[tokio::test]
async fn connections_that_make_room_are_answered_if_they_have_asked() {
    let http = HttpConfig {
        connections_max: 4,
        ..HttpConfig::default()
    };
    let server = Server::start(http).await;
    // The server runs on this thread, and only while it waits.
    let connect = || {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        std::io::Write::write_all(&mut stream, last_request("/livez").as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let asked: Vec<_> = (0..30).map(|_| connect()).collect();
    for stream in asked {
        let answer = rest(TcpStream::from_std(stream).unwrap()).await;
        assert!(answer.ends_with("alive"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_stays_open_longer_than_a_head_may_take() {
    let server = Server::start(quick()).await;
    let get = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = server.connect(get).await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    client.write_all(get.as_bytes()).await.unwrap();
    client.write_all(b"GET /livez").await.unwrap();
    // The third head is never completed; the limit for an idle connection would be 75 s.
    let answer = rest(client).await;
    assert_eq!(answer.matches("alive").count(), 2, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_answers_requests_in_flight_and_drops_idle_connections() {
    let server = Server::start(HttpConfig::default()).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    busy.write_all(b"GET /pauses HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    // The request is in flight once the metric says so.
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

/// Pipelined responses are adjacent: the file bytes sent by the kernel must be exactly between the
/// bytes that hyper writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_ranges_of_any_length_have_the_right_bytes() {
    let server = Server::start(HttpConfig::default()).await;
    let wanted = file_bytes();
    let lengths = [
        1,
        4096,
        16 << 10,
        65_536,
        65_537,
        256 << 10,
        (1 << 20) + 7,
        3,
    ];
    let ranges: Vec<_> = (0..64_usize)
        .map(|number| {
            let length = lengths[number % lengths.len()];
            let first = (number * 45_003) % (FILE_BYTES - length);
            first..first + length
        })
        .collect();
    let mut requests = String::new();
    for range in &ranges {
        let (first, last) = (range.start, range.end - 1);
        let field = format!("Range: bytes={first}-{last}\r\n");
        requests.push_str(&format!("GET /file HTTP/1.1\r\nHost: x\r\n{field}\r\n"));
    }
    requests.push_str("GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let sending = tokio::spawn(async move { to.write_all(requests.as_bytes()).await.map(|()| to) });
    let mut answers = Vec::new();
    from.read_to_end(&mut answers).await.unwrap();
    drop(sending.await.unwrap().unwrap());
    let mut rest = answers.as_slice();
    for range in ranges.into_iter().chain(Some(0..FILE_BYTES)) {
        let end = memchr::memmem::find(rest, b"\r\n\r\n").unwrap() + 4;
        let (body, after) = rest[end..].split_at(range.len());
        assert!(body == &wanted[range.clone()], "{range:?} came back wrong");
        rest = after;
    }
    assert!(rest.is_empty());
}

/// Missing bytes of a file are neither invented nor taken from elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test serves its own file")]
async fn a_body_is_aborted_where_its_file_ends() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 300_000]).unwrap();
    let content = Content::File {
        file: Arc::new(RangeFile::untraced(file.reopen().unwrap())),
        length: 600_000,
    };
    let resource = Resource::new(content, "x", None, true);
    let buffers = Buffers::new(1 << 20, Arc::default());
    let (method, headers) = (http::Method::GET, http::HeaderMap::new());
    let files = Arc::default();
    let answer = respond(&method, &headers, &resource, &buffers, Some(&files)).await;
    assert!(answer.into_body().collect().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_the_same_over_tls() {
    let server = Server::start_with(quick(), Some(testing::tls())).await;
    let mut stream = testing::connect(server.address).await;
    for (first, last) in [(0, 15), (5, 70_000), (1, FILE_BYTES - 1)] {
        let request =
            format!("GET /file HTTP/1.1\r\nHost: localhost\r\nRange: bytes={first}-{last}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 206"));
        let mut body = vec![0; last - first + 1];
        stream.read_exact(&mut body).await.unwrap();
        assert!(body == file_bytes()[first..=last], "{first}-{last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_fails_or_stops_closes_the_connection() {
    let server = Server::start_with(quick(), Some(testing::tls())).await;
    // Plain HTTP, the begin of a handshake, and nothing at all.
    for bytes in [
        &b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"\x16\x03\x01",
        b"",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"));
    }
    server
        .reaches("tracehold_tls_handshakes_failed_total 3")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_over_tls_is_closed_for_a_new_one() {
    let http = HttpConfig {
        connections_max: 1,
        ..quick()
    };
    let server = Server::start_with(http, Some(testing::tls())).await;
    let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = testing::connect(server.address).await;
    for _ in 0..2 {
        first.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        first.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        while !answer.ends_with(b"alive") {
            answer.rotate_left(1);
            answer[11] = first.read_u8().await.unwrap();
        }
    }
    let mut second = testing::connect(server.address).await;
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
    second.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    second.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
