//! RocksDB traces.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use storage_format::Kind;
use trace_kinds::rocksdb::{PacketReader, ReadError as RocksdbError};
use trace_kinds::{Container, StreamContext};

use super::packet_file::PacketFile;
use super::packet_index::PacketIndex;
use super::whole_file::{FindPackets, Input, Packets, WholeFile};
use crate::ReadError;
use crate::source::ChunkSource;

/// Bytes of a packet of a RocksDB trace. A damaged record costs no other, so what is read does not
/// depend on them.
pub(crate) const PACKET_BYTES: usize = 64 << 10;

/// Opens a RocksDB trace, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    kind: Kind,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let is_rocksdb = |kind| matches!(kind, Kind::RocksdbIo | Kind::RocksdbBlockCache);
    let context = StreamContext::default();
    match PacketIndex::of_kind(path, use_sidecars, is_rocksdb) {
        Ok(index) => Ok(Box::new(PacketFile::indexed(path, context, index)?)),
        Err(unused) => {
            let input = Arc::new(Input::file(path, Container::Plain));
            Ok(Box::new(WholeFile::new(
                kind, context, input, Records, unused,
            )))
        }
    }
}

/// Packets of complete records.
struct Records;

impl FindPackets for Records {
    fn find(
        &self,
        text: Box<dyn Read + Send>,
        packets: &mut Packets<'_, '_, '_>,
    ) -> Result<bool, ReadError> {
        let mut reader = PacketReader::new(text, PACKET_BYTES);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(RocksdbError::Io(error)) => return packets.failed(error),
                Err(RocksdbError::Rocksdb(error)) => {
                    packets.fault(&error);
                    return Ok(false);
                }
            };
            let flow = packets.packet(packet.offset, &packet.bytes, "records");
            if flow.is_break() {
                return Ok(false);
            }
        }
        if let Some(torn) = reader.torn_end() {
            packets.fault(&torn);
        }
        Ok(true)
    }
}
