//! Chunk summaries: what a chunk of events holds, found out in one pass while it is decoded, kept
//! in a small sidecar, and held against a query to leave out the chunks that cannot match.
//!
//! | step | type |
//! | --- | --- |
//! | which fields are indexed, and what is missing of an older index | [`IndexConfig`], [`Work`] |
//! | events in, a summary of each chunk out | [`ChunkBuilder`], [`ChunkSummary`] |
//! | the chunks of a file with their summaries | [`Index`], [`Chunk`] |
//! | the bytes beside the file, `.idx`, readable block by block | [`Sidecar`], [`Block`] |
//! | whether they still belong to the file | [`Identity`] |
//! | which chunks a query must read, and which are answered already | [`Pruner`], [`Pruning`] |
//! | times and values of every event, `.cidx`, that tell which match | [`Columns`], [`ColumnFilter`] |
//! | where re-split packets came from, `.pidx` | [`Provenance`] |
//!
//! A summary has, for each dimension, the number of events that have it, its distinct values, its
//! types and limits ([`Zone`]), all values with their counts where they fit ([`Dictionary`]), else
//! a [`BloomFilter`]; and for each pair of category and name the count, the time range and the
//! durations with a quantile sketch ([`Group`]). These groups are the manifest of the chunk: they
//! tell which chunks can go whole to one of several filters ([`Pruner::route`]), and they answer
//! counts and sums without reading ([`Pruner::matched`], [`Pruner::count`]). The records of the
//! slowest events of a chunk are kept whole ([`Slowest`], [`Pruner::slowest`]).
//!
//! ```
//! use chunk_index::{Chunk, ChunkBuilder, Index, IndexConfig, Pruner};
//! use query_language::{BareUnit, FieldTable, Query, Value};
//!
//! let config = IndexConfig::new(["pid"]);
//! let mut fields = FieldTable::new();
//! let mut builder = ChunkBuilder::new(config.clone(), &mut fields);
//! let mut index = Index::new(&config);
//! for (name, dur) in [("read", 5_000), ("write", 9_000)] {
//!     let (name, pid, dur) = (Value::from(name), Value::Uint(7), Value::Int(dur));
//!     // In the order of the table: name, cat, pid, ts, dur.
//!     builder.add(&[Some(name), None, Some(pid), None, Some(dur)][..]);
//!     index.push(Chunk::default(), builder.finish());
//! }
//! let query = Query::parse("name == 'write' and pid == 7")?.bind(BareUnit::MICROS)?;
//! let pruner = Pruner::new(&query);
//! assert_eq!(pruner.run(&index).candidates, [1]);
//! assert_eq!(pruner.count(&index, 1), Some(1));
//! # Ok::<(), query_language::QueryError>(())
//! ```
//!
//! *Invariant:* a chunk that holds a match is never left out, whatever is missing, and every count
//! is exact or not given. This crate reads no file and knows no trace format.

mod attachments;
mod bloom;
mod body;
mod builder;
mod cache;
mod checkpoint;
mod chunk;
mod chunk_summary;
mod columns;
mod config;
mod dictionary;
mod dimension_builder;
mod dimension_summary;
mod distinct_values;
mod entry_set;
mod file_dictionary;
mod file_type;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod packing;
mod provenance;
mod prune;
mod sidecar;
mod sketch;
mod slowest;
mod statistics;
mod value;
mod value_counts;
mod wire;
mod zone;

pub use attachments::{
    AttachmentError, DftFacts, DftName, DftNames, HASH_KINDS, LeafFacts, PacketFileFacts,
    PacketRange, PacketRanges, StoredHash, StoredUnit, TraceStamp, encode_dft_names,
    sort_dft_names,
};
pub use bloom::BloomFilter;
pub use builder::ChunkBuilder;
pub use cache::{CacheCounts, FilterCache};
pub use checkpoint::{Checkpoint, DamagedWindow, StoredWindow, WINDOW_BYTES, Window};
pub use chunk::{Chunk, Identity, Stale};
pub use chunk_summary::ChunkSummary;
pub use columns::{
    ChunkColumns, ColumnBlock, ColumnFilter, Columns, ColumnsOfChunk, ColumnsOpened, ColumnsWriter,
    Matches,
};
pub use config::{DIMENSIONS_MAX, ENTRIES_FACTOR, IndexConfig, Work};
pub use dictionary::Dictionary;
pub use dimension_summary::DimensionSummary;
pub use distinct_values::DistinctValues;
pub use entry_set::EntrySet;
pub use file_dictionary::{DictionaryEntry, FileDictionary};
pub use file_type::FileType;
pub use filter::ChunkFilter;
pub use index::{Attachment, BLOCK_CHUNKS, ChunkMismatch, FilterBlock, Index};
pub use provenance::{Provenance, Segment, SourceFile, SourceGroup};
pub use prune::{Pruner, Pruning, Tier};
pub use sidecar::{Block, BlockKind, Opened, Sidecar, SidecarError, TAIL_BYTES, VERSION};
pub use sketch::{HISTOGRAM_BINS, RELATIVE_ERROR, Sketch};
pub use slowest::{SlowRecord, Slowest};
pub use statistics::{ChunkStatistics, Durations, Group, TimeRange, Totals};
pub use value::{OwnedValue, ValueTypes};
pub use zone::{TextRange, Zone};
