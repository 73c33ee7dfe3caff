//! Columns beside trace files: `FILE.cidx`.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk_index::{
    Chunk, ChunkColumns, ColumnBlock, ColumnFilter, Columns, ColumnsOpened, ColumnsWriter,
    Identity, Index, IndexConfig, Matches, TAIL_BYTES,
};
use tempfile::NamedTempFile;

use crate::beside::temporary;
use crate::source::{Counters, Narrowed};
use crate::{Fetch, LocalFile, ReadError};

/// Where the columns of `path` lie.
pub fn columns_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".cidx");
    PathBuf::from(name)
}

/// The columns of a file while it is indexed.
pub(super) struct ColumnsSink {
    writer: ColumnsWriter<BufWriter<NamedTempFile>>,
    /// The first write that failed; nothing is written behind it.
    failed: Option<io::Error>,
    place: String,
}

impl ColumnsSink {
    /// Columns of the file at `path` for all that is indexed.
    pub(super) fn new(path: &Path, config: &IndexConfig) -> Result<ColumnsSink, ReadError> {
        let place = columns_path(path).display().to_string();
        let dimensions = config.dimensions().iter().map(|field| field.as_str());
        let begin = || {
            let out = BufWriter::new(temporary(path, ".cidx.tmp")?);
            ColumnsWriter::new(out, dimensions)
        };
        Ok(ColumnsSink {
            writer: begin().map_err(|error| ReadError::fetch(&*place, error))?,
            failed: None,
            place,
        })
    }

    /// Takes the columns of the next chunk.
    pub(super) fn chunk(&mut self, chunk: &Chunk, columns: ChunkColumns) {
        if self.failed.is_none() {
            self.failed = self.writer.chunk(chunk, columns).err();
        }
    }

    /// Ends the columns, which are those of a file of this identity.
    pub(super) fn finish(self, identity: &Identity) -> Result<BuiltColumns, ReadError> {
        let end = || {
            if let Some(error) = self.failed {
                return Err(error);
            }
            let out = self.writer.finish(identity)?;
            out.into_inner().map_err(|error| error.into_error())
        };
        match end() {
            Ok(file) => Ok(BuiltColumns(file)),
            Err(error) => Err(ReadError::fetch(self.place, error)),
        }
    }
}

/// Columns that were written and are nowhere yet: they go with this value unless they are kept.
#[derive(Debug)]
pub struct BuiltColumns(NamedTempFile);

impl BuiltColumns {
    /// Puts them beside the file at `path`; gives how many bytes they are.
    ///
    /// # Errors
    ///
    /// When that fails.
    pub fn keep(self, path: &Path) -> Result<u64, ReadError> {
        let target = columns_path(path);
        let put = || {
            self.0.as_file().sync_all()?;
            let file = self.0.persist(&target).map_err(|error| error.error)?;
            Ok(file.metadata()?.len())
        };
        put().map_err(|error| ReadError::fetch(target.display().to_string(), error))
    }
}

/// Takes away the columns of `path`, which are of another index than it gets.
pub(super) fn remove_columns(path: &Path) -> Result<(), ReadError> {
    let target = columns_path(path);
    match fs::remove_file(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ReadError::fetch(target.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Bytes of the columns of `path`, when they belong to its index and hold all of `config`.
pub(super) fn columns_of(path: &Path, index: &Index, config: &IndexConfig) -> Option<u64> {
    let open = OpenColumns::open(path, index).ok()??;
    let wanted = config.dimensions().iter().map(|field| field.as_str());
    open.columns.have(wanted).then_some(open.len)
}

/// Columns that belong to an index, opened as far as every query needs them.
pub(super) struct OpenColumns {
    columns: Columns,
    fetch: Arc<dyn Fetch>,
    len: u64,
}

impl OpenColumns {
    /// Opens the columns of `path`; `None` where there are none, and a reason when they are not
    /// those of `index`.
    pub(super) fn open(path: &Path, index: &Index) -> Result<Option<OpenColumns>, String> {
        let target = columns_path(path);
        let refused = |reason: &dyn std::fmt::Display| format!("{}: {reason}", target.display());
        let local = match LocalFile::open(&target) {
            Ok(local) => local,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(&error)),
        };
        let len = File::metadata(local.file()).map_err(|error| refused(&error))?;
        let len = len.len();
        let mut wanted = TAIL_BYTES.min(len);
        let columns = loop {
            let tail = local.fetch_one(len - wanted..len);
            let tail = tail.map_err(|error| refused(&error))?;
            match Columns::open(&tail, len).map_err(|error| refused(&error))? {
                ColumnsOpened::Columns(columns) => break columns,
                ColumnsOpened::More(more) => wanted = more.min(len),
            }
        };
        if !columns.belong_to(index) {
            return Err(refused(
                &"these columns are of another index than that of the file; index it again",
            ));
        }
        Ok(Some(OpenColumns {
            columns,
            fetch: Arc::new(local),
            len,
        }))
    }

    /// What the columns tell of some chunks.
    pub(super) fn narrow(&self, chunks: &[usize], filter: &ColumnFilter) -> Narrowed {
        let mut narrowed = Narrowed::default();
        for chunk in chunks {
            match self.ask(filter, *chunk, &mut narrowed.counters) {
                Ok(Some(Matches::Exactly(0) | Matches::AtMost(0))) => {
                    narrowed.counters.told_by_columns += 1;
                }
                Ok(Some(Matches::Exactly(matches))) => narrowed.known.push((*chunk, matches)),
                Ok(Some(Matches::AtMost(_)) | None) => narrowed.unknown.push(*chunk),
                Err(reason) => {
                    narrowed.counters.damaged.push(reason);
                    narrowed.unknown.push(*chunk);
                }
            }
        }
        narrowed
    }

    /// What the columns of a chunk tell of a filter, `None` when they hold nothing that it asks
    /// for; a reason when they are damaged.
    fn ask(
        &self,
        filter: &ColumnFilter,
        chunk: usize,
        counters: &mut Counters,
    ) -> Result<Option<Matches>, String> {
        let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", self.fetch.place());
        let wanted = filter.wanted(&self.columns, chunk);
        if wanted.is_empty() {
            return Ok(None);
        }
        let ranges: Vec<_> = wanted.iter().map(ColumnBlock::range).collect();
        let parts = self.fetch.fetch(&ranges).map_err(|error| failed(&error))?;
        let loaded: Vec<(ColumnBlock, Vec<u8>)> = wanted.into_iter().zip(parts).collect();
        counters.column_bytes += loaded.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
        let matches = filter.matches(&self.columns, chunk, &loaded);
        matches.map(Some).map_err(|error| failed(&error))
    }
}
