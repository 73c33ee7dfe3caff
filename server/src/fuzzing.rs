//! What fuzz targets need of the readers of connections: only compiled for them.

use std::convert::Infallible;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::connection::fuzzing as connection;
use crate::grpc;

/// The bytes of a connection, cut into pieces. What the inspection of HTTP/1 and of HTTP/2 finds
/// does not depend on the cuts.
///
/// # Panics
/// If it does.
pub fn inspect_connection(bytes: &[u8], cuts: &[u8]) {
    let pieces = cut(bytes, cuts);
    let whole = connection::inspect_http1(&[bytes]);
    assert_eq!(connection::inspect_http1(&pieces), whole, "HTTP/1");
    let now = Instant::now();
    let whole = connection::inspect_http2(&[bytes], now);
    assert_eq!(connection::inspect_http2(&pieces, now), whole, "HTTP/2");
}

/// The one message in the body of a call, however the body is cut.
///
/// # Panics
/// If it is not what the frame says.
pub fn read_grpc_message(bytes: &[u8], cuts: &[u8]) -> Option<Vec<u8>> {
    let pieces = cut(bytes, cuts);
    let pieces: Vec<_> = pieces.into_iter().map(Bytes::copy_from_slice).collect();
    let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let read = async {
        let (compression, message) = grpc::open(body).await.ok()?;
        let message = message.collect().await.ok()?.to_bytes();
        Some((compression == grpc::Compression::AsNamed, message))
    };
    let read = futures_util::future::FutureExt::now_or_never(read).expect("every piece is there");
    let expected = bytes
        .split_first_chunk::<5>()
        .and_then(|(prefix, message)| {
            let [flag @ (0 | 1), a, b, c, d] = *prefix else {
                return None;
            };
            let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
            (message.len() == length).then_some((flag == 1, message))
        });
    assert_eq!(
        read.as_ref().map(|(flag, message)| (*flag, &message[..])),
        expected
    );
    read.map(|(_, message)| message.to_vec())
}

/// Pieces whose lengths are those of `cuts`; the rest is the last one.
fn cut<'a>(mut bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in cuts {
        let (piece, rest) = bytes.split_at(bytes.len().min(usize::from(length)));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}
