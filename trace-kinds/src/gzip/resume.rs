//! How a scan continues after damage, and how it distinguishes a torn file from a damaged one.

use std::io::Read;
use std::ops::ControlFlow;

use super::damage::{DamageReason, GzipDamage};
use super::header::find_header;
use super::input::READ_BYTES;
use super::scan::{Outcome, Scan, TextSink};
use super::text::TextBuffer;
use super::{GzipError, WHOLE_TEXT_BYTES_MAX};

/// Bytes that are searched again for a header that was incomplete.
const HEADER_OVERLAP_BYTES: usize = 4 << 10;

/// Damaged parts of a file after which the rest is not read.
const DAMAGE_MAX: usize = 1000;
/// Places after damage that look like a member and are none.
const CANDIDATES_MAX: u32 = 1000;
/// If a file ends inside a member, but its last bytes give the length of the text as exactly as
/// this, then the member is complete and damaged.
const TEXT_LENGTH_SLACK: u32 = 1 << 20;

impl<R: Read> Scan<'_, '_, R> {
    /// Continues after damage at `start` at the next member that is intact.
    pub(super) fn resume<S: TextSink>(
        &mut self,
        start: u64,
        reason: DamageReason,
        sink: &mut S,
    ) -> Result<ControlFlow<()>, GzipError> {
        sink.gap();
        self.entry_at = None;
        let mut from = start + 1;
        loop {
            if self.scanned.damage.len() >= DAMAGE_MAX || self.candidates >= CANDIDATES_MAX {
                return self.give_up(start);
            }
            self.input.go_back(from);
            if !self.find_candidate()? {
                self.damage(start, reason);
                return Ok(ControlFlow::Break(()));
            }
            let candidate = self.input.position();
            from = candidate + 1;
            if self.options.damaged.contains(&candidate) {
                continue;
            }
            if let Outcome::Done(flow) = self.read_member(candidate, sink)? {
                self.scanned.damage.push(GzipDamage {
                    offset: start,
                    end: candidate,
                    reason,
                });
                return Ok(flow);
            }
            self.candidates += 1;
        }
    }

    /// Advances to the next bytes that look like a header. False at the end of the file.
    fn find_candidate(&mut self) -> Result<bool, GzipError> {
        loop {
            self.input.retain();
            self.input.fill(READ_BYTES)?;
            if let Some(found) = find_header(self.input.rest(), 0) {
                self.input.advance(found);
                self.input.retain();
                return Ok(true);
            }
            let known = self.input.rest().len();
            if self.input.has_ended() {
                self.input.advance(known);
                return Ok(false);
            }
            self.input
                .advance(known.saturating_sub(HEADER_OVERLAP_BYTES));
        }
    }

    /// Ends the scan of a file that has too much damage.
    pub(super) fn give_up(&mut self, start: u64) -> Result<ControlFlow<()>, GzipError> {
        self.skip_to_end()?;
        self.damage(start, DamageReason::TooMany);
        Ok(ControlFlow::Break(()))
    }

    pub(super) fn skip_to_end(&mut self) -> Result<(), GzipError> {
        self.input.release();
        while !self.input.rest().is_empty() || !self.input.has_ended() {
            self.input.advance(self.input.rest().len());
            self.input.fill(READ_BYTES)?;
        }
        Ok(())
    }

    /// Records damage from `offset` to the current position.
    pub(super) fn damage(&mut self, offset: u64, reason: DamageReason) {
        let end = self.input.position();
        self.scanned.damage.push(GzipDamage {
            offset,
            end,
            reason,
        });
    }

    /// The file ends inside the member at `start`, whose text is withheld: because its writer was
    /// killed, or because damage hides its end.
    pub(super) fn torn<S: TextSink>(
        &mut self,
        start: u64,
        sink: &mut S,
    ) -> Result<ControlFlow<()>, GzipError> {
        let text_len = self.text.text().len() as u64;
        let is_damaged = !self.options.is_start_of_file
            && (self.has_length_at_end(text_len) || self.has_intact_member_after(start));
        if is_damaged {
            self.withheld = None;
            return self.resume(start, DamageReason::Member, sink);
        }
        self.scanned.text_len += text_len;
        self.damage(start, DamageReason::Torn);
        let _all = self.pass_on(sink);
        Ok(ControlFlow::Break(()))
    }

    /// Whether the last bytes of the file are the length of about as much text, as at the end of a
    /// complete member.
    pub(super) fn has_length_at_end(&self, text_len: u64) -> bool {
        let stored = u32::from_le_bytes(self.input.tail());
        // Both are modulo 2^32.
        let [b0, b1, b2, b3, ..] = text_len.to_le_bytes();
        let found = u32::from_le_bytes([b0, b1, b2, b3]);
        let difference = stored.wrapping_sub(found);
        difference.min(difference.wrapping_neg()) <= TEXT_LENGTH_SLACK
    }

    /// Whether an intact member begins between `start` and the end of the file, which is retained.
    fn has_intact_member_after(&mut self, start: u64) -> bool {
        let end = self.input.position();
        self.input.go_back(start);
        let bytes = self.input.rest();
        let (mut from, mut found, mut text) = (1, false, TextBuffer::new());
        for _ in 0..CANDIDATES_MAX {
            let Some(at) = find_header(bytes, from) else {
                break;
            };
            text.clear();
            let member =
                self.inflater
                    .whole_member(&bytes[at..], true, WHOLE_TEXT_BYTES_MAX, &mut text);
            if member.is_some() {
                found = true;
                break;
            }
            from = at + 1;
        }
        let len = usize::try_from(end - start).unwrap_or(bytes.len());
        self.input.advance(len);
        found
    }
}
