//! The output of a chain: packets, and derived spans that are not packets yet.

use std::collections::HashMap;

use bytes::Bytes;
use storage_format::frame::Facts;
use storage_format::{AgentId, Kind, StreamId};
use trace_kinds::otlp::{Emitter, RequestBuilder, Span, SpanWriter};

use crate::packet::{Derived, OutPacket};

/// A packet of derived spans is written at about this many bytes,
pub(crate) const PACKET_BYTES: usize = 256 << 10;
/// or when its first span has this age, ns.
const PACKET_AGE_NS: i64 = 1_000_000_000;
/// Bytes of all derived spans that wait; beyond, all are written.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Collects the output of processors.
#[derive(Debug, Default)]
pub struct Outbox {
    packets: Vec<OutPacket>,
    builders: HashMap<(AgentId, StreamId, Derived), Building>,
    bytes: usize,
    now: i64,
}

#[derive(Debug)]
struct Building {
    builder: RequestBuilder,
    since: i64,
}

impl Outbox {
    /// The packets that are ready.
    pub(crate) fn take(&mut self) -> Vec<OutPacket> {
        std::mem::take(&mut self.packets)
    }

    /// Memory of derived spans that are not packets yet.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes
    }

    /// The clock of the chain, ns since the epoch.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = self.now.max(now);
    }

    /// Adds a packet.
    pub(crate) fn write(&mut self, packet: OutPacket) {
        self.packets.push(packet);
    }

    /// Adds a span to the packet of its agent, stream and type.
    pub(crate) fn write_span(
        &mut self,
        (agent, stream, derived): (&AgentId, &StreamId, Derived),
        (resource, scope): (&Emitter<'_>, &Emitter<'_>),
        span: &Span<'_>,
    ) {
        self.build(agent, stream, derived, |builder| {
            builder.add(resource, scope, span)
        });
    }

    /// Adds a new span that lasts from `begin` to `end`.
    pub(crate) fn write_new_span(
        &mut self,
        (agent, stream, derived): (&AgentId, &StreamId, Derived),
        sources: (&Emitter<'_>, &Emitter<'_>),
        span: SpanWriter,
        time: (i64, i64),
    ) {
        self.build(agent, stream, derived, |builder| {
            builder.add_written(sources, span, time);
        });
    }

    fn build(
        &mut self,
        agent: &AgentId,
        stream: &StreamId,
        derived: Derived,
        add: impl FnOnce(&mut RequestBuilder),
    ) {
        let now = self.now;
        let key = (agent.clone(), stream.clone(), derived);
        let building = self.builders.entry(key).or_insert_with(|| Building {
            builder: RequestBuilder::new(),
            since: now,
        });
        let before = building.builder.bytes();
        add(&mut building.builder);
        let after = building.builder.bytes();
        self.bytes += after - before;
        if after >= PACKET_BYTES {
            let key = (agent.clone(), stream.clone(), derived);
            self.flush_one(&key);
        } else if self.bytes > WAITING_BYTES_MAX {
            self.flush();
        }
    }

    fn flush_one(&mut self, key: &(AgentId, StreamId, Derived)) {
        let Some(Building { builder, .. }) = self.builders.remove(key) else {
            return;
        };
        self.bytes -= builder.bytes();
        let (agent, stream, derived) = key;
        self.packets.push(OutPacket {
            agent: agent.clone(),
            stream: derived.stream(stream),
            kind: Kind::Otlp,
            derived: Some(*derived),
            position: None,
            facts: Facts {
                time_span: builder.time_span(),
                events: u32::try_from(builder.span_count()).ok(),
                ..Facts::default()
            },
            payload: Bytes::from(builder.finish()),
        });
    }

    /// Completes the packets whose first span has waited long enough.
    pub(crate) fn flush_due(&mut self) {
        let now = self.now;
        self.flush_where(|building| now.saturating_sub(building.since) >= PACKET_AGE_NS);
    }

    /// Completes all packets.
    pub(crate) fn flush(&mut self) {
        self.flush_where(|_| true);
    }

    fn flush_where(&mut self, is_due: impl Fn(&Building) -> bool) {
        let due = self
            .builders
            .iter()
            .filter(|(_, building)| is_due(building));
        let mut keys: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        keys.sort();
        for key in keys {
            self.flush_one(&key);
        }
    }
}
