//! A buffer that inflating writes into.

/// Text with room behind it. Clearing keeps the bytes, so that the room is not zeroed again for
/// every piece: that alone would cost a fifth of inflating it.
#[derive(Debug, Default)]
pub struct TextBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl TextBuffer {
    /// An empty buffer.
    pub fn new() -> TextBuffer {
        TextBuffer::default()
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Forgets the text, and begins the next one `start` bytes behind the start of the room.
    pub(super) fn reset(&mut self, start: usize) {
        self.start = start;
        self.end = start;
    }

    /// Forgets the text.
    pub fn clear(&mut self) {
        self.reset(0);
    }

    /// `len` bytes of room behind the text.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.end + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.end..end]
    }

    /// The buffer from its very start to `len` bytes behind the text.
    pub(super) fn with_start(&mut self, len: usize) -> &mut [u8] {
        let end = self.end + len;
        self.room(len);
        &mut self.bytes[..end]
    }

    /// Makes the first `len` bytes of the room text.
    pub(super) fn advance(&mut self, len: usize) {
        assert!(
            self.end + len <= self.bytes.len(),
            "text lies in the room that was asked for"
        );
        self.end += len;
    }

    /// Shortens the text to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Appends bytes that were not inflated.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Bytes of memory that the buffer holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
