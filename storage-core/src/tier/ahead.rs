//! Reading ahead: a scan of a file takes larger and larger pieces from the store into memory, and
//! leaves the cache to those who come back.

use std::ops::Range;

use bytes::Bytes;
use storage_format::tier_file::GRANULE_BYTES;

/// Scans of one file that are known at once.
const SCANS_MAX: usize = 4;
/// Bytes of the first piece, and of the longest.
const FIRST_BYTES: u64 = 256 << 10;
const LONGEST_BYTES: u64 = 4 << 20;
/// A scan is one once it has read so many bytes in order.
const SCAN_BYTES: u64 = 512 << 10;

/// A reader that reads in order.
#[derive(Debug, Default)]
struct Scan {
    /// Where its next read begins.
    next: u64,
    /// Bytes that it has read in order.
    read: u64,
    /// The piece that is in memory, and where it begins.
    piece: (u64, Bytes),
    /// Bytes of the next piece.
    step: u64,
}

/// The scans of a file, the one that read last behind the others.
#[derive(Debug, Default)]
pub(super) struct Scans(Vec<Scan>);

/// How a read is served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By granules of the file: it is no scan.
    Cached,
    /// From these bytes.
    InMemory(Bytes),
    /// By this piece, which has to be fetched, and belongs to the scan.
    Fetch(Range<u64>),
}

impl Scans {
    /// How the bytes `range` of a file of `length` bytes are read.
    pub(super) fn step(&mut self, range: &Range<u64>, length: u64) -> Step {
        let bytes = range.end.saturating_sub(range.start);
        let Some(at) = self.0.iter().position(|scan| scan.next == range.start) else {
            if self.0.len() >= SCANS_MAX {
                self.0.remove(0);
            }
            self.0.push(Scan {
                next: range.end,
                read: bytes,
                step: FIRST_BYTES,
                ..Scan::default()
            });
            return Step::Cached;
        };
        let mut scan = self.0.remove(at);
        scan.next = range.end;
        scan.read = scan.read.saturating_add(bytes);
        let (start, piece) = &scan.piece;
        let from = usize::try_from(range.start.saturating_sub(*start)).unwrap_or(usize::MAX);
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        let step = if range.start >= *start
            && from
                .checked_add(count)
                .is_some_and(|end| end <= piece.len())
        {
            Step::InMemory(piece.slice(from..from.saturating_add(count)))
        } else if scan.read < SCAN_BYTES {
            Step::Cached
        } else {
            let wanted = scan.step.max(bytes);
            scan.step = scan.step.saturating_mul(2).min(LONGEST_BYTES);
            let start = (range.start / GRANULE_BYTES).saturating_mul(GRANULE_BYTES);
            let end = range.start.saturating_add(wanted).div_ceil(GRANULE_BYTES);
            Step::Fetch(start..end.saturating_mul(GRANULE_BYTES).min(length))
        };
        self.0.push(scan);
        step
    }

    /// Keeps the piece at `start` for the scan whose next read begins at `next`.
    pub(super) fn keep(&mut self, next: u64, start: u64, piece: &Bytes) {
        if let Some(scan) = self.0.iter_mut().find(|scan| scan.next == next) {
            scan.piece = (start, piece.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_takes_larger_pieces_and_others_none() {
        const KIB: u64 = 1 << 10;
        let (mut scans, length) = (Scans::default(), 64 << 20);
        let (mut at, mut fetched) = (0, Vec::new());
        while at < 8 << 20 {
            let range = at..at + 128 * KIB;
            match scans.step(&range, length) {
                Step::Cached => assert!(at < SCAN_BYTES, "at {at}"),
                Step::InMemory(bytes) => assert_eq!(bytes.len(), 128 << 10),
                Step::Fetch(piece) => {
                    assert!(piece.start <= range.start && piece.end >= range.end);
                    let bytes = Bytes::from(vec![1; usize::try_from(piece.end - at).unwrap()]);
                    scans.keep(range.end, at, &bytes);
                    fetched.push(piece.end - piece.start);
                }
            }
            at += 128 * KIB;
            // Another reader here and there.
            assert_eq!(scans.step(&(at * 3 + 1..at * 3 + 2), length), Step::Cached);
        }
        assert_eq!(fetched[..3], [256 * KIB, 512 * KIB, 1024 * KIB]);
        assert!(fetched.iter().all(|bytes| *bytes <= LONGEST_BYTES));
    }
}
