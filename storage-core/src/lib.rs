//! Storages on disk: states, writing, the index tree, recovery, finalization and reading.
//!
//! [`Engine`] is the entry point. A [`Push`] goes to the writer task of its storage, through the
//! serializer pool to the I/O thread, and gets its reply when its bytes are durable. Reading
//! bypasses all of them: it looks packets up in the tree and reads the files.
//!
//! | module | responsibility |
//! | --- | --- |
//! | `engine` | the handles of the engine, one a subject |
//! | `push`, `writer` | numbering, ordering and acknowledging the packets of a storage |
//! | `serializer`, `codec` | compression and checksums of payloads |
//! | `io_thread` | making frames durable: batches, syncs, offsets, open files |
//! | `io` | the disk interface: io_uring, blocking, faulty |
//! | `tree` | the index tree: where packets are |
//! | `listed` | files compared with what is written about them, by `verify` and the scrub |
//! | `scan`, `recovery`, `verify` | reading data files without an index |
//! | `readiness` | whether a storage is recovered |
//! | `repair` | what of a failed storage is whole; the log without the rest |
//! | `budget` | the bytes in flight, and the turns of agents that wait |
//! | `droppable` | packets that may be dropped for others |
//! | `checked` | blocks of files that are compared with their checksums before they are sent |
//! | `tier` | files whose bytes may be in an object store and absent here |
//! | `catalog` | a fast start with many storages |
//! | `traced` | names of files in the I/O trace |
//! | `sealing` | seals: hashes of all files and packets |
//! | `labels` | label types and values |
//! | `archive` | storages as ZIP archives |
//!
//! *Invariant:* nothing in this crate decodes a payload.

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
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod agents;
mod archive;
mod arranging;
mod aside;
mod budget;
mod catalog;
mod checked;
mod checksums;
pub mod clock;
mod codec;
mod config;
mod counters;
mod damage;
mod deletion;
mod droppable;
mod engine;
mod errno;
mod error;
mod fault_macros;
mod file_ends;
mod io;
mod io_thread;
mod known_repairs;
mod labels;
mod leaf_bytes;
mod leaf_file;
mod listed;
mod live_index;
mod log_scan;
mod merging;
mod nature;
mod own_files;
mod panic;
mod poison;
mod progress;
mod push;
mod read;
mod readiness;
mod rebuilds;
mod recovery;
mod removals;
mod repair;
mod replaced_files;
mod replica;
mod restored_part;
mod scan;
mod seal_state;
mod sealing;
mod serializer;
mod space;
mod state;
mod status;
mod storage;
mod storage_copy;
mod storage_damage;
mod storage_leaves;
mod stream_counts;
mod tier;
mod traced;
mod tree;
mod unfetched;
mod verify;
mod writer;

pub use agents::{Agent, AgentSpec, Agents};
pub use budget::{ByteBudget, BytePermit, Holder, Share};
pub use checked::CheckedFile;
pub use codec::expand;
pub use config::{DiskLow, EngineConfig, IoChoice, QuotaDefaults, SealConfig};
pub use counters::{Counter, Counters, LATENCY_BOUNDS_SECONDS, Latency, LatencySnapshot};
pub use damage::Damage;
pub use deletion::UnknownLabels;
pub use droppable::{Accepted, AcceptedPacket, DroppedPackets};
pub use engine::{
    Adoption, AgentUsage, CACHED_BYTES_MAX, CopiedFrom, CopiedPacket, CopyListener, CopyPush,
    CopyReport, CopySelection, Created, Declaring, DerivedCheck, DerivedFault, DerivedFiles,
    DerivedInfo, DerivedSink, Documents, Engine, EventFile, EventFileInfo, EventFiles, EventSink,
    Export, Failures, FileInfo, IdempotencyKey, Ingest, LabelTypeInfo, Labels, LeafInfo, LeafKey,
    LeafPackets, LeftRing, ListOrder, NewStorage, PacketInfo, Page, PendingPush, QueryCache,
    Quotas, ReadDerived, Reading, Rings, ServedBytes, ServedFile, StorageCounts, StorageFilter,
    StorageInfo, StorageLabel, StorageLeaves, StoragePatch, Storages, TierInfo, TierPart,
    TierParts, Tiering, Transfer, change_document, check_archive, check_label_filter,
};
pub use error::{PacketSummary, StorageError};
#[cfg(feature = "fault-points")]
#[doc(hidden)]
pub use io::fault_points;
pub use io::ring::{Ring, RingPacket, RingTotals};
pub use labels::{Comparison, LEGAL_HOLD, LabelFilter, LabelValue, is_held};
pub use leaf_file::LeafFile;
pub use progress::Progress;
pub use push::{NewPacket, Push, PushOutcome, Receipt, check_position, packet_charge};
pub use readiness::RecoveryStatus;
pub use repair::{MissingPackets, RepairReport};
pub use replica::{Replica, Replicated};
pub use seal_state::SealState;
pub use status::WriteStatus;
pub use storage::StorageStatus;
pub use stream_counts::StreamActivity;
pub use tier::{BlockSource, CachedBytes, Fetching, RangeScan, Scanned};
pub use tree::{LeafBases, Selection};
pub use unfetched::{is_lost_object, is_unfetched};
pub use verify::VerifyReport;
