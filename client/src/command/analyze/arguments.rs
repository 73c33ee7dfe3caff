use std::path::{Path, PathBuf};

use clap::Args;
use io_analysis::{PAGE_BYTES, ResultFile};
use io_trace::BlockType;

use super::export::{ExportTarget, parse_export};
use super::options::CacheOptions;
use crate::command::CommandError;

/// Analyse I/O and block cache traces: a server's own, and RocksDB's
///
/// Several files are read one after another as one trace; all must be of one kind. A torn tail is
/// reported and what is in front of it analysed.
#[derive(Debug, Args)]
pub(in crate::command) struct Analyze {
    /// Trace files, or folders that `tracehold io-trace export` wrote
    #[arg(required_unless_present = "storage", value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Analyse the streams of this storage instead
    #[arg(long, value_name = "ID|NAME", conflicts_with = "paths")]
    pub(super) storage: Option<String>,
    /// Only the streams of this agent (with --storage)
    #[arg(long, value_name = "AGENT", requires = "storage")]
    pub(super) agent: Option<String>,
    /// Only this stream (with --storage)
    #[arg(long, value_name = "STREAM", requires = "storage")]
    pub(super) stream: Option<String>,
    /// Write the results as CSV files into this folder, in the layout of RocksDB's analyser
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Draw curves, timelines and heat maps
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
    /// Write the trace for another program: fio, oracle-general (libCacheSim) or csv
    #[arg(long, value_name = "FORMAT=FILE", value_parser = parse_export)]
    pub(super) export: Option<ExportTarget>,
    /// Keep so many of the slowest operations (I/O traces)
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) slowest: usize,
    /// Class of the files that users' writes go to first, for the write amplification; `wal` of
    /// RocksDB, `data` of a server's own I/O
    #[arg(long, value_name = "CLASS")]
    pub(super) user_class: Option<String>,
    /// Analyse the look-ups in caches in a trace of a server's own I/O, as a block cache trace
    #[arg(long)]
    pub(super) lookups: bool,
    /// Only look-ups of these blocks (with --lookups): index, filter, data (pages of data files in
    /// the system's memory), dictionary, answer
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = block_type)]
    #[arg(requires = "lookups")]
    pub(super) blocks: Vec<BlockType>,
    /// Bytes of a page of a data file (with --lookups)
    #[arg(long, value_name = "N", default_value_t = PAGE_BYTES, requires = "lookups")]
    #[arg(value_parser = clap::value_parser!(u64).range(512..=1 << 30))]
    pub(super) page_bytes: u64,
    #[command(flatten)]
    pub(super) cache: Box<CacheOptions>,
}

impl Analyze {
    /// Writes the files of results and the picture, where they were asked for.
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
