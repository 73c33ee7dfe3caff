//! A file without an index, as a source: its packets are found by reading it from its start.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::{Container, EachEvent, Origin, StreamContext, bare_unit};

use super::packet_file::{localize, origin};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::spooled::Spooled;
use crate::stamp::Stamp;
use crate::stored::PacketEvents;
use crate::{Evidence, LocalFile, ReadError};

/// Where the text of a file is read.
pub(super) struct Input {
    path: PathBuf,
    /// What is read in place of the file.
    copy: Option<LocalFile>,
    container: Container,
    /// Why the copy does not have all of the input.
    fault: Option<String>,
    /// The file as it was found; `None` for a copy.
    stamp: Option<Stamp>,
}

impl Input {
    pub(super) fn file(path: &Path, container: Container) -> Input {
        Input {
            path: path.to_owned(),
            copy: None,
            container,
            fault: None,
            stamp: stamp_of(path),
        }
    }

    /// The copy of a pipe or of a decompressed file.
    pub(super) fn copied(path: &Path, copy: Spooled) -> Input {
        Input {
            path: path.to_owned(),
            copy: Some(copy.file),
            container: copy.found.container,
            fault: copy.fault,
            stamp: None,
        }
    }

    fn is_changed(&self) -> bool {
        let stamps = self.stamp.zip(stamp_of(&self.path));
        stamps.is_some_and(|(before, now)| before.is_changed(&now))
    }

    /// The text from its start.
    pub(super) fn text(&self) -> io::Result<Box<dyn Read + Send>> {
        match &self.copy {
            None => self.container.text_of(File::open(&self.path)?),
            Some(copy) => {
                let file = copy.file().try_clone()?;
                self.container.text_of(CopyReader { file, at: 0 })
            }
        }
    }
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Stamp::of(&metadata)
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

/// How the packets of a kind are found in a text.
pub(super) trait FindPackets: Send + Sync {
    /// Passes on the packets of a text, and what of it cannot be read. Returns whether it was read
    /// to its end.
    fn find(
        &self,
        text: Box<dyn Read + Send>,
        packets: &mut Packets<'_, '_, '_>,
    ) -> Result<bool, ReadError>;
}

/// Takes the packets of a file.
pub(super) struct Packets<'f, 'e, 'c> {
    file: &'f WholeFile,
    events: PacketEvents<'e, 'c>,
}

impl Packets<'_, '_, '_> {
    /// Passes on the events of a packet, which are called `what` in messages.
    pub(super) fn packet(&mut self, offset: u64, bytes: &[u8], what: &str) -> ControlFlow<()> {
        self.events.counters.fetched_bytes += bytes.len() as u64;
        let place = || format!("{}: {what} at {offset}", self.file.place());
        self.events.packet(offset, bytes, &place)
    }

    /// Something cannot be read.
    pub(super) fn fault(&mut self, what: &dyn Display) {
        self.events.fault(format!("{}: {what}", self.file.place()));
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.events.counters.faults.is_empty()
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.file.input.container != Container::Plain
    }

    /// What the error of a reader is: of a compressed file, damage, which is told.
    ///
    /// # Errors
    ///
    /// When the file itself cannot be read.
    pub(super) fn failed(&mut self, error: io::Error) -> Result<bool, ReadError> {
        if !self.is_compressed() {
            return Err(ReadError::fetch(self.file.place(), error));
        }
        self.fault(&format_args!("it cannot be decompressed: {error}"));
        Ok(false)
    }
}

/// A file without an index.
pub(super) struct WholeFile {
    kind: Kind,
    origin: Origin,
    context: StreamContext,
    input: Arc<Input>,
    packets: Box<dyn FindPackets>,
    /// Why an existing index is not used.
    unused: Option<String>,
}

impl WholeFile {
    pub(super) fn new(
        kind: Kind,
        context: StreamContext,
        input: Arc<Input>,
        packets: impl FindPackets + 'static,
        unused: Option<String>,
    ) -> WholeFile {
        WholeFile {
            kind,
            origin: origin(kind, &input.path),
            context,
            input,
            packets: Box::new(packets),
            unused,
        }
    }
}

impl ChunkSource for WholeFile {
    fn place(&self) -> String {
        self.input.path.display().to_string()
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

    fn is_changed(&self) -> bool {
        self.input.is_changed()
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.origin)
    }

    /// One: all of it.
    fn tasks(&self, _: Option<&[usize]>) -> Vec<Task> {
        let metadata = std::fs::metadata(&self.input.path);
        vec![Task {
            chunks: vec![0],
            within: None,
            first_ts: None,
            bytes: metadata.map_or(0, |metadata| metadata.len()),
            records: None,
        }]
    }

    fn read(
        &self,
        _: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let events = PacketEvents::new(
            self.kind,
            &self.context,
            &self.origin,
            fields,
            (each, false),
        )?;
        let Some(events) = events else {
            return Ok(Counters::default());
        };
        let text = self.input.text();
        let text = text.map_err(|error| ReadError::fetch(self.place(), error))?;
        let mut packets = Packets { file: self, events };
        let is_read = self.packets.find(text, &mut packets)?;
        if is_read && let Some(fault) = &self.input.fault {
            packets.events.fault(fault.clone());
        }
        Ok(packets.events.counters)
    }
}
