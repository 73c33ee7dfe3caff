//! Making chunk indexes: one pass over a trace file or a leaf, from its events to its sidecar.
//!
//! | step | module |
//! | --- | --- |
//! | which files a path has, and bringing their sidecars up to date | [`files`] |
//! | one pass over a DFTracer file, and updating its sidecar | [`dft_file`], [`dft_sidecar`] |
//! | a DFTracer file that has grown | [`dft_growth`] |
//! | files of packets: CTF streams, I/O traces, RocksDB traces | [`packet_file`] |
//! | leaves of storages | [`leaf`] |
//! | packets to chunks with their summaries | [`chunker`] |
//! | writing `.idx` and `.cidx` | [`sidecar_writer`], [`columns`] |

mod checkpoints;
mod chunker;
mod columns;
mod dft_file;
mod dft_growth;
mod dft_sidecar;
mod files;
mod leaf;
mod packet_file;
mod sidecar_writer;
mod update;

pub use columns::BuiltColumns;
pub use dft_file::{BuildOptions, Built, build};
pub use dft_sidecar::update_sidecar;
pub use files::{IndexFile, IndexOptions, index_files};
pub use leaf::{IndexedLeaf, LeafIndexOptions};
pub use sidecar_writer::{remove_leftovers, write_sidecar};
pub use update::{Indexed, Update};
