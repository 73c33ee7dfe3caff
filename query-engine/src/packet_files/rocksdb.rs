//! RocksDB traces.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::rocksdb::PacketReader;
use trace_kinds::{EachEvent, Origin, StreamContext, bare_unit};

use super::packet_file::{PacketFile, localize, origin, whole_file};
use super::packet_index::{PacketIndex, unused};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::stored::PacketEvents;
use crate::{Evidence, ReadError};

/// Bytes of a packet of a RocksDB trace. Damage ends a packet, so packets must be the same with and
/// without an index.
pub(crate) const PACKET_BYTES: usize = 64 << 10;

/// Opens a RocksDB trace, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    kind: Kind,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let index = if use_sidecars {
        PacketIndex::open(path)
    } else {
        Ok(None)
    };
    let reason = match index {
        Ok(Some(index)) if is_rocksdb(index.facts.kind) => {
            let file = PacketFile::indexed(path, StreamContext::default(), index)?;
            return Ok(Box::new(file));
        }
        Ok(Some(_)) => Some(unused(path, "it was made of another kind of trace")),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    Ok(Box::new(RocksdbFile::new(path, kind, reason)))
}

fn is_rocksdb(kind: Kind) -> bool {
    matches!(kind, Kind::RocksdbIo | Kind::RocksdbBlockCache)
}

/// A RocksDB trace without an index: its packets are found by reading it.
struct RocksdbFile {
    path: PathBuf,
    kind: Kind,
    origin: Origin,
    /// Why an existing index is not used.
    unused: Option<String>,
}

impl RocksdbFile {
    fn new(path: &Path, kind: Kind, unused: Option<String>) -> RocksdbFile {
        RocksdbFile {
            path: path.to_owned(),
            kind,
            origin: origin(kind, path),
            unused,
        }
    }
}

impl ChunkSource for RocksdbFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(bare_unit(self.kind, &StreamContext::default()))
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn unused_index(&self) -> Option<String> {
        self.unused.clone()
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.origin)
    }

    fn tasks(&self, _: Option<&[usize]>) -> Vec<Task> {
        whole_file(&self.path)
    }

    fn read(
        &self,
        _: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let context = StreamContext::default();
        let events = PacketEvents::new(self.kind, &context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let file = File::open(&self.path);
        let file = file.map_err(|error| ReadError::fetch(self.place(), error))?;
        let mut reader = PacketReader::new(file, PACKET_BYTES);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(trace_kinds::rocksdb::ReadError::Io(error)) => {
                    return Err(ReadError::fetch(self.place(), error));
                }
                Err(trace_kinds::rocksdb::ReadError::Rocksdb(error)) => {
                    events.fault(format!("{}: {error}", self.place()));
                    return Ok(events.counters);
                }
            };
            events.counters.fetched_bytes += packet.bytes.len() as u64;
            let place = || format!("{}: records at {}", self.place(), packet.offset);
            if events.packet(packet.offset, &packet.bytes, &place) == ControlFlow::Break(()) {
                return Ok(events.counters);
            }
        }
        if let Some(torn) = reader.torn_end() {
            events.fault(format!("{}: {torn}", self.place()));
        }
        Ok(events.counters)
    }
}
