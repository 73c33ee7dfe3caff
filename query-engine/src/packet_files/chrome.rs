//! Chrome traces.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk_index::ChromeUnpaired;
use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::chrome::{self, Durations, PACKET_BYTES, Packet, PacketReader, Unpaired};
use trace_kinds::{Container, EachEvent, Origin, StreamContext, bare_unit};

use super::packet_file::{PacketFile, localize, origin, whole_file};
use super::packet_index::{PacketIndex, unused};
use crate::slices::{LazyDurations, durations, of_attachment};
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
            let marks = index.sidecar.undamaged_attachment(ChromeUnpaired::NAME)?;
            if let Some((unpaired, _)) = marks.as_deref().and_then(of_attachment) {
                let context = with_durations(move || durations(&unpaired));
                return Ok(Box::new(PacketFile::indexed(path, context, index)?));
            }
            Some(unused(path, "it was written by another version"))
        }
        Ok(Some(_)) => Some(unused(path, "it was made of another kind of trace")),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    Ok(Box::new(ChromeFile::new(
        path,
        Input::File(path.to_owned(), container),
        unused,
        None,
    )))
}

/// The copy of a pipe or of a decompressed file.
pub(crate) fn copied(path: &Path, copy: Spooled) -> Box<dyn ChunkSource> {
    let input = Input::Copy(copy.file, copy.found.container);
    Box::new(ChromeFile::new(path, input, None, copy.fault))
}

/// A context with durations that are found when the first is asked for.
fn with_durations(find: impl Fn() -> Durations + Send + Sync + 'static) -> StreamContext {
    StreamContext {
        outside: Some(Arc::new(LazyDurations::new(find))),
        ..StreamContext::default()
    }
}

enum Input {
    File(PathBuf, Container),
    Copy(LocalFile, Container),
}

impl Input {
    fn container(&self) -> Container {
        let (Input::File(_, container) | Input::Copy(_, container)) = self;
        *container
    }

    fn text(&self) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Input::File(path, container) => chrome::text_of(*container, File::open(path)?),
            Input::Copy(copy, container) => {
                let file = copy.file().try_clone()?;
                chrome::text_of(*container, CopyReader { file, at: 0 })
            }
        }
    }

    /// The durations of slices that begin and end in different packets, as far as the file can be
    /// read: who asks reads it, too, and reports what cannot be read.
    fn durations(&self) -> Durations {
        let mut unpaired = Unpaired::default();
        if let Ok(text) = self.text() {
            let mut reader = PacketReader::new(text, PACKET_BYTES);
            while let Ok(Some(packet)) = reader.next_packet() {
                unpaired.add_packet(0, packet.offset, &packet.bytes);
            }
        }
        durations(&unpaired)
    }
}

/// Reads the copy from its start. All readers of a copy share the position of its file, so each has
/// a position of its own.
struct CopyReader {
    file: File,
    at: u64,
}

impl Read for CopyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A Chrome trace without an index: its packets are found by reading it.
struct ChromeFile {
    path: PathBuf,
    origin: Origin,
    input: Arc<Input>,
    context: StreamContext,
    /// Why an existing index is not used.
    unused: Option<String>,
    /// Why the input was not copied to its end.
    fault: Option<String>,
}

impl ChromeFile {
    fn new(path: &Path, input: Input, unused: Option<String>, fault: Option<String>) -> ChromeFile {
        let input = Arc::new(input);
        let read_again = Arc::clone(&input);
        ChromeFile {
            path: path.to_owned(),
            origin: origin(Kind::Chrome, path),
            input,
            context: with_durations(move || read_again.durations()),
            unused,
            fault,
        }
    }

    fn is_compressed(&self) -> bool {
        self.input.container() != Container::Plain
    }

    /// Passes on the events of one packet.
    fn packet(&self, events: &mut PacketEvents<'_, '_>, packet: &Packet) -> ControlFlow<()> {
        events.counters.fetched_bytes += packet.bytes.len() as u64;
        let place = || format!("{}: events at {}", self.place(), packet.offset);
        events.packet(packet.offset, &packet.bytes, &place)
    }
}

impl ChunkSource for ChromeFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(bare_unit(Kind::Chrome, &StreamContext::default()))
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
        let events = PacketEvents::new(Kind::Chrome, &self.context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let failed = |error| ReadError::fetch(self.place(), error);
        let mut reader = PacketReader::new(self.input.text().map_err(failed)?, PACKET_BYTES);
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
