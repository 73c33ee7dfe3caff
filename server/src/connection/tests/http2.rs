//! HTTP/2 as raw frames, over TLS and without.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Server, file_bytes, quick, testing};
use crate::connection::frames::PREFACE;

/// A frame of up to 255 bytes of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let stream = u8::from(kind != 4);
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Requests a range of the file, and returns the first byte of the fields and the body.
async fn range(mut stream: impl AsyncRead + AsyncWrite + Unpin, range: &str) -> (u8, Vec<u8>) {
    let mut fields = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/file"),
        (":authority", "localhost"),
        ("range", range),
    ] {
        fields.push(0);
        for text in [name, value] {
            fields.push(u8::try_from(text.len()).unwrap());
            fields.extend_from_slice(text.as_bytes());
        }
    }
    let sent = [PREFACE, &frame(4, 0, b""), &frame(1, 5, &fields)].concat();
    // Cut within the preface, which is read before anything else.
    for piece in [&sent[..7], &sent[7..30], &sent[30..]] {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    let (mut first, mut body) = (0, Vec::new());
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        match kind {
            0 => body.extend_from_slice(&payload),
            1 => first = payload[0],
            _ => {}
        }
        if kind <= 1 && flags & 1 == 1 {
            return (first, body);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_spoken_with_and_without_tls() {
    // 206 in the static table of RFC 7541.
    let wanted = (0x8a, file_bytes()[5..=60_000].to_vec());
    let plain = Server::start(quick()).await;
    let stream = TcpStream::connect(plain.address).await.unwrap();
    assert!(range(stream, "bytes=5-60000").await == wanted);
    let encrypted = Server::start_with(quick(), Some(testing::tls())).await;
    let stream = testing::connect(encrypted.address).await;
    assert!(range(stream, "bytes=5-60000").await == wanted);
}
