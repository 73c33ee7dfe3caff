//! Recording: the buffer, recordings, and the processors between arrival and storage.
//!
//! | module | its one reason to change |
//! | --- | --- |
//! | `config` | how processors are told, in JSON |
//! | `chain` | what goes through a chain: packets, invocations, spans |
//! | `processors` | what each processor does |
//! | `invocation` | how spans become invocations |
//! | `outbox` | how derived spans become packets |
//! | `buffer` | what is kept in memory of what arrived |
//! | `spec` | what a recording is told and is |
//! | `front` | what is known of the place of a stream |
//! | `recorder` | who wants a packet, and what is known of its stream |
//! | `triggers` | which packet starts a recording, and with what |
//! | `task` | the life of one recording, and copies of the buffer |
//! | `copy` | how packets of a storage go through a chain into another |
//! | `sink` | how packets of a chain come into a storage |
//!
//! A [`Chain`] does no I/O and asks no clock: packets in, packets out. What is derived (clones,
//! spans, exceptions, aggregates) is OTLP like the spans it comes from, in streams of its own, so
//! that it is decoded, indexed and queried like everything else.

mod buffer;
mod chain;
mod clock;
mod config;
mod copy;
mod error;
mod front;
mod invocation;
mod outbox;
mod packet;
mod processor;
mod processors;
mod recorder;
mod recording;
mod sink;
mod spec;
mod task;
mod triggers;

pub use buffer::BufferStatus;
pub use chain::Chain;
pub use config::{
    ATTRIBUTES_MAX, DEPTH_MAX, GROUPS_DEFAULT, GROUPS_MAX, Instant, PROCESSORS_MAX,
    ProcessorConfig, check_chain, default_chain, parse_query,
};
pub use copy::{StorageCopySpec, check_copy};
pub use error::{ConfigError, RecordingError};
pub use invocation::{Invocation, Member, SharedSource, Waiting};
pub use outbox::Outbox;
pub use packet::{Derived, OutPacket, Packet};
pub use processor::{Item, Processor};
pub use recorder::{Recorded, Recorder, RecorderConfig};
pub use sink::{Sink, stream_spec};
pub use spec::{RecordingCounts, RecordingInfo, RecordingSpec, RecordingState, Trigger};
pub use task::{Copied, CopySpec};
