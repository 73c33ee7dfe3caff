//! RocksDB's traces, in the words of its own tools.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use query_language::{FieldTable, Value};
use serde_json::{Map, Value as Json};
use trace_kinds::rocksdb::{
    BlockCacheTrace, BlockCsv, IoTrace, Packet, PacketReader, ReadError, RocksdbDecoder,
    RocksdbError, TraceKind, put_io_header, put_io_line,
};
use trace_kinds::{DecodeError, Decoder, Event};

use super::format::Format;
use crate::command::{CommandError, Context};

/// Bytes of a packet that is decoded at once: small enough to stay in the processor's cache.
const PACKET_BYTES: usize = 1 << 18;

/// Prints the trace at `path`; whether it was whole. What is wrong is said beside the output, and
/// everything in front of it is printed.
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
    match packets.tail() {
        Some(torn) => {
            context.note(format!("{}: {torn}", path.display()));
            Ok(false)
        }
        None => Ok(true),
    }
}

/// Why a packet could not be printed to its end.
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
    /// Appends what is printed of a packet to the text. A trace without records is of no known
    /// kind and prints as an IO trace: its header.
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

/// Appends an event as a JSON object on a line of its own.
pub(super) fn put_object(text: &mut Vec<u8>, event: &dyn Event) {
    let (mut object, mut arguments) = (Map::new(), Map::new());
    event.each_field(&mut |path, value| {
        let value = json(value);
        match path.strip_prefix("args.") {
            Some(argument) => arguments.insert(argument.to_owned(), value),
            None => object.insert(path.to_owned(), value),
        };
    });
    object.insert("args".to_owned(), Json::Object(arguments));
    let line = Json::Object(object);
    serde_json::to_writer(&mut *text, &line).expect("a vector takes every byte");
    text.push(b'\n');
}

fn json(value: Value<'_>) -> Json {
    match value {
        Value::Str(text) => String::from_utf8_lossy(text).into(),
        Value::Int(value) => value.into(),
        Value::Uint(value) => value.into(),
        Value::Float(value) => value.into(),
        Value::Bool(value) => value.into(),
    }
}
