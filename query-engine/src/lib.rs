//! One pull pipeline from a query to rows: plan, prune, fetch, decode, filter, print.
//!
//! | step | type |
//! | --- | --- |
//! | what is read: files, leaves of storages, in chunks | [`ChunkSource`], [`DftSet`], [`StorageSet`] |
//! | where bytes come from: this machine, a server, by byte range | [`Fetch`], [`LocalFile`] |
//! | what is asked | [`Request`], [`Limits`] |
//! | ruling out chunks, fetching only the blocks of the index that this needs | [`Evidence`] |
//! | matching events as rows, in the order of time | [`write_rows`], [`row_formats`] |
//! | counts and groups, from summaries where they are exact | [`count`], [`group_by`] |
//! | what was ruled out, read and found | [`Report`] |
//!
//! Tasks are read by a few threads at once, each of which holds one chunk (or one gzip piece) in
//! memory. Rows that are found before earlier ones wait in memory up to a bound, then in a file.
//!
//! *Invariant:* the answer is that of a plain scan. An index only ever leaves out chunks that
//! cannot hold a match, and a sidecar that does not belong to its file, or is damaged, is not used.

mod aggregate;
mod dft;
mod engine;
mod error;
mod evidence;
mod fetch;
mod indexing;
mod lookups;
mod open_sidecar;
mod order;
mod packet_files;
mod request;
mod rows;
mod run;
mod sidecar_file;
mod source;
mod spill;
mod stored;

pub use aggregate::{GROUPS_MAX, count, group_by};
pub use dft::{DftFile, DftSet, columns_path};
pub use error::ReadError;
pub use evidence::Evidence;
pub use fetch::{ClosedFile, Fetch, LazyFile, LocalFile, Part, TracedFile};
pub use indexing::{
    BuildOptions, Built, BuiltColumns, IndexFile, IndexOptions, Indexed, IndexedLeaf,
    LeafIndexOptions, Update, build, index_files, index_leaf, update_sidecar, write_sidecar,
};
pub use packet_files::open_paths;
pub use request::{Cancel, Limits, Report, Request};
pub use rows::write_rows;
pub use sidecar_file::{identity, sidecar_path};
pub use source::{ChunkSource, Counters, LocalFilter, Narrowed, Scratch, Task};
pub use stored::{AgentTrace, Leaf, LeafRanges, LeafSource, PacketTimes, StorageSet, StoredLeaf};
