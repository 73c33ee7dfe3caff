//! The blocks of a body that is being sent, compared with their checksums before their bytes are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use io_trace::Scope;
use storage_core::{RangeScan, Scanned, StorageError};
use tokio::task::JoinHandle;

use super::file::RangeFile;
use super::header::ByteRange;

/// The comparison of a block, for as long as somebody waits for it.
#[derive(Debug)]
struct Comparison {
    /// A byte of the block.
    at: u64,
    task: JoinHandle<Result<(), StorageError>>,
}

impl Drop for Comparison {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What may be sent now.
#[derive(Debug)]
pub(super) enum Sendable {
    /// Bytes of the file.
    InFile(ByteRange),
    /// These bytes, which the file may not have.
    InMemory(Bytes),
}

/// Where a body is between its blocks.
#[derive(Debug)]
pub(super) struct Checking {
    /// Reads the range that is being sent, if it is long and bytes of it are absent.
    scan: Option<RangeScan>,
    /// Whether the first bytes were compared a moment ago.
    is_first_known: bool,
    /// The last byte that may be sent now.
    last: u64,
    running: Option<Comparison>,
    /// The block before which the next one was thought of.
    ahead_of: u64,
}

impl Checking {
    /// For a body whose first bytes were compared a moment ago.
    pub(super) fn begun() -> Self {
        Self {
            scan: None,
            is_first_known: true,
            last: 0,
            running: None,
            ahead_of: u64::MAX,
        }
    }

    /// For a body of one range, which is scanned.
    pub(super) fn scanning(scan: RangeScan) -> Self {
        Self {
            scan: Some(scan),
            is_first_known: false,
            ..Self::begun()
        }
    }

    /// The first bytes of `range`, once they may be sent.
    pub(super) fn poll(
        &mut self,
        file: &Arc<RangeFile>,
        range: ByteRange,
        scope: &Option<Scope>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Sendable>> {
        let Some(scan) = &mut self.scan else {
            return self
                .poll_block(file, range, scope, cx)
                .map_ok(Sendable::InFile);
        };
        if range.first > 0 && range.first <= self.last {
            return Poll::Ready(Ok(Sendable::InFile(self.cut(range))));
        }
        let next = match ready!(scan.poll_next(cx)) {
            Some(Ok(Scanned::InFile(part))) => {
                self.last = part.end.saturating_sub(1);
                Ok(Sendable::InFile(self.cut(range)))
            }
            Some(Ok(Scanned::InMemory(bytes))) => {
                let _inside = scope.clone().map(Scope::enter);
                file.note_scanned(range.first, bytes.len());
                Ok(Sendable::InMemory(bytes))
            }
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        Poll::Ready(next)
    }

    /// The bytes of `range` in its first block, once it is compared. The comparison of the block
    /// after it begins then, so that it runs while this one is sent.
    fn poll_block(
        &mut self,
        file: &Arc<RangeFile>,
        range: ByteRange,
        scope: &Option<Scope>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ByteRange>> {
        let at = range.first;
        let part = part_at(file, at, range);
        let is_known = std::mem::take(&mut self.is_first_known) || is_checked(file, part)?;
        if !is_known {
            let running = self.running.take().filter(|running| running.at == at);
            let running = running.unwrap_or_else(|| compare(file, part, scope));
            let running = self.running.insert(running);
            let compared = ready!(Pin::new(&mut running.task).poll(cx));
            self.running = None;
            compared
                .map_err(io::Error::other)?
                .map_err(io::Error::other)?;
        }
        self.last = file.block_last(at);
        if self.last < range.last && self.ahead_of != self.last {
            self.ahead_of = self.last;
            let next = self.last.saturating_add(1);
            let part = part_at(file, next, range);
            if !is_checked(file, part)? {
                self.running = Some(compare(file, part, scope));
            }
        }
        Poll::Ready(Ok(self.cut(range)))
    }

    /// The bytes of `range` that may be sent now.
    pub(super) fn cut(&self, range: ByteRange) -> ByteRange {
        ByteRange {
            first: range.first,
            last: range.last.min(self.last),
        }
    }
}

fn compare(file: &Arc<RangeFile>, part: ByteRange, scope: &Option<Scope>) -> Comparison {
    let file = Arc::clone(file);
    let compare = async move { file.ensure(part).await };
    let task = match scope.clone() {
        Some(scope) => tokio::spawn(scope.around(compare)),
        None => tokio::spawn(compare),
    };
    let at = part.first;
    Comparison { at, task }
}

fn is_checked(file: &RangeFile, part: ByteRange) -> io::Result<bool> {
    file.are_checked(&[part]).map_err(io::Error::other)
}

/// The bytes of `range` from `at` to the end of their block. Those of a file that may have holes
/// are fetched one by one, so that the first byte of a block says nothing of the others.
fn part_at(file: &RangeFile, at: u64, range: ByteRange) -> ByteRange {
    ByteRange {
        first: at,
        last: range.last.min(file.block_last(at)),
    }
}
