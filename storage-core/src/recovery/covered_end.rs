//! Whether a log still has the last batch that its index parts cover.
//!
//! The scan of a log begins where the index parts end, and trusts what is before. If a disk lost
//! the end of a log from some batch on, no later batch is left whose durable mark proves it; an
//! index part is.

use std::{collections::BTreeMap, io};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind, StorageId,
    log::{BLOCK_BYTES, FILE_HEADER_BYTES},
};

use super::{DataFile, LostEnd, Recovered};
use crate::{StorageError, errno::is_transient, log_scan::LogScanner};

impl Recovered {
    /// Notes that the log lacks the batch after which the index parts end.
    ///
    /// The storage is not FAILED for it, as for other damage of what they cover: the index says
    /// what is missing, and reads, a repair and a finalization find it.
    pub(super) fn check_covered_end(
        &mut self,
        storage: StorageId,
        data: &BTreeMap<DataFileId, DataFile>,
    ) -> Result<(), StorageError> {
        let Some(position) = self.tree.position() else {
            return Ok(());
        };
        // A file that was replaced, is missing or is shorter is checked elsewhere.
        let file = data.get(&position.file).filter(|file| {
            file.is_of_log
                && file.length >= position.offset
                && position.offset > FILE_HEADER_BYTES as u64
                && self.replacements.get(position.file).is_none()
        });
        let Some(file) = file else {
            return Ok(());
        };
        let has_batch = || -> io::Result<bool> {
            let Ok(header) = LogScanner::header(&file.path, storage, position.file)? else {
                return Ok(false);
            };
            LogScanner::of_file(&file.path, &header, position.offset)?.ends_at(&position)
        };
        let offset = position.offset.saturating_sub(BLOCK_BYTES as u64);
        let error = match has_batch() {
            Ok(true) => return Ok(()),
            Ok(false) => StorageError::damaged(&file.path)(FormatError {
                what: "data file",
                offset,
                kind: FormatErrorKind::Field {
                    name: "last batch that the index has",
                },
            }),
            Err(error) if is_transient(&error) => {
                return Err(StorageError::io("read", &file.path)(error));
            }
            Err(error) => StorageError::io("read", &file.path)(error),
        };
        self.lost_end = Some(LostEnd {
            file: position.file,
            offset,
            error,
        });
        Ok(())
    }
}
