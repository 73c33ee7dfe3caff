//! Recording: the buffer, recordings, and the processors between the arrival of packets and their
//! storage.
//!
//! | module | contents |
//! | --- | --- |
//! | `config` | the configuration of processors, in JSON |
//! | `chain` | what passes a chain: packets, invocations, spans |
//! | `processors` | what each processor does |
//! | `invocation` | how spans are assembled to invocations |
//! | `outbox` | how derived spans become packets |
//! | `buffer` | which packets are in memory |
//! | `spec` | what a recording is, in the API and on disk |
//! | `recording` | the state of a recording and its inbox |
//! | `next_position` | where a stream continues |
//! | `registry` | the list of recordings, and its file |
//! | `standing` | the recording that the server keeps on by itself |
//! | `standing_config` | its bounds and periods |
//! | `standing_start` | how it begins |
//! | `recorder` | how recordings are started, listed and stopped |
//! | `intake` | which recordings a pushed packet is delivered to |
//! | `trigger_queue` | which packet starts a recording, and with what |
//! | `task` | the life of one recording |
//! | `buffer_copy` | copies of the buffer through a chain into a storage |
//! | `storage_copy` | copies of a storage through a chain into another |
//! | `memory` | the memory of all chains together |
//! | `sink` | how packets of a chain are written into a storage |
//!
//! A [`Chain`] does no I/O and reads no clock: packets in, packets out. Derived packets (clones,
//! spans, exceptions, aggregates) are OTLP like the spans they are derived from, in separate
//! streams, so that they are decoded, indexed and queried like all others.

#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the numbers of tests are small"
    )
)]

mod buffer;
mod buffer_copy;
mod chain;
mod clock;
mod config;
mod error;
mod instant;
mod intake;
mod invocation;
mod memory;
mod next_position;
mod outbox;
mod packet;
mod processor;
mod processors;
mod recorder;
mod recording;
mod registry;
mod sink;
mod spec;
mod standing;
mod standing_config;
mod standing_start;
mod storage_copy;
mod task;
mod trigger_queue;

pub use buffer::BufferStatus;
pub use buffer_copy::{Copied, CopySpec};
pub use chain::Chain;
pub use config::{
    ATTRIBUTES_MAX, DEPTH_MAX, GROUPS_DEFAULT, GROUPS_MAX, PROCESSORS_MAX, ProcessorConfig,
    check_chain, default_chain, parse_query,
};
pub use error::{ConfigError, RecordingError};
pub use instant::{Instant, TimeRange, time_range};
pub use intake::{Delivered, Recorded};
pub use invocation::{Invocation, Member, SharedSource, Waiting};
pub use memory::ChainMemory;
pub use next_position::HandedOut;
pub use outbox::Outbox;
pub use packet::{Derived, OutPacket, Packet};
pub use processor::{Item, Processor};
pub use recorder::Recorder;
pub use registry::RecorderConfig;
pub use sink::{Sink, stream_spec};
pub use spec::{RecordingCounts, RecordingInfo, RecordingSpec, RecordingState, Trigger};
pub use standing_config::StandingConfig;
pub use storage_copy::{StorageCopySpec, check_copy};
