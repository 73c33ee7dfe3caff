//! Processors that pass a part of their input to a nested chain.
//!
//! Of a packet of spans only the matching spans pass, as a packet in its position; packets of other
//! kinds, and invocations, pass complete or not at all.

use std::collections::HashSet;
use std::ops::ControlFlow;

use query_language::{BareUnit, FieldTable, Program, Query};
use storage_format::{AgentId, Kind, StreamId};
use trace_kinds::dft::{Names, PacketDecoder};
use trace_kinds::otlp::{OtlpDecoder, OtlpEvent, Span};
use trace_kinds::{Event, Origin, OriginFields, decoder_for};

use super::spans::{Cut, any, cut};
use crate::ConfigError;
use crate::config::parse_query;
use crate::outbox::Outbox;
use crate::packet::{Derived, Packet};
use crate::processor::{Item, Processor, Row};

/// Passes the spans of a packet for which `keep` is true.
fn pass_spans(
    row: &mut Row,
    (packet, request): (&Packet, &[u8]),
    decoder: &OtlpDecoder,
    out: &mut Outbox,
    keep: impl FnMut(&OtlpEvent<'_, '_>) -> bool,
) {
    match cut(packet, request, decoder, keep) {
        Cut::Nothing => {}
        Cut::Whole => row.process(Item::Packet { packet, request }, out),
        Cut::Part(part) => row.process(
            Item::Packet {
                packet: &part,
                request: &part.payload,
            },
            out,
        ),
    }
}

/// The span of an item that is about one span.
fn span_of<'a>(item: &Item<'a>) -> Option<Span<'a>> {
    match item {
        Item::Packet { .. } => None,
        Item::Invocation(invocation) => invocation.members.first().map(|root| root.span),
        Item::Extracted {
            derived: Derived::Exception,
            exception,
            ..
        } => Span::read(exception).ok(),
        Item::Extracted { member, .. } => Some(member.span),
    }
}

/// A processor that passes some items to nested processors.
trait Filter: Send {
    /// The nested processors.
    fn row(&mut self) -> &mut Row;

    /// The same, to look at them.
    fn nested(&self) -> &Row;

    /// Passes an item on.
    fn filter(&mut self, item: Item<'_>, out: &mut Outbox);
}

impl<F: Filter> Processor for F {
    fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        self.filter(item, out);
    }

    fn tick(&mut self, out: &mut Outbox) {
        self.row().tick(out);
    }

    fn finish(&mut self, out: &mut Outbox) {
        self.row().finish(out);
    }

    fn memory(&self) -> usize {
        self.nested().memory()
    }
}

/// Passes what starts in a time range; of packets of other kinds those whose times overlap it, or
/// are unknown, and those of DFTracer that declare what the others mean.
pub(super) struct TimeFrame {
    from: Option<i64>,
    to: Option<i64>,
    decoder: OtlpDecoder,
    row: Row,
}

impl TimeFrame {
    pub(super) fn new(from: Option<i64>, to: Option<i64>, row: Row) -> Self {
        Self {
            from,
            to,
            decoder: OtlpDecoder::new(&FieldTable::new()),
            row,
        }
    }
}

/// Whether a packet of DFTracer declares the unit of times or the names of hashes of its stream.
fn declares(packet: &Packet) -> bool {
    let table = FieldTable::new();
    packet.kind == Kind::Dft
        && PacketDecoder::new(&table, Names::default(), packet.context.unit)
            .learns_from(&packet.payload)
}

fn is_within(ts: Option<i64>, from: Option<i64>, to: Option<i64>) -> bool {
    ts.is_some_and(|ts| from.is_none_or(|from| ts >= from) && to.is_none_or(|to| ts < to))
}

impl Filter for TimeFrame {
    fn filter(&mut self, item: Item<'_>, out: &mut Outbox) {
        let Self {
            from,
            to,
            decoder,
            row,
        } = self;
        match item {
            Item::Packet { packet, request } if packet.kind == Kind::Otlp => {
                pass_spans(row, (packet, request), decoder, out, |event| {
                    is_within(event.ts(), *from, *to)
                });
            }
            Item::Packet { packet, .. } => {
                if packet.overlaps(*from, *to) || declares(packet) {
                    row.process(item, out);
                }
            }
            item => {
                if is_within(span_of(&item).and_then(|span| span.ts()), *from, *to) {
                    row.process(item, out);
                }
            }
        }
    }

    fn row(&mut self) -> &mut Row {
        &mut self.row
    }

    fn nested(&self) -> &Row {
        &self.row
    }
}

/// Passes what some agents sent.
pub(super) struct AgentFilter {
    agents: HashSet<AgentId>,
    row: Row,
}

impl AgentFilter {
    pub(super) fn new(agents: &[AgentId], row: Row) -> Self {
        Self {
            agents: agents.iter().cloned().collect(),
            row,
        }
    }
}

impl Filter for AgentFilter {
    fn filter(&mut self, item: Item<'_>, out: &mut Outbox) {
        let agent = match &item {
            Item::Packet { packet, .. } => &packet.agent,
            Item::Invocation(invocation) => invocation.agent,
            Item::Extracted { of, .. } => of.agent,
        };
        if self.agents.contains(agent) {
            self.row.process(item, out);
        }
    }

    fn row(&mut self) -> &mut Row {
        &mut self.row
    }

    fn nested(&self) -> &Row {
        &self.row
    }
}

/// Passes a sample of traces by their ids, the same in every sampler: the last 56 bits of an id are
/// random (W3C Trace Context), and are compared with a threshold.
pub(super) struct Sampler {
    /// Ids from here on pass; one past the last id if none does.
    threshold: u64,
    decoder: OtlpDecoder,
    row: Row,
}

/// Random bits of a trace id.
const RANDOM_BITS: u32 = 56;

impl Sampler {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the ratio is from 0 to 1"
    )]
    pub(super) fn new(ratio: f64, row: Row) -> Self {
        let all = (1_u64 << RANDOM_BITS) as f64;
        Self {
            threshold: ((1.0 - ratio) * all).round() as u64,
            decoder: OtlpDecoder::new(&FieldTable::new()),
            row,
        }
    }
}

fn is_sampled(span: &Span<'_>, threshold: u64) -> bool {
    let Some(last) = span.trace_id.last_chunk::<8>() else {
        return false;
    };
    u64::from_be_bytes(*last) & ((1 << RANDOM_BITS) - 1) >= threshold
}

impl Filter for Sampler {
    fn filter(&mut self, item: Item<'_>, out: &mut Outbox) {
        let Self {
            threshold,
            decoder,
            row,
        } = self;
        match item {
            Item::Packet { packet, request } if packet.kind == Kind::Otlp => {
                pass_spans(row, (packet, request), decoder, out, |event| {
                    is_sampled(&event.span(), *threshold)
                });
            }
            // Packets of other kinds have no traces to sample.
            Item::Packet { .. } => row.process(item, out),
            item => {
                if span_of(&item).is_some_and(|span| is_sampled(&span, *threshold)) {
                    row.process(item, out);
                }
            }
        }
    }

    fn row(&mut self) -> &mut Row {
        &mut self.row
    }

    fn nested(&self) -> &Row {
        &self.row
    }
}

fn origin_of(agent: &AgentId, stream: &StreamId, kind: Kind) -> Origin {
    Origin {
        agent: Some(agent.to_string()),
        stream: Some(stream.to_string()),
        storage: None,
        kind: kind.as_str(),
    }
}

/// A query on packets of every kind.
pub(crate) struct PacketQuery {
    query: Query,
    table: FieldTable,
    /// With bare numbers in nanoseconds, the unit of all kinds but one.
    program: Program,
    decoder: OtlpDecoder,
}

impl PacketQuery {
    pub(crate) fn new(text: &str) -> Result<Self, ConfigError> {
        let query = parse_query(text)?;
        let mut table = FieldTable::new();
        let bound = query.bind(BareUnit::NANOS);
        let bound = bound.map_err(|error| ConfigError::new("query", error.to_string()))?;
        let program = Program::compile(&bound, &mut table);
        Ok(Self {
            decoder: OtlpDecoder::new(&table),
            query,
            table,
            program,
        })
    }

    fn origin(&self, agent: &AgentId, stream: &StreamId, kind: Kind) -> OriginFields {
        OriginFields::new(&origin_of(agent, stream, kind), &self.table)
    }

    /// Whether agent, stream and kind of a packet rule its events out.
    fn excludes(&self, packet: &Packet) -> bool {
        let origin = origin_of(&packet.agent, &packet.stream, packet.kind);
        // Numbers of any unit do here: only names are compared.
        let filter = self.query.bind(BareUnit::NANOS);
        filter.is_ok_and(|filter| origin.answer(&filter).passes_none())
    }

    fn matches(&self, event: &dyn Event, origin: &OriginFields) -> bool {
        if origin.is_empty() {
            self.program.matches(event)
        } else {
            self.program.matches(&origin.with(event))
        }
    }

    /// Whether an event of the packet matches. A packet that cannot be decoded has no matches.
    pub(crate) fn matches_packet(&self, packet: &Packet) -> bool {
        let origin = self.origin(&packet.agent, &packet.stream, packet.kind);
        let unit = trace_kinds::bare_unit(packet.kind, &packet.context);
        let mut table = self.table.clone();
        let own = match unit {
            BareUnit::NANOS => None,
            unit => match self.query.bind(unit) {
                Ok(bound) => Some(Program::compile(&bound, &mut table)),
                Err(_) => return false,
            },
        };
        let program = own.as_ref().unwrap_or(&self.program);
        let Ok(Some(mut decoder)) = decoder_for(packet.kind, &packet.context, &table) else {
            return false;
        };
        let mut found = false;
        let decoded = decoder.decode(&packet.payload, &mut |event| {
            found = if origin.is_empty() {
                program.matches(event)
            } else {
                program.matches(&origin.with(event))
            };
            if found {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        // Events that precede damage count as those of an intact packet.
        drop(decoded);
        found
    }
}

/// Passes what matches an expression, and packets of DFTracer that declare what others mean.
pub(super) struct QueryFilter {
    query: PacketQuery,
    /// Declarations do not pass.
    is_exact: bool,
    row: Row,
}

impl QueryFilter {
    pub(super) fn new(text: &str, is_exact: bool, row: Row) -> Result<Self, ConfigError> {
        Ok(Self {
            query: PacketQuery::new(text)?,
            is_exact,
            row,
        })
    }

    fn passes(&self, packet: &Packet) -> bool {
        let query = &self.query;
        // Matches that come later need what this one declares.
        let is_needed = || !self.is_exact && declares(packet) && !query.excludes(packet);
        query.matches_packet(packet) || is_needed()
    }
}

impl Filter for QueryFilter {
    fn filter(&mut self, item: Item<'_>, out: &mut Outbox) {
        if let Item::Packet { packet, .. } = &item
            && packet.kind != Kind::Otlp
        {
            if self.passes(packet) {
                self.row.process(item, out);
            }
            return;
        }
        let Self { query, row, .. } = self;
        match item {
            Item::Packet { packet, request } => {
                let origin = query.origin(&packet.agent, &packet.stream, packet.kind);
                pass_spans(row, (packet, request), &query.decoder, out, |event| {
                    query.matches(event, &origin)
                });
            }
            Item::Invocation(invocation) => {
                let origin = query.origin(invocation.agent, invocation.stream, Kind::Otlp);
                let spans = (invocation.members.iter())
                    .map(|member| (member.resource.plain(), member.scope.plain(), member.span));
                if any(spans, &query.decoder, |event| query.matches(event, &origin)) {
                    row.process(item, out);
                }
            }
            Item::Extracted { of, member, .. } => {
                let origin = query.origin(of.agent, of.stream, Kind::Otlp);
                let span = span_of(&item).into_iter();
                let spans = span.map(|s| (member.resource.plain(), member.scope.plain(), s));
                if any(spans, &query.decoder, |event| query.matches(event, &origin)) {
                    row.process(item, out);
                }
            }
        }
    }

    fn row(&mut self) -> &mut Row {
        &mut self.row
    }

    fn nested(&self) -> &Row {
        &self.row
    }
}
