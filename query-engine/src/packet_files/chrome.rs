//! Chrome traces.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::chrome::{self, PACKET_BYTES, Packet, PacketReader};
use trace_kinds::{Container, EachEvent, Origin, StreamContext, bare_unit};

use super::packet_file::{PacketFile, localize, origin, whole_file};
use super::packet_index::{PacketIndex, unused};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::spooled::Spooled;
use crate::stored::PacketEvents;
use crate::{Evidence, LocalFile, ReadError};

/// Opens a Chrome trace, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    container: Container,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let index = if use_sidecars {
        PacketIndex::open(path)
    } else {
        Ok(None)
    };
    let unused = match index {
        Ok(Some(index)) if index.facts.kind == Kind::Chrome && container == Container::Plain => {
            let file = PacketFile::indexed(path, StreamContext::default(), index)?;
            return Ok(Box::new(file));
        }
        Ok(Some(_)) => Some(unused(path, "it was made of another kind of trace")),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    Ok(Box::new(ChromeFile {
        path: path.to_owned(),
        origin: origin(Kind::Chrome, path),
        input: Input::File(container),
        unused,
        fault: None,
    }))
}

/// The copy of a pipe or of a decompressed file.
pub(crate) fn copied(path: &Path, copy: Spooled) -> Box<dyn ChunkSource> {
    Box::new(ChromeFile {
        path: path.to_owned(),
        origin: origin(Kind::Chrome, path),
        input: Input::Copy(copy.file, copy.found.container),
        unused: None,
        fault: copy.fault,
    })
}

enum Input {
    File(Container),
    Copy(LocalFile, Container),
}

/// A Chrome trace without an index: its packets are found by reading it.
struct ChromeFile {
    path: PathBuf,
    origin: Origin,
    input: Input,
    /// Why an existing index is not used.
    unused: Option<String>,
    /// Why the input was not copied to its end.
    fault: Option<String>,
}

impl ChromeFile {
    fn text(&self) -> io::Result<Box<dyn Read + Send>> {
        match &self.input {
            Input::File(container) => chrome::text_of(*container, File::open(&self.path)?),
            Input::Copy(copy, container) => {
                let mut file = copy.file().try_clone()?;
                file.rewind()?;
                chrome::text_of(*container, file)
            }
        }
    }

    fn is_compressed(&self) -> bool {
        let (Input::File(container) | Input::Copy(_, container)) = &self.input;
        *container != Container::Plain
    }

    /// Passes on the events of one packet.
    fn packet(&self, events: &mut PacketEvents<'_, '_>, packet: &Packet) -> ControlFlow<()> {
        events.counters.fetched_bytes += packet.bytes.len() as u64;
        let place = || format!("{}: events at {}", self.place(), packet.offset);
        events.packet(&packet.bytes, &place)
    }
}

impl ChunkSource for ChromeFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> BareUnit {
        bare_unit(Kind::Chrome, &StreamContext::default())
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
        let events = PacketEvents::new(Kind::Chrome, &context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let failed = |error| ReadError::fetch(self.place(), error);
        let mut reader = PacketReader::new(self.text().map_err(failed)?, PACKET_BYTES);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(chrome::ReadError::Io(error)) if !self.is_compressed() => {
                    return Err(failed(error));
                }
                Err(error) => {
                    // What was decompressed before the damage is still read.
                    let _flow = self.packet(&mut events, &reader.rest());
                    events.fault(format!("{}: {error}", self.place()));
                    return Ok(events.counters);
                }
            };
            if self.packet(&mut events, &packet).is_break() {
                return Ok(events.counters);
            }
        }
        if let Some(damage) = reader.damage()
            && events.counters.faults.is_empty()
        {
            events.fault(format!("{}: {damage}", self.place()));
        }
        if let Some(cut) = reader.cut_end() {
            events.fault(format!("{}: {cut}", self.place()));
        }
        if let Some(fault) = &self.fault {
            events.fault(fault.clone());
        }
        Ok(events.counters)
    }
}

#[cfg(test)]
mod tests;
