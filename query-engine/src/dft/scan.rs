//! Reading files from their start: those without an index, and what an index does not contain.

use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

use query_language::FieldTable;
use trace_kinds::Event;
use trace_kinds::dft::{DftDecoder, DftVisitor, HashNames, Lines, Metadata, Names, Part, TimeUnit};
use trace_kinds::gzip::{Entry, Scanned, Scanner, TextSink};

use super::damage::damage_text;
use super::events::Events;
use crate::{Fetch, ReadError};

/// A trace file that is read from its start.
#[derive(Clone, Copy)]
pub(super) struct Text<'f> {
    pub(super) fetch: &'f dyn Fetch,
    pub(super) len: u64,
    pub(super) gzip: bool,
    pub(super) unit: TimeUnit,
    pub(super) is_unit_declared: bool,
}

/// Bytes per fetch.
const FETCH_BYTES: u64 = 1 << 20;

/// Reads the bytes of a file in order.
struct Bytes<'f> {
    fetch: &'f dyn Fetch,
    at: u64,
    len: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.len.min(self.at + FETCH_BYTES.min(buffer.len() as u64));
        let bytes = self.fetch.fetch_one(self.at..end)?;
        let part = buffer
            .get_mut(..bytes.len())
            .ok_or(io::ErrorKind::InvalidData)?;
        part.copy_from_slice(&bytes);
        self.at = end;
        Ok(bytes.len())
    }
}

fn scan_text(
    scanner: &mut Scanner,
    file: Text<'_>,
    sink: &mut dyn PartSink,
) -> Result<Scanned, ReadError> {
    let Text { fetch, len, .. } = file;
    let open = |at| Bytes { fetch, at, len };
    scanner
        .scan_verified(open, &mut Sink(sink))
        .map_err(|source| ReadError::Gzip {
            place: fetch.place(),
            source,
        })
}

/// Receives the verified text of a file.
trait PartSink {
    fn text(&mut self, text: &[u8]) -> ControlFlow<()>;

    /// Text is missing here.
    fn gap(&mut self) {}
}

struct Sink<'s>(&'s mut dyn PartSink);

impl TextSink for Sink<'_> {
    fn entry(&mut self, _: Entry) {}

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.0.text(text)
    }

    fn gap(&mut self) {
        self.0.gap();
    }
}

impl<F: FnMut(&[u8]) -> ControlFlow<()>> PartSink for F {
    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self(text)
    }
}

/// Passes the parts of a text to a function.
struct LineSink<F> {
    lines: Lines,
    part: F,
}

impl<F: FnMut(Part<'_>) -> ControlFlow<()>> PartSink for LineSink<F> {
    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.lines.feed(text, &mut self.part)
    }

    fn gap(&mut self) {
        // The text after the gap is decoded in any case.
        let _flow = self.lines.gap(&mut self.part);
    }
}

/// Reads all events of a compressed file without an index.
pub(super) fn read_all(
    file: Text<'_>,
    scanner: &mut Scanner,
    events: &mut Events<'_, '_>,
) -> Result<(), ReadError> {
    let mut sink = LineSink {
        lines: Lines::default(),
        part: |part: Part<'_>| events.part(part),
    };
    let scanned = scan_text(scanner, file, &mut sink)?;
    let _whole = sink.lines.finish(&mut sink.part);
    events.counters.fetched_bytes += scanned.file_len;
    let damage = damage_text(&file.fetch.place(), &scanned.damage, file.is_unit_declared);
    events.counters.faults.extend(damage);
    Ok(())
}

/// Reads the events of ranges of text, sorted and of complete lines, by decompressing the file from
/// its start.
pub(super) fn read_ranges(
    file: Text<'_>,
    ranges: &[Range<u64>],
    scanner: &mut Scanner,
    events: &mut Events<'_, '_>,
) -> Result<(), ReadError> {
    let Some(end) = ranges.last().map(|range| range.end) else {
        return Ok(());
    };
    let mut lines: Vec<Lines> = ranges.iter().map(|_| Lines::default()).collect();
    let mut at = 0_u64;
    let scanned = scan_text(scanner, file, &mut |text: &[u8]| {
        let here = at..at + text.len() as u64;
        at = here.end;
        for (range, lines) in ranges.iter().zip(&mut lines) {
            let (start, end) = (range.start.max(here.start), range.end.min(here.end));
            if start < end {
                let index = |at: u64| usize::try_from(at - here.start).unwrap_or(usize::MAX);
                let slice = text.get(index(start)..index(end)).unwrap_or_default();
                lines.feed(slice, |part| events.part(part))?;
            }
        }
        if here.end >= end {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    for lines in &mut lines {
        let _whole = lines.finish(|part| events.part(part));
    }
    events.counters.fetched_bytes += scanned.file_len;
    Ok(())
}

/// The texts of the hashes of a file without an index.
pub(super) fn names_of(file: Text<'_>) -> Result<HashNames, ReadError> {
    struct Declared(HashNames);
    impl DftVisitor for Declared {
        fn event<E: Event>(&mut self, _: &E, _: Range<usize>) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
        fn metadata(&mut self, metadata: Metadata) {
            metadata.apply(&mut self.0, &mut None);
        }
    }
    let mut declared = Declared(HashNames::default());
    let decoder = DftDecoder::new(&FieldTable::new(), Names::default(), file.unit);
    let mut sink = LineSink {
        lines: Lines::default(),
        part: |part: Part<'_>| {
            if let Part::Lines(text) = part {
                decoder.walk(text, &mut declared);
            }
            ControlFlow::Continue(())
        },
    };
    if file.gzip {
        scan_text(&mut Scanner::default(), file, &mut sink)?;
    } else {
        let mut at = 0;
        while at < file.len {
            let end = file.len.min(at + FETCH_BYTES);
            let _whole = sink.text(&fetch_text(file.fetch, at..end)?);
            at = end;
        }
    }
    let _whole = sink.lines.finish(&mut sink.part);
    Ok(declared.0)
}

/// Fetches bytes that the file had when it was opened.
pub(super) fn fetch_text(fetch: &dyn Fetch, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
    fetch.fetch_one(range).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Shrunk {
            place: fetch.place(),
        },
        _ => ReadError::fetch(fetch.place(), error),
    })
}
