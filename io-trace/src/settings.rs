//! What is recorded.

use std::fmt;

use crate::{FileName, Operation, file_name::mix};

/// Operations on neighbouring bytes are sampled together, in blocks of this many bytes.
pub(crate) const SAMPLED_BYTES: u64 = 64 << 10;

/// Invalid settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(pub(crate) &'static str);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SettingsError {}

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// By the number of an operation: one in this many is recorded; 0 records none.
    pub one_in: [u32; Operation::COUNT],
    /// One in this many blocks of 64 KiB of all files is recorded, with every operation that begins
    /// in it. Operations without an offset are not sampled by block.
    pub blocks_one_in: u32,
    /// Only these storages; all when it is empty.
    pub storages: Vec<[u8; 16]>,
    /// The storage that the trace is written to; never recorded.
    pub own_storage: Option<[u8; 16]>,
    /// Most records in the buffer of a thread.
    pub thread_records_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            one_in: [1; Operation::COUNT],
            blocks_one_in: 1,
            storages: Vec::new(),
            own_storage: None,
            thread_records_max: 16 << 10,
        }
    }
}

impl Settings {
    /// Checks that the settings record something.
    ///
    /// # Errors
    /// When no operation, no block or no record would be recorded.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.one_in.iter().all(|&one_in| one_in == 0) {
            return Err(SettingsError(
                "all operations are disabled; enable at least one",
            ));
        }
        if self.blocks_one_in == 0 {
            return Err(SettingsError(
                "one in 0 blocks records nothing; use 1 for all blocks",
            ));
        }
        match self.thread_records_max {
            0 => Err(SettingsError(
                "the buffer of a thread must have space for at least one record",
            )),
            _ => Ok(()),
        }
    }

    /// Whether operations on the file are recorded.
    pub(crate) fn takes_file(&self, file: &FileName) -> bool {
        let storage = file.storage();
        if storage.is_some() && storage == self.own_storage {
            return false;
        }
        self.storages.is_empty() || storage.is_some_and(|id| self.storages.contains(&id))
    }

    /// Whether the block with `offset` is recorded; the same for every operation.
    pub(crate) fn takes_block(&self, file: &FileName, offset: Option<u64>) -> bool {
        let Some(offset) = offset.filter(|_| self.blocks_one_in > 1) else {
            return true;
        };
        let hash = mix(file.hash() ^ (offset / SAMPLED_BYTES));
        hash <= u64::MAX / u64::from(self.blocks_one_in)
    }
}
