//! Inflating what is in memory.

use libdeflater::Decompressor;

use super::bits::{push_end, push_shifted, push_window};
use super::entry::{Piece, PieceEnd};
use super::header::{find_header, header_len, trailer_text_len};
use super::stream::Stream;
use super::text::TextBuffer;
use super::{GzipError, WHOLE_TEXT_BYTES_MAX};

/// No deflate stream inflates further: 258 bytes from two bits, and some slack for tiny streams.
const RATIO_MAX: usize = 1032;
/// Places that look like the next header and are tried before the stream way is taken.
const HEADER_CANDIDATES_MAX: usize = 4;

/// Inflates members and pieces that are in memory. Keeps its working space between calls.
#[derive(Default)]
pub struct Inflater {
    decompressor: Decompressor,
    /// A piece made into a deflate stream of its own.
    stream: Vec<u8>,
}

impl Inflater {
    /// Inflates the member that `bytes` begin with onto the end of `text`, when it is whole, at
    /// most `text_max` long and ends at something that looks like a header or, with `at_end`, at
    /// the end of `bytes`. Gives its length in the file; nothing is appended where there is none.
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
                let room = text.room(text_len);
                // libdeflate checks length and checksum, which the next header only suggests.
                let inflated = self.decompressor.gzip_decompress(&bytes[..end], room);
                if inflated == Ok(text_len) {
                    text.advance(text_len);
                    return Some(end);
                }
            }
            from = found? + 1;
        }
        None
    }

    /// Inflates a piece into `text`, in place of what is there. `bytes` are those of the file from
    /// the entry's to the end's byte offset.
    ///
    /// # Errors
    ///
    /// When the bytes do not inflate to the length that the piece has.
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
            return Err(wrong("it has another length"));
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
                Err(wrong(
                    "the compressed data are damaged or not those of this file",
                ))
            }
        }
    }

    /// Inflates whole members, and what there is of a last one that was cut.
    fn members(&mut self, bytes: &[u8], text_len: usize, text: &mut TextBuffer) -> Option<()> {
        let mut rest = bytes;
        while text.text().len() < text_len {
            let left = text_len - text.text().len();
            let room = left.min(WHOLE_TEXT_BYTES_MAX);
            rest = without_padding(rest);
            let used = match self.whole_member(rest, true, room, text) {
                Some(len) => len,
                None => Stream::at_member().append(rest, left, text)?,
            };
            rest = &rest[used..];
        }
        Some(())
    }

    /// Inflates blocks of one member as a deflate stream of their own.
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
        let first_bit = piece.entry.bit_offset + 8 * u64::try_from(header).ok()?;
        self.stream.clear();
        push_window(&mut self.stream, window);
        let start = self.stream.len();
        push_shifted(&mut self.stream, &bytes[header..], (first_bit % 8) as u32);
        if let PieceEnd::Block { bit_offset } = piece.end {
            push_end(&mut self.stream, start, bit_offset.checked_sub(first_bit)?);
        }
        text.reset(window.len());
        let room = text.with_start(text_len);
        if self.decompressor.deflate_decompress(&self.stream, room) == Ok(room.len()) {
            text.advance(text_len);
            return Some(());
        }
        // A member that was cut has no end for libdeflate to find.
        Stream::at_block(window)?
            .append(&self.stream[start..], text_len, text)
            .map(|_| ())
    }

    /// Inflates at most `text_max` bytes from the start of a piece onto the end of `text`, of which
    /// `bytes` are as many as there are at hand. Gives fewer where they do not reach further.
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
        push_shifted(&mut self.stream, bytes, (piece.entry.bit_offset % 8) as u32);
        if let Some(mut stream) = Stream::at_block(window) {
            // Nothing inflated is a short answer like any other.
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
        rest = without_padding(&rest[taken..]);
    }
}

/// Zero bytes between members are padding.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}
