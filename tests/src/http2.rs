//! HTTP/2 without TLS, as a client that knows that the server speaks it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use h2::client::SendRequest;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// The largest piece of a body that is sent at once.
const PIECE_BYTES: usize = 256 << 10;

/// Names in lower case, and values as sent.
type Fields = Vec<(String, String)>;

/// A complete response.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) headers: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
}

/// A connection that speaks HTTP/2; one request at a time.
#[derive(Debug)]
pub(crate) struct Http2 {
    runtime: Runtime,
    requests: SendRequest<bytes::Bytes>,
}

impl Http2 {
    /// Connects.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut builder = h2::client::Builder::new();
            let window = 1 << 20;
            builder
                .initial_window_size(window)
                .initial_connection_window_size(window);
            let (requests, connection) = builder.handshake(stream).await.map_err(broken)?;
            tokio::spawn(async move {
                // A broken connection fails its requests.
                let _ = tokio::time::timeout(patience * 10, connection).await;
            });
            Ok(requests)
        };
        let requests: io::Result<_> = runtime.block_on(connected);
        Ok(Self {
            requests: requests?,
            runtime,
        })
    }

    /// Sends a request and reads the complete response.
    pub(crate) fn send(
        &mut self,
        head: Request<()>,
        body: &[u8],
        patience: Duration,
    ) -> io::Result<Received> {
        let requests = self.requests.clone();
        let exchange = exchange(requests, head, bytes::Bytes::copy_from_slice(body));
        let limited = async { tokio::time::timeout(patience, exchange).await };
        self.runtime
            .block_on(limited)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn broken(error: h2::Error) -> io::Error {
    match error.into_io() {
        Some(error) => error,
        None => io::Error::new(io::ErrorKind::ConnectionReset, "the stream was reset"),
    }
}

async fn exchange(
    requests: SendRequest<bytes::Bytes>,
    head: Request<()>,
    mut body: bytes::Bytes,
) -> io::Result<Received> {
    let mut requests = requests.ready().await.map_err(broken)?;
    let (response, mut stream) = requests
        .send_request(head, body.is_empty())
        .map_err(broken)?;
    let sending = async {
        while !body.is_empty() {
            stream.reserve_capacity(body.len().min(PIECE_BYTES));
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            let Some(Ok(room)) = room else { return };
            let piece = body.split_to(room.min(body.len()));
            // The server may have answered already and not want the rest.
            if stream.send_data(piece, body.is_empty()).is_err() {
                return;
            }
        }
    };
    let receiving = async {
        let (head, mut body) = response.await.map_err(broken)?.into_parts();
        let mut whole = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(broken)?;
            // The connection ended if the window cannot be given back.
            let _ = body.flow_control().release_capacity(piece.len());
            whole.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await.map_err(broken)?;
        Ok(Received {
            status: head.status.as_u16(),
            headers: fields(&head.headers),
            body: whole,
            trailers: trailers.as_ref().map(fields).unwrap_or_default(),
        })
    };
    let mut sending = std::pin::pin!(sending);
    let mut receiving = std::pin::pin!(receiving);
    tokio::select! {
        response = receiving.as_mut() => response,
        () = sending.as_mut() => receiving.await,
    }
}

fn fields(fields: &HeaderMap) -> Fields {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    fields
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

/// A connection on which many requests begin and none ends.
#[derive(Debug)]
pub struct Http2Streams {
    connection: Http2,
    /// Dropping one resets its request.
    open: Vec<(h2::client::ResponseFuture, h2::SendStream<bytes::Bytes>)>,
}

impl Http2Streams {
    /// Connects.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            connection: Http2::open(address, Duration::from_secs(60))?,
            open: Vec::new(),
        })
    }

    /// Begins to push a packet of `declared` bytes, of which it sends as many of the first `sent`
    /// as the server takes within a second.
    pub fn begin(
        &mut self,
        path: &str,
        sequence: u64,
        declared: usize,
        sent: usize,
    ) -> io::Result<()> {
        let head = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/octet-stream")
            .header("content-length", declared)
            .header("tracehold-epoch", 0)
            .header("tracehold-sequence", sequence)
            .body(())
            .map_err(io::Error::other)?;
        let requests = self.connection.requests.clone();
        let begun = async {
            let mut requests = requests.ready().await.map_err(broken)?;
            let (response, mut stream) = requests.send_request(head, false).map_err(broken)?;
            let mut left = sent;
            let sending = async {
                while left > 0 {
                    stream.reserve_capacity(left.min(PIECE_BYTES));
                    let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
                    let Some(Ok(room)) = room else { return };
                    let piece = bytes::Bytes::from(vec![7; room.min(left)]);
                    left -= piece.len();
                    if stream.send_data(piece, false).is_err() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), sending).await;
            Ok((response, stream))
        };
        let begun: io::Result<_> = self.connection.runtime.block_on(begun);
        self.open.push(begun?);
        Ok(())
    }
}
