//! Storages on disk: states, writing, the index tree, recovery, finalization and reading.
//!
//! [`Engine`] is the whole of it. A [`Push`] goes to the writer task of its storage, through the
//! serializer pool to the I/O thread, and is answered when its bytes are durable. Reading goes
//! past all of them: to the tree for where things are, and to the files.
//!
//! | module | its one reason to change |
//! | --- | --- |
//! | `engine` | what can be asked of all storages |
//! | `writer` | how packets of one storage are numbered, ordered and answered |
//! | `serializer`, `codec` | how a payload is stored |
//! | `io_thread` | how frames become durable: batches, syncs, offsets, open files |
//! | `io` | how the operating system is asked: io_uring, blocking, faulty |
//! | `tree` | where packets are |
//! | `scan`, `recovery`, `verify` | what data files say without an index |
//! | `budget` | how many bytes are under way, and whose turn it is |
//! | `droppable` | which packets give way to others |
//! | `catalog` | a quick start with many storages |
//! | `traced` | how files are named when I/O is traced |
//! | `labels` | what labels storages may have |
//! | `archive` | how storages travel as ZIP archives |
//!
//! *Invariant:* nothing here looks inside a payload.

mod agents;
mod archive;
mod budget;
mod catalog;
pub mod clock;
mod codec;
mod config;
mod counters;
mod droppable;
mod engine;
mod error;
mod io;
mod io_thread;
mod labels;
mod poison;
mod progress;
mod push;
mod read;
mod recovery;
mod scan;
mod serializer;
mod space;
mod state;
mod status;
mod storage;
mod traced;
mod tree;
mod verify;
mod writer;

pub use agents::{Agent, AgentSpec, Agents};
pub use budget::{ByteBudget, BytePermit};
pub use config::{DiskLow, EngineConfig, IoChoice};
pub use counters::{Counter, Counters, LATENCY_BOUNDS_SECONDS, Latency, LatencySnapshot};
pub use droppable::{Accepted, AcceptedPacket, DroppedPackets};
pub use engine::{
    CACHED_BYTES_MAX, CopiedFrom, CopiedPacket, CopyListener, CopyPush, CopyReport, CopySelection,
    Created, DerivedFiles, Documents, Engine, Export, FileInfo, Ingest, LabelTypeInfo, Labels,
    LeafInfo, LeafPackets, NewStorage, PacketInfo, Page, PendingPush, QueryCache, Reading, Rings,
    ServedFile, StorageFilter, StorageInfo, StorageLabel, StorageLeaves, StoragePatch, Storages,
    Transfer, check_archive,
};
pub use error::StorageError;
pub use io::ring::{Kept, Ring, RingPacket};
pub use labels::{Comparison, LabelFilter, LabelValue};
pub use progress::Progress;
pub use push::{NewPacket, Push, PushOutcome, Receipt};
pub use read::LeafFile;
pub use status::WriteStatus;
pub use storage::StorageStatus;
pub use tree::{LeafBases, Selection};
pub use verify::{Damage, VerifyReport};
