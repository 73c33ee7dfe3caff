//! The buffer for inflated text.

/// Text with space after it. Clearing does not free the space, because zeroing it for every piece
/// would cost a fifth of inflating.
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

    /// The text after `before`, in the memory of this buffer.
    pub(super) fn into_text(mut self, before: &[u8]) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes.splice(..self.start, before.iter().copied());
        self.bytes
    }

    /// Discards the text; the next one starts `start` bytes after the start of the buffer.
    pub(super) fn reset(&mut self, start: usize) {
        self.start = start;
        self.end = start;
    }

    /// Discards the text.
    pub fn clear(&mut self) {
        self.reset(0);
    }

    /// `len` bytes of space after the text.
    pub(super) fn space(&mut self, len: usize) -> &mut [u8] {
        let end = self.end + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.end..end]
    }

    /// The buffer from its start to `len` bytes after the text.
    pub(super) fn with_start(&mut self, len: usize) -> &mut [u8] {
        let end = self.end + len;
        self.space(len);
        &mut self.bytes[..end]
    }

    /// Adds the first `len` bytes of the space to the text.
    pub(super) fn advance(&mut self, len: usize) {
        assert!(
            self.end + len <= self.bytes.len(),
            "text is in the space that was requested"
        );
        self.end += len;
    }

    /// Shortens the text to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    /// Appends bytes that were not compressed.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Bytes of memory that are allocated.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
