//! Packets of a pushed stream: complete lines, as text, as gzip members or as pieces of one.

use std::ops::{ControlFlow, Range};

use query_language::FieldTable;

use super::{DftDecoder, DftVisitor, HashNames, Lines, Metadata, Names, Part, TimeUnit};
use crate::gzip::{
    Entry, Inflater, PiecePacket, ScanOptions, Scanner, TextSink, is_gzip, is_piece,
};
use crate::{DamagedBytes, DecodeError, Decoded, Decoder, EachEvent, Event};

/// Decodes packets of a `dft` stream, which are text, gzip or pieces of it, as their first bytes
/// show. The events before a torn or damaged member are decoded.
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

    /// As [`Decoder::decode`] for a packet whose text has at most `text_bytes_max` bytes. That also
    /// bounds the time it takes. `None` if the text is longer or has members that are inflated in
    /// parts; then some of the events were passed on.
    pub fn decode_short(
        &mut self,
        packet: &[u8],
        text_bytes_max: u64,
        each: &mut EachEvent<'_>,
    ) -> Option<Decoded> {
        let mut packet_text = PacketText::new(&self.decoder, &mut self.declared, each);
        if is_piece(packet) {
            let piece = PiecePacket::decode(packet);
            if (piece.as_ref()).is_ok_and(|piece| piece.text_bytes() > text_bytes_max) {
                return None;
            }
            match piece.and_then(|piece| piece.text(&mut Inflater::default())) {
                Ok(text) => drop(packet_text.walk(&text)),
                Err(_) => packet_text.decoded.broken += 1,
            }
            return Some(packet_text.decoded);
        }
        if !is_gzip(packet) {
            let is_short = u64::try_from(packet.len()).is_ok_and(|bytes| bytes <= text_bytes_max);
            return is_short.then(|| {
                let _whole = packet_text.walk(packet);
                packet_text.decoded
            });
        }
        let options = ScanOptions {
            stops_at_long_member: true,
            ..ScanOptions::default()
        };
        packet_text.text_bytes_left = text_bytes_max;
        let scanned = self.scanner.scan(packet, options, &mut packet_text).ok()?;
        packet_text.finish();
        let is_whole = scanned.long_member.is_none() && scanned.text_len <= text_bytes_max;
        packet_text.decoded.broken += scanned.damage.len() as u64;
        is_whole.then_some(packet_text.decoded)
    }

    /// Reads what a packet declares in the first `text_bytes_max` bytes of its text. A small gzip
    /// member may have text of gigabytes.
    pub fn learn_from_head(&mut self, packet: &[u8], text_bytes_max: u64) {
        let each = &mut |_: &dyn Event| ControlFlow::Continue(());
        if is_piece(packet) || !is_gzip(packet) {
            // As long as its packet. What precedes damage is declared.
            drop(self.decode(packet, each));
            return;
        }
        let mut text = PacketText::new(&self.decoder, &mut self.declared, each);
        text.text_bytes_left = text_bytes_max;
        text.takes_beginning = true;
        let _scanned = self.scanner.scan(packet, ScanOptions::default(), &mut text);
        text.finish();
    }

    /// Whether a packet declares something that no packet before it does. Only that is decoded
    /// which may be a declaration, so events are not counted.
    pub fn learns_from(&mut self, packet: &[u8]) -> bool {
        let known = |declared: &Declared| (declared.names.len(), declared.unit);
        let before = known(&self.declared);
        if is_gzip(packet) || is_piece(packet) || may_declare(packet) {
            // What precedes damage is declared.
            drop(self.decode(packet, &mut |_| ControlFlow::Continue(())));
        }
        known(&self.declared) != before
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
        let mut packet_text = PacketText::new(&self.decoder, &mut self.declared, each);
        if is_piece(packet) {
            DamagedBytes::refuse(packet, "dft")?;
            let text = PiecePacket::decode(packet);
            let text = text.and_then(|piece| piece.text(&mut Inflater::default()));
            let _whole = packet_text.walk(&text.map_err(|damage| DecodeError::Damaged {
                format: "dft",
                offset: 0,
                reason: damage.to_string(),
            })?);
            return Ok(packet_text.decoded);
        }
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

/// Whether a text may contain a record that declares something: the name of one, or an escape in
/// which the name may be written.
fn may_declare(text: &[u8]) -> bool {
    let names: [&[u8]; 5] = [b"FH\"", b"HH\"", b"SH\"", b"CM\"", b"\\u00"];
    (names.iter()).any(|name| memchr::memmem::find(text, name).is_some())
}

/// Decodes the text of a packet as it is inflated.
struct PacketText<'d, 'e, 'f> {
    decoder: &'d DftDecoder,
    output: Output<'d, 'e, 'f>,
    lines: Lines,
    decoded: Decoded,
    /// Text that is decoded; the next text after it ends the decoding.
    text_bytes_left: u64,
    /// Whether the beginning of a text is decoded that is longer.
    takes_beginning: bool,
}

impl<'d, 'e, 'f> PacketText<'d, 'e, 'f> {
    fn new(
        decoder: &'d DftDecoder,
        declared: &'d mut Declared,
        each: &'e mut EachEvent<'f>,
    ) -> PacketText<'d, 'e, 'f> {
        PacketText {
            decoder,
            output: Output {
                each,
                declared,
                flow: ControlFlow::Continue(()),
            },
            lines: Lines::default(),
            decoded: Decoded::default(),
            text_bytes_left: u64::MAX,
            takes_beginning: false,
        }
    }
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

    fn feed(&mut self, text: &[u8]) -> ControlFlow<()> {
        let mut lines = std::mem::take(&mut self.lines);
        let flow = lines.feed(text, |part| self.part(part));
        self.lines = lines;
        flow
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
        match self.text_bytes_left.checked_sub(text.len() as u64) {
            Some(left) => {
                self.text_bytes_left = left;
                self.feed(text)
            }
            None => {
                let fits = usize::try_from(self.text_bytes_left).unwrap_or(text.len());
                if self.takes_beginning {
                    let _flow = self.feed(&text[..fits]);
                }
                ControlFlow::Break(())
            }
        }
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
        metadata.apply(&mut self.declared.names, &mut self.declared.unit);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::gzip::WHOLE_TEXT_BYTES_MAX;

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

    /// What both ways to decode a packet count: events, and records that cannot be read. The second
    /// is `None` for a packet that fails.
    fn broken(packet: &[u8]) -> [Option<(u64, u64)>; 2] {
        let counts = |decoded: Decoded| (decoded.events, decoded.broken);
        let mut each = |_: &dyn Event| ControlFlow::Continue(());
        let mut decoder =
            PacketDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::Microsecond);
        let short = decoder.decode_short(packet, u64::MAX, &mut each);
        let whole = decoder.decode(packet, &mut each);
        [short.map(counts), whole.ok().map(counts)]
    }

    #[test]
    fn packets_that_declare_more_than_those_before_are_known() {
        let unit = |unit: &str| {
            format!(
                "{{\"name\":\"CM\",\"ph\":\"M\",\"args\":{{\"name\":\"time_metric\",\"value\":\"{unit}\"}}}}\n"
            )
        };
        let escaped =
            "{\"name\":\"\\u0046H\",\"ph\":\"M\",\"args\":{\"name\":\"/b\",\"value\":8}}\n";
        let event = "{\"name\":\"read\",\"pid\":1,\"tid\":1,\"ts\":5,\"ph\":\"X\"}\n";
        let mut decoder =
            PacketDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::default());
        for (packet, expected) in [
            (event.into(), false),
            (TEXT.to_vec(), true),
            (gzip(TEXT), false),
            (escaped.into(), true),
            (gzip(unit("NS").as_bytes()), true),
            (unit("MS").into(), false),
        ] {
            let learned = decoder.learns_from(&packet);
            assert_eq!(learned, expected, "{}", String::from_utf8_lossy(&packet));
        }
        // The first unit of a stream counts.
        assert_eq!(decoder.declared().unit, Some(TimeUnit::Nanosecond));
    }

    #[test]
    fn the_head_of_a_packet_ends_within_a_long_member() {
        let unit =
            "{\"name\":\"CM\",\"ph\":\"M\",\"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n";
        let event = "{\"name\":\"read\",\"pid\":1,\"tid\":1,\"ts\":5,\"ph\":\"X\"}\n";
        // More than is inflated in one call.
        let events = event.repeat(1 + WHOLE_TEXT_BYTES_MAX / event.len());
        for (text, bytes_max, expected) in [
            (
                [unit, &events].concat(),
                1 << 20,
                Some(TimeUnit::Nanosecond),
            ),
            ([&events, unit].concat(), 1 << 20, None),
            (
                [&events, unit].concat(),
                u64::MAX,
                Some(TimeUnit::Nanosecond),
            ),
        ] {
            let mut decoder =
                PacketDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::default());
            decoder.learn_from_head(&gzip(text.as_bytes()), bytes_max);
            assert_eq!(decoder.declared().unit, expected);
        }
    }

    #[test]
    fn each_record_that_cannot_be_read_is_counted_once() {
        let mut torn = gzip(TEXT);
        // All lines are there, but not their checksum.
        torn.truncate(torn.len() - 4);
        let long = vec![b'x'; super::super::LINE_BYTES_MAX + 1];
        let long_first = [&long[..], b"\n", TEXT].concat();
        let long_last = [TEXT, &long].concat();
        let one = Some((2, 1));
        for (packet, expected) in [
            (gzip(TEXT), [Some((2, 0)); 2]),
            (torn.clone(), [one; 2]),
            ([TEXT, b"torn"].concat(), [one; 2]),
            (gzip(&[TEXT, b"torn"].concat()), [one; 2]),
            (gzip(&long_first), [one; 2]),
            (gzip(&long_last), [one; 2]),
            ([gzip(TEXT), torn].concat(), [Some((4, 1)); 2]),
            // A piece of which nothing can be read fails, or counts.
            (b"\x8dGZPIECE\x09".to_vec(), [Some((0, 1)), None]),
        ] {
            assert_eq!(broken(&packet), expected, "{} bytes", packet.len());
        }
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

    #[test]
    fn short_packets_decode_alike_and_long_ones_are_refused() {
        let zeros = gzip(&vec![b' '; 40 << 20]);
        let many: Vec<u8> = (0..20).flat_map(|_| gzip(TEXT)).collect();
        let length = TEXT.len() as u64;
        for (packet, text_max, events) in [
            (TEXT.to_vec(), length, Some(2)),
            (TEXT.to_vec(), length - 1, None),
            (gzip(TEXT), length, Some(2)),
            (gzip(TEXT), length - 1, None),
            (many.clone(), 20 * length, Some(40)),
            (many, 19 * length, None),
            (zeros, u64::MAX, None),
        ] {
            let table = FieldTable::new();
            let mut decoder = PacketDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
            let mut each = |_: &dyn Event| ControlFlow::Continue(());
            let decoded = decoder.decode_short(&packet, text_max, &mut each);
            assert_eq!(decoded.map(|decoded| decoded.events), events, "{text_max}");
        }
    }
}
