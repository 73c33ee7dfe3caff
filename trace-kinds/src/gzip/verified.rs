//! Scanning a file whose text cannot be taken back once it was passed on.

use std::io::Read;
use std::ops::ControlFlow;

use super::entry::Entry;
use super::scan::{ScanOptions, Scanned, Scanner, TextSink};
use super::{GzipDamage, GzipError};

impl Scanner {
    /// Scans a file and passes on no text of a damaged member. `open` returns the bytes of the file
    /// from an offset. From the first member that is too long to be withheld, the file is read
    /// once to verify it and once for its text. Finds no entries.
    ///
    /// # Errors
    ///
    /// When the file cannot be read. Damage is not an error: see [`Scanned::damage`].
    pub fn scan_verified<R: Read, S: TextSink>(
        &mut self,
        mut open: impl FnMut(u64) -> R,
        sink: &mut S,
    ) -> Result<Scanned, GzipError> {
        let mut options = ScanOptions {
            stops_at_long_member: true,
            ..ScanOptions::default()
        };
        let mut scanned = self.scan(open(0), options, sink)?;
        let Some(start) = scanned.long_member.take() else {
            return Ok(scanned);
        };
        options.stops_at_long_member = false;
        let mut damaged = Vec::new();
        loop {
            let options = ScanOptions {
                damaged: &damaged,
                ..options
            };
            match self.scan(open(start), options, &mut Discarded)?.unverified {
                Some(offset) => damaged.push(offset),
                None => break,
            }
        }
        options.damaged = &damaged;
        let rest = self.scan(open(start), options, sink)?;
        scanned.text_len += rest.text_len;
        scanned.file_len = start + rest.file_len;
        scanned
            .damage
            .extend(rest.damage.into_iter().map(|damage| GzipDamage {
                offset: start + damage.offset,
                end: start + damage.end,
                ..damage
            }));
        Ok(scanned)
    }
}

/// Discards text.
struct Discarded;

impl TextSink for Discarded {
    fn entry(&mut self, _: Entry) {}

    fn text(&mut self, _: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn gap(&mut self) {}
}
