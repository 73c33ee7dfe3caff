//! Packets as a chain takes them and gives them.

use std::sync::Arc;

use bytes::Bytes;
use storage_format::frame::Facts;
use storage_format::{AgentId, Kind, StreamId, StreamPosition};
use trace_kinds::StreamContext;

/// A packet that arrived, or was read from a storage.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Who sent it.
    pub agent: AgentId,
    /// Its stream.
    pub stream: StreamId,
    /// What it is.
    pub kind: Kind,
    /// Position in the stream; `None` where the protocol has none (OTLP), so that whoever writes
    /// the packet assigns one.
    pub position: Option<StreamPosition>,
    /// The bytes as they were sent.
    pub payload: Bytes,
    /// What is known of them.
    pub facts: Facts,
    /// When it came, ns since the epoch.
    pub arrival: i64,
    /// What its stream needs to be decoded.
    pub context: Arc<StreamContext>,
}

impl Packet {
    /// Memory that the packet takes while it is kept, bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        /// Ids, facts, and the entries of a list and an index.
        const BESIDES: usize = 256;
        self.payload.len() + BESIDES
    }

    /// Whether the packet may hold something at or after `from` and before `to`.
    #[must_use]
    pub fn overlaps(&self, from: Option<i64>, to: Option<i64>) -> bool {
        match self.facts.time_span {
            None => true,
            Some((begin, end)) => {
                from.is_none_or(|from| end >= from) && to.is_none_or(|to| begin < to)
            }
        }
    }
}

/// What a processor makes of what it takes: each has a stream of its own beside the one it comes
/// from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Derived {
    /// Roots of invocations without their children.
    Clone,
    /// Spans taken out of invocations.
    Span,
    /// Exceptions found as events of spans.
    Exception,
    /// Groups of spans or events over a period.
    Aggregate,
}

impl Derived {
    /// All of them.
    pub const ALL: [Derived; 4] = [
        Derived::Clone,
        Derived::Span,
        Derived::Exception,
        Derived::Aggregate,
    ];

    /// The value of the resource attribute `tracehold.derived`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Derived::Clone => "clone",
            Derived::Span => "span",
            Derived::Exception => "exception",
            Derived::Aggregate => "aggregate",
        }
    }

    /// What the name of the stream ends with.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Derived::Clone => ".clones",
            Derived::Span => ".spans",
            Derived::Exception => ".exceptions",
            Derived::Aggregate => ".aggregates",
        }
    }

    /// The stream for what is derived of `stream`, shortened where the name would be too long.
    #[must_use]
    pub fn stream(self, stream: &StreamId) -> StreamId {
        const LENGTH_MAX: usize = 128;
        let ending = self.ending();
        let kept = stream.as_str().len().min(LENGTH_MAX - ending.len());
        format!("{}{ending}", &stream.as_str()[..kept])
            .parse()
            .expect("the front of an id and letters are an id")
    }
}

/// A packet that a chain wants written.
#[derive(Debug, Clone)]
pub struct OutPacket {
    /// The agent.
    pub agent: AgentId,
    /// The stream; for what was derived, a stream of its own.
    pub stream: StreamId,
    /// What it is.
    pub kind: Kind,
    /// What was derived; `None` of a packet as it was sent, or a part of one.
    pub derived: Option<Derived>,
    /// Position in the stream, if it has one.
    pub position: Option<StreamPosition>,
    /// The bytes.
    pub payload: Bytes,
    /// What is known of them.
    pub facts: Facts,
}

impl OutPacket {
    /// A packet as it came.
    #[must_use]
    pub fn of(packet: &Packet) -> Self {
        Self {
            agent: packet.agent.clone(),
            stream: packet.stream.clone(),
            kind: packet.kind,
            derived: None,
            position: packet.position,
            payload: packet.payload.clone(),
            facts: packet.facts,
        }
    }
}
