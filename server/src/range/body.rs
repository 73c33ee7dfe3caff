//! File bytes as the body of a response, in pieces and of known length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use io_trace::Scope;
use storage_core::RangeScan;
use tokio::task::JoinHandle;

use super::buffers::{Buffer, Buffers, LongBody};
use super::checking::{Checking, Sendable};
use super::file::RangeFile;
use super::header::ByteRange;
use super::send_queue::{STAND_IN_BYTES_MAX, SendQueue};

/// A part of a body.
#[derive(Debug)]
pub(super) enum BodyPart {
    /// Text around the parts of a multipart body.
    Text(Bytes),
    /// Bytes of the file.
    File(ByteRange),
}

impl BodyPart {
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.length(),
        }
    }
}

/// A body that is read from a file while it is sent. A failed read, or a file that is shorter than
/// expected, aborts the body: a client sees that bytes are missing, and never receives wrong ones.
pub(super) struct FileBody {
    file: Arc<RangeFile>,
    parts: std::vec::IntoIter<BodyPart>,
    /// File bytes of the current part that have yet to be read.
    current: Option<ByteRange>,
    /// Bytes that have yet to be sent.
    left: u64,
    waiting: Option<JoinHandle<io::Result<Buffer>>>,
    checking: Checking,
    buffers: Arc<Buffers>,
    /// The queue for file bytes that the kernel sends, if the connection has one.
    files: Option<Arc<SendQueue>>,
    /// Whether the next piece is known to be sendable.
    is_checked: bool,
    /// Of long bodies.
    long: Option<LongBody>,
    /// The scope of the reads; a body is read after its request was handled.
    scope: Option<Scope>,
}

/// From this length, sending by the kernel costs less than copying.
const SENDABLE_BYTES_MIN: u64 = 16 << 10;

/// Whether the kernel should send the first piece of `range`: it is long enough, and its pages are
/// in memory. The check samples one page in sixteen, and the last one.
pub(super) fn is_sendable(file: &RangeFile, range: ByteRange) -> bool {
    const SAMPLE_BYTES: usize = 64 << 10;
    if range.length() < SENDABLE_BYTES_MIN {
        return false;
    }
    let last = range
        .last
        .min(range.first + (STAND_IN_BYTES_MAX as u64 - 1));
    let is_cached = |at| file.is_cached(at);
    (range.first..last).step_by(SAMPLE_BYTES).all(is_cached) && is_cached(last)
}

impl FileBody {
    /// A body whose first bytes were compared with their checksums a moment ago.
    pub(super) fn new(
        file: Arc<RangeFile>,
        parts: Vec<BodyPart>,
        buffers: Arc<Buffers>,
        files: Option<&Arc<SendQueue>>,
    ) -> Self {
        let left: u64 = parts.iter().map(BodyPart::length).sum();
        let is_long = left > STAND_IN_BYTES_MAX as u64;
        let parts = parts.into_iter();
        Self {
            file,
            parts,
            current: None,
            left,
            waiting: None,
            checking: Checking::begun(),
            long: is_long.then(|| LongBody::begin(&buffers)),
            buffers,
            files: files.cloned(),
            is_checked: false,
            scope: io_trace::current(),
        }
    }

    /// A body of one long range, whose bytes pass by the file.
    pub(super) fn scanning(
        (file, range): (Arc<RangeFile>, ByteRange),
        scan: RangeScan,
        buffers: Arc<Buffers>,
        files: Option<&Arc<SendQueue>>,
    ) -> Self {
        let parts = vec![BodyPart::File(range)];
        Self {
            checking: Checking::scanning(scan),
            ..Self::new(file, parts, buffers, files)
        }
    }

    /// Skips the check of the first piece, which passed [`is_sendable`].
    pub(super) fn checked(self) -> Self {
        Self {
            is_checked: true,
            ..self
        }
    }

    /// Reads the next piece: at once if it is in the page cache, otherwise on the blocking pool.
    fn read(&mut self, range: ByteRange, cx: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        let mut buffer = self.buffers.piece();
        let space = buffer.free().len();
        let wanted = usize::try_from(range.length()).map_or(space, |length| length.min(space));
        let _inside = self.scope.clone().map(Scope::enter);
        let count = self
            .file
            .read_cached(&mut buffer.free()[..wanted], range.first)?;
        if count > 0 {
            buffer.advance(count);
            return Poll::Ready(Ok(buffer));
        }
        self.buffers.metrics().range_blocking_reads.inc();
        let file = Arc::clone(&self.file);
        let scope = self.scope.clone();
        self.waiting = Some(tokio::task::spawn_blocking(move || {
            let _inside = scope.map(Scope::enter);
            file.read_exact(&mut buffer.free()[..wanted], range.first)?;
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
            None => match self.parts.next() {
                None => return Poll::Ready(None),
                Some(BodyPart::Text(text)) => return Poll::Ready(Some(Ok(text))),
                Some(BodyPart::File(range)) => {
                    self.current = Some(range);
                    range
                }
            },
        };
        let range = if self.waiting.is_some() {
            self.checking.cut(range)
        } else {
            let scope = &self.scope;
            match ready!(self.checking.poll(&self.file, range, scope, cx)) {
                Ok(Sendable::InFile(checked)) => checked,
                Ok(Sendable::InMemory(bytes)) => {
                    self.advance(bytes.len());
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Err(error) => return Poll::Ready(Some(Err(self.refused(range, error)))),
            }
        };
        if self.waiting.is_none()
            && let Some(files) = &self.files
            && !self.long.as_ref().is_some_and(LongBody::is_copied)
            && (std::mem::take(&mut self.is_checked) || is_sendable(&self.file, range))
        {
            let length = usize::try_from(range.length()).unwrap_or(usize::MAX);
            let piece = files.stand_in(&self.file, range.first, length, &self.scope);
            self.advance(piece.len());
            return Poll::Ready(Some(Ok(piece)));
        }
        let buffer = match self.waiting {
            Some(_) => ready!(self.poll_waiting(cx)),
            None => ready!(self.read(range, cx)),
        };
        let buffer = match buffer {
            Ok(buffer) => buffer,
            Err(error) => return Poll::Ready(Some(Err(self.refused(range, error)))),
        };
        self.advance(buffer.as_ref().len());
        Poll::Ready(Some(Ok(buffer.into_bytes())))
    }

    /// Notes that bytes cannot be sent.
    fn refused(&self, range: ByteRange, error: io::Error) -> io::Error {
        self.buffers.metrics().range_read_failures.inc();
        tracing::error!(
            %error,
            offset = range.first,
            "cannot read a file; the response was aborted"
        );
        error
    }

    /// Advances the current part past its first `length` bytes.
    fn advance(&mut self, length: usize) {
        self.current = self.current.and_then(|ByteRange { first, last }| {
            let first = first + length as u64;
            (first <= last).then_some(ByteRange { first, last })
        });
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
