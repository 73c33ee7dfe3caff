//! Packets of trace files, one file after another.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use trace_kinds::Content;
use trace_kinds::rocksdb::{PacketReader, ReadError, RocksdbError};

use super::trace_type::TraceType;
use crate::command::packet_file::{PacketFile, STREAM_FILE};
use crate::command::{CommandError, refuse};
use crate::file_content::recognize_file;

/// Bytes of a packet that is analyzed at once: small enough for the processor's cache.
const PACKET_BYTES: usize = 1 << 18;

const ACCEPTED: &str = "an I/O or block cache trace of RocksDB, or an I/O trace of a server";

enum Reader {
    Rocksdb(Box<PacketReader<File>>),
    ServerIo(PacketFile),
}

impl Reader {
    fn open(path: &Path) -> Result<Self, CommandError> {
        let stream = path.join(STREAM_FILE);
        let is_folder = path.is_dir();
        if is_folder && !stream.exists() {
            let what = "there is no I/O trace of a server in this folder";
            return Err(CommandError::usage(format!("{}: {what}", path.display())));
        }
        let path = if is_folder { &stream } else { path };
        let found = recognize_file(path)?;
        match found.plain() {
            Some(Content::IoTrace) => PacketFile::open(path).map(Self::ServerIo),
            Some(Content::Rocksdb(_)) => {
                let file = File::open(path);
                let file = file.map_err(|error| CommandError::io(path.display(), error))?;
                let reader = PacketReader::new(file, PACKET_BYTES);
                Ok(Self::Rocksdb(Box::new(reader)))
            }
            _ => Err(refuse(path, &found, ACCEPTED)),
        }
    }
}

/// Reads files as packets. Damage ends a file and is recorded; reading continues with the next
/// file.
pub(super) struct Files {
    pending: VecDeque<PathBuf>,
    current: Option<(PathBuf, Reader)>,
    damage: Vec<String>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let pending = paths.iter().cloned().collect();
        Self {
            pending,
            current: None,
            damage: Vec::new(),
        }
    }

    /// The damage found so far.
    pub(super) fn damage(&self) -> &[String] {
        &self.damage
    }

    /// The next packet with records, with its file and type.
    pub(super) fn next_packet(
        &mut self,
    ) -> Result<Option<(String, TraceType, Vec<u8>)>, CommandError> {
        loop {
            let Some((path, reader)) = &mut self.current else {
                let Some(path) = self.pending.pop_front() else {
                    return Ok(None);
                };
                let reader = Reader::open(&path)?;
                self.current = Some((path, reader));
                continue;
            };
            let reader = match reader {
                Reader::Rocksdb(reader) => reader,
                Reader::ServerIo(packets) => match packets.next_packet()? {
                    Some(bytes) => {
                        let place = path.display().to_string();
                        return Ok(Some((place, TraceType::ServerIo, bytes)));
                    }
                    None => {
                        self.current = None;
                        continue;
                    }
                },
            };
            match (reader.next_packet(), reader.kind()) {
                (Ok(Some(packet)), Some(kind)) if packet.records > 0 => {
                    let place = path.display().to_string();
                    return Ok(Some((place, kind.into(), packet.bytes)));
                }
                (Ok(Some(_)), _) => {}
                (Ok(None), _) => {
                    if let Some(torn) = reader.torn_end() {
                        self.damage.push(format!("{}: {torn}", path.display()));
                    }
                    self.current = None;
                }
                (Err(ReadError::Rocksdb(error)), _)
                    if !matches!(error, RocksdbError::NotATrace { offset: 0, .. }) =>
                {
                    self.damage.push(format!("{}: {error}", path.display()));
                    self.current = None;
                }
                (Err(error), _) => return Err(fault(path, error)),
            }
        }
    }
}

/// An error of a file as an error of the command.
fn fault(path: &Path, error: ReadError) -> CommandError {
    match error {
        ReadError::Io(error) => CommandError::io(path.display(), error),
        ReadError::Rocksdb(error) => CommandError::damage(path.display(), error),
    }
}
