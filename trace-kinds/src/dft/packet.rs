//! Packets of a pushed stream: complete lines, as text or as gzip members.

use std::ops::{ControlFlow, Range};

use query_language::FieldTable;

use super::{DftDecoder, DftVisitor, HashNames, Lines, Metadata, Names, Part, TimeUnit};
use crate::gzip::{Entry, Scanner, TextSink, is_gzip};
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

/// Decodes packets of a `dft` stream, which are text or gzip, as their first bytes show. The events
/// before a torn or damaged member are decoded.
#[derive(Debug)]
pub struct PacketDecoder {
    decoder: DftDecoder,
    declared: Declared,
    scanner: Box<Scanner>,
}

/// Declarations in the packets decoded so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declared {
    /// The texts of hashes.
    pub names: HashNames,
    /// The unit of times, if one was declared.
    pub unit: Option<TimeUnit>,
}

impl PacketDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(table: &FieldTable, names: Names, unit: TimeUnit) -> PacketDecoder {
        PacketDecoder {
            decoder: DftDecoder::new(table, names, unit),
            declared: Declared::default(),
            scanner: Box::default(),
        }
    }

    /// Declarations in the packets decoded so far.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// As [`PacketDecoder::declared`], at the end.
    pub fn into_declared(self) -> Declared {
        self.declared
    }
}

impl Decoder for PacketDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        let mut packet_text = PacketText {
            decoder: &self.decoder,
            output: Output {
                each,
                declared: &mut self.declared,
                flow: ControlFlow::Continue(()),
            },
            lines: Lines::default(),
            decoded: Decoded::default(),
        };
        if !is_gzip(packet) {
            let _whole = packet_text.walk(packet);
            return Ok(packet_text.decoded);
        }
        let from = |offset| usize::try_from(offset).map_or(&[][..], |at| &packet[at..]);
        let scanned = self.scanner.scan_verified(from, &mut packet_text);
        packet_text.finish();
        match scanned {
            // A producer that was killed leaves a torn member; its complete records count.
            Ok(scanned) => packet_text.decoded.broken += scanned.damage.len() as u64,
            Err(error) => {
                return Err(DecodeError::Damaged {
                    format: "dft",
                    offset: 0,
                    reason: error.to_string(),
                });
            }
        }
        Ok(packet_text.decoded)
    }
}

/// Decodes the text of a packet as it is inflated.
struct PacketText<'d, 'e, 'f> {
    decoder: &'d DftDecoder,
    output: Output<'d, 'e, 'f>,
    lines: Lines,
    decoded: Decoded,
}

impl PacketText<'_, '_, '_> {
    fn walk(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.decoded += self.decoder.walk(text, &mut self.output);
        self.output.flow
    }

    fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        match part {
            Part::Lines(text) => self.walk(text),
            Part::Skipped(_, ends) => {
                self.decoded.broken += u64::from(ends);
                ControlFlow::Continue(())
            }
        }
    }

    fn finish(&mut self) {
        if self.output.flow.is_continue() {
            let mut lines = std::mem::take(&mut self.lines);
            // Nothing follows the last line, so a break changes nothing.
            let _last = lines.finish(|part| self.part(part));
        }
    }
}

impl TextSink for PacketText<'_, '_, '_> {
    fn entry(&mut self, _: Entry) {}

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        let mut lines = std::mem::take(&mut self.lines);
        let flow = lines.feed(text, |part| self.part(part));
        self.lines = lines;
        flow
    }

    fn gap(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        // The output remembers a break.
        let _flow = lines.gap(|part| self.part(part));
        self.lines = lines;
    }
}

struct Output<'d, 'e, 'f> {
    each: &'e mut EachEvent<'f>,
    declared: &'d mut Declared,
    flow: ControlFlow<()>,
}

impl DftVisitor for Output<'_, '_, '_> {
    #[inline]
    fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
        self.flow = (self.each)(event);
        self.flow
    }

    fn metadata(&mut self, metadata: Metadata) {
        match metadata {
            Metadata::Name { kind, hash, text } => self.declared.names.insert(kind, hash, &text),
            Metadata::Unit(unit) => self.declared.unit = Some(unit),
            Metadata::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &[u8] = b"[\n\
        {\"name\":\"FH\",\"cat\":\"dftracer\",\"pid\":1,\"tid\":1,\"ph\":\"M\",\"args\":{\"name\":\"/a\",\"value\":7}}\n\
        {\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":2,\"ph\":\"X\",\"args\":{\"fhash\":7}}\n\
        {\"name\":\"open\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":9,\"dur\":1,\"ph\":\"X\",\"args\":{}}\n";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(packet: &[u8]) -> (Vec<i64>, Decoded, Declared) {
        let table = FieldTable::new();
        let mut decoder = PacketDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
        let mut starts = Vec::new();
        let decoded = decoder.decode(packet, &mut |event| {
            starts.extend(event.ts());
            ControlFlow::Continue(())
        });
        (starts, decoded.unwrap(), decoder.into_declared())
    }

    #[test]
    fn text_and_gzip_decode_alike() {
        let whole = decode(TEXT);
        assert_eq!(
            (whole.0.as_slice(), whole.1.metadata),
            (&[5_000, 9_000][..], 1)
        );
        assert_eq!(whole.2.names.iter().count(), 1);
        assert_eq!(decode(&gzip(TEXT)), whole);
        // Members may end inside lines.
        let (front, back) = TEXT.split_at(TEXT.len() / 2);
        assert_eq!(decode(&[gzip(front), gzip(back)].concat()), whole);
    }

    #[test]
    fn events_before_a_torn_end_are_decoded() {
        let mut torn = [gzip(TEXT), gzip(TEXT)].concat();
        torn.truncate(torn.len() - 9);
        let (starts, decoded, _) = decode(&torn);
        assert!(starts.len() >= 2, "{starts:?}");
        assert!(decoded.broken >= 1, "{decoded:?}");
    }

    #[test]
    fn a_break_ends_the_packet() {
        for packet in [TEXT.to_vec(), gzip(TEXT)] {
            let mut decoder =
                PacketDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::default());
            let decoded = decoder.decode(&packet, &mut |_| ControlFlow::Break(()));
            assert_eq!(decoded.map(|decoded| decoded.events), Ok(1));
        }
    }
}
