//! Writing the columns of a file next to it while it is indexed.

use std::io::{self, BufWriter};
use std::path::Path;

use chunk_index::{Chunk, ChunkColumns, ColumnsWriter, Identity, IndexConfig};
use tempfile::NamedTempFile;

use super::sidecar_writer::{remove_derived, temporary};
use crate::ReadError;
use crate::dft::columns_path;

/// The columns of a file while it is indexed.
pub(super) struct ColumnsSink {
    writer: ColumnsWriter<BufWriter<NamedTempFile>>,
    /// The first write that failed; nothing is written after it.
    failed: Option<io::Error>,
    place: String,
}

impl ColumnsSink {
    /// Columns of the file at `path`, of all indexed fields.
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

    /// Adds the columns of the next chunk.
    pub(super) fn chunk(&mut self, chunk: &Chunk, columns: ChunkColumns) {
        if self.failed.is_none() {
            self.failed = self.writer.chunk(chunk, columns).err();
        }
    }

    /// Completes the columns of a file with this identity.
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

/// Columns in a temporary file, which is removed unless they are installed.
#[derive(Debug)]
pub struct BuiltColumns(NamedTempFile);

impl BuiltColumns {
    /// Renames them to the columns of the file at `path`; their bytes.
    ///
    /// # Errors
    ///
    /// When that fails.
    pub fn install(self, path: &Path) -> Result<u64, ReadError> {
        let target = columns_path(path);
        let put = || {
            self.0.as_file().sync_all()?;
            let file = self.0.persist(&target).map_err(|error| error.error)?;
            Ok(file.metadata()?.len())
        };
        put().map_err(|error| ReadError::fetch(target.display().to_string(), error))
    }
}

/// Removes the columns of `path`, which belong to another index.
pub(super) fn remove_columns(path: &Path) -> Result<(), ReadError> {
    remove_derived(&columns_path(path))
}
