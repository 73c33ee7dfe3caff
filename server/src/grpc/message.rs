//! The frame of a message: a flag, a length of four bytes, and the message.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use thiserror::Error;

/// Length of what precedes a message.
const PREFIX_BYTES: usize = 5;

/// Whether a message is compressed with the encoding that the call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    No,
    AsNamed,
}

/// Why a body is not one message.
#[derive(Debug, Error)]
enum MessageError {
    #[error("the body ends before the message does")]
    Truncated,
    #[error("the body has more than one message")]
    SecondMessage,
    #[error("the flag of the message is neither 0 nor 1")]
    UnknownFlag,
}

/// Reads the prefix of the one message in `body`. The message is the body that is returned, whose
/// length is known; it fails if it is truncated, or if another one follows.
pub(crate) async fn open(mut body: Body) -> Result<(Compression, Body), axum::Error> {
    let mut prefix = [0; PREFIX_BYTES];
    let mut filled = 0;
    let mut first = Bytes::new();
    while filled < PREFIX_BYTES {
        let Some(frame) = body.frame().await else {
            return Err(axum::Error::new(MessageError::Truncated));
        };
        if let Ok(data) = frame?.into_data() {
            first = data;
            let count = first.len().min(PREFIX_BYTES - filled);
            first.copy_to_slice(&mut prefix[filled..filled + count]);
            filled += count;
        }
    }
    let [flag, a, b, c, d] = prefix;
    let compression = match flag {
        0 => Compression::No,
        1 => Compression::AsNamed,
        _ => return Err(axum::Error::new(MessageError::UnknownFlag)),
    };
    let message = MessageBody {
        first,
        inner: body,
        left: u64::from(u32::from_be_bytes([a, b, c, d])),
    };
    Ok((compression, Body::new(message)))
}

/// The bytes of a message.
struct MessageBody {
    /// Bytes that arrived with the prefix.
    first: Bytes,
    inner: Body,
    /// Bytes that have yet to be read.
    left: u64,
}

impl MessageBody {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        http_body::Body::poll_frame(Pin::new(&mut self.inner), cx)
    }
}

impl http_body::Body for MessageBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.next(cx);
        let fail = |error| Poll::Ready(Some(Err(axum::Error::new(error))));
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                match self.left.checked_sub(length) {
                    Some(left) => self.left = left,
                    None => return fail(MessageError::SecondMessage),
                }
            }
            Poll::Ready(None) if self.left > 0 => return fail(MessageError::Truncated),
            _ => {}
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The message in a body that arrives in pieces of this size.
    async fn read(sent: &[u8], size: usize) -> Result<(Compression, Bytes), String> {
        let pieces: Vec<_> = sent.chunks(size).map(Bytes::copy_from_slice).collect();
        let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let (compression, message) = open(body).await.map_err(|error| error.to_string())?;
        let length = http_body::Body::size_hint(&message).exact();
        let whole = message.collect().await.map_err(|error| error.to_string())?;
        let whole = whole.to_bytes();
        assert_eq!(length, Some(whole.len() as u64));
        Ok((compression, whole))
    }

    #[tokio::test]
    async fn a_message_is_read_however_it_is_cut() {
        let abc = Bytes::from_static(b"abc");
        for (sent, wanted) in [
            (&b"\0\0\0\0\x03abc"[..], Ok((Compression::No, abc.clone()))),
            (b"\x01\0\0\0\x03abc", Ok((Compression::AsNamed, abc))),
            (b"\0\0\0\0\0", Ok((Compression::No, Bytes::new()))),
            (b"", Err(MessageError::Truncated)),
            (b"\0\0\0", Err(MessageError::Truncated)),
            (b"\0\0\0\0\x04abc", Err(MessageError::Truncated)),
            (b"\0\0\0\0\x02abc", Err(MessageError::SecondMessage)),
            (b"\0\0\0\0\0\0\0\0\0\0", Err(MessageError::SecondMessage)),
            (b"\x02\0\0\0\x03abc", Err(MessageError::UnknownFlag)),
        ] {
            let wanted = wanted.map_err(|error| error.to_string());
            for size in 1..=sent.len().max(1) {
                assert_eq!(read(sent, size).await, wanted, "{sent:?} by {size}");
            }
        }
    }
}
