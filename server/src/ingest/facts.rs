//! Packet facts: what a packet's bytes say about its time span, events and lost events. Nothing
//! else in the server reads payloads during ingest.
//!
//! Facts help the index and are never a condition for storing a packet. A packet that cannot be
//! parsed has no facts: it is stored as sent, and no query rules it out. A fact that depends on an
//! earlier packet of the stream (the counter of lost events, the time unit) is only reported when
//! that packet is known to be the preceding one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bytes::Bytes;
use ctf::{EventReader, Plan};
use parking_lot::Mutex;
use query_language::{FieldId, FieldPath, FieldTable, Number};
use storage_format::frame::Facts;
use storage_format::{Kind, StreamPosition, TimeBasis};
use trace_kinds::chrome::ChromeDecoder;
use trace_kinds::dft::{DftDecoder, DftVisitor, Metadata, Names, PacketDecoder, TimeUnit};
use trace_kinds::gzip::{PiecePacket, is_piece};
use trace_kinds::io_trace::IoTraceDecoder;
use trace_kinds::otlp::{RESOURCE_MEMORY_BYTES, RequestLimits};
use trace_kinds::rocksdb::{RocksdbDecoder, TraceKind};
use trace_kinds::{Container, Decoder, Event, otlp};

use super::metadata::CompiledMetadata;
use super::target::Target;

/// Streams whose last packet is remembered.
const STREAMS_MAX: usize = 4096;

/// Compressed bytes of a gzip packet, and bytes of its text, that are inflated for its facts. The
/// packets that `tracehold push` cuts are far shorter.
const GZIP_BYTES_MAX: usize = 8 << 20;
const GZIP_TEXT_BYTES_MAX: u64 = 32 << 20;
/// Memory for the facts of an OTLP request: the tree of its JSON, and its resources.
const FACTS_MEMORY_BYTES: usize = 16 << 20;

/// Creates readers of facts, and remembers what the next packet of each stream needs.
#[derive(Default)]
pub(crate) struct FactsReaders {
    streams: Mutex<HashMap<Target, StreamState>>,
}

/// What the packets of a stream before `next` have established.
#[derive(Debug, Clone, Copy)]
struct StreamState {
    epoch: u64,
    next: u64,
    /// The producer's counter of discarded events (CTF).
    discarded: Option<u64>,
    /// The time unit (DFTracer).
    unit: Option<TimeUnit>,
}

impl FactsReaders {
    /// The reader for the packets of one request, which uses the agent's `trace` metadata.
    pub(super) fn stream(
        &self,
        trace: CompiledMetadata,
        target: &Target,
        kind: Kind,
    ) -> FactsReader<'_> {
        let reading = match kind {
            Kind::Raw => KindReader::Nothing,
            Kind::Otlp => KindReader::Otlp,
            Kind::Ctf => match trace.plan {
                Some(plan) => KindReader::Ctf(plan, trace.checksum),
                None => KindReader::Nothing,
            },
            Kind::Dft => KindReader::Dft(SpanFields::default()),
            Kind::RocksdbIo => KindReader::spans(|table| RocksdbDecoder::new(TraceKind::Io, table)),
            Kind::RocksdbBlockCache => {
                KindReader::spans(|table| RocksdbDecoder::new(TraceKind::BlockCache, table))
            }
            Kind::IoTrace => KindReader::spans(IoTraceDecoder::new),
            Kind::Chrome => KindReader::spans(ChromeDecoder::new),
        };
        let memory = match reading {
            KindReader::Ctf(..) | KindReader::Dft(_) => self.streams.lock().get(target).copied(),
            KindReader::Nothing | KindReader::Otlp | KindReader::Spans(..) => None,
        };
        FactsReader {
            reading,
            memory,
            unreadable: 0,
            readers: self,
            target: target.clone(),
        }
    }
}

/// What was read of a packet.
#[derive(Debug, Default, PartialEq)]
struct PacketContent {
    facts: Facts,
    /// Records that were skipped, or 1 if the packet is damaged from some point on.
    unreadable: u64,
    /// The counter of discarded events at its end (CTF).
    discarded: Option<u64>,
    /// The time unit after it (DFTracer).
    unit: Option<TimeUnit>,
}

/// How packets of a kind are parsed.
enum KindReader {
    Nothing,
    Otlp,
    /// With the time basis of the plan.
    Ctf(Arc<Plan>, Option<u32>),
    Dft(SpanFields),
    Spans(Box<dyn Decoder>, SpanFields),
}

impl KindReader {
    /// By events with start and duration, with the decoder that `make` creates.
    fn spans<D: Decoder + 'static>(make: impl FnOnce(&FieldTable) -> D) -> Self {
        let fields = SpanFields::default();
        Self::Spans(Box::new(make(&fields.table)), fields)
    }
}

/// Reads the facts of packets of one stream, in order.
pub(super) struct FactsReader<'a> {
    reading: KindReader,
    memory: Option<StreamState>,
    /// Records, and packets damaged from some point on, that cannot be read.
    unreadable: u64,
    readers: &'a FactsReaders,
    target: Target,
}

impl FactsReader<'_> {
    /// How many records, and packets that are damaged from some point on, a query will skip, as far
    /// as the packets were read here.
    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The facts of one packet.
    pub(super) fn of(&mut self, position: StreamPosition, packet: &Bytes) -> Facts {
        let StreamPosition { epoch, sequence } = position;
        let known = match self.memory {
            // Nothing precedes the first packet of an epoch.
            _ if sequence == 0 => (Some(0), Some(TimeUnit::default())),
            Some(memory) if (memory.epoch, memory.next) == (epoch, sequence) => {
                (memory.discarded, memory.unit)
            }
            _ => (None, None),
        };
        let (content, depends) = match &mut self.reading {
            KindReader::Nothing => return Facts::default(),
            KindReader::Otlp => (otlp_facts(packet), false),
            KindReader::Ctf(plan, time_basis) => {
                let mut content = ctf_facts(plan, packet, known.0);
                content.facts.time_basis = *time_basis;
                (content, true)
            }
            KindReader::Dft(fields) => (dft_facts(fields, packet, known.1), true),
            KindReader::Spans(decoder, fields) => {
                (span_facts(&mut **decoder, fields, packet), false)
            }
        };
        self.unreadable = self.unreadable.saturating_add(content.unreadable);
        if depends {
            self.memory = Some(StreamState {
                epoch,
                next: sequence.wrapping_add(1),
                discarded: content.discarded,
                unit: content.unit,
            });
        }
        content.facts
    }
}

impl FactsReader<'_> {
    /// The time unit of the stream after the packets read so far, if it is known.
    pub(super) fn unit(&self) -> Option<TimeUnit> {
        self.memory.and_then(|memory| memory.unit)
    }
}

impl Drop for FactsReader<'_> {
    fn drop(&mut self) {
        let Some(memory) = self.memory else { return };
        let mut streams = self.readers.streams.lock();
        if streams.len() >= STREAMS_MAX {
            streams.clear();
        }
        streams.insert(self.target.clone(), memory);
    }
}

/// The fields that determine the time span of an event.
struct SpanFields {
    table: FieldTable,
    start: FieldId,
    duration: FieldId,
}

impl Default for SpanFields {
    fn default() -> Self {
        let mut table = FieldTable::new();
        let start = table.insert(&FieldPath::new("ts"));
        let duration = table.insert(&FieldPath::new("dur"));
        Self {
            table,
            start,
            duration,
        }
    }
}

impl SpanFields {
    /// Start and end of an event that starts at `begin`.
    fn span(&self, event: &(impl Event + ?Sized), begin: i64) -> (i64, i64) {
        let duration = match event
            .field(self.duration)
            .and_then(|value| value.as_number())
        {
            Some(Number::Int(ns)) => i64::try_from(ns.max(0)).unwrap_or(i64::MAX),
            Some(Number::Float(ns)) if ns > 0.0 => rounded_up(ns),
            _ => 0,
        };
        (begin, begin.saturating_add(duration))
    }
}

/// The next integer, saturated.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast from a float saturates, which is right for a duration"
)]
fn rounded_up(ns: f64) -> i64 {
    ns.ceil() as i64
}

/// A time span that grows with each event.
#[derive(Debug, Default)]
struct Span {
    covered: Option<(i64, i64)>,
    /// Whether an event starts at a time that is not a whole number of nanoseconds, which a query
    /// can still match.
    is_odd: bool,
}

impl Span {
    fn cover(&mut self, (begin, end): (i64, i64)) {
        self.covered = Some(match self.covered {
            None => (begin, end),
            Some((first, last)) => (first.min(begin), last.max(end)),
        });
    }

    fn cover_event(&mut self, event: &(impl Event + ?Sized), fields: &SpanFields) {
        let Some(start) = event.field(fields.start) else {
            return;
        };
        match start.whole() {
            Some(begin) => self.cover(fields.span(event, begin)),
            None => self.is_odd = true,
        }
    }

    /// The time span, if no event can be outside it.
    fn finish(self) -> Option<(i64, i64)> {
        self.covered.filter(|_| !self.is_odd)
    }
}

fn count(events: u64) -> Option<u32> {
    u32::try_from(events).ok()
}

fn ctf_facts(plan: &Plan, packet: &[u8], discarded_before: Option<u64>) -> PacketContent {
    let mut reader = EventReader::new(plan, packet);
    let (mut span, mut events, mut discarded) = (Span::default(), 0, None);
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => discarded = packet.discarded_events,
            Ok(None) => break,
            Err(_) => return partial(events),
        }
        if let Some(clock) = reader.clock_class() {
            let (begin, end) = reader.packet().time_span(clock);
            // The packet's own time span may be wrong, so the events below can extend it.
            begin
                .into_iter()
                .chain(end)
                .for_each(|instant| span.cover((instant, instant)));
        }
        loop {
            match reader.next_event() {
                // A query ends the packet there, too.
                Ok(Some(event)) if event.nanoseconds().is_none() && event.clock().is_some() => {
                    return partial(events);
                }
                Ok(Some(event)) => {
                    events += 1;
                    if let Some(instant) = event.nanoseconds() {
                        span.cover((instant, instant));
                    }
                }
                Ok(None) => break,
                Err(_) => return partial(events),
            }
        }
    }
    let lost = discarded
        .zip(discarded_before)
        .and_then(|(now, before)| now.checked_sub(before));
    let facts = Facts {
        time_span: span.finish(),
        events: count(events),
        lost: lost.and_then(count),
        time_basis: None,
        has_unreadable: false,
    };
    PacketContent {
        facts,
        discarded,
        ..PacketContent::default()
    }
}

/// Collects the time span and unit of a packet of DFTracer lines.
struct DftLines<'a> {
    fields: &'a SpanFields,
    span: Span,
    declared: Option<TimeUnit>,
}

impl DftVisitor for DftLines<'_> {
    fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
        self.span.cover_event(event, self.fields);
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, metadata: Metadata) {
        if let Metadata::Unit(unit) = metadata {
            self.declared.get_or_insert(unit);
        }
    }
}

fn dft_facts(fields: &SpanFields, packet: &[u8], unit: Option<TimeUnit>) -> PacketContent {
    let not_read = PacketContent {
        unit,
        ..PacketContent::default()
    };
    let is_gzip = Container::of(packet) == Container::Gzip || is_piece(packet);
    if is_gzip && packet.len() > GZIP_BYTES_MAX {
        return not_read;
    }
    let walk = |unit| {
        let mut lines = DftLines {
            fields,
            span: Span::default(),
            declared: None,
        };
        if is_gzip {
            let mut decoder = PacketDecoder::new(&fields.table, Names::default(), unit);
            let decoded = decoder.decode_short(packet, GZIP_TEXT_BYTES_MAX, &mut |event| {
                lines.span.cover_event(event, fields);
                ControlFlow::Continue(())
            })?;
            lines.declared = decoder.declared().unit;
            return Some((decoded, lines));
        }
        let decoder = DftDecoder::new(&fields.table, Names::default(), unit);
        let decoded = decoder.walk(packet, &mut lines);
        Some((decoded, lines))
    };
    let assumed = unit.unwrap_or_default();
    let Some((mut decoded, mut lines)) = walk(assumed) else {
        // Too long to be inflated here: it is parsed when it is queried.
        return not_read;
    };
    let unit = lines.declared.or(unit);
    if let Some(declared) = lines.declared
        && declared != assumed
    {
        // A declaration applies to the complete file, including the lines before it.
        (decoded, lines) = walk(declared).unwrap_or((decoded, lines));
    }
    // With an unknown unit, a time span could rule out events that match.
    let basis = unit.map_or(TimeBasis::Unknown, TimeUnit::time_basis);
    let (time_span, time_basis) = match basis {
        TimeBasis::Number(number) => (lines.span.finish(), Some(number)),
        TimeBasis::Bytes | TimeBasis::Unknown => (None, None),
    };
    let facts = Facts {
        time_span,
        events: count(decoded.events),
        time_basis,
        ..Facts::default()
    };
    PacketContent {
        unit,
        ..readable(facts, decoded.broken)
    }
}

fn otlp_facts(packet: &[u8]) -> PacketContent {
    let limits = RequestLimits::READABLE;
    let request = if otlp::is_json(packet) {
        match otlp::to_protobuf_within(packet, FACTS_MEMORY_BYTES, &limits) {
            Ok(Some(request)) => Cow::Owned(request),
            // What takes more is parsed when it is queried.
            Ok(None) => return PacketContent::default(),
            Err(_) => return partial(0),
        }
    } else {
        Cow::Borrowed(packet)
    };
    let resources = otlp::resource_count(&request);
    if resources.saturating_mul(RESOURCE_MEMORY_BYTES) > FACTS_MEMORY_BYTES {
        return PacketContent::default();
    }
    let Ok(parts) = otlp::check(&request, &limits) else {
        return partial(0);
    };
    let mut span = Span::default();
    parts
        .iter()
        .filter_map(|part| part.time_span)
        .for_each(|each| span.cover(each));
    let facts = Facts {
        time_span: span.finish(),
        events: count(parts.iter().map(|part| part.spans).sum()),
        ..Facts::default()
    };
    readable(facts, 0)
}

fn span_facts(decoder: &mut dyn Decoder, fields: &SpanFields, packet: &[u8]) -> PacketContent {
    if is_piece(packet) {
        match PiecePacket::decode(packet) {
            Ok(piece) if piece.text_bytes() > GZIP_TEXT_BYTES_MAX => {
                return PacketContent::default();
            }
            Ok(_) => {}
            Err(_) => return partial(0),
        }
    }
    let (mut span, mut events) = (Span::default(), 0);
    let decoded = decoder.decode(packet, &mut |event| {
        events += 1;
        span.cover_event(event, fields);
        ControlFlow::Continue(())
    });
    match decoded {
        Ok(decoded) => {
            let facts = Facts {
                time_span: span.finish(),
                events: count(decoded.events),
                ..Facts::default()
            };
            readable(facts, decoded.broken)
        }
        Err(_) => partial(events),
    }
}

/// The facts of a packet with this number of records that cannot be read.
fn readable(facts: Facts, unreadable: u64) -> PacketContent {
    PacketContent {
        facts: Facts {
            has_unreadable: unreadable > 0,
            ..facts
        },
        unreadable,
        ..PacketContent::default()
    }
}

/// The facts of a packet that cannot be decoded to its end: as many events as a query finds, and no
/// time span, because what follows may have any time.
fn partial(events: u64) -> PacketContent {
    let facts = Facts {
        events: count(events).filter(|events| *events > 0),
        ..Facts::default()
    };
    readable(facts, 1)
}

#[cfg(test)]
mod tests;
