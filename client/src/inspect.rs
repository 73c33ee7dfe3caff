//! Prints files of Tracehold as JSON, and verifies them.
//!
//! A file is recognized by its first bytes, not by its name. Data files and index parts are printed
//! packet by packet while they are read, so their size is not limited.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use chunk_index::FileType;
use serde::Serialize;
use serde_json::{Value, json};
use storage_format::agent_file::AgentFile;
use storage_format::cached_file;
use storage_format::checksum::{crc32c, crc32c_append};
use storage_format::data_file::{self, DataFileHeader, LeafPath};
use storage_format::frame::{self, Facts, FrameHeader, FrameLocation};
use storage_format::index_part::{
    ArrayBlock, Footer, IndexPartHeader, LeafEntry, PacketEntry, TRAILER_BYTES, TimeBases, Trailer,
};
use storage_format::limits::ENVELOPE_BODY_BYTES_MAX;
use storage_format::local_file::LocalFile;
use storage_format::storage_file::StorageFile;
use storage_format::{FormatError, FormatErrorKind, StreamPosition};

use crate::ClientError;
use crate::file_content::check_regular;

/// Enough for the header of any file.
const HEAD_BYTES: u64 = 512;
const READ_BYTES: usize = 1 << 20;
/// Maximum size of derived files, which are read into memory.
const DERIVED_BYTES_MAX: u64 = 1 << 30;

/// Writes a file as one JSON document. Returns false if the file is damaged after its header; the
/// document then describes the damage in `damage`.
pub fn inspect(path: &Path, out: &mut impl Write) -> Result<bool, InspectError> {
    let failed = |error| InspectError::from(ClientError::file(path, error));
    check_regular(path)?;
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut head = Vec::new();
    (&mut file)
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(failed)?;
    let mut inspection = Inspection {
        path,
        file,
        length,
        out,
    };
    if let Some(header) = known(path, DataFileHeader::decode(&head))? {
        return inspection.data_file(&header);
    }
    if let Some(header) = known(path, IndexPartHeader::decode(&head))? {
        return inspection.index_part(&header);
    }
    if let Some(file_type) = FileType::of(&head) {
        return inspection.derived(file_type);
    }
    if cached_file::is_cached_file(&head) {
        return inspection.cached();
    }
    inspection.small_file()
}

/// Why a file cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file cannot be read, is not a Tracehold file, or has a damaged header.
    #[error(transparent)]
    Input(#[from] ClientError),
    /// Writing the document failed.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// The decoded header; `None` if the file is of another type.
fn known<T>(path: &Path, decoded: Result<T, FormatError>) -> Result<Option<T>, InspectError> {
    match decoded {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_of_another_type(&error) => Ok(None),
        Err(error) => Err(damaged(path, &error)),
    }
}

/// A file that is shorter than magic and version is of no type.
fn is_of_another_type(error: &FormatError) -> bool {
    match error.kind {
        FormatErrorKind::Magic => true,
        FormatErrorKind::Truncated { available, .. } => available < 10,
        _ => false,
    }
}

fn damaged(path: &Path, error: &impl ToString) -> InspectError {
    ClientError::damaged(path.display().to_string(), error.to_string()).into()
}

struct Inspection<'a, W> {
    path: &'a Path,
    file: File,
    length: u64,
    out: &'a mut W,
}

impl<W: Write> Inspection<'_, W> {
    fn failed(&self) -> impl Fn(io::Error) -> InspectError + use<W> {
        let path = self.path.to_owned();
        move |error| ClientError::file(&path, error).into()
    }

    fn put(&mut self, value: &impl Serialize) -> Result<(), InspectError> {
        serde_json::to_writer(&mut *self.out, value).map_err(io::Error::from)?;
        Ok(())
    }

    fn read_at(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, InspectError> {
        let mut bytes = Vec::with_capacity(length.min(READ_BYTES));
        let read = self
            .file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&mut self.file).take(length as u64).read_to_end(&mut bytes));
        read.map_err(self.failed())?;
        Ok(bytes)
    }

    /// Reads the complete file, up to `max` bytes.
    fn read_whole(&mut self, max: u64) -> Result<Vec<u8>, InspectError> {
        if self.length > max {
            let reason = format!(
                "the file has {} bytes, more than the maximum of {max} for its type",
                self.length
            );
            return Err(damaged(self.path, &reason));
        }
        self.read_at(0, usize::try_from(self.length).unwrap_or(usize::MAX))
    }

    /// Chunk indexes, columns and provenance.
    fn derived(&mut self, file_type: FileType) -> Result<bool, InspectError> {
        let bytes = self.read_whole(DERIVED_BYTES_MAX)?;
        let document = derived::document(file_type, &bytes);
        self.put(&document.map_err(|error| damaged(self.path, &error))?)?;
        self.out.write_all(b"\n")?;
        Ok(true)
    }

    /// The cached result of a query.
    fn cached(&mut self) -> Result<bool, InspectError> {
        let bytes = self.read_whole(DERIVED_BYTES_MAX)?;
        let Some(found) = cached_file::decode(&bytes) else {
            return Err(damaged(self.path, &"cached result with a wrong checksum"));
        };
        let text = |range| String::from_utf8_lossy(&bytes[range]).into_owned();
        let document = json!({
            "role": "cache", "key": text(found.key), "answer": text(found.result),
        });
        self.put(&document)?;
        self.out.write_all(b"\n")?;
        Ok(true)
    }

    /// Storage, agent and local files.
    fn small_file(&mut self) -> Result<bool, InspectError> {
        if self.length > u64::from(ENVELOPE_BODY_BYTES_MAX) {
            return Err(damaged(self.path, &"not a file of Tracehold"));
        }
        let bytes = self.read_at(0, usize::try_from(self.length).unwrap_or(usize::MAX))?;
        let document = if let Some(file) = known(self.path, StorageFile::decode(&bytes))? {
            json!({ "role": "storage", "storage": file })
        } else if let Some(file) = known(self.path, AgentFile::decode(&bytes))? {
            json!({ "role": "agent", "agent": agent(file) })
        } else if let Some(file) = known(self.path, LocalFile::decode(&bytes))? {
            json!({ "role": "local", "local": file })
        } else {
            return Err(damaged(self.path, &"not a file of Tracehold"));
        };
        self.put(&document)?;
        self.out.write_all(b"\n")?;
        Ok(true)
    }

    fn index_part(&mut self, header: &IndexPartHeader) -> Result<bool, InspectError> {
        let damage = |error| damaged(self.path, &error);
        let start = self.length.saturating_sub(TRAILER_BYTES as u64);
        let bytes = self.read_at(start, TRAILER_BYTES)?;
        let trailer = Trailer::decode(&bytes, self.length, header.storage).map_err(damage)?;
        let bytes = self.read_at(trailer.footer_offset, trailer.footer_length as usize)?;
        let footer = Footer::decode(&bytes, &trailer).map_err(damage)?;
        let bases = footer.bases.clone();
        let length = usize::try_from(bases.end - bases.start).unwrap_or(usize::MAX);
        let bytes = self.read_at(bases.start, length)?;
        let bases = TimeBases::decode(&bytes, bases.start).map_err(damage)?;
        let head = json!({
            "storage": header.storage, "ordinal": header.ordinal, "created": header.created,
        });
        write!(self.out, r#"{{"role":"index","header":{head},"leaves":["#)?;
        let mut is_whole = true;
        for (number, entry) in footer.leaves.iter().enumerate() {
            is_whole &= self.leaf(entry, &bases, number > 0)?;
        }
        self.out.write_all(b"]}\n")?;
        Ok(is_whole)
    }

    fn leaf(
        &mut self,
        entry: &LeafEntry,
        bases: &TimeBases,
        follows: bool,
    ) -> Result<bool, InspectError> {
        let range = entry.block_range();
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let block = self.read_at(range.start, length)?;
        let checked = entry
            .check_block(&block)
            .and_then(|()| ArrayBlock::new(entry.entries_in(&block), bases));
        if follows {
            self.out.write_all(b",")?;
        }
        self.put_open_object(&leaf(entry))?;
        self.out.write_all(br#","packets":["#)?;
        let mut damage = checked.as_ref().err().cloned();
        if let Ok(block) = &checked {
            for index in 0..block.len() {
                if index > 0 {
                    self.out.write_all(b",")?;
                }
                match block.get(index) {
                    Ok(entry) => self.put(&packet(&entry))?,
                    Err(error) => {
                        self.put(&Value::Null)?;
                        damage.get_or_insert(error);
                    }
                }
            }
        }
        self.out.write_all(b"]")?;
        self.close_object(damage.map(|error| error.to_string()))
    }

    fn data_file(&mut self, header: &DataFileHeader) -> Result<bool, InspectError> {
        let head = json!({
            "role": "data",
            "header": {
                "storage": header.storage, "leaf": header.leaf.to_string(),
                "leaf_type": header.leaf_type, "path": leaf_path(&header.path),
                "created": header.created,
            },
        });
        self.put_open_object(&head)?;
        self.out.write_all(br#","frames":["#)?;
        let mut place = FrameLocation {
            storage: header.storage,
            leaf: header.leaf,
            offset: data_file::HEADER_BYTES as u64,
        };
        let seeked = self.file.seek(SeekFrom::Start(place.offset));
        seeked.map_err(self.failed())?;
        let file = self.file.try_clone().map_err(self.failed())?;
        let mut frames = BufReader::with_capacity(READ_BYTES, file);
        let mut buffer = vec![0; READ_BYTES];
        let mut damage = None;
        loop {
            let (follows, offset) = (place.offset > data_file::HEADER_BYTES as u64, place.offset);
            let next = next_frame(&mut frames, &mut place, &mut buffer).map_err(self.failed())?;
            let header = match next {
                Frame::End => break,
                Frame::Damaged(error) => {
                    damage = Some(error.to_string());
                    break;
                }
                Frame::Whole(header) => header,
                Frame::DamagedPayload(header, error) => {
                    damage.get_or_insert(error.to_string());
                    header
                }
            };
            if follows {
                self.out.write_all(b",")?;
            }
            self.put(&frame(&header, offset))?;
        }
        self.out.write_all(b"]")?;
        let (end, length) = (place.offset, self.length);
        write!(self.out, r#","frames_end":{end},"length":{length}"#)?;
        let is_whole = self.close_object(damage)?;
        self.out.write_all(b"\n")?;
        Ok(is_whole)
    }

    /// Writes an object without its closing brace, so that members can be added.
    fn put_open_object(&mut self, object: &Value) -> Result<(), InspectError> {
        let text = object.to_string();
        let open = text.strip_suffix('}').unwrap_or(&text);
        Ok(self.out.write_all(open.as_bytes())?)
    }

    fn close_object(&mut self, damage: Option<String>) -> Result<bool, InspectError> {
        if let Some(what) = &damage {
            write!(self.out, r#","damage":{}"#, json!(what))?;
        }
        self.out.write_all(b"}")?;
        Ok(damage.is_none())
    }
}

enum Frame {
    Whole(FrameHeader),
    /// The header is intact, the payload is damaged.
    DamagedPayload(FrameHeader, FormatError),
    Damaged(FormatError),
    /// Only zeros follow, or the file ends.
    End,
}

/// Reads the frame at `place` and moves on to the next one.
fn next_frame(
    file: &mut impl Read,
    place: &mut FrameLocation,
    buffer: &mut [u8],
) -> io::Result<Frame> {
    let mut bytes = Vec::with_capacity(frame::HEADER_BYTES);
    file.take(frame::HEADER_BYTES as u64)
        .read_to_end(&mut bytes)?;
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(Frame::End);
    }
    let header = match FrameHeader::decode(&bytes, *place) {
        Ok(header) => header,
        Err(error) => return Ok(Frame::Damaged(error)),
    };
    let payload_offset = place.offset + frame::HEADER_BYTES as u64;
    let (mut left, mut sum) = (header.stored_size as usize, crc32c(&[]));
    while left > 0 {
        let length = left.min(buffer.len());
        let read = file.read(&mut buffer[..length])?;
        if read == 0 {
            let needed = u64::from(header.stored_size);
            let available = needed - left as u64;
            let kind = FormatErrorKind::Truncated { needed, available };
            return Ok(Frame::Damaged(payload_error(payload_offset, kind)));
        }
        sum = crc32c_append(sum, &buffer[..read]);
        left -= read;
    }
    let gap = header.frame_bytes() - frame::HEADER_BYTES as u64 - u64::from(header.stored_size);
    io::copy(&mut file.take(gap), &mut io::sink())?;
    place.offset += header.frame_bytes();
    if sum == header.stored_checksum {
        return Ok(Frame::Whole(header));
    }
    let kind = FormatErrorKind::Checksum {
        stored: header.stored_checksum,
        computed: sum,
    };
    let error = payload_error(payload_offset, kind);
    Ok(Frame::DamagedPayload(header, error))
}

fn payload_error(offset: u64, kind: FormatErrorKind) -> FormatError {
    FormatError {
        what: "frame payload",
        offset,
        kind,
    }
}

fn agent(file: AgentFile) -> Value {
    let metadata = file
        .metadata
        .as_ref()
        .map(|bytes| json!({ "bytes": bytes.len(), "text": std::str::from_utf8(bytes).ok() }));
    json!({
        "id": file.id, "name": file.name, "host": file.host, "attributes": file.attributes,
        "streams": file.streams, "metadata": metadata,
    })
}

fn leaf_path(path: &LeafPath) -> Value {
    let bucket = path
        .bucket
        .map(|b| json!({ "begin": b.begin, "length": b.length }));
    json!({
        "agent": path.agent, "kind": path.kind, "stream": path.stream, "bucket": bucket,
    })
}

fn leaf(entry: &LeafEntry) -> Value {
    json!({
        "leaf": entry.leaf.to_string(), "leaf_type": entry.leaf_type,
        "path": leaf_path(&entry.path),
        "covered": { "from": entry.covered.start, "to": entry.covered.end },
        "covered_checksum": hex(entry.covered_checksum), "totals": entry.totals,
        "numbers": {
            "first": entry.numbers.first, "last": entry.numbers.last,
            "first_sequence": pair(entry.numbers.first_position),
            "last_sequence": pair(entry.numbers.last_position),
        },
    })
}

fn pair(position: StreamPosition) -> [u64; 2] {
    [position.epoch, position.sequence]
}

fn packet(entry: &PacketEntry) -> Value {
    json!({
        "number": entry.number, "offset": entry.offset, "stored_size": entry.stored_size,
        "raw_size": entry.raw_size,
        "epoch": entry.position.epoch, "sequence": entry.position.sequence,
        "codec": entry.codec, "raw_checksum": hex(entry.raw_checksum),
        "facts": facts(&entry.facts),
    })
}

fn frame(header: &FrameHeader, offset: u64) -> Value {
    json!({
        "offset": offset, "number": header.number, "epoch": header.position.epoch,
        "sequence": header.position.sequence, "arrival": header.arrival, "codec": header.codec,
        "stored_size": header.stored_size, "raw_size": header.raw_size,
        "stored_checksum": hex(header.stored_checksum), "raw_checksum": hex(header.raw_checksum),
        "facts": facts(&header.facts),
    })
}

fn facts(facts: &Facts) -> Value {
    json!({
        "time_span": facts.time_span, "events": facts.events, "lost": facts.lost,
        "time_basis": facts.time_basis,
    })
}

/// Checksums as hexadecimal text of fixed width, for comparison by eye.
fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}

mod derived;
#[cfg(test)]
mod tests;
