//! A chain: what a recording does with every packet.

use std::borrow::Cow;

use storage_format::Kind;
use trace_kinds::otlp::{is_json, to_protobuf};

use crate::ConfigError;
use crate::config::{ProcessorConfig, check_chain};
use crate::invocation::{Assembler, Waiting};
use crate::outbox::Outbox;
use crate::packet::{OutPacket, Packet};
use crate::processor::{Item, Row};
use crate::processors::make;

/// A compiled chain. It does no I/O and asks no clock: packets in, packets out.
pub struct Chain {
    row: Row,
    assembler: Option<Assembler>,
    out: Outbox,
    undecoded: u64,
}

impl Chain {
    /// Compiles a chain.
    ///
    /// # Errors
    /// When it could not run; see [`check_chain`].
    pub fn new(processors: &[ProcessorConfig], waiting: Waiting) -> Result<Self, ConfigError> {
        check_chain(processors)?;
        let needs_invocations = processors.iter().any(ProcessorConfig::needs_invocations);
        Ok(Self {
            row: Row(make(processors)?),
            assembler: needs_invocations.then(|| Assembler::new(waiting)),
            out: Outbox::default(),
            undecoded: 0,
        })
    }

    /// Takes a packet; gives what is to be written now, what came of this packet as it was sent
    /// first.
    pub fn take(&mut self, packet: &Packet) -> Vec<OutPacket> {
        self.out.set_now(packet.arrival);
        let request = match packet.kind == Kind::Otlp && is_json(&packet.payload) {
            // What is damaged stays as it is, and every reader says so.
            true => {
                to_protobuf(&packet.payload).map_or(Cow::Borrowed(&packet.payload[..]), Cow::Owned)
            }
            false => Cow::Borrowed(&packet.payload[..]),
        };
        let Self {
            row,
            assembler,
            out,
            undecoded,
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
        self.out.take()
    }

    /// Lets time pass up to `now`, ns since the epoch; gives what became due.
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
        out.take()
    }

    /// Ends the chain: gives all that it still holds. It can be used again from the beginning.
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
        out.take()
    }

    /// Packets of spans that could not be decoded to their end.
    #[must_use]
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }
}
