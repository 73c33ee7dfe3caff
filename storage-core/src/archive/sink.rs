//! Where the files of an archive go.

use crate::StorageError;

/// Takes the files of an archive, one after another.
pub(crate) trait ArchiveSink {
    /// A file begins. Gives its length where that is known from elsewhere.
    ///
    /// # Errors
    /// When there shall be no file of this name.
    fn begin(&mut self, name: &str) -> Result<Option<u64>, StorageError>;

    /// More bytes of it.
    ///
    /// # Errors
    /// When there are more than there shall be, or they cannot be kept.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;

    /// The file is complete.
    ///
    /// # Errors
    /// When it is not as it shall be, or cannot be kept.
    fn end(&mut self) -> Result<(), StorageError>;
}
