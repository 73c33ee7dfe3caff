//! The interface through which bytes are read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use io_trace::{FileTag, Scope};
use storage_format::LeafId;
use storage_format::index_part::PacketEntry;

use crate::stamp::Stamp;

/// Reads the bytes of one file, local or remote.
///
/// Implemented here for local files, by the client for remote storages (one multi-range request per
/// call), and by the server for its storages.
pub trait Fetch: Send + Sync {
    /// Name of the file in messages.
    fn place(&self) -> String;

    /// The bytes of each range, in the order of `ranges`, which are sorted and do not overlap.
    ///
    /// # Errors
    ///
    /// When any of the bytes cannot be read; [`io::ErrorKind::UnexpectedEof`] if the file lacks
    /// some of them, [`io::ErrorKind::ConnectionAborted`] if a server sent only some of them.
    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>>;

    /// The parts of `ranges` that the file lacks, because it was cut or because these bytes are
    /// damaged: ascending, not overlapping. Asked after such an error of [`Fetch::fetch`]; nothing
    /// of files whose loss is an error.
    ///
    /// # Errors
    ///
    /// When that is unknown.
    fn lost(&self, _ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }

    /// As [`Fetch::fetch`], and whether the bytes were in the page cache.
    ///
    /// # Errors
    ///
    /// As [`Fetch::fetch`].
    fn fetch_parts(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Part>> {
        let parts = self.fetch(ranges)?.into_iter();
        let unknown = |bytes| Part {
            bytes,
            was_cached: None,
        };
        Ok(parts.map(unknown).collect())
    }

    /// The file in the I/O trace, while one is recorded.
    fn traced(&self) -> Option<TracedFile> {
        None
    }

    /// Whether bytes that were read may be others now: the file was written to since it was opened.
    fn is_changed(&self) -> bool {
        false
    }

    /// Bytes to request at once where there is a choice: large enough to be worth a round trip.
    fn batch_bytes(&self) -> u64 {
        1 << 20
    }

    /// Whether a small range costs little more than its bytes: the file is on a disk of this
    /// machine.
    fn is_near(&self) -> bool {
        false
    }

    /// The packets whose frames begin in a range of a leaf that cannot be read, from elsewhere,
    /// each with its bytes as they were pushed. `None` if there is nowhere else to read them.
    fn packets_in(&self, _range: Range<u64>) -> Option<Vec<FoundPacket>> {
        None
    }

    /// The bytes of one range.
    ///
    /// # Errors
    ///
    /// As [`Fetch::fetch`].
    fn fetch_one(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut parts = self.fetch(std::slice::from_ref(&range))?;
        parts
            .pop()
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A packet that is listed, and its bytes if they can be read.
pub type FoundPacket = (PacketEntry, io::Result<Vec<u8>>);

/// Fetched bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes of the range.
    pub bytes: Vec<u8>,
    /// Whether all of them were in the page cache, if known.
    pub was_cached: Option<bool>,
}

/// A file whose reads and lookups are recorded in the I/O trace.
#[derive(Debug, Clone)]
pub struct TracedFile {
    /// Its name in the trace.
    pub tag: FileTag,
    /// Why and for whom it is read, on any thread.
    pub scope: Scope,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// The leaf that they belong to, if its name does not tell.
    pub leaf: Option<LeafId>,
}

/// A file on this machine.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    /// As it was opened; `None` for a copy.
    stamp: Option<Stamp>,
}

impl LocalFile {
    /// Opens `path`.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<LocalFile> {
        let file = File::open(path)?;
        Ok(LocalFile {
            path: path.to_owned(),
            stamp: file.metadata().ok().and_then(|now| Stamp::of(&now)),
            file,
        })
    }

    /// An open file that messages call `path`.
    pub(crate) fn named(path: &Path, file: File) -> LocalFile {
        LocalFile {
            path: path.to_owned(),
            file,
            stamp: None,
        }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A file on this machine that is opened when it is first read and stays open, so replacing the
/// file does not change what is read.
#[derive(Debug)]
pub struct LazyFile {
    path: PathBuf,
    file: OnceLock<LocalFile>,
}

impl LazyFile {
    /// The file at `path`.
    pub fn new(path: PathBuf) -> LazyFile {
        LazyFile {
            path,
            file: OnceLock::new(),
        }
    }

    fn opened(&self) -> io::Result<&LocalFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let opened = LocalFile::open(&self.path)?;
        Ok(self.file.get_or_init(|| opened))
    }
}

impl Fetch for LazyFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn is_near(&self) -> bool {
        true
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        self.opened()?.fetch(ranges)
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        self.opened()?.lost(ranges)
    }
}

/// Consecutive bytes of a file, read like a file.
pub(crate) struct FileSlice {
    pub(crate) file: Arc<dyn Fetch>,
    pub(crate) range: Range<u64>,
    /// The leaf that they belong to.
    pub(crate) leaf: LeafId,
}

impl FileSlice {
    fn in_file(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let in_file = |range: &Range<u64>| {
            let begin = self.range.start.checked_add(range.start);
            let end = self.range.start.checked_add(range.end);
            let range = begin.zip(end).filter(|(_, end)| *end <= self.range.end);
            let (begin, end) = range.ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(begin..end)
        };
        ranges.iter().map(in_file).collect()
    }
}

impl Fetch for FileSlice {
    fn place(&self) -> String {
        format!("{}: leaf {}", self.file.place(), self.leaf)
    }

    fn is_near(&self) -> bool {
        self.file.is_near()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        self.file.fetch(&self.in_file(ranges)?)
    }

    fn fetch_parts(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Part>> {
        self.file.fetch_parts(&self.in_file(ranges)?)
    }

    fn traced(&self) -> Option<TracedFile> {
        let traced = self.file.traced()?;
        let offset = traced.offset.saturating_add(self.range.start);
        Some(TracedFile {
            offset,
            leaf: Some(self.leaf),
            ..traced
        })
    }

    fn batch_bytes(&self) -> u64 {
        self.file.batch_bytes()
    }
}

/// A file whose bytes are in memory.
pub(crate) struct InMemory {
    pub(crate) place: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether they were in the page cache when they were read.
    pub(crate) was_cached: Option<bool>,
    pub(crate) traced: Option<TracedFile>,
}

impl Fetch for InMemory {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let read = |range: &Range<u64>| {
            let bytes = self.bytes.get(at(range.start)..at(range.end));
            Ok(bytes.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
        };
        ranges.iter().map(read).collect()
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        Ok(past_end(ranges, self.bytes.len() as u64))
    }

    fn fetch_parts(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Part>> {
        let parts = self.fetch(ranges)?.into_iter();
        let part = |bytes| Part {
            bytes,
            was_cached: self.was_cached,
        };
        Ok(parts.map(part).collect())
    }

    fn traced(&self) -> Option<TracedFile> {
        self.traced.clone()
    }
}

/// A file on this machine that is open only while it is read, for readers of many files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedFile(pub PathBuf);

impl Fetch for ClosedFile {
    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn is_near(&self) -> bool {
        true
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        LocalFile::open(&self.0)?.fetch(ranges)
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        LocalFile::open(&self.0)?.lost(ranges)
    }
}

impl Fetch for LocalFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn is_changed(&self) -> bool {
        let now = self.file.metadata().ok();
        let now = now.and_then(|now| Stamp::of(&now));
        let stamps = self.stamp.zip(now);
        stamps.is_some_and(|(before, now)| before.is_changed(&now))
    }

    fn is_near(&self) -> bool {
        true
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let read = |range: &Range<u64>| {
            let len = usize::try_from(range.end.saturating_sub(range.start))
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        };
        ranges.iter().map(read).collect()
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        Ok(past_end(ranges, self.file.metadata()?.len()))
    }
}

/// The parts of ranges that are behind the end of a file of this length.
fn past_end(ranges: &[Range<u64>], length: u64) -> Vec<Range<u64>> {
    let behind = ranges
        .iter()
        .map(|range| range.start.max(length)..range.end);
    behind.filter(|range| range.start < range.end).collect()
}
