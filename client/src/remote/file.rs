use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use storage_format::checksum_file::PIECE_BYTES;
use tokio::runtime::Handle;

use super::collect::Collector;
use super::plan::{RangeRequest, plan};
use crate::ClientError;
use crate::http::{Client, StorageUrl};

/// Counts of transfers from servers, shared by files.
#[derive(Debug, Default)]
pub struct Transferred {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Transferred {
    /// Requests sent, including retries.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn add_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of files received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A file of a finalized storage on a server.
///
/// A read sends one multi-range request per 200 ranges or 64 MiB; ranges with a small gap between
/// them are merged. All requests must return the entity tag of the first response, so that bytes of
/// two versions are never mixed.
#[derive(Debug)]
pub struct RemoteFile {
    client: Client,
    storage: StorageUrl,
    name: String,
    runtime: Handle,
    etag: OnceLock<String>,
    transferred: Arc<Transferred>,
}

impl RemoteFile {
    /// The file `name` of a storage. Requests run on `runtime`; callers of `fetch` must not.
    pub fn new(
        client: Client,
        storage: StorageUrl,
        name: String,
        runtime: Handle,
        transferred: Arc<Transferred>,
    ) -> Self {
        Self {
            client,
            storage,
            name,
            runtime,
            etag: OnceLock::new(),
            transferred,
        }
    }

    /// Address of the file.
    pub fn url(&self) -> String {
        format!("{}/{}", self.storage, self.name)
    }

    /// Reads the bytes of each range. Ranges must be sorted and must not overlap.
    pub async fn read(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::with_capacity(ranges.len());
        for request in plan(ranges) {
            let wanted = &ranges[request.wanted.clone()];
            let buffers = match self.request(&request, wanted).await {
                Ok(buffers) => buffers,
                Err(Failure::Io(error)) => return Err(error),
                Err(Failure::Client(error)) => {
                    // Repeating a response that damage ends would end in the same way.
                    if matches!(error, ClientError::Cut { .. })
                        && blocks_of(wanted) > CHECKED_BLOCKS
                        && !self.lost(wanted).await?.is_empty()
                    {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
                    }
                    self.repeat(&request, wanted, error).await?
                }
            };
            found.extend(buffers);
        }
        Ok(found)
    }

    /// Repeats a request that failed, as often as it may help. A broken request is repeated
    /// completely; its size is bounded.
    async fn repeat(
        &self,
        request: &RangeRequest,
        wanted: &[Range<u64>],
        mut error: ClientError,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut budget = self.client.retry_budget();
        loop {
            let waited = budget.wait_after_cut(error).await;
            waited.map_err(io_error)?;
            match self.request(request, wanted).await {
                Ok(buffers) => return Ok(buffers),
                Err(Failure::Io(error)) => return Err(error),
                Err(Failure::Client(again)) => error = again,
            }
        }
    }

    async fn request(
        &self,
        request: &RangeRequest,
        wanted: &[Range<u64>],
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut collector = Collector::new(wanted);
        if request.requested.is_empty() {
            return Ok(collector.finish()?);
        }
        self.transferred.requests.fetch_add(1, Ordering::Relaxed);
        let etag = self.etag.get().map(String::as_str);
        let requested = &request.requested;
        let mut answer = self
            .client
            .file(&self.storage, &self.name, requested, etag)
            .await?;
        if let Some(etag) = answer.etag() {
            self.etag.get_or_init(|| etag.to_owned());
        }
        while !collector.is_complete() {
            let Some((offset, bytes)) = answer.next().await? else {
                break;
            };
            let length = bytes.len() as u64;
            self.transferred.bytes.fetch_add(length, Ordering::Relaxed);
            collector.add(offset, &bytes)?;
        }
        // Reading the response to its end allows the connection to be reused. If the server
        // sends the complete file instead, the connection is dropped.
        if !answer.is_whole_file() {
            while answer.next().await?.is_some() {}
        }
        Ok(collector.finish()?)
    }

    /// The parts of ranges in blocks that the server does not send because they are damaged, or
    /// that are behind the end of its file. Each block is asked for its first and last wanted byte.
    pub async fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let mut lost: Vec<Range<u64>> = Vec::new();
        let parts: Vec<Range<u64>> = ranges.iter().flat_map(in_blocks).collect();
        let is_same = |a: &Range<u64>, b: &Range<u64>| block_of(a.start) == block_of(b.start);
        for of_block in parts.chunk_by(is_same) {
            let (Some(first), Some(last)) = (of_block.first(), of_block.last()) else {
                continue;
            };
            let ends = [first.start..first.start + 1, last.end - 1..last.end];
            let is_one_byte = ends[0] == ends[1];
            let ends = if is_one_byte { &ends[..1] } else { &ends[..] };
            if self.are_lost(ends).await? {
                lost.extend_from_slice(of_block);
            }
        }
        Ok(lost)
    }

    /// Whether the file has not all of a few bytes of one block.
    async fn are_lost(&self, bytes: &[Range<u64>]) -> io::Result<bool> {
        for request in plan(bytes) {
            let wanted = &bytes[request.wanted.clone()];
            let read = match self.request(&request, wanted).await {
                Ok(_) => continue,
                Err(Failure::Io(error)) => Err(error),
                Err(Failure::Client(error)) => self.repeat(&request, wanted, error).await,
            };
            match read {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// [`Self::read`] for threads outside the runtime.
    pub fn read_blocking(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        self.runtime.block_on(self.read(ranges))
    }
}

#[derive(Debug)]
enum Failure {
    Client(ClientError),
    Io(io::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Blocks that a server compares before it begins a response.
const CHECKED_BLOCKS: usize = 4;

/// Number of blocks that ranges, which are ascending, are in.
fn blocks_of(ranges: &[Range<u64>]) -> usize {
    let mut blocks: Vec<u64> = (ranges.iter().flat_map(in_blocks))
        .map(|part| block_of(part.start))
        .collect();
    blocks.dedup();
    blocks.len()
}

fn block_of(offset: u64) -> u64 {
    offset / PIECE_BYTES
}

/// The parts of a range in each block that a server compares with a checksum.
fn in_blocks(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = *range;
    let blocks = block_of(start)..end.div_ceil(PIECE_BYTES);
    let part = move |block: u64| {
        let first = block * PIECE_BYTES;
        start.max(first)..end.min(first.saturating_add(PIECE_BYTES))
    };
    blocks.map(part).filter(|part| part.start < part.end)
}

fn io_error(error: ClientError) -> io::Error {
    let kind = match &error {
        ClientError::Refused(problem) => match problem.status {
            401 | 403 => io::ErrorKind::PermissionDenied,
            404 => io::ErrorKind::NotFound,
            416 => io::ErrorKind::UnexpectedEof,
            // The server sends no block that is damaged: the file lacks it.
            500 if problem.code == "damaged" => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::Other,
        },
        // Of a long response the server finds damage when it has sent a part.
        ClientError::Cut { .. } => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl query_engine::Fetch for RemoteFile {
    fn place(&self) -> String {
        self.url()
    }

    fn batch_bytes(&self) -> u64 {
        8 << 20
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        self.read_blocking(ranges)
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        self.runtime.block_on(RemoteFile::lost(self, ranges))
    }
}
