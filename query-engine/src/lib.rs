//! From a query to rows: plan, prune, fetch, decode, filter, sort. And making the indexes that
//! pruning uses.
//!
//! | step | type |
//! | --- | --- |
//! | what is read, in chunks: files, leaves of storages | [`ChunkSource`], [`DftSet`], [`StorageSet`] |
//! | where bytes come from, by byte range: this machine, a server | [`Fetch`], [`LocalFile`] |
//! | the query and its limits | [`Request`], [`Limits`] |
//! | ruling out chunks, with only the blocks of the index that this needs | [`Evidence`] |
//! | matching events as rows, in order of time | [`write_rows`], [`row_formats`] |
//! | counts and groups, from chunk summaries where these are exact | [`count`], [`group_by`] |
//! | what was ruled out, read and found | [`Report`] |
//! | parts of a query for several workers | [`Split`], [`StorageSet::split`] |
//! | making and updating indexes of files and leaves | [`index_files`], [`StorageSet::index`] |
//!
//! A few threads read tasks in parallel; each has one chunk (or one gzip piece) in memory. Rows
//! that are found before earlier ones are buffered in memory up to a limit, then in a temporary
//! file.
//!
//! *Invariant:* the result is that of a full scan. An index only excludes chunks that cannot
//! contain a match, and a sidecar that is damaged or does not belong to its file is not used.

mod bare_times;
mod bundles;
mod clock;
mod computed_fields;
mod count;
mod dft;
mod engine;
mod error;
mod evidence;
mod fetch;
mod file_content;
mod first_rows;
mod groups;
mod hints;
mod indexing;
mod interval;
mod listed_fields;
mod lookups;
mod open_sidecar;
mod order;
mod packet_files;
mod plan;
mod progress;
mod request;
mod rows;
mod run;
mod sidecar_file;
mod skipped;
mod slices;
mod sort_key;
mod sorted_rows;
mod source;
mod spill;
mod spooled;
mod stamp;
mod stored;
mod window;

pub use bare_times::BareTimes;
pub use bundles::{BundleFile, Bundles, RefusedBundle, is_damage};
pub use count::count;
pub use dft::{DftFile, DftSet, columns_path};
pub use error::ReadError;
pub use evidence::Evidence;
pub use fetch::{ClosedFile, Fetch, FoundPacket, LazyFile, LocalFile, Part, TracedFile};
pub use file_content::{
    DERIVED_FOLDER_ENDING, find_traces, is_ctf_folder, is_derived_folder, recognize_file,
    recognize_found, regular_file,
};
pub use groups::{GROUP_BYTES_MAX, GROUPS_MAX, GroupSpec, GroupSpecError, group_by};
pub use indexing::{
    BuildOptions, Built, BuiltColumns, IndexFile, IndexOptions, Indexed, IndexedLeaf,
    LeafIndexOptions, Update, build, index_files, remove_leftovers, update_sidecar, write_sidecar,
};
pub use listed_fields::{FIELDS_MAX, field_columns, list_fields};
pub use packet_files::once::Once;
pub use packet_files::{Opened, open_paths};
pub use progress::Progress;
pub use request::{Cancel, Limits, Report, Request, ResultOrder};
pub use rows::write_rows;
pub use sidecar_file::{identity, sidecar_path};
pub use skipped::Skipped;
pub use source::{ChunkSource, Counters, LocalFilter, Narrowed, Scratch, Task};
pub use spill::{spill_into, temporary_file};
pub use stored::{
    AgentTrace, Leaf, LeafRanges, LeafSource, PacketTimes, PlannedSplit, Split, SplitError,
    SplitLeaf, SplitPlan, SplitStorage, StorageSet, StoredLeaf, StreamDeclarations, derived_note,
    each_packet, each_raw_packet, read_packet, without_derived,
};
