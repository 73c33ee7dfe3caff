//! The ends of leaves, data files and logs.

use storage_format::{
    DataFileId,
    checksum::{crc32c_append, crc32c_combine},
    log::PreviousFile,
};

/// The end of the bytes of a leaf or of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tail {
    /// Number of bytes.
    pub(crate) length: u64,
    /// CRC32C of these bytes.
    pub(crate) checksum: u32,
}

/// From this size on, combining two checksums is cheaper than reading the bytes again.
const COMBINE_BYTES_MIN: usize = 8 << 10;
/// Longest piece that is joined at once.
const JOIN_BYTES_MAX: u32 = (1 << 29) - 1;

impl Tail {
    /// Moves the tail past `bytes`.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.checksum = crc32c_append(self.checksum, bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// Moves the tail past the bytes of which `next` is the tail.
    pub(crate) fn join(&mut self, next: Self) {
        let mut left = next.length;
        // A checksum of nothing adds nothing but the length.
        while left > u64::from(JOIN_BYTES_MAX) {
            self.checksum = crc32c_combine(self.checksum, 0, JOIN_BYTES_MAX);
            left = left.saturating_sub(u64::from(JOIN_BYTES_MAX));
        }
        let last = u32::try_from(left).unwrap_or(JOIN_BYTES_MAX);
        self.checksum = crc32c_combine(self.checksum, next.checksum, last);
        self.length = self.length.saturating_add(next.length);
    }

    /// Moves the tail past `bytes`, whose CRC32C is known.
    pub(crate) fn extend_summed(&mut self, bytes: &[u8], checksum: u32) {
        match u32::try_from(bytes.len()) {
            Ok(length) if bytes.len() >= COMBINE_BYTES_MIN => {
                self.checksum = crc32c_combine(self.checksum, checksum, length);
                self.length = self.length.saturating_add(u64::from(length));
            }
            _ => self.extend(bytes),
        }
    }
}

/// Where the log of a storage continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LogEnd {
    /// Id of the next data file.
    pub(crate) next_file: u64,
    /// The last data file with a batch, and its length.
    pub(crate) previous: Option<PreviousFile>,
    /// Number of the next batch.
    pub(crate) batch: u64,
    /// Checksum of the last batch header; 0 if there is none.
    pub(crate) chain: u32,
    /// Ended data files of which a torn or preallocated end may remain, and the length of each.
    pub(crate) uncut: Vec<PreviousFile>,
    /// As `uncut`, of files that a repair cut: they stay as they are until the log is complete.
    pub(crate) repaired: Vec<PreviousFile>,
}

/// What the log knows of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedLeaf {
    /// The end of its written bytes.
    pub(super) tail: Tail,
    /// The newest file that contains its header.
    pub(super) declared_in: Option<DataFileId>,
}

/// A data file that was closed without a change since.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClosedFile {
    pub(super) id: DataFileId,
    pub(super) salt: u64,
    pub(super) tail: Tail,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC32C of `length` bytes of value 7, computed in pieces.
    fn tail_of(length: u64) -> Tail {
        let mut tail = Tail::default();
        let piece = [7; 1 << 16];
        while tail.length < length {
            let left = usize::try_from(length - tail.length).unwrap();
            tail.extend(&piece[..left.min(piece.len())]);
        }
        tail
    }

    #[test]
    fn long_and_short_tails_are_joined() {
        for (first, second) in [(0, 5), (9, 0), (100, 7), (3, 1 << 29), (5, (1 << 30) + 11)] {
            let mut joined = tail_of(first);
            joined.join(tail_of(second));
            assert_eq!(joined, tail_of(first + second), "{first} and {second}");
        }
    }
}
