use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
            let mut budget = self.client.retry_budget();
            let buffers = loop {
                match self.request(&request, wanted).await {
                    Ok(buffers) => break buffers,
                    Err(Failure::Io(error)) => return Err(error),
                    // A broken request is repeated completely; its size is bounded.
                    Err(Failure::Client(error)) => {
                        let waited = budget.wait_after_break(error).await;
                        waited.map_err(io_error)?;
                    }
                }
            };
            found.extend(buffers);
        }
        Ok(found)
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

fn io_error(error: ClientError) -> io::Error {
    let kind = match &error {
        ClientError::Refused(problem) => match problem.status {
            401 | 403 => io::ErrorKind::PermissionDenied,
            404 => io::ErrorKind::NotFound,
            416 => io::ErrorKind::UnexpectedEof,
            // The server sends no block that is damaged: the file lacks it.
            500 if matches!(problem.code.as_str(), "damaged" | "file_unreadable") => {
                io::ErrorKind::UnexpectedEof
            }
            _ => io::ErrorKind::Other,
        },
        ClientError::Cut { .. } => io::ErrorKind::UnexpectedEof,
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
}
