//! Copies frames into aligned buffers and writes each buffer as soon as it is full.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::{future::Future, io, pin::Pin, rc::Rc, sync::Arc};

use futures_util::stream::{FuturesUnordered, StreamExt};
use io_trace::{Cause, Requests};
use rustix::io::Errno;
use storage_format::{
    frame::{ALIGNMENT, FrameLocation, HEADER_BYTES},
    integer::usize_of_u64,
    paths::FileName,
};
use tokio::time::Instant;

use super::{Appended, ChannelSpec, Frame, IoThreadConfig, IoThreadError, Tail, request::Append};
use crate::{
    counters::Counters,
    error::is_transient,
    io::{BLOCK_BYTES, BUFFER_BYTES, BlockIo, OpenHow},
};

/// First preallocated extent; each next one is as long as the file at that time.
const PREALLOCATION_BYTES_MIN: u64 = 1 << 20;

/// Size of a block, as lengths of files are counted.
const BLOCK_LENGTH: u64 = BLOCK_BYTES as u64;

/// An open file and the state of its end.
pub(super) struct OpenFile<F> {
    pub(super) file: F,
    pub(super) tail: Tail,
    /// The bytes of the last, partly filled block before the tail.
    pub(super) last_block: Vec<u8>,
    pub(super) allocated: u64,
    pub(super) can_allocate: bool,
    /// Whether the name of the file is durable.
    pub(super) is_named: bool,
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

/// What a write needs besides the state of the file.
pub(super) struct Writer<B: BlockIo> {
    pub(super) io: Rc<B>,
    pub(super) config: Rc<IoThreadConfig>,
    pub(super) counters: Arc<Counters>,
    pub(super) spec: Arc<ChannelSpec>,
}

impl<B: BlockIo> Writer<B> {
    pub(super) async fn open(
        &self,
        known: Option<Tail>,
    ) -> Result<OpenFile<Rc<B::File>>, IoThreadError> {
        let path = self
            .spec
            .folder
            .join(FileName::Data(self.spec.leaf()).to_string());
        let fault = |error| failure(&self.spec, "open", &error);
        let Some(tail) = known else {
            let file = self.io.open(&path, OpenHow::CreateData).await;
            // A file whose first write was refused exists and is empty.
            let file = match file {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.io.open(&path, OpenHow::OpenData).await
                }
                file => file,
            };
            let header = self.spec.header.encode();
            let mut tail = Tail::default();
            tail.extend(&header);
            return Ok(OpenFile {
                file: Rc::new(file.map_err(fault)?),
                tail,
                last_block: header.to_vec(),
                allocated: 0,
                can_allocate: true,
                is_named: false,
            });
        };
        let file = self
            .io
            .open(&path, OpenHow::OpenData)
            .await
            .map_err(fault)?;
        let in_last_block = tail.length % BLOCK_LENGTH;
        let start = tail.length.saturating_sub(in_last_block);
        let length = usize_of_u64(in_last_block);
        let read = crate::traced::on_thread(io_trace::current(), move || {
            crate::read::read_at(&path, start, length)
        });
        let last_block = read.await.map_err(io::Error::other).and_then(|read| read);
        let last_block = last_block.map_err(fault)?;
        assert_eq!(
            last_block.len(),
            length,
            "the last block is read up to the tail"
        );
        Ok(OpenFile {
            file: Rc::new(file),
            tail,
            last_block,
            allocated: tail.length,
            can_allocate: true,
            // A server that was killed may have created the name without making it durable.
            is_named: false,
        })
    }

    /// Writes the frames of `batch` after the tail; moves the tail only when all are written.
    pub(super) async fn write(
        &self,
        state: &mut OpenFile<Rc<B::File>>,
        batch: &[Append],
    ) -> Result<Vec<Appended>, IoThreadError> {
        let bytes: u64 = batch.iter().map(Append::bytes).sum();
        let end = state.tail.length.checked_add(bytes);
        let end = end.ok_or_else(|| failure(&self.spec, "write", &Errno::FBIG.into()))?;
        self.allocate(state, end).await?;
        let mut staging = Staging::new(self, state);
        let result = staging.stage(batch).await;
        let (tail, last_block, drained) = staging.finish().await;
        let appended = result.and_then(|appended| drained.map(|()| appended));
        let appended = appended.map_err(|error| failure(&self.spec, "write", &error))?;
        if !state.is_named {
            let named = self.io.sync_folder(&self.spec.folder).await;
            // The sync of a folder is a sync: when it fails, the disk cannot be trusted.
            named.map_err(|error| failure(&self.spec, SYNC, &error))?;
            state.is_named = true;
        }
        assert_eq!(
            tail.length, end,
            "the tail moves past the frames of the batch"
        );
        state.tail = tail;
        state.last_block = last_block;
        self.counters.written_bytes.add(bytes);
        Ok(appended)
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
        let target = target.and_then(|end| end.checked_next_multiple_of(BLOCK_BYTES as u64));
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

/// Copies frames into buffers and writes each buffer as soon as it is full.
struct Staging<'a, B: BlockIo> {
    writer: &'a Writer<B>,
    file: Rc<B::File>,
    tail: Tail,
    buffer: Option<B::Buffer>,
    /// Bytes of the current buffer that are filled.
    filled: usize,
    /// Offset in the file of the current buffer.
    offset: u64,
    last_block: Vec<u8>,
    /// The requests of the bytes in the current buffer, for the I/O trace.
    requests: Requests,
    writes: FuturesUnordered<WriteFuture>,
}

impl<'a, B: BlockIo> Staging<'a, B> {
    fn new(writer: &'a Writer<B>, state: &OpenFile<Rc<B::File>>) -> Self {
        assert!(
            state.last_block.len() < BLOCK_BYTES,
            "the last block is partly filled"
        );
        let in_last_block = state.last_block.len() as u64;
        assert_eq!(
            state.tail.length % BLOCK_LENGTH,
            in_last_block,
            "the last block begins at a multiple of blocks and ends at the tail"
        );
        Self {
            writer,
            file: Rc::clone(&state.file),
            tail: state.tail,
            buffer: None,
            filled: 0,
            offset: state.tail.length.saturating_sub(in_last_block),
            last_block: state.last_block.clone(),
            requests: Requests::default(),
            writes: FuturesUnordered::new(),
        }
    }

    async fn stage(&mut self, batch: &[Append]) -> io::Result<Vec<Appended>> {
        let last_block = std::mem::take(&mut self.last_block);
        self.copy(&last_block, None).await?;
        let mut appended = Vec::with_capacity(batch.len());
        // A write for a single request is inside its scope already.
        let is_shared = batch.len() > 1;
        for append in batch {
            let request = append.request.as_ref().filter(|_| is_shared);
            let mut offsets = Vec::with_capacity(append.frames.len());
            for frame in &append.frames {
                offsets.push(self.stage_frame(frame, request).await?);
            }
            appended.push(Appended {
                offsets,
                tail: self.tail,
            });
        }
        let filled = self.filled;
        if filled > 0
            && let Some(buffer) = &mut self.buffer
        {
            let end = filled.next_multiple_of(BLOCK_BYTES);
            buffer[filled..end].fill(0);
            self.last_block = buffer[block_floor(filled)..filled].to_vec();
            self.filled = end;
            self.submit();
        }
        Ok(appended)
    }

    async fn stage_frame(&mut self, frame: &Frame, request: Option<&Arc<str>>) -> io::Result<u64> {
        let spec = &self.writer.spec;
        assert_eq!(
            u32::try_from(frame.payload.len()),
            Ok(frame.header.stored_size),
            "a frame header describes its payload"
        );
        let location = FrameLocation {
            storage: spec.storage(),
            leaf: spec.leaf(),
            offset: self.tail.length,
        };
        let header = frame.header.encode(location);
        self.tail.extend(&header);
        self.copy(&header, request).await?;
        self.tail
            .extend_summed(&frame.payload, frame.header.stored_checksum);
        self.copy(&frame.payload, request).await?;
        let used = HEADER_BYTES.saturating_add(frame.payload.len());
        let gap = [0; ALIGNMENT];
        let gap = &gap[..used.next_multiple_of(ALIGNMENT).saturating_sub(used)];
        self.tail.extend(gap);
        self.copy(gap, request).await?;
        Ok(location.offset.saturating_add(HEADER_BYTES as u64))
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
    async fn finish(mut self) -> (Tail, Vec<u8>, io::Result<()>) {
        let mut result = Ok(());
        while let Some(written) = self.writes.next().await {
            result = result.and(written);
        }
        (self.tail, self.last_block, result)
    }
}

/// The name of operations whose failure poisons the storage.
pub(super) const SYNC: &str = "sync";

/// The error for a failed operation on the data file of a channel.
pub(super) fn failure(
    spec: &ChannelSpec,
    operation: &'static str,
    error: &io::Error,
) -> IoThreadError {
    let path = spec.folder.join(FileName::Data(spec.leaf()).to_string());
    let is_sync = operation == SYNC;
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) if !is_sync => {
            return IoThreadError::Full { path };
        }
        // A sync opens no file, but the sync of a folder opens the folder before.
        Some(errno @ (Errno::MFILE | Errno::NFILE)) => {
            return IoThreadError::Exhausted {
                operation,
                path,
                errno,
            };
        }
        Some(errno) if !is_sync && is_transient(error) => {
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
