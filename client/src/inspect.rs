//! Prints files of Tracehold as JSON, and verifies them.
//!
//! A file is recognized by its first bytes, not by its name. Data files and index parts are printed
//! packet by packet while they are read, so their size is not limited.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use chunk_index::FileType;
use serde::Serialize;
use serde_json::{Value, json};
use storage_format::agent_file::AgentFile;
use storage_format::cached_file;
use storage_format::checksum_file::{ChecksumFile, FileChecksums};
use storage_format::data_file::{self, DataFileHeader, LeafPath};
use storage_format::frame::{Facts, FrameHeader, FrameLocation};
use storage_format::index_part::IndexPartHeader;
use storage_format::limits::ENVELOPE_BODY_BYTES_MAX;
use storage_format::local_file::LocalFile;
use storage_format::log::LogFileHeader;
use storage_format::repair_file::RepairFile;
use storage_format::seal::Seal;
use storage_format::storage_file::StorageFile;
use storage_format::{FormatError, FormatErrorKind};

use crate::ClientError;
use crate::file_content::check_regular;
use frames::{FrameReader, NextFrame};

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
    if LogFileHeader::recognizes(&head) {
        return inspection.log_file();
    }
    if let Some(header) = known(path, DataFileHeader::decode(&head))? {
        return inspection.leaf_file(&header);
    }
    if let Some(header) = known(path, IndexPartHeader::decode(&head))? {
        return inspection.index_part(&header);
    }
    match FileType::of(&head) {
        Some(FileType::Bundle) => return inspection.bundle(),
        Some(file_type) => return inspection.derived(file_type),
        None => {}
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

    /// Storage, agent, local, checksum and repair files.
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
        } else if let Some(file) = known(self.path, ChecksumFile::decode(&bytes))? {
            json!({ "role": "checksums", "storage": file.storage, "files": checksums(&file) })
        } else if let Some(seal) = known(self.path, Seal::decode(&bytes))? {
            seal_document(&seal)
        } else if let Some(file) = known(self.path, RepairFile::decode(&bytes))? {
            json!({ "role": "repairs", "storage": file.storage, "repairs": file.repairs })
        } else {
            return Err(damaged(self.path, &"not a file of Tracehold"));
        };
        self.put(&document)?;
        self.out.write_all(b"\n")?;
        Ok(true)
    }

    /// The data file of a leaf, format version 1.
    fn leaf_file(&mut self, header: &DataFileHeader) -> Result<bool, InspectError> {
        let start = data_file::HEADER_BYTES as u64;
        self.put_open_object(&json!({ "role": "data", "header": leaf_header(header) }))?;
        self.out.write_all(br#","frames":["#)?;
        let mut frames = self.frames(start)?;
        let mut damage = None;
        let mut place = FrameLocation {
            storage: header.storage,
            leaf: header.leaf,
            offset: start,
        };
        loop {
            let (header, error) = match frames.next(place).map_err(self.failed())? {
                NextFrame::End => break,
                NextFrame::Damaged(error) => {
                    damage.get_or_insert(error);
                    break;
                }
                NextFrame::Intact(header) => (header, None),
                NextFrame::DamagedPayload(header, error) => (header, Some(error)),
            };
            damage = damage.or(error);
            self.put_comma(place.offset > start)?;
            self.put(&frame(&header, place.offset))?;
            place.offset += header.frame_bytes();
        }
        self.out.write_all(b"]")?;
        let (end, length) = (place.offset, self.length);
        write!(self.out, r#","frames_end":{end},"length":{length}"#)?;
        let is_whole = self.close_object(damage.map(|error| error.to_string()))?;
        self.out.write_all(b"\n")?;
        Ok(is_whole)
    }

    /// The frames of the file from `offset`.
    fn frames(&self, offset: u64) -> Result<FrameReader, InspectError> {
        let file = self.file.try_clone().map_err(self.failed())?;
        FrameReader::new(file, offset).map_err(self.failed())
    }

    fn put_comma(&mut self, follows: bool) -> Result<(), InspectError> {
        if follows {
            self.out.write_all(b",")?;
        }
        Ok(())
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

fn seal_document(seal: &Seal) -> Value {
    let files = seal.files.iter().map(|file| {
        let groups = file.hashes.groups.iter().map(ToString::to_string);
        json!({
            "file": file.name, "length": file.hashes.length,
            "hash": file.hashes.hash.to_string(), "groups": groups.collect::<Vec<_>>(),
        })
    });
    let key = seal
        .signature
        .map(|signature| signature.key.id().to_string());
    json!({
        "role": "seal", "storage": seal.storage, "digest": seal.digest().to_string(),
        "key": key, "signature_is_valid": seal.is_signed(), "created": seal.created,
        "finalized": seal.finalized, "totals": seal.totals, "packets": seal.packets.to_string(),
        "group_bytes": seal.group_bytes, "files": files.collect::<Vec<_>>(),
    })
}

/// The checksums of each data file, 4 MiB each.
fn checksums(file: &ChecksumFile) -> Vec<Value> {
    let of_file = |file: &FileChecksums| {
        let pieces = file.pieces.iter().map(|&piece| hex(piece));
        json!({
            "file": file.file.to_string(), "length": file.length,
            "pieces": pieces.collect::<Vec<_>>(),
        })
    };
    file.files.iter().map(of_file).collect()
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

fn leaf_header(header: &DataFileHeader) -> Value {
    json!({
        "storage": header.storage, "leaf": header.leaf.to_string(),
        "leaf_type": header.leaf_type, "path": leaf_path(&header.path),
        "created": header.created,
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
        "time_basis": facts.time_basis, "has_unreadable": facts.has_unreadable,
    })
}

/// Checksums as hexadecimal text of fixed width, for comparison by eye.
fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}

mod bundle;
mod derived;
mod frames;
mod index_part;
mod log;
#[cfg(test)]
mod tests;
