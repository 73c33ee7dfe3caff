//! Finding the bit at which a block begins.
//!
//! zlib-rs stops where a block ends but tells only how many bytes it took: the next block begins in
//! the last of them, or behind it. There are eight bits where that can be. The right one inflates
//! to the text that follows in the file; a wrong one reads another block type, another length or
//! other codes. Where more than one fits (in front of a stored block, which is aligned to a byte
//! anyway), the place is not used.

use super::bits::push_shifted;
use super::stream::Stream;
use super::text::TextBuffer;

/// Text that a candidate must give. Far fewer bytes than this tell codes apart.
pub(super) const PROBE_TEXT_BYTES: usize = 4 << 10;
/// Compressed bytes that are kept for the candidates: more than enough for the header of a block
/// and `PROBE_TEXT_BYTES` literals of 15 bits.
pub(super) const PROBE_INPUT_BYTES: usize = 16 << 10;

/// A place between two blocks, while the text behind it is awaited.
pub(super) struct Probe {
    /// Offset in the file behind the last byte that was taken.
    pub(super) byte_offset: u64,
    /// Offset in the text.
    pub(super) text_offset: u64,
    /// The text in front.
    pub(super) window: Box<[u8]>,
    /// The last byte taken and those behind it.
    pub(super) input: Vec<u8>,
    /// The text behind, as far as it is known.
    pub(super) text: Vec<u8>,
}

impl Probe {
    /// The offset in bits at which the block begins, when exactly one is possible.
    pub(super) fn bit_offset(&self) -> Option<u64> {
        let mut fitting = (0..8).filter(|unused| self.fits(*unused));
        let unused = fitting.next()?;
        match fitting.next() {
            None => Some(self.byte_offset * 8 - u64::from(unused)),
            Some(_) => None,
        }
    }

    /// Whether the block may begin with the last `unused` bits of the byte before `byte_offset`.
    fn fits(&self, unused: u32) -> bool {
        let mut stream = Vec::with_capacity(self.input.len());
        match unused {
            0 => stream.extend_from_slice(&self.input[1..]),
            _ => push_shifted(&mut stream, &self.input, 8 - unused),
        }
        let mut text = TextBuffer::new();
        let inflated = Stream::at_block(&self.window)
            .and_then(|mut inflate| inflate.append(&stream, self.text.len(), &mut text));
        inflated.is_some() && text.text() == self.text
    }
}
