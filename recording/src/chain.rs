//! A chain: the processors of a recording in order.

use std::borrow::Cow;
use std::sync::Arc;

use storage_format::Kind;
use trace_kinds::otlp::{is_json, to_protobuf};

use crate::ConfigError;
use crate::config::{ProcessorConfig, check_chain};
use crate::invocation::{Assembler, Waiting};
use crate::memory::{ChainMemory, MemoryShare};
use crate::outbox::{Outbox, PACKET_BYTES};
use crate::packet::{OutPacket, Packet};
use crate::processor::{Item, Row};
use crate::processors::make;

/// A compiled chain. It does no I/O and reads no clock: packets in, packets out.
pub struct Chain {
    row: Row,
    assembler: Option<Assembler>,
    out: Outbox,
    undecoded: u64,
    share: MemoryShare,
}

impl Chain {
    /// Compiles a chain.
    ///
    /// # Errors
    /// When it is invalid; see [`check_chain`].
    pub fn new(processors: &[ProcessorConfig], waiting: Waiting) -> Result<Self, ConfigError> {
        check_chain(processors)?;
        let needs_invocations = processors.iter().any(ProcessorConfig::needs_invocations);
        Ok(Self {
            row: Row(make(processors)?),
            assembler: needs_invocations.then(|| Assembler::new(waiting)),
            out: Outbox::default(),
            undecoded: 0,
            share: ChainMemory::new(waiting.bytes_max).share(),
        })
    }

    /// Counts the memory of the chain together with that of others. When all have too much, the
    /// chain writes earlier what it would otherwise collect for longer.
    #[must_use]
    pub fn within(mut self, memory: &Arc<ChainMemory>) -> Self {
        self.share = memory.share();
        self
    }

    /// Memory of what waits in the chain, bytes. Packets leave it now: the task counts them until
    /// they are durable.
    fn memory(&self) -> usize {
        let waiting = self.assembler.as_ref().map_or(0, Assembler::memory);
        waiting + self.row.memory() + self.out.waiting()
    }

    /// Accounts for the memory of the chain, and writes what there is no memory for: packets of
    /// derived spans that are long enough, the oldest traces, then short packets and groups.
    fn settle(&mut self) {
        let bytes = self.memory();
        self.share.set(bytes);
        while self.share.is_over() {
            let is_short = self.out.waiting() < PACKET_BYTES;
            if !(is_short && self.complete_oldest()) {
                if self.out.waiting() == 0 {
                    if self.row.memory() == 0 {
                        break;
                    }
                    self.row.finish(&mut self.out);
                }
                self.out.flush();
            }
            let bytes = self.memory();
            self.share.set(bytes);
        }
    }

    /// Assembles the trace that began first. Returns false if none waits.
    fn complete_oldest(&mut self) -> bool {
        let Self {
            row,
            assembler,
            out,
            ..
        } = self;
        assembler.as_mut().is_some_and(|assembler| {
            assembler.complete_oldest(&mut |invocation| {
                row.process(Item::Invocation(invocation), out);
            })
        })
    }

    /// The packets that are ready.
    fn taken(&mut self) -> Vec<OutPacket> {
        self.settle();
        self.out.take()
    }

    /// Processes a packet. Returns what is to be written now, first what is left of the packet
    /// itself.
    pub fn take(&mut self, packet: &Packet) -> Vec<OutPacket> {
        self.out.set_now(packet.arrival);
        let request = if packet.kind == Kind::Otlp && is_json(&packet.payload) {
            // Damaged requests stay as they are; every reader reports them.
            to_protobuf(&packet.payload).map_or(Cow::Borrowed(&packet.payload[..]), Cow::Owned)
        } else {
            Cow::Borrowed(&packet.payload[..])
        };
        let Self {
            row,
            assembler,
            out,
            undecoded,
            ..
        } = self;
        row.process(
            Item::Packet {
                packet,
                request: &request,
            },
            out,
        );
        if let Some(assembler) = assembler
            && packet.kind == Kind::Otlp
        {
            let taken = assembler.take(packet, &request, &mut |invocation| {
                row.process(Item::Invocation(invocation), out);
            });
            *undecoded += u64::from(taken.is_err());
        }
        self.taken()
    }

    /// Advances the clock to `now`, ns since the epoch. Returns what became due.
    pub fn tick(&mut self, now: i64) -> Vec<OutPacket> {
        self.out.set_now(now);
        let Self {
            row,
            assembler,
            out,
            ..
        } = self;
        if let Some(assembler) = assembler {
            assembler.tick(now, &mut |invocation| {
                row.process(Item::Invocation(invocation), out);
            });
        }
        row.tick(out);
        out.flush_due();
        self.taken()
    }

    /// Flushes the chain: returns all that it still contains. It can be used again afterwards.
    pub fn finish(&mut self) -> Vec<OutPacket> {
        let Self {
            row,
            assembler,
            out,
            ..
        } = self;
        if let Some(assembler) = assembler {
            assembler.finish(&mut |invocation| {
                row.process(Item::Invocation(invocation), out);
            });
        }
        row.finish(out);
        out.flush();
        self.taken()
    }

    /// Packets of spans that could be decoded only in part.
    #[must_use]
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }
}
