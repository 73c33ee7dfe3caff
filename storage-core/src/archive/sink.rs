//! Receiver of the files of an archive.

use crate::StorageError;

/// Receives the files of an archive, one after another.
pub(crate) trait ArchiveSink {
    /// Begins a file. Returns its length if another file of the archive gave it.
    ///
    /// # Errors
    /// When a file of this name is not expected.
    fn begin(&mut self, name: &str) -> Result<Option<u64>, StorageError>;

    /// Adds bytes to the current file.
    ///
    /// # Errors
    /// When there are more bytes than expected, or they cannot be written.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;

    /// Ends the current file.
    ///
    /// # Errors
    /// When it is not as expected, or cannot be written.
    fn end(&mut self) -> Result<(), StorageError>;
}
