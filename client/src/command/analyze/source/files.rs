//! Trace files, one after another.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use trace_events::rocksdb::{PacketReader, ReadError, RocksdbError, TraceKind};

use crate::command::CommandError;

/// Bytes of a packet that is analysed at once: small enough to stay in the processor's cache.
const PACKET_BYTES: usize = 1 << 18;

/// Reads files as packets. Damage ends a file, is remembered, and the next file goes on.
pub(super) struct Files {
    waiting: VecDeque<PathBuf>,
    current: Option<(PathBuf, PacketReader<File>)>,
    damage: Vec<String>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let waiting = paths.iter().cloned().collect();
        Self {
            waiting,
            current: None,
            damage: Vec::new(),
        }
    }

    /// What was damaged so far.
    pub(super) fn damage(&self) -> &[String] {
        &self.damage
    }

    /// The next packet with records, its file and kind.
    pub(super) fn next_packet(
        &mut self,
    ) -> Result<Option<(String, TraceKind, Vec<u8>)>, CommandError> {
        loop {
            let Some((path, reader)) = &mut self.current else {
                let Some(path) = self.waiting.pop_front() else {
                    return Ok(None);
                };
                let file = File::open(&path).map_err(|error| fault(&path, error.into()))?;
                self.current = Some((path, PacketReader::new(file, PACKET_BYTES)));
                continue;
            };
            match (reader.next_packet(), reader.kind()) {
                (Ok(Some(packet)), Some(kind)) if packet.records > 0 => {
                    return Ok(Some((path.display().to_string(), kind, packet.bytes)));
                }
                (Ok(Some(_)), _) => {}
                (Ok(None), _) => {
                    if let Some(torn) = reader.tail() {
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

/// The fault of a file as one of the command.
fn fault(path: &Path, error: ReadError) -> CommandError {
    match error {
        ReadError::Io(error) => CommandError::io(path.display(), error),
        ReadError::Rocksdb(error) => CommandError::damage(path.display(), error),
    }
}
