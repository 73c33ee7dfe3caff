//! The inflater of members and pieces in memory.

use libdeflater::Decompressor;

use super::bits::{push_end, push_from, push_window};
use super::entry::{Piece, PieceEnd};
use super::header::{find_header, header_len, trailer_text_len};
use super::stream::{Appended, Stream};
use super::text::TextBuffer;
use super::{GzipError, WHOLE_TEXT_BYTES_MAX};

/// The highest ratio of deflate: 258 bytes from two bits, and some slack for tiny streams.
const RATIO_MAX: usize = 1032;
/// Candidates for the next header that are tried before the member is streamed.
const HEADER_CANDIDATES_MAX: usize = 4;

/// Inflates members and pieces in memory. Reuses its working memory between calls.
#[derive(Default)]
pub struct Inflater {
    decompressor: Decompressor,
    /// A piece as a separate deflate stream.
    stream: Vec<u8>,
}

impl Inflater {
    /// Inflates the member at the start of `bytes` and appends it to `text`, if it is complete, has
    /// at most `text_max` bytes of text and ends before a header or, with `at_end`, at the end of
    /// `bytes`. Returns its length in the file; appends nothing if there is none.
    pub(super) fn whole_member(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        text_max: usize,
        text: &mut TextBuffer,
    ) -> Option<usize> {
        let mut from = header_len(bytes)?;
        for _ in 0..HEADER_CANDIDATES_MAX {
            let found = find_header(bytes, from);
            let end = match found {
                Some(end) => end,
                None if at_end => bytes.len(),
                None => return None,
            };
            let text_len = trailer_text_len(bytes, end)?;
            if text_len <= text_max && text_len / RATIO_MAX <= end {
                let space = text.space(text_len);
                // The next header is only a guess; libdeflate verifies length and checksum.
                let inflated = self.decompressor.gzip_decompress(&bytes[..end], space);
                if inflated == Ok(text_len) {
                    if may_end_early(&bytes[..end]) {
                        // A stream finds the end.
                        return None;
                    }
                    text.advance(text_len);
                    return Some(end);
                }
            }
            from = found? + 1;
        }
        None
    }

    /// Replaces `text` by that of a piece. `bytes` are those of the file between the byte offsets
    /// of its entry and its end.
    ///
    /// # Errors
    ///
    /// When the bytes do not inflate to the length of the piece.
    pub fn piece(
        &mut self,
        piece: &Piece<'_>,
        bytes: &[u8],
        text: &mut TextBuffer,
    ) -> Result<(), GzipError> {
        let wrong = |reason| GzipError::Piece {
            offset: piece.entry.byte_offset(),
            reason,
        };
        let text_len = usize::try_from(piece.text_len).map_err(|_| wrong("it is too long"))?;
        let read = piece
            .end
            .byte_offset()
            .checked_sub(piece.entry.byte_offset());
        if read != u64::try_from(bytes.len()).ok() {
            return Err(wrong("its length differs"));
        }
        text.clear();
        let inflated = match (&piece.entry.window, piece.end) {
            (None, PieceEnd::Member { .. }) => self.members(bytes, text_len, text),
            _ => self.blocks(piece, bytes, text_len, text),
        };
        match inflated {
            Some(()) if text.text().len() == text_len => Ok(()),
            _ => {
                text.clear();
                Err(wrong("the compressed data is damaged or of another file"))
            }
        }
    }

    /// Inflates complete members, and what there is of a torn last one.
    fn members(&mut self, bytes: &[u8], text_len: usize, text: &mut TextBuffer) -> Option<()> {
        let mut rest = bytes;
        while text.text().len() < text_len {
            let left = text_len - text.text().len();
            let text_max = left.min(WHOLE_TEXT_BYTES_MAX);
            rest = without_padding(rest);
            let used = match self.whole_member(rest, true, text_max, text) {
                Some(len) => len,
                None => intact(Stream::at_member().append(rest, left, text)?)?,
            };
            rest = &rest[used..];
        }
        Some(())
    }

    /// Inflates blocks of one member as a separate deflate stream.
    fn blocks(
        &mut self,
        piece: &Piece<'_>,
        bytes: &[u8],
        text_len: usize,
        text: &mut TextBuffer,
    ) -> Option<()> {
        let (window, header) = match &piece.entry.window {
            Some(window) => (&**window, 0),
            None => (&[][..], header_len(bytes)?),
        };
        let header_bits = 8 * u64::try_from(header).ok()?;
        let first_bit = piece.entry.bit_offset.checked_add(header_bits)?;
        self.stream.clear();
        push_window(&mut self.stream, window);
        let start = self.stream.len();
        let first = push_from(&mut self.stream, &bytes[header..], (first_bit % 8) as u32);
        if let PieceEnd::Block { bit_offset } = piece.end {
            let bits = bit_offset.checked_sub(first_bit / 8 * 8)?;
            push_end(&mut self.stream, first, bits);
        }
        text.reset(window.len());
        let space = text.with_start(text_len);
        if self.decompressor.deflate_decompress(&self.stream, space) == Ok(space.len()) {
            text.advance(text_len);
            return Some(());
        }
        // libdeflate refuses a torn member, which has no end.
        Stream::at_block(window)?
            .append(&self.stream[start..], text_len, text)
            .and_then(intact)
            .map(|_| ())
    }

    /// Inflates at most `text_max` bytes from the start of a piece and appends them to `text`.
    /// `bytes` may be only the start of the piece; they may yield less text.
    pub fn prefix(
        &mut self,
        piece: &Piece<'_>,
        bytes: &[u8],
        text_max: usize,
        text: &mut TextBuffer,
    ) {
        let Some(window) = &piece.entry.window else {
            return members_prefix(bytes, text_max, text);
        };
        self.stream.clear();
        push_from(&mut self.stream, bytes, (piece.entry.bit_offset % 8) as u32);
        if let Some(mut stream) = Stream::at_block(window) {
            // No text at all is a valid result.
            let _taken = stream.append(&self.stream, text_max, text);
        }
    }
}

fn members_prefix(bytes: &[u8], text_max: usize, text: &mut TextBuffer) {
    let end = text.text().len() + text_max;
    let mut rest = bytes;
    while text.text().len() < end && !rest.is_empty() {
        let left = end - text.text().len();
        let Some(taken) = Stream::at_member().append(rest, left, text) else {
            return;
        };
        rest = without_padding(&rest[taken.consumed..]);
    }
}

/// Whether a member that libdeflate found at the start of `bytes` may end before they do, because
/// they contain the length of its text twice. libdeflate does not report the end of a member, and a
/// damaged one with as much text may follow.
fn may_end_early(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<4>()
        .is_some_and(|(rest, text_len)| memchr::memmem::find(rest, text_len).is_some())
}

/// The bytes consumed from a stream that is torn or complete; `None` if it is damaged.
fn intact(appended: Appended) -> Option<usize> {
    (!appended.is_damaged).then_some(appended.consumed)
}

/// Zero bytes between members are padding.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}
