//! Input and output packets of a chain.

use std::sync::Arc;

use bytes::Bytes;
use storage_format::frame::Facts;
use storage_format::{AgentId, DERIVED_ENDINGS, Kind, STREAM_NAME_MAX, StreamId, StreamPosition};
use trace_kinds::StreamContext;

/// A packet that arrived, or was read from a storage.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The agent that sent it.
    pub agent: AgentId,
    /// Its stream.
    pub stream: StreamId,
    /// Its kind.
    pub kind: Kind,
    /// Position in the stream; `None` if the protocol has none (OTLP), so that the writer of the
    /// packet assigns one.
    pub position: Option<StreamPosition>,
    /// The bytes as they were sent.
    pub payload: Bytes,
    /// Its packet facts.
    pub facts: Facts,
    /// Time of arrival, ns since the epoch.
    pub arrival: i64,
    /// What its stream needs to be decoded.
    pub context: Arc<StreamContext>,
}

impl Packet {
    /// Memory that the packet takes in the buffer, bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        /// Ids, facts, and the entries of a list and an index.
        const BESIDES: usize = 256;
        self.payload.len() + BESIDES
    }

    /// Whether it contains spans.
    #[must_use]
    pub fn is_spans(&self) -> bool {
        self.kind == Kind::Otlp
    }

    /// Whether the packet may have events at or after `from` and before `to`.
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

/// What a processor derives. Each kind has a stream next to the one it is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Derived {
    /// Roots of invocations without their children.
    Clone,
    /// Spans extracted from invocations.
    Span,
    /// Exceptions, which are events of spans.
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

    /// The ending of the stream's name.
    #[must_use]
    pub fn ending(self) -> &'static str {
        let [clones, spans, exceptions, aggregates] = DERIVED_ENDINGS;
        match self {
            Derived::Clone => clones,
            Derived::Span => spans,
            Derived::Exception => exceptions,
            Derived::Aggregate => aggregates,
        }
    }

    /// The stream for what is derived from `stream`; its name is shortened if it would be too long.
    #[must_use]
    pub fn stream(self, stream: &StreamId) -> StreamId {
        let ending = self.ending();
        let length = stream.as_str().len().min(STREAM_NAME_MAX - ending.len());
        format!("{}{ending}", &stream.as_str()[..length])
            .parse()
            .expect("a prefix of an id and letters are an id")
    }
}

/// A packet that a chain writes.
#[derive(Debug, Clone)]
pub struct OutPacket {
    /// The agent.
    pub agent: AgentId,
    /// The stream; derived packets have a separate one.
    pub stream: StreamId,
    /// Its kind.
    pub kind: Kind,
    /// What was derived; `None` for a packet as it was sent, or a part of one.
    pub derived: Option<Derived>,
    /// Position in the stream, if it has one.
    pub position: Option<StreamPosition>,
    /// The bytes.
    pub payload: Bytes,
    /// Its packet facts.
    pub facts: Facts,
}

impl OutPacket {
    /// A packet as it arrived.
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
