//! `tracehold analyze`: what I/O and block cache traces tell.

mod block_cache;
mod export;
mod options;
mod rocksdb_io;
mod server_io;
mod source;

use std::path::{Path, PathBuf};

use clap::Args;
use io_analysis::{PAGE_BYTES, ResultFile};
use io_trace::BlockType;

use self::export::{Export, parse_export};
use self::options::CacheOptions;
pub(super) use self::source::stored;
use self::source::{Input, PacketSource, TraceType};
use super::{CommandError, Context, Exit};

/// Analyse I/O and block cache traces: a server's own, and RocksDB's
///
/// Several files are read one after another as one trace; all must be of one kind. A torn tail is
/// reported and what is in front of it analysed.
#[derive(Debug, Args)]
pub(super) struct Analyze {
    /// Trace files, or folders that `tracehold io-trace export` wrote
    #[arg(required_unless_present = "storage", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Analyse the streams of this storage instead
    #[arg(long, value_name = "ID|NAME", conflicts_with = "paths")]
    storage: Option<String>,
    /// Only the streams of this agent (with --storage)
    #[arg(long, value_name = "AGENT", requires = "storage")]
    agent: Option<String>,
    /// Only this stream (with --storage)
    #[arg(long, value_name = "STREAM", requires = "storage")]
    stream: Option<String>,
    /// Write the results as CSV files into this folder, in the layout of RocksDB's analyser
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw curves, timelines and heat maps
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write the trace for another program: fio, oracle-general (libCacheSim) or csv
    #[arg(long, value_name = "FORMAT=FILE", value_parser = parse_export)]
    export: Option<Export>,
    /// Keep so many of the slowest operations (I/O traces)
    #[arg(long, value_name = "N", default_value_t = 20)]
    slowest: usize,
    /// Class of the files that users' writes go to first, for the write amplification; `wal` of
    /// RocksDB, `data` of a server's own I/O
    #[arg(long, value_name = "CLASS")]
    user_class: Option<String>,
    /// Analyse the look-ups in caches in a trace of a server's own I/O, as a block cache trace
    #[arg(long)]
    lookups: bool,
    /// Only look-ups of these blocks (with --lookups): index, filter, data (pages of data files in
    /// the system's memory), dictionary, answer
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = block_type)]
    #[arg(requires = "lookups")]
    blocks: Vec<BlockType>,
    /// Bytes of a page of a data file (with --lookups)
    #[arg(long, value_name = "N", default_value_t = PAGE_BYTES, requires = "lookups")]
    #[arg(value_parser = clap::value_parser!(u64).range(512..=1 << 30))]
    page_bytes: u64,
    #[command(flatten)]
    cache: Box<CacheOptions>,
}

impl Analyze {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let place = match &self.storage {
            Some(storage) => Input::Storage {
                storage,
                agent: self.agent.as_deref(),
                stream: self.stream.as_deref(),
            },
            None => Input::Files(&self.paths),
        };
        let mut source = PacketSource::open(context, &place)?;
        match source.kind()? {
            Some(TraceType::BlockCache) => block_cache::run(&self, context, source),
            Some(TraceType::ServerIo) if self.lookups => {
                server_io::run_lookups(&self, context, source)
            }
            Some(_) if self.lookups => Err(CommandError::usage(
                "--lookups is for traces of a server's own I/O",
            )),
            Some(TraceType::ServerIo) => server_io::run(&self, context, source),
            Some(TraceType::RocksdbIo) => rocksdb_io::run(&self, context, source),
            None => {
                context.note("the trace has no records");
                source.finish(context);
                Ok(Exit::NoMatchOrDamage)
            }
        }
    }

    /// Writes the files of results and the picture, where they were asked for.
    fn write(
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
