//! Scans the batches of a data file of a log.

use std::{io, ops::Range, path::Path, sync::Arc};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind, LeafId, StorageId,
    checksum::{crc32c, crc32c_append},
    data_file::{DataFileHeader, HEADER_BYTES as LEAF_HEADER_BYTES},
    frame::{FrameHeader, FrameLocation, HEADER_BYTES},
    index_part::{Extent, LogPosition, PacketEntry},
    log::{
        BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES,
        LogFileHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
    },
};

use crate::{
    Progress,
    io_thread::Tail,
    scan::{ScanError, WINDOW_BYTES, Window},
};

const BLOCK_LENGTH: u64 = BLOCK_BYTES as u64;
/// What is read to find the header of the last batch; few batches are longer.
const LAST_PIECE_BYTES: u64 = 64 << 10;

/// The bytes of one leaf in a batch.
#[derive(Debug)]
pub(crate) struct FoundSegment {
    pub(crate) leaf: LeafId,
    /// The header of the leaf, where the file contains it.
    pub(crate) leaf_header: Option<DataFileHeader>,
    pub(crate) entries: Vec<PacketEntry>,
    pub(crate) extent: Extent,
    /// CRC32C of the bytes.
    pub(crate) checksum: u32,
}

/// A batch that is intact.
#[derive(Debug)]
pub(crate) struct FoundBatch {
    pub(crate) segments: Vec<FoundSegment>,
    /// The position after it.
    pub(crate) end: LogPosition,
}

/// Scans batches one after another.
pub(crate) struct LogScanner {
    window: Window,
    storage: StorageId,
    file: DataFileId,
    salt: u64,
    /// Where the next batch begins, and what it must contain.
    position: LogPosition,
    /// The end of the last intact batch.
    tail: Tail,
    /// Whether a damaged payload ends the scan.
    is_strict: bool,
    /// Whether bytes that are not zero after a batch end the scan.
    checks_padding: bool,
}

impl LogScanner {
    /// Reads the header of the file at `path`.
    pub(crate) fn header(
        path: &Path,
        storage: StorageId,
        file: DataFileId,
    ) -> io::Result<Result<LogFileHeader, FormatError>> {
        let opened = crate::read::ReadFile::open(path)?;
        let length = usize::try_from(opened.length()?).unwrap_or(usize::MAX);
        let bytes = opened.read(0, length.min(FILE_HEADER_BYTES))?;
        Ok(LogFileHeader::decode(&bytes, storage, file))
    }

    /// A scan of the file with this header from its first batch, up to `limit` bytes.
    pub(crate) fn of_file(path: &Path, header: &LogFileHeader, limit: u64) -> io::Result<Self> {
        let mut tail = Tail::default();
        tail.extend(&header.encode());
        let position = LogPosition {
            file: header.file,
            offset: FILE_HEADER_BYTES as u64,
            batch: header.first_batch,
            chain: header.chain,
        };
        Self::after(path, header, position, tail, limit)
    }

    /// A scan of the file with this header from `position`, where `tail` ends.
    pub(crate) fn after(
        path: &Path,
        header: &LogFileHeader,
        position: LogPosition,
        tail: Tail,
        limit: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            window: Window::of_file(path, limit)?,
            storage: header.storage,
            file: header.file,
            salt: header.salt,
            position,
            tail,
            is_strict: true,
            checks_padding: false,
        })
    }

    /// The same scan, which also finds damage between batches, where nothing is stored.
    pub(crate) fn with_padding(self) -> Self {
        Self {
            checks_padding: true,
            ..self
        }
    }

    /// The same scan, which also finds packets with a damaged payload if it is not `is_strict`:
    /// their headers are intact, and reading such a packet finds the damage again.
    pub(crate) fn strict(self, is_strict: bool) -> Self {
        Self { is_strict, ..self }
    }

    /// The same scan, which `progress` counts and cancels.
    pub(crate) fn watched(self, progress: &Arc<Progress>) -> Self {
        Self {
            window: self.window.watched(progress),
            ..self
        }
    }

    /// The end of the last intact batch.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Where the next batch begins.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Bytes of the file, or the limit if that is before its end.
    pub(crate) fn end(&self) -> u64 {
        self.window.end()
    }

    /// The next batch; `None` at the end of the scan.
    pub(crate) fn next(&mut self) -> Result<Option<FoundBatch>, ScanError> {
        let offset = self.position.offset;
        if offset >= self.window.end() {
            return Ok(None);
        }
        let location = self.location(offset);
        let bytes = self.window.bytes(offset, BATCH_HEADER_BYTES)?;
        let header = BatchHeader::decode(bytes, location)?;
        let mut batch = BatchScan {
            tail: self.tail,
            chain: 0,
            headers_checksum: 0,
            at: offset,
        };
        if let Ok(head) = bytes.try_into() {
            batch.chain = BatchHeader::checksum_of(head);
        }
        batch.tail.extend(bytes);
        batch.at = offset.saturating_add(BATCH_HEADER_BYTES as u64);
        self.check_order(&header)?;
        let end = offset.saturating_add(header.length);
        let padded = offset.saturating_add(header.padded_length());
        self.check_inside(offset, padded)?;
        let mut segments = Vec::new();
        for _ in 0..header.segments {
            segments.push(self.segment(&mut batch, end)?);
        }
        let fault = |name| fault("batch", offset, name);
        if batch.at != end {
            return Err(fault("length").into());
        }
        if batch.headers_checksum != header.headers_checksum {
            return Err(fault("checksum of the headers").into());
        }
        let padding = usize::try_from(padded.saturating_sub(end)).map_err(io::Error::other)?;
        let padding = self.window.bytes(end, padding)?;
        if self.checks_padding && padding.iter().any(|byte| *byte != 0) {
            return Err(fault("padding").into());
        }
        batch.tail.extend(padding);
        self.tail = batch.tail;
        self.position = LogPosition {
            file: self.file,
            offset: padded,
            batch: header.number.saturating_add(1),
            chain: batch.chain,
        };
        assert_eq!(
            self.tail.length, padded,
            "the checksum of the tail covers every byte of the batch"
        );
        Ok(Some(FoundBatch {
            segments,
            end: self.position,
        }))
    }

    /// The next segment of an arranged file; `None` at its end.
    pub(crate) fn next_segment(&mut self) -> Result<Option<FoundSegment>, ScanError> {
        let (start, end) = (self.tail.length, self.window.end());
        if start >= end {
            return Ok(None);
        }
        let mut scan = BatchScan {
            tail: self.tail,
            chain: 0,
            headers_checksum: 0,
            at: start,
        };
        let segment = self.segment(&mut scan, end)?;
        self.tail = scan.tail;
        Ok(Some(segment))
    }

    fn location(&self, offset: u64) -> BatchLocation {
        BatchLocation {
            storage: self.storage,
            file: self.file,
            offset,
        }
    }

    /// Whether a batch is the one that follows; others remain of an earlier use of the blocks.
    fn check_order(&self, header: &BatchHeader) -> Result<(), FormatError> {
        let wanted = &self.position;
        let name = if header.salt != self.salt {
            "salt"
        } else if header.number != wanted.batch {
            "number"
        } else if header.chain != wanted.chain && !crate::sabotaged!("skip-chain") {
            "chain"
        } else {
            return Ok(());
        };
        let kind = FormatErrorKind::Order { name };
        Err(FormatError {
            what: "batch header",
            offset: wanted.offset,
            kind,
        })
    }

    fn check_inside(&self, offset: u64, end: u64) -> Result<(), FormatError> {
        let available = self.window.end();
        if end <= available {
            return Ok(());
        }
        let kind = FormatErrorKind::Truncated {
            needed: end.saturating_sub(offset),
            available: available.saturating_sub(offset),
        };
        Err(FormatError {
            what: "batch",
            offset,
            kind,
        })
    }

    fn segment(&mut self, batch: &mut BatchScan, end: u64) -> Result<FoundSegment, ScanError> {
        let start = batch.at;
        let bytes = batch.headers(&mut self.window, SEGMENT_HEADER_BYTES, end)?;
        let header = SegmentHeader::decode(bytes, start)?;
        let mut leaf_header = None;
        if header.repeats_leaf_header {
            let at = batch.at;
            let bytes = batch.headers(&mut self.window, LEAF_HEADER_BYTES, end)?;
            leaf_header = Some(leaf_header_of(bytes, at, self.storage, header.leaf)?);
        }
        let mut run = Tail::default();
        let extent = Extent {
            leaf_offset: header.leaf_offset,
            file: self.file,
            offset: batch.at,
            length: header.length,
        };
        let segment_end = batch.at.saturating_add(header.length);
        if segment_end > end {
            return Err(fault("segment", start, "length").into());
        }
        if header.leaf_offset == 0 {
            let at = batch.at;
            let bytes = batch.headers(&mut self.window, LEAF_HEADER_BYTES, segment_end)?;
            run.extend(bytes);
            leaf_header = Some(leaf_header_of(bytes, at, self.storage, header.leaf)?);
        }
        let mut entries = Vec::new();
        while batch.at < segment_end {
            entries.push(self.frame(batch, &header, &mut run, segment_end)?);
        }
        Ok(FoundSegment {
            leaf: header.leaf,
            leaf_header,
            entries,
            extent,
            checksum: run.checksum,
        })
    }

    fn frame(
        &mut self,
        batch: &mut BatchScan,
        segment: &SegmentHeader,
        run: &mut Tail,
        end: u64,
    ) -> Result<PacketEntry, ScanError> {
        let at = batch.at;
        let location = FrameLocation {
            storage: self.storage,
            leaf: segment.leaf,
            offset: segment.leaf_offset.saturating_add(run.length),
        };
        let bytes = batch.headers(&mut self.window, HEADER_BYTES, end)?;
        let header = FrameHeader::decode(bytes, location).map_err(|error| FormatError {
            offset: at,
            ..error
        })?;
        run.extend(bytes);
        let payload = batch.at;
        let stored = u64::from(header.stored_size);
        let padding = header
            .frame_bytes()
            .saturating_sub(HEADER_BYTES as u64)
            .saturating_sub(stored);
        if payload.saturating_add(stored).saturating_add(padding) > end {
            return Err(fault("frame", at, "stored size").into());
        }
        let range = payload..payload.saturating_add(stored);
        let before = (*run, batch.tail);
        let checksum = batch.payload(&mut self.window, range, run)?;
        if checksum != header.stored_checksum && !self.is_strict {
            // The checksums are those of the bytes that were written.
            let written = Tail {
                length: stored,
                checksum: header.stored_checksum,
            };
            (*run, batch.tail) = before;
            run.join(written);
            batch.tail.join(written);
        } else if checksum != header.stored_checksum {
            let kind = FormatErrorKind::Checksum {
                stored: header.stored_checksum,
                computed: checksum,
            };
            let error = FormatError {
                what: "frame payload",
                offset: payload,
                kind,
            };
            return Err(error.into());
        }
        let padding = usize::try_from(padding).map_err(io::Error::other)?;
        run.extend(batch.headers(&mut self.window, padding, end)?);
        let offset = location.offset.saturating_add(HEADER_BYTES as u64);
        Ok(PacketEntry::of_frame(&header, offset))
    }

    /// Whether nothing was written at the current position: it is preallocated space.
    pub(crate) fn is_blank(&mut self) -> io::Result<bool> {
        let bytes = self.window.bytes(self.position.offset, BLOCK_BYTES)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Whether a later batch of the file proves that the batch at the current position was durable.
    pub(crate) fn proves_loss(&mut self) -> io::Result<bool> {
        let (salt, lost) = (self.salt, self.position.batch);
        let is_proof = |header: &BatchHeader| header.salt == salt && header.durable_mark > lost;
        let from = self.position.offset.saturating_add(BLOCK_LENGTH);
        self.find_batch(from, is_proof).map(|found| found.is_some())
    }

    /// Whether the last batch before `position` ends there, by its header: it has the number and
    /// the checksum that the position says. The scan must end at the position.
    pub(crate) fn ends_at(&mut self, position: &LogPosition) -> io::Result<bool> {
        let mut end = position.offset;
        let mut piece = LAST_PIECE_BYTES;
        while end > FILE_HEADER_BYTES as u64 {
            let begin = end.saturating_sub(piece).max(FILE_HEADER_BYTES as u64);
            let mut at = end;
            while at > begin {
                at = at.saturating_sub(BLOCK_LENGTH);
                let location = self.location(at);
                // The whole piece is read with its first block.
                self.window.bytes(begin, BLOCK_BYTES)?;
                let bytes = self.window.bytes(at, BATCH_HEADER_BYTES)?;
                let Ok(head) = bytes.try_into() else {
                    return Ok(false);
                };
                if let Ok(header) = BatchHeader::decode(bytes, location)
                    && header.salt == self.salt
                {
                    let next = at.saturating_add(header.padded_length());
                    return Ok(next == position.offset
                        && header.number.saturating_add(1) == position.batch
                        && BatchHeader::checksum_of(head) == position.chain);
                }
            }
            (end, piece) = (begin, WINDOW_BYTES as u64);
        }
        Ok(false)
    }

    /// The first batch header at or after `from` that is wanted.
    pub(crate) fn find_batch(
        &mut self,
        from: u64,
        is_wanted: impl Fn(&BatchHeader) -> bool,
    ) -> io::Result<Option<BatchHeader>> {
        let mut at = from.next_multiple_of(BLOCK_LENGTH);
        while at.saturating_add(BATCH_HEADER_BYTES as u64) <= self.window.end() {
            // Most of the searched bytes are preallocated space.
            match self.window.next_data(at)? {
                Some(data) => at = at.max(data.saturating_sub(data % BLOCK_LENGTH)),
                None => return Ok(None),
            }
            let location = self.location(at);
            let bytes = self.window.bytes(at, BATCH_HEADER_BYTES)?;
            if let Ok(header) = BatchHeader::decode(bytes, location)
                && is_wanted(&header)
            {
                return Ok(Some(header));
            }
            at = at.saturating_add(BLOCK_LENGTH);
        }
        Ok(None)
    }
}

/// The state of a scan inside a batch.
struct BatchScan {
    tail: Tail,
    chain: u32,
    headers_checksum: u32,
    at: u64,
}

impl BatchScan {
    /// Consumes bytes that belong to the headers of the batch, before `end`.
    fn headers<'w>(
        &mut self,
        window: &'w mut Window,
        length: usize,
        end: u64,
    ) -> Result<&'w [u8], ScanError> {
        let after = self.at.saturating_add(length as u64);
        if after > end {
            return Err(fault("batch", self.at, "length").into());
        }
        let bytes = window.bytes(self.at, length)?;
        if bytes.len() < length {
            return Err(fault("batch", self.at, "length").into());
        }
        self.headers_checksum = crc32c_append(self.headers_checksum, bytes);
        self.tail.extend(bytes);
        self.at = after;
        Ok(bytes)
    }

    /// Consumes a payload; returns its CRC32C.
    fn payload(
        &mut self,
        window: &mut Window,
        range: Range<u64>,
        run: &mut Tail,
    ) -> io::Result<u32> {
        let mut payload = Tail::default();
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = window.bytes(at, left.min(WINDOW_BYTES))?;
            let checksum = crc32c(bytes);
            for tail in [&mut payload, &mut *run, &mut self.tail] {
                tail.extend_summed(bytes, checksum);
            }
            at = at.saturating_add(bytes.len() as u64);
        }
        self.at = range.end;
        Ok(payload.checksum)
    }
}

/// The header of `leaf` in bytes at offset `at` of the file.
fn leaf_header_of(
    bytes: &[u8],
    at: u64,
    storage: StorageId,
    leaf: LeafId,
) -> Result<DataFileHeader, FormatError> {
    let header = DataFileHeader::decode(bytes).map_err(|error| error.shifted(at))?;
    if (header.storage, header.leaf) == (storage, leaf) {
        return Ok(header);
    }
    Err(FormatError {
        what: "leaf header",
        offset: at,
        kind: FormatErrorKind::Foreign,
    })
}

fn fault(what: &'static str, offset: u64, name: &'static str) -> FormatError {
    FormatError {
        what,
        offset,
        kind: FormatErrorKind::Field { name },
    }
}
