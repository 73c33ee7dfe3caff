//! What the start of a file says about the file: its compression and its unit of times.

use std::ops::{ControlFlow, Range};

use query_language::FieldTable;
use trace_kinds::dft::{DftDecoder, DftVisitor, HashNames, Metadata, Names, TimeUnit};
use trace_kinds::gzip::{Entry, ScanOptions, Scanner, TextSink};
use trace_kinds::{Container, Event};

use crate::{Fetch, ReadError};

/// Bytes at the start of a file that are read.
pub(super) const HEAD_BYTES: u64 = 256 << 10;
/// Bytes of text at the start of a file that are searched for its unit.
const HEAD_TEXT_BYTES: usize = 256 << 10;

/// Compression and unit of times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) gzip: bool,
    pub(crate) unit: TimeUnit,
    /// Whether a record declares the unit.
    pub(crate) is_declared: bool,
}

impl Head {
    fn new(gzip: bool, declared: Option<TimeUnit>) -> Head {
        Head {
            gzip,
            unit: declared.unwrap_or_default(),
            is_declared: declared.is_some(),
        }
    }
}

/// Bytes that identify a compressed file.
const MAGIC_BYTES: u64 = 10;

/// Whether a file of `len` bytes is compressed.
pub(crate) fn begins_as_gzip(fetch: &dyn Fetch, len: u64) -> Result<bool, ReadError> {
    let start = fetch.fetch_one(0..len.min(MAGIC_BYTES));
    let start = start.map_err(|error| ReadError::fetch(fetch.place(), error))?;
    Ok(Container::of(&start) == Container::Gzip)
}

/// Reads the start of a file of `len` bytes.
pub(crate) fn head_of(
    fetch: &dyn Fetch,
    len: u64,
    scanner: &mut Scanner,
) -> Result<Head, ReadError> {
    let head = fetch.fetch_one(0..len.min(HEAD_BYTES));
    let head = head.map_err(|error| ReadError::fetch(fetch.place(), error))?;
    let gzip = Container::of(&head) == Container::Gzip;
    if !gzip {
        return Ok(Head::new(gzip, unit_of(&head)));
    }
    let mut text = HeadText::default();
    // That the bytes end inside a member is not an error here.
    let options = ScanOptions {
        is_start_of_file: true,
        ..ScanOptions::default()
    };
    scanner
        .scan(&head[..], options, &mut text)
        .map_err(|source| ReadError::Gzip {
            place: fetch.place(),
            source,
        })?;
    Ok(Head::new(gzip, unit_of(&text.0)))
}

#[derive(Default)]
struct HeadText(Vec<u8>);

impl TextSink for HeadText {
    fn entry(&mut self, _: Entry) {}

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        let wanted = HEAD_TEXT_BYTES.saturating_sub(self.0.len());
        self.0.extend_from_slice(&text[..text.len().min(wanted)]);
        if self.0.len() >= HEAD_TEXT_BYTES {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn gap(&mut self) {
        self.0.push(b'\n');
    }
}

/// The unit that the start of a file declares.
fn unit_of(head: &[u8]) -> Option<TimeUnit> {
    let head = &head[..head.len().min(HEAD_TEXT_BYTES)];
    let whole = memchr::memrchr(b'\n', head).map_or(0, |newline| newline + 1);
    let mut declared = Declared(None);
    let decoder = DftDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::default());
    decoder.walk(&head[..whole], &mut declared);
    declared.0
}

struct Declared(Option<TimeUnit>);

impl DftVisitor for Declared {
    fn event<E: Event>(&mut self, _: &E, _: Range<usize>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, metadata: Metadata) {
        metadata.apply(&mut HashNames::default(), &mut self.0);
    }
}
