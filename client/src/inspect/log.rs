//! Prints data files of a log, batch by batch.
//!
//! A batch that is not intact does not end the document: the next intact header of the file shows
//! where it continues, and whether the lost batches were durable.

use std::io::{self, Write};

use serde_json::{Value, json};
use storage_format::data_file::{self, DataFileHeader};
use storage_format::frame::FrameLocation;
use storage_format::log::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES, LogFileHeader,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use storage_format::{DataFileId, FormatError, FormatErrorKind, StorageId};

use super::frames::{FrameReader, NextFrame};
use super::{InspectError, Inspection, damaged, frame, hex, leaf_header};

const BLOCK_LENGTH: u64 = BLOCK_BYTES as u64;

/// A walk over the batches of a file.
struct Batches {
    storage: StorageId,
    file: DataFileId,
    salt: u64,
    /// Length of the file.
    length: u64,
    /// Where the next batch begins, and what its header must contain.
    offset: u64,
    batch: u64,
    chain: u32,
    /// Whether batches before the next one are lost: its number and chain are then unknown.
    is_interrupted: bool,
    damage: Option<FormatError>,
    /// Number of the first batch that is damaged.
    lost: Option<u64>,
    /// Whether a later batch proves that the lost one was durable.
    was_durable: bool,
}

/// What is at the start of a block.
enum NextBatch {
    Intact(BatchHeader, [u8; BATCH_HEADER_BYTES]),
    Damaged(FormatError),
    Zeros,
}

impl<W: Write> Inspection<'_, W> {
    /// A data file of a log, format version 2.
    pub(super) fn log_file(&mut self) -> Result<bool, InspectError> {
        let bytes = self.read_at(0, FILE_HEADER_BYTES)?;
        let header = LogFileHeader::decode_any(&bytes);
        let header = header.map_err(|error| damaged(self.path, &error))?;
        self.put_open_object(&json!({ "role": "data", "header": file_header(&header) }))?;
        let mut frames = self.frames(FILE_HEADER_BYTES as u64)?;
        let is_whole = if header.is_arranged {
            self.arranged_segments(&header, &mut frames)?
        } else {
            self.batches(&header, &mut frames)?
        };
        self.out.write_all(b"\n")?;
        Ok(is_whole)
    }

    fn batches(
        &mut self,
        header: &LogFileHeader,
        frames: &mut FrameReader,
    ) -> Result<bool, InspectError> {
        let mut batches = Batches::new(header, self.length);
        let mut end = batches.offset;
        self.out.write_all(br#","batches":["#)?;
        while let Some((header, bytes)) = batches.next(frames).map_err(self.failed())? {
            self.put_comma(end > FILE_HEADER_BYTES as u64)?;
            if let Some(error) = self.batch(&batches, &header, frames)? {
                batches.lose(header.number, error);
            }
            batches.accept(&header, &bytes);
            end = batches.offset;
        }
        write!(
            self.out,
            r#"],"batches_end":{end},"length":{}"#,
            self.length
        )?;
        if batches.damage.is_some() {
            let was_durable = batches.was_durable;
            write!(self.out, r#","damage_was_durable":{was_durable}"#)?;
        }
        self.close_object(batches.damage.map(|error| error.to_string()))
    }

    /// Prints the next batch, of which the header is intact; returns what is damaged.
    fn batch(
        &mut self,
        batches: &Batches,
        header: &BatchHeader,
        frames: &mut FrameReader,
    ) -> Result<Option<FormatError>, InspectError> {
        let at = batches.offset;
        self.put_open_object(&batch(header, at))?;
        self.out.write_all(br#","segments":["#)?;
        frames.headers_checksum = 0;
        let end = at + header.length;
        let mut damage = batches.check_order(header).err();
        for index in 0..header.segments {
            let found = self.segment(batches.storage, index > 0, end, frames)?;
            let ends = found.as_ref().is_some_and(|found| found.ends);
            damage = damage.or(found.map(|found| found.error));
            if ends {
                break;
            }
        }
        if damage.is_none() && frames.offset() != end {
            damage = Some(fault("batch", at, "length"));
        }
        let (stored, computed) = (header.headers_checksum, frames.headers_checksum);
        if damage.is_none() && stored != computed {
            let kind = FormatErrorKind::Checksum { stored, computed };
            let (what, offset) = ("headers of a batch", at);
            damage = Some(FormatError { what, offset, kind });
        }
        self.out.write_all(b"]")?;
        self.close_object(damage.as_ref().map(ToString::to_string))?;
        Ok(damage)
    }

    /// Prints the segment at the position of `frames`, which is before `end`.
    fn segment(
        &mut self,
        storage: StorageId,
        follows: bool,
        end: u64,
        frames: &mut FrameReader,
    ) -> Result<Option<SegmentDamage>, InspectError> {
        let at = frames.offset();
        let bytes = frames.headers(SEGMENT_HEADER_BYTES);
        let segment = match SegmentHeader::decode(&bytes.map_err(self.failed())?, at) {
            Ok(segment) => segment,
            Err(error) => return Ok(Some(SegmentDamage { error, ends: true })),
        };
        self.put_comma(follows)?;
        let mut place = FrameLocation {
            storage,
            leaf: segment.leaf,
            offset: segment.leaf_offset,
        };
        let mut bytes_at = frames.offset();
        let mut leaf = None;
        let mut damage = None;
        if segment.leaf_offset == 0 || segment.repeats_leaf_header {
            let bytes = frames.headers(data_file::HEADER_BYTES);
            match leaf_header_of(&bytes.map_err(self.failed())?, bytes_at, place) {
                Ok(header) => leaf = Some(leaf_header(&header)),
                Err(error) => damage = Some(error),
            }
            if segment.repeats_leaf_header {
                bytes_at = frames.offset();
            } else {
                place.offset = data_file::HEADER_BYTES as u64;
            }
        }
        let segment_end = bytes_at.saturating_add(segment.length);
        self.put_open_object(&json!({
            "leaf": segment.leaf.to_string(), "leaf_offset": segment.leaf_offset,
            "length": segment.length, "offset": bytes_at, "leaf_header": leaf,
        }))?;
        let ends = segment_end > end;
        if ends {
            damage.get_or_insert(fault("segment", at, "length"));
        } else {
            let leaf_end = segment.leaf_offset + segment.length;
            let error = self.frames_of_segment(place, leaf_end, frames)?;
            damage = damage.or(error);
            if frames.offset() != segment_end {
                damage.get_or_insert(fault("segment", at, "length"));
                frames.seek(segment_end).map_err(self.failed())?;
            }
        }
        self.close_object(damage.as_ref().map(ToString::to_string))?;
        Ok(damage.map(|error| SegmentDamage { error, ends }))
    }

    /// Prints the frames of a segment from `place`; returns what is damaged.
    fn frames_of_segment(
        &mut self,
        mut place: FrameLocation,
        leaf_end: u64,
        frames: &mut FrameReader,
    ) -> Result<Option<FormatError>, InspectError> {
        let mut damage = None;
        let mut follows = false;
        self.out.write_all(br#","frames":["#)?;
        while place.offset < leaf_end {
            let at = frames.offset();
            let (header, error) = match frames.next(place).map_err(self.failed())? {
                NextFrame::Intact(header) => (header, None),
                NextFrame::DamagedPayload(header, error) => (header, Some(error)),
                NextFrame::Damaged(error) => {
                    damage.get_or_insert(error);
                    break;
                }
                NextFrame::End => {
                    damage.get_or_insert(fault("frame header", at, "magic"));
                    break;
                }
            };
            damage = damage.or(error);
            self.put_comma(follows)?;
            follows = true;
            let mut shown = frame(&header, at);
            shown["leaf_offset"] = json!(place.offset);
            self.put(&shown)?;
            place.offset += header.frame_bytes();
        }
        self.out.write_all(b"]")?;
        Ok(damage)
    }

    /// An arranged file: its segments follow the file header.
    fn arranged_segments(
        &mut self,
        header: &LogFileHeader,
        frames: &mut FrameReader,
    ) -> Result<bool, InspectError> {
        let mut damage = None;
        self.out.write_all(br#","segments":["#)?;
        while frames.offset() < self.length {
            let follows = frames.offset() > FILE_HEADER_BYTES as u64;
            let Some(found) = self.segment(header.storage, follows, self.length, frames)? else {
                continue;
            };
            damage.get_or_insert(found.error);
            if found.ends {
                break;
            }
        }
        write!(self.out, r#"],"length":{}"#, self.length)?;
        self.close_object(damage.map(|error| error.to_string()))
    }
}

/// Damage in a segment, and whether nothing after it can be located.
struct SegmentDamage {
    error: FormatError,
    ends: bool,
}

impl Batches {
    fn new(header: &LogFileHeader, length: u64) -> Self {
        Self {
            storage: header.storage,
            file: header.file,
            salt: header.salt,
            length,
            offset: FILE_HEADER_BYTES as u64,
            batch: header.first_batch,
            chain: header.chain,
            is_interrupted: false,
            damage: None,
            lost: None,
            was_durable: false,
        }
    }

    /// The header of the next batch that has an intact one; what is before it is lost.
    fn next(
        &mut self,
        frames: &mut FrameReader,
    ) -> io::Result<Option<(BatchHeader, [u8; BATCH_HEADER_BYTES])>> {
        let mut fault_here = None;
        let from = self.offset;
        while self.offset < self.length {
            match self.read(frames)? {
                NextBatch::Intact(header, bytes) => {
                    if self.offset > from {
                        let error = fault_here.unwrap_or(fault("batch header", from, "magic"));
                        self.lose(self.batch, error);
                        self.is_interrupted = true;
                    }
                    let is_proof = |lost| header.durable_mark > lost;
                    self.was_durable |= self.lost.is_some_and(is_proof);
                    return Ok(Some((header, bytes)));
                }
                NextBatch::Damaged(error) if self.offset == from => fault_here = Some(error),
                NextBatch::Damaged(_) | NextBatch::Zeros => {}
            }
            self.offset += BLOCK_LENGTH;
        }
        if let Some(error) = fault_here {
            self.lose(self.batch, error);
        }
        Ok(None)
    }

    /// Reads the batch header at the current offset.
    fn read(&self, frames: &mut FrameReader) -> io::Result<NextBatch> {
        let offset = self.offset;
        frames.seek(offset)?;
        let bytes = frames.headers(BATCH_HEADER_BYTES)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(NextBatch::Zeros);
        }
        let location = BatchLocation {
            storage: self.storage,
            file: self.file,
            offset,
        };
        let header = match BatchHeader::decode(&bytes, location) {
            Ok(header) => header,
            Err(error) => return Ok(NextBatch::Damaged(error)),
        };
        let (needed, available) = (header.padded_length(), self.length - offset);
        if header.salt != self.salt {
            return Ok(NextBatch::Damaged(order(offset, "salt")));
        }
        if needed > available {
            let kind = FormatErrorKind::Truncated { needed, available };
            let what = "batch";
            return Ok(NextBatch::Damaged(FormatError { what, offset, kind }));
        }
        Ok(match bytes.try_into() {
            Ok(bytes) => NextBatch::Intact(header, bytes),
            Err(_) => NextBatch::Zeros,
        })
    }

    /// Checks that a batch at the current offset follows the one before.
    fn check_order(&self, header: &BatchHeader) -> Result<(), FormatError> {
        if self.is_interrupted {
            return Ok(());
        }
        if header.number != self.batch {
            return Err(order(self.offset, "number"));
        }
        if header.chain != self.chain {
            return Err(order(self.offset, "chain"));
        }
        Ok(())
    }

    fn lose(&mut self, batch: u64, error: FormatError) {
        self.damage.get_or_insert(error);
        self.lost.get_or_insert(batch);
    }

    /// Continues after a batch at the current offset.
    fn accept(&mut self, header: &BatchHeader, bytes: &[u8; BATCH_HEADER_BYTES]) {
        self.offset += header.padded_length();
        self.batch = header.number.saturating_add(1);
        self.chain = BatchHeader::checksum_of(bytes);
        self.is_interrupted = false;
    }
}

/// The header of the leaf of `place` in bytes at offset `at` of the file.
fn leaf_header_of(
    bytes: &[u8],
    at: u64,
    place: FrameLocation,
) -> Result<DataFileHeader, FormatError> {
    let header = DataFileHeader::decode(bytes).map_err(|error| error.shifted(at))?;
    if (header.storage, header.leaf) == (place.storage, place.leaf) {
        return Ok(header);
    }
    Err(FormatError {
        what: "leaf header",
        offset: at,
        kind: FormatErrorKind::Foreign,
    })
}

fn order(offset: u64, name: &'static str) -> FormatError {
    FormatError {
        what: "batch header",
        offset,
        kind: FormatErrorKind::Order { name },
    }
}

fn fault(what: &'static str, offset: u64, name: &'static str) -> FormatError {
    FormatError {
        what,
        offset,
        kind: FormatErrorKind::Field { name },
    }
}

fn file_header(header: &LogFileHeader) -> Value {
    let previous = header
        .previous
        .map(|previous| json!({ "file": previous.file.to_string(), "length": previous.length }));
    let mut shown = json!({
        "version": storage_format::log::LOG_VERSION, "storage": header.storage,
        "file": header.file.to_string(), "is_arranged": header.is_arranged,
        "salt": format!("{:016x}", header.salt), "created": header.created,
        "first_batch": header.first_batch, "previous": previous, "chain": hex(header.chain),
    });
    if let Some(replaced) = header.replaces {
        shown["replaces"] = json!({
            "file": replaced.file.to_string(), "length": replaced.length,
            "next_batch": replaced.next_batch, "chain": hex(replaced.chain),
            "arranged_length": replaced.arranged_length,
        });
    }
    shown
}

fn batch(header: &BatchHeader, offset: u64) -> Value {
    json!({
        "number": header.number, "durable_mark": header.durable_mark, "offset": offset,
        "length": header.length, "chain": hex(header.chain),
        "headers_checksum": hex(header.headers_checksum),
    })
}
