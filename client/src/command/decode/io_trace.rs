//! Prints I/O traces of a server.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use query_language::FieldTable;
use trace_kinds::io_trace::{IoTraceDecoder, Item, each_item, put_io_trace_line};
use trace_kinds::{DecodeError, Decoder};

use super::format::Format;
use super::object::put_object;
use crate::command::packet_file::PacketFile;
use crate::command::{CommandError, Context};

/// Prints the trace at `path`. Returns whether it is complete, including its end record.
pub(super) fn decode(context: &Context, path: &Path, format: Format) -> Result<bool, CommandError> {
    let mut packets = PacketFile::open(path)?;
    let mut has_ended = false;
    while let Some(packet) = packets.next_packet()? {
        let mut text = Vec::new();
        let ended = match format {
            Format::Ndjson => print_objects(&mut text, &packet),
            _ => print_lines(&mut text, &packet, &mut has_ended),
        };
        context.out().write_all(&text)?;
        match ended {
            Ok(()) => {}
            Err(error @ DecodeError::Truncated { .. }) => {
                context.note(format!("{}: {error}", path.display()));
                return Ok(false);
            }
            Err(error) => return Err(CommandError::damage(path.display(), error)),
        }
    }
    if format != Format::Ndjson && !has_ended {
        context.note(format!(
            "{}: the trace has no end record; it was interrupted or cut off",
            path.display()
        ));
        return Ok(false);
    }
    Ok(true)
}

fn print_lines(text: &mut Vec<u8>, packet: &[u8], has_ended: &mut bool) -> Result<(), DecodeError> {
    each_item(packet, |item| {
        match item {
            Item::Record(record) => put_io_trace_line(text, &record),
            Item::Begin => {}
            Item::End {
                reason,
                recorded,
                dropped,
                overwritten,
            } => {
                *has_ended = true;
                let reason = String::from_utf8_lossy(reason);
                let line = format!(
                    "# ended: {reason}; {recorded} recorded, {dropped} dropped, {overwritten} \
                     overwritten\n"
                );
                text.extend_from_slice(line.as_bytes());
            }
        }
        ControlFlow::Continue(())
    })
}

fn print_objects(text: &mut Vec<u8>, packet: &[u8]) -> Result<(), DecodeError> {
    let mut decoder = IoTraceDecoder::new(&FieldTable::new());
    decoder.decode(packet, &mut |event| {
        put_object(text, event);
        ControlFlow::Continue(())
    })?;
    Ok(())
}
