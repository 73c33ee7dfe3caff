//! Errors in archives.

use std::io::{self, Read};

use super::source::Source;
use crate::StorageError;

/// An error in the bytes of an archive.
pub(super) trait Fault {
    fn at(self, offset: u64) -> StorageError;
}

impl Fault for String {
    fn at(self, offset: u64) -> StorageError {
        StorageError::ArchiveDamaged {
            offset,
            problem: self,
        }
    }
}

impl Fault for &str {
    fn at(self, offset: u64) -> StorageError {
        self.to_owned().at(offset)
    }
}

impl Fault for io::Error {
    fn at(self, offset: u64) -> StorageError {
        read_failure(offset, self)
    }
}

/// The error for damaged bytes at the current offset.
pub(super) fn damaged<R: Read>(source: &Source<R>, fault: impl Fault) -> StorageError {
    fault.at(source.offset())
}

/// The error for an entry that is refused.
pub(super) fn refused(name: &str, problem: impl Into<String>) -> StorageError {
    StorageError::ArchiveRefused {
        entry: name.chars().take(160).collect(),
        problem: problem.into(),
    }
}

/// The error for an entry that could not be read.
pub(super) fn read_failure(offset: u64, source: io::Error) -> StorageError {
    if is_of_bytes(&source) {
        StorageError::ArchiveDamaged {
            offset,
            problem: match source.kind() {
                io::ErrorKind::UnexpectedEof => "the archive ends here".to_owned(),
                _ => source.to_string(),
            },
        }
    } else {
        StorageError::ArchiveBroken { offset, source }
    }
}

/// Whether an error is in the bytes and not in reading them.
pub(super) fn is_of_bytes(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}
