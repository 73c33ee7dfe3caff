//! The search for the bit at which a block starts, and for the part of the window that it needs.
//!
//! zlib-rs stops at the end of a block but reports only how many bytes it consumed: the next block
//! starts in the last of them, or after it, which leaves eight candidate bits. The right one
//! inflates to the text that follows; a wrong one reads another block type, length or code. Before
//! a stored block, more than one may match. If it is empty, as a producer leaves it when it
//! flushes, the place after it is taken, which is the beginning of a byte; otherwise the place is
//! not used.
//!
//! The following text does not refer to most bytes of the window, and zeros in their place
//! compress to nothing (rapidgzip calls such windows sparse). The bytes it refers to are found
//! without decoding any code: the block is inflated with windows that contain the indexes of their
//! bytes, which then appear in the text.

use super::WINDOW_BYTES;
use super::bits::push_from;
use super::stream::Stream;
use super::text::TextBuffer;

/// Text that a candidate must yield. Far fewer bytes distinguish codes.
const CANDIDATE_TEXT_BYTES: usize = 4 << 10;
/// Text after the place that is retained: everything that can refer to the window.
pub(super) const PROBE_TEXT_BYTES: usize = WINDOW_BYTES;
/// Compressed bytes that are retained: enough for headers of blocks and `PROBE_TEXT_BYTES` literals
/// of 15 bits.
pub(super) const PROBE_INPUT_BYTES: usize = 96 << 10;

/// A place between two blocks whose following text is being collected.
pub(super) struct Probe {
    /// Offset in the file after the last consumed byte.
    pub(super) byte_offset: u64,
    /// Offset in the text.
    pub(super) text_offset: u64,
    /// The text before the place.
    pub(super) window: Box<[u8]>,
    /// The last consumed byte and those after it.
    pub(super) input: Vec<u8>,
    /// The text after the place, as far as it is known.
    pub(super) text: Vec<u8>,
}

impl Probe {
    /// The offset in bits at which a block starts, if exactly one is possible.
    pub(super) fn bit_offset(&self) -> Option<u64> {
        // Within the last consumed byte, or after it.
        let end = self.byte_offset * 8;
        let mut candidates = (0..8)
            .map(|unused| end - unused)
            .filter(|bit_offset| self.matches(*bit_offset));
        let bit_offset = candidates.next()?;
        match candidates.next() {
            None => Some(bit_offset),
            Some(_) => self.after_empty_block(),
        }
    }

    /// The offset in bits after an empty stored block that follows.
    fn after_empty_block(&self) -> Option<u64> {
        const EMPTY: [u8; 4] = [0, 0, 0xff, 0xff];
        let after = &self.input[1..];
        // Its header may end in the next byte, whose other bits are zero.
        let bytes = match after {
            [0, rest @ ..] if rest.starts_with(&EMPTY) => 5,
            _ if after.starts_with(&EMPTY) => 4,
            _ => return None,
        };
        let bit_offset = (self.byte_offset + bytes) * 8;
        self.matches(bit_offset).then_some(bit_offset)
    }

    /// Whether a block at `bit_offset` inflates to the text that follows.
    fn matches(&self, bit_offset: u64) -> bool {
        let len = self.text.len().min(CANDIDATE_TEXT_BYTES);
        let stream = self.stream(bit_offset);
        let text = stream.and_then(|stream| inflated(&stream, &self.window, len));
        text.as_deref() == Some(&self.text[..len])
    }

    /// The stream that starts at `bit_offset`.
    fn stream(&self, bit_offset: u64) -> Option<Vec<u8>> {
        let start = self.byte_offset.checked_sub(1)? * 8;
        let bits = bit_offset.checked_sub(start)?;
        let input = self.input.get(usize::try_from(bits / 8).ok()?..)?;
        let mut stream = Vec::with_capacity(input.len());
        push_from(&mut stream, input, (bits % 8) as u32);
        Some(stream)
    }

    /// The window of a block at `bit_offset` with zeros for bytes that the following text does not
    /// refer to. The text must be known as far as it can refer to the window. `None` if the block
    /// does not inflate to it.
    pub(super) fn needed_window(&self, bit_offset: u64) -> Option<Box<[u8]>> {
        let (stream, len) = (self.stream(bit_offset)?, self.text.len());
        let with = |byte: fn(usize) -> u8| {
            let window: Vec<u8> = (0..self.window.len()).map(byte).collect();
            inflated(&stream, &window, len)
        };
        // Bytes that differ with the window are copied from it.
        let (zeros, ones) = (with(|_| 0)?, with(|_| u8::MAX)?);
        let (low, high) = (
            with(|at| at.to_le_bytes()[0])?,
            with(|at| at.to_le_bytes()[1])?,
        );
        let mut sparse = vec![0; self.window.len()].into_boxed_slice();
        let texts = zeros.iter().zip(&ones).zip(low.iter().zip(&high));
        for ((zero, one), (low, high)) in texts {
            if zero != one {
                let at = usize::from(u16::from_le_bytes([*low, *high]));
                *sparse.get_mut(at)? = *self.window.get(at)?;
            }
        }
        let same = inflated(&stream, &sparse, len)? == self.text;
        same.then_some(sparse)
    }
}

/// The first `len` bytes that a stream of blocks yields after `window`; `None` if there are fewer.
fn inflated(stream: &[u8], window: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut text = TextBuffer::new();
    Stream::at_block(window)?.append(stream, len, &mut text)?;
    (text.text().len() == len).then(|| text.text().to_vec())
}
