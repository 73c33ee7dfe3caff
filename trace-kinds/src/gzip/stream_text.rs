//! The text of a member that is streamed.

use super::WINDOW_BYTES;

/// Text of a streamed member that is passed on at a time.
const STREAM_TEXT_BYTES: usize = 1 << 20;

/// The text of a streamed member: the window, which was passed on, and text that was not yet.
pub(super) struct StreamText {
    bytes: Vec<u8>,
    /// First byte that is text of this member.
    start: usize,
    passed_on: usize,
    filled: usize,
}

impl StreamText {
    pub(super) fn new() -> StreamText {
        let bytes = vec![0; WINDOW_BYTES + STREAM_TEXT_BYTES];
        StreamText {
            bytes,
            start: WINDOW_BYTES,
            passed_on: WINDOW_BYTES,
            filled: WINDOW_BYTES,
        }
    }

    pub(super) fn space(&self) -> usize {
        self.bytes.len() - self.filled
    }

    pub(super) fn space_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Adds the first `len` bytes of the space to the text.
    pub(super) fn advance(&mut self, len: usize) -> &[u8] {
        self.filled += len;
        &self.bytes[self.filled - len..self.filled]
    }

    /// The text that was not passed on yet.
    pub(super) fn take(&mut self) -> &[u8] {
        let new = &self.bytes[self.passed_on..self.filled];
        self.passed_on = self.filled;
        new
    }

    pub(super) fn window(&self) -> &[u8] {
        &self.bytes[self.start.max(self.filled - WINDOW_BYTES)..self.filled]
    }

    /// Discards all text but the window.
    pub(super) fn discard(&mut self) {
        assert!(
            self.passed_on == self.filled,
            "a probe is opened only if there is space for its text"
        );
        self.start = self.start.saturating_sub(self.filled - WINDOW_BYTES);
        self.bytes.copy_within(self.filled - WINDOW_BYTES.., 0);
        (self.passed_on, self.filled) = (WINDOW_BYTES, WINDOW_BYTES);
    }
}
