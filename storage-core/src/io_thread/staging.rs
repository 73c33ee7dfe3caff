//! Writes batches to the newest data file of a log: copies them into aligned buffers, and writes
//! each buffer as soon as it is full.

use std::{collections::HashMap, future::Future, io, path::PathBuf, pin::Pin, rc::Rc, sync::Arc};

use futures_util::stream::{FuturesUnordered, StreamExt};
use io_trace::{Cause, Requests};
use rustix::io::Errno;
use storage_format::{
    DataFileId, LeafId,
    index_part::LogPosition,
    integer::usize_of_u64,
    log::{LogFileHeader, PreviousFile},
    paths::FileName,
};
use tokio::time::Instant;

use super::{
    Appended, IoThreadConfig, IoThreadError, LogEnd, LogSpec, Tail,
    assembly::{Batch, BatchPlace, PieceBytes, assemble},
    request::Append,
    tail::{ClosedFile, LoggedLeaf},
};
use crate::{
    clock::{now_ns, random_u64},
    counters::Counters,
    errno::is_transient,
    io::{BLOCK_BYTES, BUFFER_BYTES, BlockIo, OpenHow},
};

/// First preallocated extent; each next one is as long as the file at that time.
const PREALLOCATION_BYTES_MIN: u64 = 64 << 10;

/// Size of a block, as lengths of files are counted.
const BLOCK_LENGTH: u64 = BLOCK_BYTES as u64;

/// The data file at the end of a log.
pub(super) struct OpenFile<F> {
    pub(super) file: F,
    pub(super) id: DataFileId,
    pub(super) salt: u64,
    /// The end of its batches; nothing before the first one is written.
    pub(super) tail: Tail,
    pub(super) allocated: u64,
    pub(super) can_allocate: bool,
    /// Whether the name of the file is durable.
    pub(super) is_named: bool,
    /// Whether a write failed: the file ends at its tail, and is never written again.
    pub(super) is_broken: bool,
}

/// A log: its newest file, and what is known of its leaves.
pub(super) struct Log<F> {
    pub(super) file: Option<OpenFile<F>>,
    pub(super) end: LogEnd,
    pub(super) leaves: HashMap<LeafId, LoggedLeaf>,
}

/// Writes `length` bytes from the start of `buffer` at `offset`; continues after short writes.
pub(super) async fn write_fully<B: BlockIo>(
    io: &B,
    file: &B::File,
    mut buffer: B::Buffer,
    length: usize,
    offset: u64,
) -> io::Result<()> {
    assert!(length <= buffer.len(), "a write is inside of its buffer");
    let mut done = 0;
    while done < length {
        let left = length.saturating_sub(done);
        let start = offset.saturating_add(done as u64);
        let (result, returned) = io.write_at(file, buffer, done..length, start).await;
        buffer = returned;
        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // A direct write continues at a block; bytes that the kernel wrote past it are written
            // again.
            Ok(written) => {
                assert!(written <= left, "no more is written than was requested");
                let complete = if written == left {
                    written
                } else {
                    block_floor(written)
                };
                done = done.saturating_add(complete);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    assert_eq!(done, length, "a write is complete before it counts");
    Ok(())
}

fn block_floor(length: usize) -> usize {
    length.saturating_sub(length % BLOCK_BYTES)
}

/// What a write needs besides the state of the log.
pub(super) struct Writer<B: BlockIo> {
    pub(super) io: Rc<B>,
    pub(super) config: Rc<IoThreadConfig>,
    pub(super) counters: Arc<Counters>,
    pub(super) spec: Arc<LogSpec>,
}

impl<B: BlockIo> Writer<B> {
    fn path(&self, file: DataFileId) -> PathBuf {
        self.spec.folder.join(FileName::Data(file).to_string())
    }

    fn failure(
        &self,
        operation: &'static str,
        file: DataFileId,
        error: &io::Error,
    ) -> IoThreadError {
        failure(operation, self.path(file), error)
    }

    /// Opens the newest file again after it was closed, without a change to it.
    pub(super) async fn reopen(
        &self,
        closed: &ClosedFile,
    ) -> Result<OpenFile<Rc<B::File>>, IoThreadError> {
        let file = self.io.open(&self.path(closed.id), OpenHow::OpenData).await;
        let file = file.map_err(|error| self.failure("open", closed.id, &error))?;
        self.check_length(closed.id, closed.tail.length)?;
        Ok(OpenFile {
            file: Rc::new(file),
            id: closed.id,
            salt: closed.salt,
            tail: closed.tail,
            allocated: closed.tail.length,
            can_allocate: true,
            is_named: true,
            is_broken: false,
        })
    }

    /// Ends the newest file of the log: truncates it to its batches and makes it durable. All its
    /// batches are durable before. The file is never written again, even when this fails.
    pub(super) async fn end_file(&self, log: &mut Log<Rc<B::File>>) -> Result<(), IoThreadError> {
        let Some(open) = log.file.take() else {
            return Ok(());
        };
        let OpenFile { id, tail, .. } = open;
        let result = if tail.length == 0 {
            // Nothing in it was acknowledged.
            Ok(())
        } else {
            let ended = PreviousFile {
                file: id,
                length: tail.length,
            };
            log.end.previous = Some(ended);
            let cut = self.cut(&open.file, id, tail.length).await;
            if cut.is_err() {
                log.end.uncut.push(ended);
            }
            cut
        };
        if let Ok(file) = Rc::try_unwrap(open.file)
            && let Err(error) = self.io.close(file).await
        {
            tracing::warn!(%error, file = %id, "a data file cannot be closed");
        }
        if tail.length == 0 {
            match self.io.remove(&self.path(id)).await {
                // Nothing says that there was such a file: otherwise refused batches would use up
                // the ids.
                Ok(()) if log.end.next_file == id.0.saturating_add(1) => log.end.next_file = id.0,
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, file = %id, "an empty data file cannot be removed");
                }
            }
        }
        result
    }

    /// Fails when another program truncated a file: acknowledged bytes are lost, and setting the
    /// length or writing after them would hide that.
    fn check_length(&self, id: DataFileId, written: u64) -> Result<(), IoThreadError> {
        let path = self.path(id);
        let found = std::fs::metadata(&path);
        let found = found.map_err(|error| self.failure("check", id, &error))?;
        if found.len() >= written {
            return Ok(());
        }
        Err(IoThreadError::Poisoned(format!(
            "{} has {} bytes, but {written} were written: another program truncated it",
            path.display(),
            found.len()
        )))
    }

    async fn cut(&self, file: &B::File, id: DataFileId, length: u64) -> Result<(), IoThreadError> {
        self.check_length(id, length)?;
        let cut = self.io.set_length(file, length).await;
        cut.map_err(|error| self.failure("cut", id, &error))?;
        crate::fault_point!(async "cut.truncated");
        let synced = self.io.sync_data(file).await;
        synced.map_err(|error| self.failure(SYNC, id, &error))
    }

    /// Truncates the files that recovery found longer than their batches.
    pub(super) async fn cut_recovered(&self, end: &mut LogEnd) -> Result<(), IoThreadError> {
        while let Some(&PreviousFile { file, length }) = end.uncut.last() {
            let fault = |error| self.failure("cut", file, &error);
            let open = self.io.open(&self.path(file), OpenHow::OpenData).await;
            let open = open.map_err(fault)?;
            let cut = self.cut(&open, file, length).await;
            let closed = self.io.close(open).await.map_err(fault);
            cut.and(closed)?;
            end.uncut.pop();
        }
        Ok(())
    }

    /// The newest file, or a new one when there is none that may be written.
    async fn file<'l>(
        &self,
        log: &'l mut Log<Rc<B::File>>,
    ) -> Result<&'l mut OpenFile<Rc<B::File>>, IoThreadError> {
        if log.file.as_ref().is_some_and(|open| self.is_full(open)) {
            self.end_file(log).await?;
        }
        if log.file.is_none() {
            self.cut_recovered(&mut log.end).await?;
            let (id, file) = self.create(&mut log.end).await?;
            crate::fault_point!(async "write.file_created");
            log.file = Some(OpenFile {
                file: Rc::new(file),
                id,
                salt: random_u64(),
                tail: Tail::default(),
                allocated: 0,
                can_allocate: true,
                is_named: false,
                is_broken: false,
            });
        }
        Ok(log.file.as_mut().expect("a file was opened above"))
    }

    /// Creates the next file. Only one that was created uses up an id: beyond the last id of a log
    /// are those of arranged files.
    async fn create(&self, end: &mut LogEnd) -> Result<(DataFileId, B::File), IoThreadError> {
        loop {
            let id = DataFileId(end.next_file);
            if !id.is_of_log() {
                return Err(IoThreadError::FilesUsedUp);
            }
            let next = end.next_file.saturating_add(1);
            match self.io.open(&self.path(id), OpenHow::CreateData).await {
                Ok(file) => {
                    end.next_file = next;
                    return Ok((id, file));
                }
                // An arranged file of a finalization that failed, which could not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => end.next_file = next,
                Err(error) => return Err(self.failure("create", id, &error)),
            }
        }
    }

    /// Whether the next batch begins a new file.
    pub(super) fn is_full(&self, open: &OpenFile<Rc<B::File>>) -> bool {
        open.is_broken || open.tail.length >= self.config.data_file_bytes_max
    }

    /// Writes the frames of `appends` as one batch; the log changes only when all are written.
    pub(super) async fn write(
        &self,
        log: &mut Log<Rc<B::File>>,
        appends: &[Append],
        durable_mark: u64,
    ) -> Result<Vec<Appended>, IoThreadError> {
        self.file(log).await?;
        crate::fault_point!(async "write.begin");
        let Log { file, end, leaves } = log;
        let open = file.as_mut().expect("a file was opened above");
        let written = self.write_batch(open, end, leaves, appends, durable_mark);
        let written = written.await;
        if written.is_err() {
            open.is_broken = true;
        }
        written
    }

    async fn write_batch(
        &self,
        open: &mut OpenFile<Rc<B::File>>,
        end: &mut LogEnd,
        leaves: &mut HashMap<LeafId, LoggedLeaf>,
        appends: &[Append],
        durable_mark: u64,
    ) -> Result<Vec<Appended>, IoThreadError> {
        let header = (open.tail.length == 0).then(|| {
            let header = LogFileHeader {
                storage: self.spec.storage,
                file: open.id,
                is_arranged: false,
                replaces: None,
                salt: open.salt,
                created: now_ns(),
                first_batch: end.batch,
                previous: end.previous,
                chain: end.chain,
            };
            header.encode()
        });
        let header = header.unwrap_or_default();
        let place = BatchPlace {
            storage: self.spec.storage,
            position: LogPosition {
                file: open.id,
                offset: open.tail.length.saturating_add(header.len() as u64),
                batch: end.batch,
                chain: end.chain,
            },
            salt: open.salt,
            durable_mark,
        };
        let mut batch = assemble(appends, place, |leaf| leaves.get(&leaf).copied());
        let after = batch.end(&place);
        self.allocate(open, after.offset).await?;
        let mut staging = Staging::new(self, open);
        let staged = staging.stage(&header, &batch).await;
        let (tail, drained) = staging.finish().await;
        let fault = |error| self.failure("write", open.id, &error);
        worst(staged, drained).map_err(fault)?;
        crate::fault_point!(async "write.written");
        if !open.is_named {
            let named = if crate::sabotaged!("skip-folder-sync") {
                Ok(())
            } else {
                self.io.sync_folder(&self.spec.folder).await
            };
            named.map_err(|error| failure(SYNC_FOLDER, self.spec.folder.clone(), &error))?;
            crate::fault_point!(async "write.named");
            open.is_named = true;
        }
        assert_eq!(
            tail.length, after.offset,
            "the tail moves past the batch and its padding"
        );
        self.counters
            .written_bytes
            .add(tail.length.saturating_sub(open.tail.length));
        open.tail = tail;
        (end.batch, end.chain) = (after.batch, after.chain);
        leaves.extend(batch.leaves);
        if let Some(last) = batch.appended.last_mut() {
            last.log = Some((after, tail));
        }
        Ok(batch.appended)
    }

    async fn allocate(
        &self,
        state: &mut OpenFile<Rc<B::File>>,
        end: u64,
    ) -> Result<(), IoThreadError> {
        let max = self.config.preallocation_bytes_max;
        if !state.can_allocate || max == 0 || end <= state.allocated {
            return Ok(());
        }
        let extent = state.allocated.clamp(PREALLOCATION_BYTES_MIN.min(max), max);
        let target = end.checked_add(extent);
        let target = target.and_then(|end| end.checked_next_multiple_of(BLOCK_LENGTH));
        // A file cannot grow this far: the write reports it.
        let Some(target) = target else { return Ok(()) };
        let start = state.allocated;
        assert!(target > start, "an extent is after the allocated space");
        let length = target.saturating_sub(start);
        match self.io.allocate(&state.file, start, length).await {
            Ok(()) => state.allocated = target,
            // Without preallocation the write itself reports a full disk.
            Err(_) => state.can_allocate = false,
        }
        Ok(())
    }
}

type WriteFuture = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// Copies a batch into buffers and writes each buffer as soon as it is full.
struct Staging<'a, B: BlockIo> {
    writer: &'a Writer<B>,
    file: Rc<B::File>,
    tail: Tail,
    buffer: Option<B::Buffer>,
    /// Bytes of the current buffer that are filled.
    filled: usize,
    /// Offset in the file of the current buffer.
    offset: u64,
    /// The requests of the bytes in the current buffer, for the I/O trace.
    requests: Requests,
    writes: FuturesUnordered<WriteFuture>,
}

impl<'a, B: BlockIo> Staging<'a, B> {
    fn new(writer: &'a Writer<B>, state: &OpenFile<Rc<B::File>>) -> Self {
        assert!(
            state.tail.length.is_multiple_of(BLOCK_LENGTH),
            "a batch begins at a block"
        );
        Self {
            writer,
            file: Rc::clone(&state.file),
            tail: state.tail,
            buffer: None,
            filled: 0,
            offset: state.tail.length,
            requests: Requests::default(),
            writes: FuturesUnordered::new(),
        }
    }

    /// Stages the header of the file, if it has none yet, and a batch.
    async fn stage(&mut self, header: &[u8], batch: &Batch<'_>) -> io::Result<()> {
        self.append(header, None).await?;
        self.append(&batch.head, None).await?;
        // A write for a single request is inside its scope already.
        let is_shared = batch.appended.len() > 1;
        for piece in &batch.pieces {
            let request = piece.request.filter(|_| is_shared);
            match &piece.bytes {
                PieceBytes::Headers(range) => {
                    let bytes = batch.headers.get(range.clone()).unwrap_or_default();
                    self.append(bytes, request).await?;
                }
                PieceBytes::Payload(payload, checksum) => {
                    self.tail.extend_summed(payload, *checksum);
                    self.copy(payload, request).await?;
                }
            }
        }
        let used = self.tail.length;
        let padding = used.next_multiple_of(BLOCK_LENGTH).saturating_sub(used);
        let padding = &[0; BLOCK_BYTES][..usize_of_u64(padding)];
        self.append(padding, None).await?;
        self.submit();
        Ok(())
    }

    async fn append(&mut self, bytes: &[u8], request: Option<&Arc<str>>) -> io::Result<()> {
        self.tail.extend(bytes);
        self.copy(bytes, request).await
    }

    async fn copy(&mut self, mut bytes: &[u8], request: Option<&Arc<str>>) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.buffer.is_none() {
                self.buffer = Some(self.next_buffer().await?);
            }
            let Some(buffer) = &mut self.buffer else {
                continue;
            };
            let length = bytes.len().min(BUFFER_BYTES.saturating_sub(self.filled));
            let (now, later) = bytes.split_at(length);
            buffer[self.filled..][..length].copy_from_slice(now);
            self.filled = self.filled.saturating_add(length);
            if let Some(request) = request {
                self.requests.add(request);
            }
            bytes = later;
            if self.filled == BUFFER_BYTES {
                self.submit();
            }
        }
        Ok(())
    }

    /// Waits for a buffer while the writes in flight continue and return theirs.
    async fn next_buffer(&mut self) -> io::Result<B::Buffer> {
        let buffer = self.writer.io.buffer();
        tokio::pin!(buffer);
        loop {
            tokio::select! {
                biased;
                Some(result) = self.writes.next() => result?,
                buffer = &mut buffer => return Ok(buffer),
            }
        }
    }

    fn submit(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let (length, offset) = (self.filled, self.offset);
        assert!(
            length > 0
                && length.is_multiple_of(BLOCK_BYTES)
                && offset.is_multiple_of(BLOCK_BYTES as u64),
            "direct writes are whole blocks"
        );
        self.offset = offset.saturating_add(length as u64);
        self.filled = 0;
        let (io, file) = (Rc::clone(&self.writer.io), Rc::clone(&self.file));
        let counters = Arc::clone(&self.writer.counters);
        let write = async move {
            let start = Instant::now();
            let result = write_fully(&*io, &file, buffer, length, offset).await;
            counters.writes.observe(start.elapsed());
            result
        };
        let requests = std::mem::take(&mut self.requests);
        self.writes.push(if requests.is_empty() {
            Box::pin(write)
        } else {
            let tracer = &self.writer.config.tracer;
            Box::pin(requests.scope(tracer, Cause::Ingest).around(write))
        });
    }

    /// Waits for every write, also after a failure: no buffer may be written later.
    async fn finish(mut self) -> (Tail, io::Result<()>) {
        let mut result = Ok(());
        while let Some(written) = self.writes.next().await {
            result = worst(result, written);
        }
        (self.tail, result)
    }
}

/// The worse of two results: an error that ends the storage is not hidden by one that only refuses
/// the batch.
fn worst(first: io::Result<()>, second: io::Result<()>) -> io::Result<()> {
    match (first, second) {
        (Err(first), Err(second)) if is_refusal(&first) && !is_refusal(&second) => Err(second),
        (first, second) => first.and(second),
    }
}

/// Whether a failed write only refuses its batch.
fn is_refusal(error: &io::Error) -> bool {
    is_full(error) || is_transient(error)
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
    )
}

/// The name of operations whose failure poisons the storage.
pub(super) const SYNC: &str = "sync";
/// As [`SYNC`], but a folder is opened before, and that may fail for lack of file descriptors.
const SYNC_FOLDER: &str = "sync of the folder";

/// The error for a failed operation on a data file or the folder of a storage.
pub(super) fn failure(operation: &'static str, path: PathBuf, error: &io::Error) -> IoThreadError {
    let errno = Errno::from_io_error(error);
    let is_refusal = match operation {
        SYNC => false,
        SYNC_FOLDER => matches!(errno, Some(Errno::MFILE | Errno::NFILE)),
        _ => true,
    };
    match errno.filter(|_| is_refusal) {
        Some(_) if is_full(error) => return IoThreadError::Full { path },
        Some(errno) if is_transient(error) => {
            return IoThreadError::Exhausted {
                operation,
                path,
                errno,
            };
        }
        _ => {}
    }
    IoThreadError::Poisoned(format!("{operation} of {} failed: {error}", path.display()))
}
