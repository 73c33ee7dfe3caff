//! Columns next to trace files: `FILE.cidx`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::{Counters, Narrowed};
use crate::{Fetch, LocalFile};
use chunk_index::{
    ColumnBlock, ColumnFilter, Columns, ColumnsOpened, Index, IndexConfig, Matches, TAIL_BYTES,
};

/// Path of the columns of `path`.
pub fn columns_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".cidx");
    PathBuf::from(name)
}

/// Bytes of the columns of `path`, if they belong to its index and include all of `config`.
pub(crate) fn columns_of(path: &Path, index: &Index, config: &IndexConfig) -> Option<u64> {
    let open = OpenColumns::open(path, index).ok()??;
    let wanted = config.dimensions().iter().map(|field| field.as_str());
    open.columns.have(wanted).then_some(open.len)
}

/// Open columns that belong to an index: the part that every query needs.
pub(super) struct OpenColumns {
    columns: Columns,
    fetch: Arc<dyn Fetch>,
    len: u64,
}

impl OpenColumns {
    /// Opens the columns of `path`: `None` if there are none, an error message if they do not
    /// belong to `index`.
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
                &"the columns do not belong to the index of the file; index the file again",
            ));
        }
        Ok(Some(OpenColumns {
            columns,
            fetch: Arc::new(local),
            len,
        }))
    }

    /// Evaluates a filter on the columns of chunks.
    pub(super) fn narrow(&self, chunks: &[usize], filter: &ColumnFilter) -> Narrowed {
        let mut narrowed = Narrowed::default();
        for chunk in chunks {
            match self.matches(filter, *chunk, &mut narrowed.counters) {
                Ok(Some(Matches::Exactly(0) | Matches::AtMost(0))) => {
                    narrowed.counters.answered_by_columns += 1;
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

    /// Evaluates a filter on the columns of one chunk: `None` if they include no field of the
    /// filter, an error message if they are damaged.
    fn matches(
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
