//! Read and write amplification.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Direction, IoAccess};

/// Bytes read and written, by file class.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    by_class: BTreeMap<u32, (u64, u64)>,
}

impl Volumes {
    pub(super) fn add(&mut self, access: &IoAccess<'_>, class: u32) {
        let len = access.len.unwrap_or(0);
        let (read, written) = self.by_class.entry(class).or_default();
        match access.direction {
            Direction::Read => *read = read.saturating_add(len),
            Direction::Write => *written = written.saturating_add(len),
            Direction::Sync | Direction::Other => {}
        }
    }

    /// `user_class` is the file class that receives user writes first.
    pub(super) fn amplification(
        &self,
        user_class: &str,
        distinct_read_bytes: u64,
        class: impl Fn(u32) -> String,
    ) -> Amplification {
        let mut by_class: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let (mut read, mut written, mut user) = (0u64, 0u64, 0u64);
        for (&number, &(read_here, written_here)) in &self.by_class {
            let name = class(number);
            read = read.saturating_add(read_here);
            written = written.saturating_add(written_here);
            if name == user_class {
                user = user.saturating_add(written_here);
            }
            by_class.insert(name, (read_here, written_here));
        }
        let ratio = |of: u64, by: u64| (by > 0).then(|| of as f64 / by as f64);
        Amplification {
            write: ratio(written, user),
            read: ratio(read, distinct_read_bytes),
            read_bytes: read,
            written_bytes: written,
            user_bytes: user,
            distinct_read_bytes,
            by_class,
        }
    }
}

/// Read and write amplification.
///
/// Write amplification is the ratio of all bytes written to those written to the log of user writes
/// (WAL), which receives every user byte once. Read amplification is the ratio of all bytes read to
/// the distinct bytes read (in pages of 4 KiB), which an unlimited cache would read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Amplification {
    /// Bytes written per user byte; `None` without user writes.
    pub write: Option<f64>,
    /// Bytes read per distinct byte; `None` without reads.
    pub read: Option<f64>,
    /// All bytes read.
    pub read_bytes: u64,
    /// All bytes written.
    pub written_bytes: u64,
    /// Bytes written to the log of user writes.
    pub user_bytes: u64,
    /// Distinct bytes read, estimated.
    pub distinct_read_bytes: u64,
    /// Bytes read and written, by file class.
    pub by_class: BTreeMap<String, (u64, u64)>,
}
