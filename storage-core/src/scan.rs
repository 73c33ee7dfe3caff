//! Scans the frames of a data file: for recovery, for verification, and for plain leaves.

use std::{io, ops::Range, path::Path, sync::Arc};

use rustix::{
    fs::{Advice, SeekFrom},
    io::Errno,
};
use storage_format::{
    FormatError, FormatErrorKind, LeafId, StorageId,
    checksum::{crc32c, crc32c_combine},
    frame::{FrameHeader, FrameLocation, HEADER_BYTES},
    index_part::PacketEntry,
};

use crate::{Progress, io_thread::Tail, leaf_bytes::LeafReader, read::ReadFile};

/// Bytes per read.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// A window of bytes that are read in ascending order.
pub(crate) struct Window {
    source: Source,
    end: u64,
    bytes: Vec<u8>,
    start: u64,
    /// Counts what is read, and cancels the scan.
    progress: Option<Arc<Progress>>,
}

impl Window {
    /// A window of the file at `path` up to `end`, or to its end if that is before.
    pub(crate) fn of_file(path: &Path, end: u64) -> io::Result<Self> {
        let file = ReadFile::open(path)?;
        // Only a hint: without it the kernel reads ahead less.
        let _ = rustix::fs::fadvise(file.file(), 0, None, Advice::Sequential);
        let end = end.min(file.length()?);
        Ok(Self::new(Source::File(file), end))
    }

    fn new(source: Source, end: u64) -> Self {
        Self {
            source,
            end,
            bytes: Vec::new(),
            start: 0,
            progress: None,
        }
    }

    /// Counts what is read, and fails once `progress` is cancelled.
    pub(crate) fn watched(self, progress: &Arc<Progress>) -> Self {
        Self {
            progress: Some(Arc::clone(progress)),
            ..self
        }
    }

    /// Where the bytes end.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Up to `length` bytes at `offset`, at most [`WINDOW_BYTES`]; fewer at the end.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let window_end = self.start.saturating_add(self.bytes.len() as u64);
        let end = offset.saturating_add(length as u64);
        if offset < self.start || end > window_end {
            self.bytes.resize(WINDOW_BYTES.min(left), 0);
            if let Some(progress) = &self.progress {
                progress.check().map_err(io::Error::other)?;
                progress.add(self.bytes.len() as u64);
            }
            self.source.fill(&mut self.bytes, offset)?;
            self.start = offset;
        }
        let at = offset.saturating_sub(self.start);
        let at = usize::try_from(at).map_err(io::Error::other)?;
        Ok(&self.bytes[at..][..length])
    }

    /// Offset of the first data at or after `from`, as far as the file system reports it; `None`
    /// when only a hole follows.
    pub(crate) fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        let Source::File(file) = &self.source else {
            return Ok(Some(from));
        };
        match rustix::fs::seek(file.file(), SeekFrom::Data(from)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // The file system does not support this.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(from)),
            Err(error) => Err(error.into()),
        }
    }
}

/// A scanned frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanned {
    pub(crate) header: FrameHeader,
    /// Offset of the payload in the data file.
    pub(crate) payload: u64,
}

impl Scanned {
    /// The index entry of the packet.
    pub(crate) fn entry(&self) -> PacketEntry {
        PacketEntry::of_frame(&self.header, self.payload)
    }
}

/// Why a scan stopped.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The bytes are not intact.
    Frame(FormatError),
    /// The bytes cannot be read.
    Io(io::Error),
}

impl From<FormatError> for ScanError {
    fn from(error: FormatError) -> Self {
        Self::Frame(error)
    }
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The bytes of a leaf.
enum Source {
    /// A data file of format version 1, whose bytes are those of the leaf.
    File(ReadFile),
    /// Wherever they are.
    Leaf(LeafReader),
}

impl Source {
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.fill(buffer, offset),
            Self::Leaf(leaf) => leaf.fill(buffer, offset).map(|_| ()),
        }
    }
}

/// Receives bytes of frames as they are read.
pub(crate) type Sink<'s> = dyn FnMut(&[u8]) -> io::Result<()> + 's;

/// Scans frames one after another.
pub(crate) struct FrameScanner {
    window: Window,
    storage: StorageId,
    leaf: LeafId,
    /// The end of the last intact frame; its checksum is maintained only when payloads are read.
    tail: Tail,
    checks_padding: bool,
}

impl FrameScanner {
    /// A scan of the frames of `leaf` from the durable `tail` up to `end`, or to the end of the
    /// file if that is before `end`.
    pub(crate) fn open(
        path: &Path,
        storage: StorageId,
        leaf: LeafId,
        tail: Tail,
        end: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            window: Window::of_file(path, end)?,
            storage,
            leaf,
            tail,
            checks_padding: false,
        })
    }

    /// A scan of the frames of `leaf` from `tail` up to `end`, which the tree knows.
    pub(crate) fn of_leaf(
        reader: LeafReader,
        storage: StorageId,
        leaf: LeafId,
        tail: Tail,
        end: u64,
    ) -> Self {
        Self {
            window: Window::new(Source::Leaf(reader), end),
            storage,
            leaf,
            tail,
            checks_padding: false,
        }
    }

    /// The same scan, which also checks what is between a payload and the next frame. Other scans
    /// compare the checksum of the leaf, or do not need those bytes.
    pub(crate) fn with_padding(self) -> Self {
        Self {
            checks_padding: true,
            ..self
        }
    }

    /// The same scan, which `progress` counts and cancels.
    pub(crate) fn watched(self, progress: &Arc<Progress>) -> Self {
        Self {
            window: self.window.watched(progress),
            ..self
        }
    }

    /// The end of the last intact frame.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Where the scan ends.
    pub(crate) fn end(&self) -> u64 {
        self.window.end
    }

    /// The next frame; with `checks_payload`, its payload is read and checked.
    pub(crate) fn next(&mut self, checks_payload: bool) -> Result<Option<Scanned>, ScanError> {
        self.scan(checks_payload, &mut |_| Ok(()))
    }

    /// The next frame, whose payload is checked; `sink` gets its bytes in order.
    pub(crate) fn next_into(&mut self, sink: &mut Sink<'_>) -> Result<Option<Scanned>, ScanError> {
        self.scan(true, sink)
    }

    fn scan(
        &mut self,
        checks_payload: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Scanned>, ScanError> {
        let start = self.tail.length;
        if start >= self.window.end {
            return Ok(None);
        }
        let location = FrameLocation {
            storage: self.storage,
            leaf: self.leaf,
            offset: start,
        };
        let mut tail = self.tail;
        let bytes = self
            .window
            .bytes(start, HEADER_BYTES)
            .map_err(ScanError::Io)?;
        let header = FrameHeader::decode(bytes, location).map_err(ScanError::Frame)?;
        tail.extend(bytes);
        sink(bytes).map_err(ScanError::Io)?;
        let payload = start.saturating_add(HEADER_BYTES as u64);
        let end = start.saturating_add(header.frame_bytes());
        if end > self.window.end {
            let kind = FormatErrorKind::Truncated {
                needed: header.frame_bytes(),
                available: self.window.end.saturating_sub(start),
            };
            let error = FormatError {
                what: "frame",
                offset: start,
                kind,
            };
            return Err(ScanError::Frame(error));
        }
        if checks_payload {
            let payload_end = payload.saturating_add(u64::from(header.stored_size));
            let checksum = self
                .read_range(payload..payload_end, &mut tail, sink)
                .map_err(ScanError::Io)?;
            if checksum != header.stored_checksum {
                let kind = FormatErrorKind::Checksum {
                    stored: header.stored_checksum,
                    computed: checksum,
                };
                let error = FormatError {
                    what: "frame payload",
                    offset: payload,
                    kind,
                };
                return Err(ScanError::Frame(error));
            }
            let padding = self
                .read_range(payload_end..end, &mut tail, sink)
                .map_err(ScanError::Io)?;
            if self.checks_padding {
                check_padding(payload_end..end, padding)?;
            }
        }
        assert!(
            !checks_payload || tail.length == end,
            "the checksum of the tail covers every byte of the frame"
        );
        tail.length = end;
        self.tail = tail;
        Ok(Some(Scanned { header, payload }))
    }

    /// CRC32C of a range; also moves `tail` past it, and passes the bytes on.
    fn read_range(
        &mut self,
        range: Range<u64>,
        tail: &mut Tail,
        sink: &mut Sink<'_>,
    ) -> io::Result<u32> {
        let mut at = range.start;
        let mut checksum = 0;
        while at < range.end {
            let left = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = self.window.bytes(at, left.min(WINDOW_BYTES))?;
            let length = bytes.len();
            let part = crc32c(bytes);
            tail.extend_summed(bytes, part);
            sink(bytes)?;
            // A payload is nearly always in one window, and then this is its checksum.
            checksum = match u32::try_from(length) {
                Ok(length) if at > range.start => crc32c_combine(checksum, part, length),
                _ => part,
            };
            at = at.saturating_add(length as u64);
        }
        Ok(checksum)
    }

    /// Offset of the first intact frame header at or after `from`; distinguishes a torn tail from
    /// damage in the middle.
    ///
    /// Most of the searched bytes are preallocated space: holes are not read, and
    /// zeros are skipped word by word.
    pub(crate) fn find_frame(&mut self, from: u64) -> io::Result<Option<u64>> {
        const STEP: usize = storage_format::frame::ALIGNMENT;
        const STEP_LENGTH: u64 = STEP as u64;
        let Some(mut at) = from.checked_next_multiple_of(STEP_LENGTH) else {
            return Ok(None);
        };
        while at.saturating_add(HEADER_BYTES as u64) <= self.window.end {
            match self.window.next_data(at)? {
                Some(data) => at = at.max(data.saturating_sub(data % STEP_LENGTH)),
                None => return Ok(None),
            }
            let (storage, leaf) = (self.storage, self.leaf);
            let bytes = self.window.bytes(at, WINDOW_BYTES)?;
            for (word, start) in bytes.chunks_exact(STEP).zip((0..).step_by(STEP)) {
                if word == [0; STEP] {
                    continue;
                }
                let header = bytes.get(start..).and_then(|rest| rest.get(..HEADER_BYTES));
                let Some(header) = header else {
                    break;
                };
                let offset = at.saturating_add(start as u64);
                let location = FrameLocation {
                    storage,
                    leaf,
                    offset,
                };
                if FrameHeader::decode(header, location).is_ok() {
                    return Ok(Some(offset));
                }
            }
            // The last words of a window are searched again as the first of the next.
            let searched = bytes.len().saturating_sub(HEADER_BYTES);
            let searched = searched.saturating_sub(searched % STEP).max(STEP);
            at = at.saturating_add(searched as u64);
        }
        Ok(None)
    }

    /// Resumes at the first intact frame header at or after `from`; `false` when there is none.
    /// The checksum of the tail is invalid after this.
    pub(crate) fn skip_to_frame(&mut self, from: u64) -> io::Result<bool> {
        let found = self.find_frame(from)?;
        if let Some(offset) = found {
            self.tail.length = offset;
        }
        Ok(found.is_some())
    }
}

/// Refuses padding of a frame that is not zeros, by its checksum.
fn check_padding(range: Range<u64>, checksum: u32) -> Result<(), FormatError> {
    const ZEROS: [u8; storage_format::frame::ALIGNMENT] = [0; storage_format::frame::ALIGNMENT];
    let length = range.end.saturating_sub(range.start);
    let zeros = usize::try_from(length)
        .ok()
        .and_then(|length| ZEROS.get(..length));
    let computed = zeros.map_or(0, crc32c);
    if zeros.is_some() && checksum == computed {
        return Ok(());
    }
    Err(FormatError {
        what: "frame padding",
        offset: range.start,
        kind: FormatErrorKind::Checksum {
            stored: computed,
            computed: checksum,
        },
    })
}

#[cfg(test)]
mod tests {
    use storage_format::{Codec, StreamPosition, frame::Facts};

    use std::os::unix::fs::FileExt;

    use super::*;

    const LEAF: LeafId = LeafId(7);

    fn storage() -> StorageId {
        StorageId::from_bytes([3; 16])
    }

    fn header_at(offset: u64) -> [u8; HEADER_BYTES] {
        let header = FrameHeader {
            codec: Codec::None,
            stored_size: 1,
            raw_size: 1,
            number: 0,
            position: StreamPosition::default(),
            arrival: 0,
            facts: Facts::default(),
            stored_checksum: 0,
            raw_checksum: 0,
        };
        let location = FrameLocation {
            storage: storage(),
            leaf: LEAF,
            offset,
        };
        header.encode(location)
    }

    /// A sparse file with frame headers at `offsets` is searched from `from`.
    fn check(offsets: &[u64], length: u64, from: u64, found: Option<u64>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        for &offset in offsets {
            file.as_file()
                .write_all_at(&header_at(offset), offset)
                .unwrap();
        }
        file.as_file().set_len(length).unwrap();
        let tail = Tail::default();
        let mut scanner = FrameScanner::open(file.path(), storage(), LEAF, tail, u64::MAX).unwrap();
        assert_eq!(
            scanner.find_frame(from).unwrap(),
            found,
            "{offsets:?} from {from}"
        );
    }

    #[test]
    fn frames_are_found_after_holes_and_across_windows() {
        const WINDOW: u64 = WINDOW_BYTES as u64;
        check(&[], 3 * WINDOW, 0, None);
        check(&[512], 600, 0, Some(512));
        check(&[512], 599, 0, None);
        check(&[512], 2 * WINDOW, 513, None);
        for near in (0..200).step_by(8) {
            let offset = WINDOW - 104 + near;
            check(&[offset], 3 * WINDOW, 0, Some(offset));
            check(&[0, offset], 3 * WINDOW, 8, Some(offset));
        }
        check(&[40 * WINDOW + 8], 64 * WINDOW, 16, Some(40 * WINDOW + 8));
    }
}
