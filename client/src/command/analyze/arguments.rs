use std::path::{Path, PathBuf};

use clap::Args;
use io_analysis::{PAGE_BYTES, ResultFile};
use io_trace::BlockType;

use super::export::{ExportTarget, parse_export};
use super::options::CacheOptions;
use crate::command::CommandError;

/// Analyze I/O traces and block cache traces
///
/// Accepts I/O traces of a server, and I/O and block cache traces of RocksDB. Several files are
/// analyzed as one trace; all must be of the same kind. A torn end of a file is reported, and the
/// data before it is analyzed; the exit code is then 1.
#[derive(Debug, Args)]
pub(in crate::command) struct Analyze {
    /// Trace files, or folders written by `tracehold io-trace export`
    #[arg(required_unless_present = "storage", value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Analyze the streams of this storage on the server, instead of files
    #[arg(long, value_name = "ID|NAME", conflicts_with = "paths")]
    pub(super) storage: Option<String>,
    /// Analyze only streams of this agent (requires --storage)
    #[arg(long, value_name = "AGENT", requires = "storage")]
    pub(super) agent: Option<String>,
    /// Analyze only this stream (requires --storage)
    #[arg(long, value_name = "STREAM", requires = "storage")]
    pub(super) stream: Option<String>,
    /// Write the results to this directory as CSV files, named and laid out as by RocksDB's
    /// analyzer
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Write charts of curves, timelines and heat maps
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
    /// Convert the trace to the format `fio`, `oracle-general` (libCacheSim) or `csv`
    #[arg(long, value_name = "FORMAT=FILE", value_parser = parse_export)]
    pub(super) export: Option<ExportTarget>,
    /// Number of slowest operations to report (I/O traces)
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) slowest: usize,
    /// File class that receives user writes first, for the write amplification
    /// [default: `wal` for RocksDB, `data` for a server]
    #[arg(long, value_name = "CLASS")]
    pub(super) user_class: Option<String>,
    /// Analyze the cache lookups in an I/O trace of a server, as a block cache trace
    #[arg(long)]
    pub(super) lookups: bool,
    /// Analyze only lookups of these block types (requires --lookups): index, filter, data (pages
    /// of data files in the page cache), dictionary, answer
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = block_type)]
    #[arg(requires = "lookups")]
    pub(super) blocks: Vec<BlockType>,
    /// Page size of data files in bytes (requires --lookups)
    #[arg(long, value_name = "N", default_value_t = PAGE_BYTES, requires = "lookups")]
    #[arg(value_parser = clap::value_parser!(u64).range(512..=1 << 30))]
    pub(super) page_bytes: u64,
    #[command(flatten)]
    pub(super) cache: Box<CacheOptions>,
}

impl Analyze {
    /// Writes the result files and charts that were requested.
    pub(super) fn write(
        &self,
        files: Vec<ResultFile>,
        picture: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder)
                .map_err(|error| CommandError::io(folder.display(), error))?;
            for file in files {
                write_file(&folder.join(&file.name), file.text.as_bytes())?;
            }
        }
        if let Some(path) = &self.plot {
            write_file(path, picture().as_bytes())?;
        }
        Ok(())
    }
}

fn block_type(name: &str) -> Result<BlockType, String> {
    let names = || BlockType::ALL.iter().map(|known| known.name());
    BlockType::from_name(name)
        .ok_or_else(|| format!("one of {}", names().collect::<Vec<_>>().join(", ")))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    std::fs::write(path, bytes).map_err(|error| CommandError::io(path.display(), error))
}
