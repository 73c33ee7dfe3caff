//! The decoder of the lines of a packet.

use std::ops::{ControlFlow, Range};

use query_language::FieldTable;

use super::arguments::Arguments;
use super::event::{Frame, Layout, LineEvent, ParsedEvent};
use super::line;
use super::metadata::Metadata;
use super::names::Names;
use super::parsed::{Owned, ParsedLine};
use super::shapes::Shapes;
use super::time::TimeUnit;
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

/// Receives the records of a packet with the ranges of their lines, line ends included.
pub trait DftVisitor {
    /// An event. `Break` ends the walk.
    fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()>;

    /// A metadata record.
    fn metadata(&mut self, metadata: Metadata);

    /// A line begins, whatever its content.
    #[inline]
    fn line(&mut self) {}
}

/// Decodes packets of complete DFTracer lines.
///
/// Events can be decoded in any order only if the names and the unit that the file declares are
/// known, so the caller provides them; the visitor receives the declarations in a packet.
#[derive(Debug)]
pub struct DftDecoder {
    layout: Layout,
    names: Names,
    unit: TimeUnit,
}

impl DftDecoder {
    /// A decoder for the fields of `table`. `names` may be empty if the table contains no text that
    /// the trace stores as a hash.
    pub fn new(table: &FieldTable, names: Names, unit: TimeUnit) -> DftDecoder {
        DftDecoder {
            layout: Layout::new(table),
            names,
            unit,
        }
    }

    /// Passes every record of `packet` to `visitor`, in the order of the bytes.
    pub fn walk<V: DftVisitor>(&self, packet: &[u8], visitor: &mut V) -> Decoded {
        self.walk_shaped(packet, &mut Shapes::default(), visitor)
    }

    /// As [`DftDecoder::walk`], with shapes that the slices of a text share.
    pub fn walk_shaped<V: DftVisitor>(
        &self,
        packet: &[u8],
        shapes: &mut Shapes,
        visitor: &mut V,
    ) -> Decoded {
        let frame = Frame {
            layout: &self.layout,
            names: &self.names,
            unit: self.unit,
        };
        let mut arguments = Arguments::new(&self.layout.keys);
        let mut decoded = Decoded::default();
        let mut at = 0;
        while at < packet.len() {
            visitor.line();
            let (flow, end) = match line::read(packet, at, shapes, &mut arguments) {
                Some((head, end)) if Metadata::is_phase(head.ph) => {
                    let metadata = Metadata::read(head.name, head.args);
                    describe(metadata, self.unit, &mut decoded, visitor);
                    (ControlFlow::Continue(()), end)
                }
                Some((head, end)) => {
                    decoded.events += 1;
                    let event = LineEvent {
                        head: &head,
                        arguments: &arguments,
                        frame,
                    };
                    (visitor.event(&event, at..end), end)
                }
                None => parse_line(packet, at, frame, &mut decoded, visitor),
            };
            at = end;
            if flow.is_break() {
                break;
            }
        }
        decoded
    }
}

/// Counts and passes a metadata record of a trace that is read with `unit`.
fn describe<V: DftVisitor>(
    metadata: Metadata,
    unit: TimeUnit,
    decoded: &mut Decoded,
    visitor: &mut V,
) {
    decoded.metadata += 1;
    // The times of a trace have one unit: those after this declaration may be meant otherwise.
    let is_misread = match metadata {
        Metadata::Unit(declared) => declared != unit,
        Metadata::UnknownUnit => true,
        Metadata::Name { .. } | Metadata::Other => false,
    };
    decoded.broken += u64::from(is_misread);
    visitor.metadata(metadata);
}

/// Parses the line at `at` as JSON. Returns the offset of the next line.
#[cold]
fn parse_line<V: DftVisitor>(
    packet: &[u8],
    at: usize,
    frame: Frame<'_>,
    decoded: &mut Decoded,
    visitor: &mut V,
) -> (ControlFlow<()>, usize) {
    let rest = &packet[at..];
    let end = at + memchr::memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
    let record = without_frame(&packet[at..end]);
    let is_lost = has_lost(&packet[at..end]);
    if is_lost {
        decoded.broken += 1;
    }
    if record.is_empty() {
        return (ControlFlow::Continue(()), end);
    }
    let has_comma = has_comma(&packet[at..end]);
    let flow = match ParsedLine::new(record).filter(|_| !has_comma) {
        None => {
            decoded.broken += u64::from(!is_lost);
            ControlFlow::Continue(())
        }
        Some(line) if Metadata::is_phase(line.top("ph").scalar()) => {
            describe(Metadata::of_parsed(&line), frame.unit, decoded, visitor);
            ControlFlow::Continue(())
        }
        Some(line) => {
            decoded.events += 1;
            visitor.event(&ParsedEvent::new(line, frame), at..end)
        }
    };
    (flow, end)
}

/// The record of a line without the brackets and commas of a JSON array, blanks, and the zero
/// bytes that some writers leave before the first record.
fn without_frame(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\0' | b',');
    let start = line
        .iter()
        .position(|b| !blank(b) && *b != b'[')
        .unwrap_or(line.len());
    let end = line
        .iter()
        .rposition(|b| !blank(b) && *b != b']')
        .map_or(start, |last| last + 1);
    line.get(start..end).unwrap_or(&[])
}

/// Whether a line has zeros, which a file system leaves for what it lost. Some writers leave zeros
/// before the bracket that begins the file.
fn has_lost(line: &[u8]) -> bool {
    let is_filling = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\0';
    let filling = line.iter().take_while(|byte| is_filling(byte)).count();
    let after = line.get(filling..).unwrap_or_default();
    let zeros_in = if after.starts_with(b"[") { after } else { line };
    memchr::memchr(b'\0', zeros_in).is_some()
}

/// Whether a line begins or ends with a comma: it is an element of a JSON array, and no record of
/// its own.
fn has_comma(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b",") || line.ends_with(b",")
}

/// Lines of a file that are examined to recognize it: damage at its start may break some.
const LINES_EXAMINED: usize = 16;

/// Whether a file that starts with `prefix` consists of DFTracer lines: whether one of its first
/// lines is an object with a phase or with a name and a time, or the array of the records is still
/// empty. The last line of a prefix that is not the whole file may be cut; its first keys decide.
pub(crate) fn begins_with_lines(prefix: &[u8], is_whole: bool) -> bool {
    if is_whole && prefix.trim_ascii() == b"[" {
        return true;
    }
    let lines = prefix.split_inclusive(|byte| *byte == b'\n');
    let records = lines.map(|line| (without_frame(line), is_whole || line.ends_with(b"\n")));
    records
        .filter(|(record, _)| !record.is_empty())
        .take(LINES_EXAMINED)
        .any(|(record, is_complete)| {
            if is_complete {
                let line = ParsedLine::new(record);
                line.is_some_and(|line| {
                    let has = |key| line.top(key) != Owned::NULL;
                    has("ph") || has("name") && has("ts")
                })
            } else {
                let first_keys: [&[u8]; 2] = [b"{\"id\":", b"{\"name\":"];
                first_keys.iter().any(|key| record.starts_with(key))
                    && memchr::memmem::find(record, b"\"ph\":").is_some()
            }
        })
}

impl Decoder for DftDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        struct Events<'e, 'f>(&'e mut EachEvent<'f>);
        impl DftVisitor for Events<'_, '_> {
            fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
                (self.0)(event)
            }
            fn metadata(&mut self, _: Metadata) {}
        }
        Ok(self.walk(packet, &mut Events(each)))
    }
}
