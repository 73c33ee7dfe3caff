//! Reading ahead: a scan of a file takes more and more from the store into memory, and leaves the
//! cache to those who come back.

use std::ops::Range;

use super::window::{Piece, Window};

/// Scans of one file that are known at once.
const SCANS_MAX: usize = 4;
/// A scan is one once it has read so many bytes in order.
const SCAN_BYTES: u64 = 512 << 10;

/// A reader that reads in order.
#[derive(Debug, Default)]
struct Scan {
    /// Where its next read begins.
    next: u64,
    /// Bytes that it has read in order.
    read: u64,
    /// Whether it has read nothing since the last look for idle scans.
    is_idle: bool,
    /// What it takes from memory, unless a read has it.
    reading: Option<Reading>,
}

/// The scans of a file, the one that read last behind the others.
#[derive(Debug, Default)]
pub(super) struct Scans(Vec<Scan>);

/// How a read is served.
#[derive(Debug)]
pub(super) enum Step {
    /// By granules of the file: it is no scan.
    Cached,
    /// By pieces in memory, which belong to the scan.
    Ahead(Reading),
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
                ..Scan::default()
            });
            return Step::Cached;
        };
        let mut scan = self.0.remove(at);
        let begin = range.start.saturating_sub(scan.read);
        scan.next = range.end;
        scan.read = scan.read.saturating_add(bytes);
        scan.is_idle = false;
        let reading = scan.reading.take();
        let is_scan = scan.read >= SCAN_BYTES;
        self.0.push(scan);
        match reading {
            Some(reading) => Step::Ahead(reading),
            None if is_scan => Step::Ahead(Reading::new((begin, range.start), length)),
            None => Step::Cached,
        }
    }

    /// Keeps what is in memory for the scan whose next read begins at `next`.
    pub(super) fn keep(&mut self, next: u64, reading: Reading) {
        if let Some(scan) = self.0.iter_mut().find(|scan| scan.next == next) {
            scan.reading = Some(reading);
        }
    }

    /// Gives up what is in memory for scans that have read nothing since this was called before:
    /// nobody says when a scan ends.
    pub(super) fn forget_idle(&mut self) {
        for scan in &mut self.0 {
            if std::mem::replace(&mut scan.is_idle, true) {
                scan.reading = None;
            }
        }
    }
}

/// What a scan has in memory, and what it gets next.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) piece: Option<Piece>,
    pub(super) window: Window,
}

impl Reading {
    /// For a scan of a file of `length` bytes that began at `begin` and is at `position`.
    fn new(place: (u64, u64), length: u64) -> Self {
        Self {
            piece: None,
            window: Window::new(place, None, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_known_by_what_it_has_read_and_forgotten_when_it_reads_no_more() {
        const KIB: u64 = 1 << 10;
        let mut scans = Scans::default();
        let is_cached = |step: &Step| matches!(step, Step::Cached);
        for at in (0..2048 * KIB).step_by(128 << 10) {
            let range = at..at + 128 * KIB;
            match scans.step(&range, 64 << 20) {
                Step::Cached => assert!(range.end < SCAN_BYTES, "at {at}"),
                Step::Ahead(reading) => {
                    assert!(range.end >= SCAN_BYTES, "at {at}");
                    scans.keep(range.end, reading);
                }
            }
            // Another reader here and there.
            assert!(is_cached(&scans.step(&(at * 3 + 1..at * 3 + 2), 64 << 20)));
        }
        let has_memory = |scans: &Scans| scans.0.iter().any(|scan| scan.reading.is_some());
        assert!(has_memory(&scans));
        scans.forget_idle();
        assert!(has_memory(&scans), "it has read since the look before");
        scans.forget_idle();
        assert!(!has_memory(&scans));
    }
}
