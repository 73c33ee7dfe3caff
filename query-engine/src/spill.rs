//! Rows in a temporary file without a name, as records of key, length and bytes.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::run::RunKey;

/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes per read of each run.
const READ_BYTES: usize = 64 << 10;

/// Where temporary files are, if not in the folder of the system.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Puts the temporary files of this process into `folder` from now on. Only the first call has an
/// effect. For programs whose only writable folder is their own.
pub fn spill_into(folder: PathBuf) {
    FOLDER.get_or_init(|| folder);
}

/// A temporary file without a name: nothing is left of it when it is closed, or its process ends.
///
/// # Errors
///
/// When the folder cannot take one.
pub fn temporary_file() -> io::Result<File> {
    match FOLDER.get() {
        Some(folder) => tempfile::tempfile_in(folder),
        None => tempfile::tempfile(),
    }
}

/// Writes rows, given in order, to a file.
pub(crate) struct SpillWriter {
    writer: BufWriter<File>,
    rows: u64,
}

impl SpillWriter {
    /// A new file in the folder for temporary files.
    pub(crate) fn new() -> io::Result<SpillWriter> {
        Ok(SpillWriter {
            writer: BufWriter::with_capacity(WRITE_BYTES, temporary_file()?),
            rows: 0,
        })
    }

    pub(crate) fn row<K: RunKey>(&mut self, key: &K, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        key.write(&mut self.writer)?;
        self.writer.write_all(&len.to_le_bytes())?;
        self.writer.write_all(bytes)?;
        self.rows += 1;
        Ok(())
    }

    /// The rows, to be read from the first one.
    pub(crate) fn finish<K: RunKey>(self) -> io::Result<SpilledRun<K>> {
        let mut file = self.writer.into_inner()?;
        file.rewind()?;
        let mut run = SpilledRun {
            reader: BufReader::with_capacity(READ_BYTES, file),
            remaining: self.rows,
            row: None,
            bytes: Vec::new(),
        };
        run.advance()?;
        Ok(run)
    }
}

/// Reads the rows of a file.
pub(crate) struct SpilledRun<K> {
    reader: BufReader<File>,
    remaining: u64,
    /// Key of the row in `bytes`.
    row: Option<K>,
    bytes: Vec<u8>,
}

impl<K: RunKey> SpilledRun<K> {
    /// The next row; `None` at the end.
    pub(crate) fn row(&self) -> Option<(K, &[u8])> {
        self.row.clone().map(|key| (key, &*self.bytes))
    }

    /// Advances to the following row.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        self.row = None;
        if self.remaining == 0 {
            return Ok(());
        }
        self.remaining -= 1;
        let key = K::read(&mut self.reader)?;
        let mut len = [0; 4];
        self.reader.read_exact(&mut len)?;
        self.bytes.resize(u32::from_le_bytes(len) as usize, 0);
        self.reader.read_exact(&mut self.bytes)?;
        self.row = Some(key);
        Ok(())
    }
}
