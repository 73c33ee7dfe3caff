//! Files of OpenTelemetry spans.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::otlp::file::{self, FileForm, PacketReader};
use trace_kinds::{Container, EachEvent, Origin, StreamContext, bare_unit, chrome};

use super::packet_file::{PacketFile, localize, origin, whole_file};
use super::packet_index::{PacketIndex, unused};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::spooled::Spooled;
use crate::stored::PacketEvents;
use crate::{Evidence, LocalFile, ReadError};

/// Opens a file of spans, with the sidecar next to it if that is usable.
pub(crate) fn open(
    path: &Path,
    form: FileForm,
    container: Container,
    use_sidecars: bool,
) -> Result<Box<dyn ChunkSource>, ReadError> {
    let index = if use_sidecars {
        PacketIndex::open(path)
    } else {
        Ok(None)
    };
    let unused = match index {
        Ok(Some(index)) if index.facts.kind == Kind::Otlp && container == Container::Plain => {
            let file = PacketFile::indexed(path, StreamContext::default(), index)?;
            return Ok(Box::new(file));
        }
        Ok(Some(_)) => Some(unused(path, "it was made of another kind of trace")),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    Ok(Box::new(OtlpFile {
        path: path.to_owned(),
        origin: origin(Kind::Otlp, path),
        form,
        container,
        copy: None,
        unused,
        fault: None,
    }))
}

/// The copy of a pipe or of a decompressed file.
pub(crate) fn copied(path: &Path, form: FileForm, copy: Spooled) -> Box<dyn ChunkSource> {
    Box::new(OtlpFile {
        path: path.to_owned(),
        origin: origin(Kind::Otlp, path),
        form,
        container: copy.found.container,
        copy: Some(copy.file),
        unused: None,
        fault: copy.fault,
    })
}

/// A file of spans without an index: its requests are found by reading it.
struct OtlpFile {
    path: PathBuf,
    origin: Origin,
    form: FileForm,
    container: Container,
    /// What is read in place of the file.
    copy: Option<LocalFile>,
    /// Why an existing index is not used.
    unused: Option<String>,
    /// Why the input was not copied to its end.
    fault: Option<String>,
}

impl OtlpFile {
    fn content(&self) -> io::Result<Box<dyn Read + Send>> {
        let file = match &self.copy {
            Some(copy) => {
                let mut file = copy.file().try_clone()?;
                file.rewind()?;
                file
            }
            None => File::open(&self.path)?,
        };
        chrome::text_of(self.container, file)
    }
}

impl ChunkSource for OtlpFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(bare_unit(Kind::Otlp, &StreamContext::default()))
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
        let events = PacketEvents::new(Kind::Otlp, &context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let failed = |error| ReadError::fetch(self.place(), error);
        let mut reader = PacketReader::new(self.content().map_err(failed)?, self.form);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(file::ReadError::Io(error)) if self.container == Container::Plain => {
                    return Err(failed(error));
                }
                Err(file::ReadError::Io(error)) => {
                    let place = self.place();
                    events.fault(format!("{place}: it cannot be decompressed: {error}"));
                    return Ok(events.counters);
                }
                Err(damage) => {
                    events.fault(format!("{}: {damage}", self.place()));
                    continue;
                }
            };
            events.counters.fetched_bytes += packet.bytes.len() as u64;
            let place = || format!("{}: spans at {}", self.place(), packet.offset);
            if events
                .packet(packet.offset, &packet.bytes, &place)
                .is_break()
            {
                return Ok(events.counters);
            }
        }
        if let Some(fault) = &self.fault {
            events.fault(fault.clone());
        }
        Ok(events.counters)
    }
}

#[cfg(test)]
mod tests;
