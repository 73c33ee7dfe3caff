use std::sync::Arc;

/// The result of a mount or a download.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct MountReport {
    /// Files fetched.
    pub fetched_files: u64,
    /// Bytes fetched; less than the size of the files if some were resumed.
    pub fetched_bytes: u64,
    /// Files of which only damaged pieces were fetched.
    pub healed_files: u64,
    /// Files that were already complete.
    pub kept_files: u64,
    /// Files of the storage that this extent does not include.
    pub left_out_files: u64,
    /// Whether the chunk indexes were `complete`, still `in_progress`, or `failed`; unknown of
    /// earlier servers.
    pub chunk_indexes: Option<String>,
}

impl MountReport {
    /// What the user should know about the chunk indexes.
    pub fn index_note(&self) -> Option<&'static str> {
        match self.chunk_indexes.as_deref() {
            Some(super::IN_PROGRESS) => Some(
                "the server is still making chunk indexes: queries read more than needed; run the \
                 command again to fetch them",
            ),
            Some("failed") => Some(
                "the server cannot make some chunk indexes, and its log says why: queries read more \
                 than needed",
            ),
            _ => None,
        }
    }
}

/// What was fetched of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// It was complete.
    Nothing,
    /// Bytes of it.
    Bytes(u64),
    /// Bytes of it, damaged pieces among them.
    Pieces(u64),
    /// It is derived, and was replaced or removed after it was listed.
    Replaced,
}

/// Called with the total, and then as bytes arrive.
pub type Progress = Arc<dyn Fn(MountProgress) + Send + Sync>;

/// Progress of a mount or a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountProgress {
    /// Total bytes of the files.
    Total(u64),
    /// Additional bytes that are present.
    Received(u64),
    /// The server is making chunk indexes.
    WaitingForIndexes,
}

impl MountReport {
    /// Counts a file; returns whether it is there.
    pub(super) fn add(&mut self, fetched: Fetched) -> bool {
        match fetched {
            Fetched::Nothing => self.kept_files += 1,
            Fetched::Replaced => {
                self.left_out_files += 1;
                // It is in another file now, or being made again.
                self.chunk_indexes = Some(super::IN_PROGRESS.to_owned());
            }
            Fetched::Bytes(bytes) => {
                self.fetched_files += 1;
                self.fetched_bytes += bytes;
            }
            Fetched::Pieces(bytes) => {
                self.fetched_files += 1;
                self.healed_files += 1;
                self.fetched_bytes += bytes;
            }
        }
        fetched != Fetched::Replaced
    }
}
