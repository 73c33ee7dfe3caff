//! File bytes as the body of an answer, in pieces, of a length known from the start.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::buffers::{Buffer, Buffers};
use super::file::{read_cached, read_whole};
use super::plan::ByteRange;

/// A stretch of a body.
#[derive(Debug)]
pub(super) enum Stretch {
    /// Text around parts.
    Text(Bytes),
    /// Bytes of the file.
    File(ByteRange),
}

impl Stretch {
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.length(),
        }
    }
}

/// A body read from a file while it is sent. A read that fails, or a file that is shorter than
/// promised, breaks the body off: the client sees that bytes are missing, and never wrong ones.
pub(super) struct FileBody {
    file: Arc<File>,
    stretches: std::vec::IntoIter<Stretch>,
    /// File bytes of the current stretch that are still to be read.
    current: Option<ByteRange>,
    /// Bytes still to be sent.
    left: u64,
    waiting: Option<JoinHandle<io::Result<Buffer>>>,
    buffers: Arc<Buffers>,
}

impl FileBody {
    pub(super) fn new(file: Arc<File>, stretches: Vec<Stretch>, buffers: Arc<Buffers>) -> Self {
        let left = stretches.iter().map(Stretch::length).sum();
        let stretches = stretches.into_iter();
        Self {
            file,
            stretches,
            current: None,
            left,
            waiting: None,
            buffers,
        }
    }

    /// Reads the next piece: at once when it is in memory, else on the blocking pool.
    fn read(&mut self, range: ByteRange, cx: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        let mut buffer = self.buffers.piece();
        let room = buffer.free().len();
        let wanted = usize::try_from(range.length()).map_or(room, |length| length.min(room));
        let count = read_cached(&self.file, &mut buffer.free()[..wanted], range.first)?;
        if count > 0 {
            buffer.advance(count);
            return Poll::Ready(Ok(buffer));
        }
        self.buffers.metrics().range_blocking_reads.inc();
        let file = Arc::clone(&self.file);
        self.waiting = Some(tokio::task::spawn_blocking(move || {
            read_whole(&file, &mut buffer.free()[..wanted], range.first)?;
            buffer.advance(wanted);
            Ok(buffer)
        }));
        self.poll_waiting(cx)
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        let Some(task) = &mut self.waiting else {
            return Poll::Pending;
        };
        let read = ready!(Pin::new(task).poll(cx));
        self.waiting = None;
        Poll::Ready(read.unwrap_or_else(|ended| Err(io::Error::other(ended))))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let range = match self.current {
            Some(range) => range,
            None => match self.stretches.next() {
                None => return Poll::Ready(None),
                Some(Stretch::Text(text)) => return Poll::Ready(Some(Ok(text))),
                Some(Stretch::File(range)) => {
                    self.current = Some(range);
                    range
                }
            },
        };
        let buffer = match self.waiting {
            Some(_) => ready!(self.poll_waiting(cx)),
            None => ready!(self.read(range, cx)),
        };
        let buffer = match buffer {
            Ok(buffer) => buffer,
            Err(error) => {
                self.buffers.metrics().range_read_failures.inc();
                tracing::error!(%error, offset = range.first, "reading a file failed; answer cut");
                return Poll::Ready(Some(Err(error)));
            }
        };
        let next = range.first + buffer.as_ref().len() as u64;
        self.current = (next <= range.last).then_some(ByteRange {
            first: next,
            last: range.last,
        });
        Poll::Ready(Some(Ok(buffer.into_bytes())))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = ready!(self.poll_piece(cx));
        if let Some(Ok(bytes)) = &piece {
            self.left -= bytes.len() as u64;
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
