//! Prints RocksDB traces in the format of RocksDB's tools.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use query_language::FieldTable;
use trace_kinds::rocksdb::{
    BlockCacheTrace, BlockCsv, IoTrace, Packet, PacketReader, ReadError, RocksdbDecoder,
    RocksdbError, TraceKind, put_io_header, put_io_line,
};
use trace_kinds::{DecodeError, Decoder};

use super::format::Format;
use super::object::put_object;
use crate::command::{CommandError, Context};

/// Bytes of a packet that is decoded at once: small enough for the processor's cache.
const PACKET_BYTES: usize = 1 << 18;

/// Prints the trace at `path`. Returns false if it is torn; everything before that point is
/// printed.
pub(super) fn decode(context: &Context, path: &Path, format: Format) -> Result<bool, CommandError> {
    let file = File::open(path).map_err(|error| CommandError::io(path.display(), error))?;
    let mut packets = PacketReader::new(file, PACKET_BYTES);
    let mut printer = Printer {
        format,
        csv: BlockCsv::new(),
        text: Vec::new(),
        started: false,
    };
    loop {
        match packets.next_packet() {
            Ok(Some(packet)) => {
                printer.text.clear();
                let fault = printer.print(&packet, packets.kind());
                context.out().write_all(&printer.text)?;
                if let Err(error) = fault {
                    return Err(CommandError::damage(path.display(), error));
                }
            }
            Ok(None) => break,
            Err(ReadError::Io(error)) => return Err(CommandError::io(path.display(), error)),
            Err(ReadError::Rocksdb(error)) => {
                return Err(CommandError::damage(path.display(), error));
            }
        }
    }
    match packets.torn_end() {
        Some(torn) => {
            context.note(format!("{}: {torn}", path.display()));
            Ok(false)
        }
        None => Ok(true),
    }
}

/// Why printing a packet failed.
#[derive(Debug, thiserror::Error)]
enum PrintError {
    #[error(transparent)]
    Rocksdb(#[from] RocksdbError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

struct Printer {
    format: Format,
    csv: BlockCsv,
    text: Vec<u8>,
    started: bool,
}

impl Printer {
    /// Appends the text of a packet. The kind of a trace without records is unknown; it prints
    /// as an I/O trace, which is its header.
    fn print(&mut self, packet: &Packet, kind: Option<TraceKind>) -> Result<(), PrintError> {
        match (self.format, kind.unwrap_or(TraceKind::Io)) {
            (Format::Ndjson, kind) => self.print_objects(&packet.bytes, kind),
            (_, TraceKind::Io) => {
                let mut trace = IoTrace::open(&packet.bytes)?;
                if !std::mem::replace(&mut self.started, true) {
                    put_io_header(&mut self.text, trace.header());
                }
                while let Some(record) = trace.next_record()? {
                    put_io_line(&mut self.text, &record);
                }
                Ok(())
            }
            (_, TraceKind::BlockCache) => {
                let mut trace = BlockCacheTrace::open(&packet.bytes)?;
                while let Some(record) = trace.next_record()? {
                    self.csv.put_row(&mut self.text, &record);
                }
                Ok(())
            }
        }
    }

    fn print_objects(&mut self, packet: &[u8], kind: TraceKind) -> Result<(), PrintError> {
        let mut decoder = RocksdbDecoder::new(kind, &FieldTable::new());
        let text = &mut self.text;
        decoder.decode(packet, &mut |event| {
            put_object(text, event);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}
