//! Finding the bit at which a block begins, and what of the text in front of it is needed there.
//!
//! zlib-rs stops where a block ends but tells only how many bytes it took: the next block begins in
//! the last of them, or behind it. There are eight bits where that can be. The right one inflates
//! to the text that follows in the file; a wrong one reads another block type, another length or
//! other codes. Where more than one fits (in front of a stored block, which is aligned to a byte
//! anyway), the place is not used.
//!
//! Of the window most bytes are never referred to by the text behind, and zeros in their place
//! compress to nothing (rapidgzip calls such windows sparse). Which ones are
//! needed is found without looking at a single code: the same block is inflated with windows that
//! hold nothing but numbers of their bytes, and those numbers turn up in the text.

use super::WINDOW_BYTES;
use super::bits::push_shifted;
use super::stream::Stream;
use super::text::TextBuffer;

/// Text that a candidate must give. Far fewer bytes than this tell codes apart.
const CANDIDATE_TEXT_BYTES: usize = 4 << 10;
/// Text behind the place that is kept: all that can refer to the window.
pub(super) const PROBE_TEXT_BYTES: usize = WINDOW_BYTES;
/// Compressed bytes that are kept: more than enough for headers of blocks and `PROBE_TEXT_BYTES`
/// literals of 15 bits.
pub(super) const PROBE_INPUT_BYTES: usize = 96 << 10;

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
        let len = self.text.len().min(CANDIDATE_TEXT_BYTES);
        let text = inflated(&self.stream(unused), &self.window, len);
        text.as_deref() == Some(&self.text[..len])
    }

    /// The stream whose first bit is that of the last `unused` of the byte before `byte_offset`.
    fn stream(&self, unused: u32) -> Vec<u8> {
        let mut stream = Vec::with_capacity(self.input.len());
        match unused {
            0 => stream.extend_from_slice(&self.input[1..]),
            _ => push_shifted(&mut stream, &self.input, 8 - unused),
        }
        stream
    }

    /// The window with zeros in place of all that the text behind does not refer to, where the
    /// block begins at `bit_offset`. That text must be known as far as it can refer to the window.
    /// `None` when the block does not inflate to it.
    pub(super) fn needed_window(&self, bit_offset: u64) -> Option<Box<[u8]>> {
        let unused = (self.byte_offset * 8).checked_sub(bit_offset)?;
        let (stream, len) = (self.stream(u32::try_from(unused).ok()?), self.text.len());
        let with = |byte: fn(usize) -> u8| {
            let window: Vec<u8> = (0..self.window.len()).map(byte).collect();
            inflated(&stream, &window, len)
        };
        // What differs with the window comes from the window, and tells from where.
        let (zeros, ones) = (with(|_| 0)?, with(|_| u8::MAX)?);
        let (low, high) = (with(|at| at as u8)?, with(|at| (at >> 8) as u8)?);
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

/// The first `len` bytes that a stream of blocks gives behind `window`; `None` for fewer.
fn inflated(stream: &[u8], window: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut text = TextBuffer::new();
    Stream::at_block(window)?.append(stream, len, &mut text)?;
    (text.text().len() == len).then(|| text.text().to_vec())
}
