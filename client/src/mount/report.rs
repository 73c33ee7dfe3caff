use std::sync::Arc;

/// What was brought, and what was there already.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct MountReport {
    /// Files fetched.
    pub fetched_files: u64,
    /// Bytes fetched; less than the files have where some were continued.
    pub fetched_bytes: u64,
    /// Files that were complete already.
    pub kept_files: u64,
    /// Files of the storage that are not wanted by this extent.
    pub left_out_files: u64,
}

/// Called with what is to come, and then with what arrived.
pub type Progress = Arc<dyn Fn(MountProgress) + Send + Sync>;

/// How far a mount or a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountProgress {
    /// So many bytes are wanted in all.
    Total(u64),
    /// So many more bytes are here.
    Received(u64),
}

impl MountReport {
    /// Counts a file and the bytes fetched of it, `None` when it was here.
    pub(super) fn add(&mut self, fetched: Option<u64>) {
        match fetched {
            None => self.kept_files += 1,
            Some(bytes) => {
                self.fetched_files += 1;
                self.fetched_bytes += bytes;
            }
        }
    }
}
