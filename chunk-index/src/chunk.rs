//! Chunks of an indexed file, and the identity of that file.

use crate::statistics::{ChunkStatistics, TimeRange};

/// A chunk: a packet, or a part of a file that can be read on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of its bytes in the file.
    pub offset: u64,
    /// Number of these bytes.
    pub length: u64,
    /// Offset of its events in the decoded content of the file.
    pub raw_offset: u64,
    /// Number of bytes of the decoded content.
    pub raw_length: u64,
    /// Its first line, from 0, if the content has lines.
    pub first_line: u64,
    /// Number of lines.
    pub lines: u64,
    /// Number of the packet in its storage, or of the chunk in its file.
    pub number: u64,
    /// Number of its events.
    pub events: u64,
    /// Number of events that have a start.
    pub timed: u64,
    /// Number of events whose `ts` or `dur` is not a whole number of nanoseconds.
    pub odd: u64,
    /// Times of the events that have a start.
    pub times: Option<TimeRange>,
}

impl Chunk {
    /// Copies the counts and times of the statistics, so that they are known before the statistics
    /// are loaded.
    pub(crate) fn summarize(&mut self, statistics: &ChunkStatistics) {
        self.events = statistics.events();
        self.times = statistics.times();
        let totals = || {
            let groups = statistics.groups.iter().map(|group| &group.totals);
            groups.chain([&statistics.other])
        };
        self.timed = totals().map(|totals| totals.timed).sum();
        self.odd = totals().map(|totals| totals.odd).sum();
    }
}

/// Identifies the indexed file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// Bytes of the file.
    pub length: u64,
    /// Time of the last modification in nanoseconds since the epoch; `None` where there is no file
    /// system.
    pub modified: Option<i64>,
    /// A checksum of the whole file, if it was computed.
    pub checksum: Option<u64>,
}

/// Why an index does not belong to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The file grew or shrank.
    #[error("the file has {found} bytes, {indexed} were indexed; index it again")]
    Length {
        /// Bytes when it was indexed.
        indexed: u64,
        /// Bytes now.
        found: u64,
    },
    /// The file was modified, and no checksum shows that it is the same.
    #[error("the file was modified after it was indexed; index it again")]
    Modified,
    /// The content changed.
    #[error("the checksum of the file has changed since it was indexed; index it again")]
    Checksum,
    /// Time and checksum are not known for both.
    #[error("neither time nor checksum identifies the indexed file; index it again")]
    Unknown,
}

impl Identity {
    /// Checks whether the file that is `found` now is the one that was indexed. Checksums decide if
    /// both are known, else the times must be equal.
    ///
    /// # Errors
    /// Why the file is not the indexed one, or cannot be identified.
    pub fn check(&self, found: &Identity) -> Result<(), Stale> {
        if self.length != found.length {
            return Err(Stale::Length {
                indexed: self.length,
                found: found.length,
            });
        }
        match (self.checksum, found.checksum) {
            (Some(indexed), Some(found)) if indexed == found => return Ok(()),
            (Some(_), Some(_)) => return Err(Stale::Checksum),
            _ => {}
        }
        match (self.modified, found.modified) {
            (Some(indexed), Some(found)) if indexed == found => Ok(()),
            (Some(_), Some(_)) => Err(Stale::Modified),
            _ => Err(Stale::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_identified_by_length_and_time_or_checksum() {
        let identity = |length, modified, checksum| Identity {
            length,
            modified,
            checksum,
        };
        let indexed = identity(10, Some(5), Some(7));
        let cases = [
            (identity(10, Some(5), None), Ok(())),
            (identity(10, Some(6), Some(7)), Ok(())),
            (identity(10, None, Some(7)), Ok(())),
            (identity(10, Some(5), Some(8)), Err(Stale::Checksum)),
            (identity(10, Some(6), None), Err(Stale::Modified)),
            (identity(10, None, None), Err(Stale::Unknown)),
            (
                identity(11, Some(5), Some(7)),
                Err(Stale::Length {
                    indexed: 10,
                    found: 11,
                }),
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(indexed.check(&found), expected, "{found:?}");
        }
    }
}
