//! Chunk summaries: what a chunk of events contains, found in one pass over its events, stored in a
//! small sidecar, and compared with queries to skip the chunks that cannot match.
//!
//! | step | type |
//! | --- | --- |
//! | fields to index, and what an older index lacks | [`IndexConfig`], [`Work`] |
//! | events in, a summary of each chunk out | [`ChunkBuilder`], [`ChunkSummary`] |
//! | the chunks of a file with their summaries | [`Index`], [`Chunk`] |
//! | the bytes of an `.idx`, readable block by block | [`Sidecar`], [`Block`] |
//! | whether an index belongs to a file | [`Identity`] |
//! | which chunks a query must read, and what is known without reading | [`Pruner`], [`Pruning`] |
//! | times and values of every event, `.cidx` | [`Columns`], [`ColumnFilter`] |
//! | where re-split packets came from, `.pidx` | [`Provenance`] |
//! | the sidecars of all leaves of a data file in one file | [`Bundle`], [`BundleWriter`] |
//!
//! A summary has, for each dimension, the number of events that have it, its distinct values, its
//! types and limits ([`Zone`]), all values with their counts if they fit ([`Dictionary`]), else a
//! [`BloomFilter`]; and for each pair of category and name the count, the time range and the
//! durations with a quantile sketch ([`Group`]). These groups decide which chunks belong to one of
//! several filters as a whole ([`Pruner::route`]), and answer counts and sums without reading
//! ([`Pruner::matched`], [`Pruner::count`]). The records of the slowest events of a chunk are
//! stored in the index ([`Slowest`], [`Pruner::slowest`]).
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
//! *Invariant:* a chunk with a match is never skipped, whatever is missing, and a count is exact or
//! absent. This crate reads no files and knows no trace formats.

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

mod attachments;
mod bloom;
mod body;
mod builder;
mod bundle;
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
mod filter_tree;
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
    AttachmentError, ChromeUnpaired, DamagedPart, DftDamage, DftFacts, DftName, DftNames,
    FileStamp, HASH_KINDS, LeafFacts, PacketFileFacts, PacketRange, PacketRanges, StoredHash,
    StoredMark, StoredUnit, TraceStamp, encode_dft_names, sort_dft_names,
};
pub use bloom::BloomFilter;
pub use builder::ChunkBuilder;
pub use bundle::{
    Bundle, BundleContent, BundleError, BundleOwner, BundleWriter, OpenedBundle, ReadRange,
    SECTION_BYTES_MAX, SECTIONS_MAX, Section,
};
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
pub use sketch::{HISTOGRAM_BINS, RELATIVE_ERROR, Sketch, nearest_rank};
pub use slowest::{SlowRecord, Slowest};
pub use statistics::{ChunkStatistics, Durations, Group, TimeRange, Totals};
pub use value::{OwnedValue, ValueTypes};
pub use zone::{TextRange, Zone};
