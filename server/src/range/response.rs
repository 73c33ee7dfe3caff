//! Builds the response of a plan: header fields, and a body that is a single buffer if it is small.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use storage_core::{RangeScan, StorageError};

use super::body::{BodyPart, FileBody, is_sendable};
use super::buffers::{Buffer, Buffers, LARGE};
use super::checksum;
use super::conditions::Validators;
use super::conditions::date_value;
use super::file::RangeFile;
use super::header::ByteRange;
use super::multipart::{Multipart, PART_HEAD_BYTES_MAX};
use super::plan::{Plan, plan};
use super::send_queue::SendQueue;
use crate::clock;
use crate::metrics::RangeOutcome;
use crate::problem::Problem;

/// Media type of everything served here: the bytes are in a format of the agent or of Tracehold,
/// and never a page to display.
const OCTETS: &str = "application/octet-stream";

/// Blocks of a long response that are compared before its head is sent, so that damage in them is
/// an error with a reason. Damage behind them ends the response in the middle.
const BLOCKS_AT_ONCE: usize = 4;

/// The location of the bytes.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// A file, of which the first `length` bytes are served.
    File {
        /// Opened for reading.
        file: Arc<RangeFile>,
        /// Bytes served; the file may grow beyond them.
        length: u64,
    },
    /// All bytes, in memory.
    Memory(Bytes),
}

/// Bytes with a version. The header fields are prepared because the same files are requested
/// repeatedly.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    content: Content,
    etag: HeaderValue,
    modified: Option<(u64, HeaderValue)>,
    immutable: bool,
    /// The checksum of all bytes, as header fields.
    checksum: Option<[(HeaderName, HeaderValue); 2]>,
}

impl Resource {
    /// A resource with the strong entity tag `etag` (without quotes), last changed `modified`
    /// seconds since the epoch; `immutable` if it never changes again.
    pub(crate) fn new(
        content: Content,
        etag: &str,
        modified: Option<u64>,
        immutable: bool,
    ) -> Self {
        let etag =
            HeaderValue::try_from(format!("\"{etag}\"")).expect("entity tags are visible ASCII");
        let modified = modified.and_then(|seconds| Some((seconds, date_value(seconds)?)));
        Self {
            content,
            etag,
            modified,
            immutable,
            checksum: None,
        }
    }

    /// The resource with the CRC32C of all its bytes.
    pub(crate) fn with_checksum(self, checksum: u32) -> Self {
        Self {
            checksum: Some(checksum::fields(checksum)),
            ..self
        }
    }

    /// Whether damage of it is known: it is opened again then, because it may have been replaced.
    pub(crate) fn is_damaged(&self) -> bool {
        matches!(&self.content, Content::File { file, .. } if file.is_damaged())
    }

    /// Whether it holds up disk space that was given to others: it is opened again then.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(&self.content, Content::File { file, .. } if file.is_given_up())
    }

    /// Compares the bytes of `ranges` with their checksums before any of them is sent. Of a long
    /// response only the first blocks: the others are compared while it is sent.
    async fn ensure(&self, ranges: &[ByteRange]) -> Result<(), StorageError> {
        let Content::File { file, .. } = &self.content else {
            return Ok(());
        };
        if file.are_checked(ranges)? {
            return Ok(());
        }
        let bytes: u64 = ranges.iter().map(|range| range.length()).sum();
        if file.may_have_holes() {
            let wanted = if bytes <= LARGE as u64 {
                ranges.to_vec()
            } else {
                let first = ranges.first().copied();
                first
                    .map(|range| first_part(file, range))
                    .into_iter()
                    .collect()
            };
            return file.ensure_all(wanted).await;
        }
        let mut blocks_left = if bytes <= LARGE as u64 {
            usize::MAX
        } else {
            BLOCKS_AT_ONCE
        };
        for range in ranges {
            let mut first = range.first;
            while first <= range.last && blocks_left > 0 {
                let last = file.block_last(first).min(range.last);
                file.ensure(ByteRange { first, last }).await?;
                blocks_left -= 1;
                first = last.saturating_add(1);
            }
        }
        Ok(())
    }

    /// As [`Self::ensure`] of one range. Bytes of a long one that are absent are scanned: they are
    /// sent from memory.
    async fn begin(&self, range: ByteRange) -> Result<Option<RangeScan>, StorageError> {
        let scan = match &self.content {
            Content::File { file, .. } if file.may_have_holes() => file.scan(range).await?,
            _ => None,
        };
        if scan.is_none() {
            self.ensure(&[range]).await?;
        }
        Ok(scan)
    }

    fn length(&self) -> u64 {
        match &self.content {
            Content::File { length, .. } => *length,
            Content::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// The bytes of a range that are in its first block.
fn first_part(file: &RangeFile, range: ByteRange) -> ByteRange {
    ByteRange {
        first: range.first,
        last: range.last.min(file.block_last(range.first)),
    }
}

/// Responds to GET or HEAD for `resource`, applying the preconditions and ranges of `headers`.
pub(crate) async fn respond(
    method: &Method,
    headers: &HeaderMap,
    resource: &Resource,
    buffers: &Arc<Buffers>,
    files: Option<&Arc<SendQueue>>,
) -> Response {
    let length = resource.length();
    let modified = resource.modified.as_ref().map(|(seconds, _)| *seconds);
    let validators = Validators {
        etag: resource.etag.as_bytes(),
        modified,
    };
    let now = clock::since_epoch().as_secs();
    let plan = plan(method, headers, length, &validators, now);
    buffers.metrics().range(outcome(&plan));
    let mut response = match plan {
        Plan::NotModified => status_only(StatusCode::NOT_MODIFIED),
        Plan::PreconditionFailed => precondition_failed(),
        Plan::NotSatisfiable => not_satisfiable(length),
        Plan::Full if method == Method::HEAD => {
            status_only(StatusCode::OK).map(|_| Body::new(HeadBody(length)))
        }
        Plan::Full => match length.checked_sub(1) {
            None => status_only(StatusCode::OK),
            Some(last) => {
                let all = ByteRange { first: 0, last };
                single(StatusCode::OK, resource, all, buffers, files).await
            }
        },
        Plan::Part(range) => {
            let partial = StatusCode::PARTIAL_CONTENT;
            let mut response = single(partial, resource, range, buffers, files).await;
            if response.status() != partial {
                return response;
            }
            let text = format!("bytes {}-{}/{length}", range.first, range.last);
            put(
                &mut response,
                CONTENT_RANGE,
                HeaderValue::try_from(text).ok(),
            );
            response
        }
        Plan::Parts(ranges) => multiple(resource, &ranges, length, buffers, files).await,
    };
    if !response.status().is_client_error() && !response.status().is_server_error() {
        describe(&mut response, resource);
    }
    response
}

/// Header fields of every response, with or without a body.
fn describe(response: &mut Response, resource: &Resource) {
    let caching = if resource.immutable {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    put(response, ETAG, Some(resource.etag.clone()));
    for (name, value) in resource.checksum.iter().flatten() {
        put(response, name.clone(), Some(value.clone()));
    }
    put(
        response,
        LAST_MODIFIED,
        resource.modified.as_ref().map(|(_, date)| date.clone()),
    );
    put(
        response,
        CACHE_CONTROL,
        Some(HeaderValue::from_static(caching)),
    );
    put(
        response,
        ACCEPT_RANGES,
        Some(HeaderValue::from_static("bytes")),
    );
    if response.status() != StatusCode::NOT_MODIFIED
        && !response.headers().contains_key(CONTENT_TYPE)
    {
        put(
            response,
            CONTENT_TYPE,
            Some(HeaderValue::from_static(OCTETS)),
        );
    }
}

fn put(response: &mut Response, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        response.headers_mut().insert(name, value);
    }
}

fn outcome(plan: &Plan) -> RangeOutcome {
    match plan {
        Plan::Full => RangeOutcome::Full,
        Plan::Part(_) => RangeOutcome::Single,
        Plan::Parts(_) => RangeOutcome::Multi,
        Plan::NotModified => RangeOutcome::NotModified,
        Plan::PreconditionFailed => RangeOutcome::PreconditionFailed,
        Plan::NotSatisfiable => RangeOutcome::NotSatisfiable,
    }
}

fn status_only(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    // Space for all following fields, so that the map is allocated once.
    response.headers_mut().reserve(12);
    response
}

pub(crate) fn precondition_failed() -> Response {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "precondition_failed",
        "a precondition of the request failed",
    )
    .cause("If-Match or If-Unmodified-Since does not match the resource")
    .remedy("fetch the resource again and use its ETag")
    .into_response()
}

pub(crate) fn not_satisfiable(length: u64) -> Response {
    let mut response = Problem::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "range_not_satisfiable",
        "the ranges cannot be served",
    )
    .cause(format!(
        "the resource has {length} bytes; at most 1024 disjoint ranges are served"
    ))
    .remedy("request ranges within the resource that do not overlap")
    .into_response();
    put(
        &mut response,
        CONTENT_RANGE,
        HeaderValue::try_from(format!("bytes */{length}")).ok(),
    );
    put(
        &mut response,
        ACCEPT_RANGES,
        Some(HeaderValue::from_static("bytes")),
    );
    response
}

/// One range of the resource as the complete body.
async fn single(
    status: StatusCode,
    resource: &Resource,
    range: ByteRange,
    buffers: &Arc<Buffers>,
    files: Option<&Arc<SendQueue>>,
) -> Response {
    let scan = match resource.begin(range).await {
        Ok(scan) => scan,
        Err(error) => return refused(error, buffers),
    };
    buffers.metrics().range_bytes.inc_by(range.length());
    let body = match (&resource.content, scan) {
        (Content::Memory(bytes), _) => Body::from(slice(bytes, range)),
        (Content::File { file, .. }, Some(scan)) => {
            let (place, buffers) = ((Arc::clone(file), range), Arc::clone(buffers));
            Body::new(FileBody::scanning(place, scan, buffers, files))
        }
        (Content::File { file, .. }, None) if files.is_some() && is_sendable(file, range) => {
            let parts = vec![BodyPart::File(range)];
            let (file, buffers) = (Arc::clone(file), Arc::clone(buffers));
            Body::new(FileBody::new(file, parts, buffers, files).checked())
        }
        (Content::File { file, .. }, None) => match small(range.length(), buffers) {
            Some(buffer) => {
                let body = BufferedBody {
                    heads: None,
                    ranges: vec![range],
                };
                match body.read(file, buffer).await {
                    Ok(buffer) => Body::from(buffer.into_bytes()),
                    Err(error) => return unreadable(&error, buffers),
                }
            }
            None => {
                let parts = vec![BodyPart::File(range)];
                let buffers = Arc::clone(buffers);
                Body::new(FileBody::new(Arc::clone(file), parts, buffers, files))
            }
        },
    };
    status_only(status).map(|_| body)
}

/// A multipart body.
async fn multiple(
    resource: &Resource,
    ranges: &[ByteRange],
    length: u64,
    buffers: &Arc<Buffers>,
    files: Option<&Arc<SendQueue>>,
) -> Response {
    if let Err(error) = resource.ensure(ranges).await {
        return refused(error, buffers);
    }
    let sum: u64 = ranges.iter().map(|range| range.length()).sum();
    buffers.metrics().range_bytes.inc_by(sum);
    let multipart = Multipart::new(OCTETS, length);
    let media_type = multipart.media_type();
    let around = (ranges.len() * PART_HEAD_BYTES_MAX + multipart.tail().len()) as u64;
    let body = match &resource.content {
        Content::Memory(bytes) => Body::from(in_memory(&multipart, bytes, ranges)),
        Content::File { file, .. } => match small(sum + around, buffers) {
            Some(buffer) => {
                let body = BufferedBody {
                    heads: Some(multipart),
                    ranges: ranges.to_vec(),
                };
                match body.read(file, buffer).await {
                    Ok(buffer) => Body::from(buffer.into_bytes()),
                    Err(error) => return unreadable(&error, buffers),
                }
            }
            None => {
                let parts = body_parts(&multipart, ranges);
                let buffers = Arc::clone(buffers);
                Body::new(FileBody::new(Arc::clone(file), parts, buffers, files))
            }
        },
    };
    let mut response = status_only(StatusCode::PARTIAL_CONTENT).map(|_| body);
    put(&mut response, CONTENT_TYPE, Some(media_type));
    response
}

/// Nothing was sent yet, so the failure can be reported.
fn unreadable(error: &io::Error, buffers: &Arc<Buffers>) -> Response {
    buffers.metrics().range_read_failures.inc();
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "file_unreadable",
        "the file cannot be read",
    )
    .cause(error.to_string())
    .remedy("run verify on the storage; it lists what is damaged")
    .into_response()
}

/// Bytes are damaged, or cannot be compared with their checksums.
fn refused(error: StorageError, buffers: &Arc<Buffers>) -> Response {
    buffers.metrics().range_read_failures.inc();
    Problem::from(error).into_response()
}

/// A buffer for a body of up to `length` bytes, if it is small enough to be read before it is sent.
fn small(length: u64, buffers: &Arc<Buffers>) -> Option<Buffer> {
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= LARGE)
        .and_then(|l| buffers.of_size(l))
}

fn slice(bytes: &Bytes, range: ByteRange) -> Bytes {
    let at = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len())
    };
    bytes.slice(at(range.first)..at(range.last.saturating_add(1)))
}

fn in_memory(multipart: &Multipart, bytes: &Bytes, ranges: &[ByteRange]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut head = [0; PART_HEAD_BYTES_MAX];
    for (at, range) in ranges.iter().enumerate() {
        let count = multipart.part_head(at == 0, *range, &mut head);
        body.extend_from_slice(&head[..count]);
        body.extend_from_slice(&slice(bytes, *range));
    }
    body.extend_from_slice(&multipart.tail());
    body
}

fn body_parts(multipart: &Multipart, ranges: &[ByteRange]) -> Vec<BodyPart> {
    let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
    let mut head = [0; PART_HEAD_BYTES_MAX];
    for (at, range) in ranges.iter().enumerate() {
        let count = multipart.part_head(at == 0, *range, &mut head);
        parts.push(BodyPart::Text(Bytes::copy_from_slice(&head[..count])));
        parts.push(BodyPart::File(*range));
    }
    parts.push(BodyPart::Text(Bytes::copy_from_slice(&multipart.tail())));
    parts
}

/// A complete body to be read into one buffer.
struct BufferedBody {
    heads: Option<Multipart>,
    ranges: Vec<ByteRange>,
}

impl BufferedBody {
    /// Reads all ranges from the page cache, or, if one has to wait for the disk, all of them on
    /// the blocking pool.
    async fn read(self, file: &Arc<RangeFile>, mut buffer: Buffer) -> io::Result<Buffer> {
        let is_cached = self.fill(&mut buffer, |buffer, offset| {
            Ok(file.read_cached(buffer, offset)? == buffer.len())
        })?;
        if is_cached {
            return Ok(buffer);
        }
        buffer.metrics().range_blocking_reads.inc();
        let file = Arc::clone(file);
        let scope = io_trace::current();
        let read = tokio::task::spawn_blocking(move || {
            let _inside = scope.map(io_trace::Scope::enter);
            buffer.clear();
            self.fill(&mut buffer, |buffer, offset| {
                file.read_exact(buffer, offset).map(|()| true)
            })?;
            Ok(buffer)
        });
        read.await
            .unwrap_or_else(|ended| Err(io::Error::other(ended)))
    }

    /// Writes text and file bytes in sequence; `read` returns whether it filled its buffer. Returns
    /// false if it did not.
    fn fill(
        &self,
        buffer: &mut Buffer,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<bool>,
    ) -> io::Result<bool> {
        for (at, range) in self.ranges.iter().enumerate() {
            if let Some(multipart) = &self.heads {
                let count = multipart.part_head(at == 0, *range, buffer.free());
                buffer.advance(count);
            }
            let length = usize::try_from(range.length()).map_err(io::Error::other)?;
            if !read(&mut buffer.free()[..length], range.first)? {
                return Ok(false);
            }
            buffer.advance(length);
        }
        if let Some(multipart) = &self.heads {
            buffer.put(&multipart.tail());
        }
        Ok(true)
    }
}

/// The body of a response to HEAD: empty, with the length of the resource.
struct HeadBody(u64);

impl http_body::Body for HeadBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(None)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}
