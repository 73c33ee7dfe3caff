//! Files of OpenTelemetry spans.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use storage_format::Kind;
use trace_kinds::otlp::file::{self, FileForm, PacketReader};
use trace_kinds::{Container, StreamContext};

use super::packet_file::PacketFile;
use super::packet_index::PacketIndex;
use super::whole_file::{FindPackets, Input, Packets, WholeFile};
use crate::ReadError;
use crate::source::ChunkSource;
use crate::spooled::Spooled;

/// Opens a file of spans, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    form: FileForm,
    container: Container,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let is_indexed = |kind| kind == Kind::Otlp && container == Container::Plain;
    match PacketIndex::of_kind(path, use_sidecars, is_indexed) {
        Ok(index) => {
            let file = PacketFile::indexed(path, StreamContext::default(), index)?;
            Ok(Box::new(file))
        }
        Err(unused) => Ok(whole(Input::file(path, container), form, unused)),
    }
}

/// The copy of a pipe or of a decompressed file.
pub(crate) fn copied(path: &Path, form: FileForm, copy: Spooled) -> Box<dyn ChunkSource> {
    whole(Input::copied(path, copy), form, None)
}

fn whole(input: Input, form: FileForm, unused: Option<String>) -> Box<dyn ChunkSource> {
    let (context, input) = (StreamContext::default(), Arc::new(input));
    Box::new(WholeFile::new(
        Kind::Otlp,
        context,
        input,
        Requests(form),
        unused,
    ))
}

/// Requests in a file of this form.
struct Requests(FileForm);

impl FindPackets for Requests {
    fn find(
        &self,
        text: Box<dyn Read + Send>,
        packets: &mut Packets<'_, '_, '_>,
    ) -> Result<bool, ReadError> {
        let mut reader = PacketReader::new(text, self.0);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(true),
                Err(file::ReadError::Io(error)) => return packets.failed(error),
                Err(damage) => {
                    packets.fault(&damage);
                    continue;
                }
            };
            let flow = packets.packet(packet.offset, &packet.bytes, "spans");
            if flow.is_break() {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
