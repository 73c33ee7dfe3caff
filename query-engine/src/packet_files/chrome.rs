//! Chrome traces.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use chunk_index::ChromeUnpaired;
use storage_format::Kind;
use trace_kinds::chrome::{self, Durations, PACKET_BYTES, PacketReader, Unpaired};
use trace_kinds::{Container, StreamContext};

use super::packet_file::PacketFile;
use super::packet_index::{PacketIndex, unused};
use super::whole_file::{FindPackets, Input, Packets, WholeFile};
use crate::ReadError;
use crate::slices::{LazyDurations, durations, of_attachment};
use crate::source::ChunkSource;
use crate::spooled::Spooled;

/// Opens a Chrome trace, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    container: Container,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let is_indexed = |kind| kind == Kind::Chrome && container == Container::Plain;
    let unused = match PacketIndex::of_kind(path, use_sidecars, is_indexed) {
        Ok(index) => {
            let marks = index.sidecar.undamaged_attachment(ChromeUnpaired::NAME)?;
            if let Some((unpaired, _)) = marks.as_deref().and_then(of_attachment) {
                let context = with_durations(move || durations(&unpaired));
                return Ok(Box::new(PacketFile::indexed(path, context, index)?));
            }
            Some(unused(path, "it was written by another version"))
        }
        Err(reason) => reason,
    };
    Ok(whole(Input::file(path, container), unused))
}

/// The copy of a pipe or of a decompressed file.
pub(crate) fn copied(path: &Path, copy: Spooled) -> Box<dyn ChunkSource> {
    whole(Input::copied(path, copy), None)
}

fn whole(input: Input, unused: Option<String>) -> Box<dyn ChunkSource> {
    let input = Arc::new(input);
    let read_again = Arc::clone(&input);
    let context = with_durations(move || durations_in(&read_again));
    let file = WholeFile::new(Kind::Chrome, context, input, Events, unused);
    Box::new(file)
}

/// A context with durations that are found when the first is asked for.
fn with_durations(find: impl Fn() -> Durations + Send + Sync + 'static) -> StreamContext {
    StreamContext {
        outside: Some(Arc::new(LazyDurations::new(find))),
        ..StreamContext::default()
    }
}

/// The durations of slices that begin and end in different packets, as far as the file can be read:
/// who asks reads it, too, and reports what cannot be read.
fn durations_in(input: &Input) -> Durations {
    let mut unpaired = Unpaired::default();
    if let Ok(text) = input.text() {
        let mut reader = PacketReader::new(text, PACKET_BYTES);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(_) => {
                    let rest = reader.rest();
                    unpaired.add_packet(0, rest.offset, &rest.bytes);
                    break;
                }
            };
            unpaired.add_packet(0, packet.offset, &packet.bytes);
        }
    }
    durations(&unpaired)
}

/// Packets that are cut between events.
struct Events;

impl FindPackets for Events {
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
                Err(chrome::ReadError::Io(error)) if !packets.is_compressed() => {
                    return packets.failed(error);
                }
                Err(error) => {
                    // The events before the damage are still read.
                    let rest = reader.rest();
                    let _flow = packets.packet(rest.offset, &rest.bytes, "events");
                    packets.fault(&error);
                    return Ok(false);
                }
            };
            let flow = packets.packet(packet.offset, &packet.bytes, "events");
            if flow.is_break() {
                return Ok(false);
            }
        }
        if let Some(damage) = reader.damage()
            && !packets.has_faults()
        {
            packets.fault(&damage);
        }
        if let Some(cut) = reader.cut_end() {
            packets.fault(&cut);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
