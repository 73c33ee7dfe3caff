//! Packets that are pieces of a long gzip member: the compressed bytes as they are in the file, and
//! what inflating them alone needs.
//!
//! ```text
//! magic 8 bytes | version u8 (1) | first bit u8 (0–7) of the first byte | flags u8 (1: inflating
//! starts at a block and needs a window; 2: it ends at a block) | last bit u64, from the first byte
//! on, where inflating ends at a block | bytes that inflate u64 | bytes of text u64 | length u32
//! and bytes of the text before these that belongs to the packet, too | length u32 and bytes of
//! the window, compressed with zstd | bytes of the file
//! ```
//!
//! Blocks end anywhere, packets of text end with a record. What is left of the text of one packet
//! is therefore the text before the next one's; of a packet's text, `bytes of text` are its own.
//! Integers are little-endian. A byte that two pieces share is in both.

use super::entry::{Entry, Piece, PieceEnd};
use super::inflater::Inflater;
use super::text::TextBuffer;
use super::{GzipError, WINDOW_BYTES};

/// Neither text nor gzip starts like this.
const MAGIC: [u8; 8] = *b"\x8dGZPIECE";
const VERSION: u8 = 1;
const STARTS_AT_BLOCK: u8 = 1;
const ENDS_AT_BLOCK: u8 = 2;
/// Bytes that a piece may inflate to, and bytes of text before it.
pub const PIECE_TEXT_BYTES_MAX: usize = 32 << 20;
/// The highest ratio of deflate, and some slack for tiny streams.
const RATIO_MAX: usize = 1032;
const WINDOW_LEVEL: i32 = 3;

/// A piece of a member as a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiecePacket<'p> {
    /// The first bit of the first byte.
    first_bit: u8,
    /// Text before the piece; `None` at the start of a member.
    window: Option<Box<[u8]>>,
    /// The bit after the last one, from the first byte on, if the piece ends at a block.
    last_bit: Option<u64>,
    inflated: u64,
    text: u64,
    before: &'p [u8],
    bytes: &'p [u8],
}

/// Why a packet is not a piece that can be inflated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a piece of a gzip member is damaged: {0}")]
pub struct PieceDamage(&'static str);

/// Whether a packet is a piece of a gzip member.
pub fn is_piece(packet: &[u8]) -> bool {
    packet.starts_with(&MAGIC)
}

impl<'p> PiecePacket<'p> {
    /// A piece of a file, whose `bytes` are those between the byte offsets of its entry and its
    /// end. Of `before` and what it inflates to, the first `text` bytes are the packet's own.
    pub fn of(piece: &Piece<'_>, bytes: &'p [u8], before: &'p [u8], text: u64) -> Self {
        let start = piece.entry.byte_offset() * 8;
        Self {
            first_bit: u8::try_from(piece.entry.bit_offset % 8).unwrap_or_default(),
            window: piece.entry.window.clone(),
            last_bit: match piece.end {
                PieceEnd::Block { bit_offset } => Some(bit_offset.saturating_sub(start)),
                PieceEnd::Member { .. } => None,
            },
            inflated: piece.text_len,
            text,
            before,
            bytes,
        }
    }

    /// The packet.
    ///
    /// # Panics
    ///
    /// When the text before is longer than 4 GiB.
    pub fn encode(&self) -> Vec<u8> {
        let window = self.window.as_deref().map(|window| {
            zstd::bulk::compress(window, WINDOW_LEVEL).expect("compressing into memory cannot fail")
        });
        let flags = u8::from(self.window.is_some()) * STARTS_AT_BLOCK
            + u8::from(self.last_bit.is_some()) * ENDS_AT_BLOCK;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[VERSION, self.first_bit, flags]);
        for number in [self.last_bit.unwrap_or(0), self.inflated, self.text] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for part in [self.before, window.as_deref().unwrap_or_default()] {
            let length = u32::try_from(part.len()).expect("lines and windows are far shorter");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(part);
        }
        out.extend_from_slice(self.bytes);
        out
    }

    /// Reads what [`PiecePacket::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the packet is not a piece, of another version, or too long.
    pub fn decode(packet: &'p [u8]) -> Result<Self, PieceDamage> {
        let damaged = || PieceDamage("its header is invalid");
        let rest = packet.strip_prefix(&MAGIC).ok_or_else(damaged)?;
        let ([version, first_bit, flags], rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (version, first_bit, flags) = (*version, *first_bit, *flags);
        if version != VERSION {
            return Err(PieceDamage("it is of another version"));
        }
        if first_bit > 7 || flags > STARTS_AT_BLOCK + ENDS_AT_BLOCK {
            return Err(damaged());
        }
        let mut rest = rest;
        let mut numbers = [0; 3];
        for number in &mut numbers {
            let (bytes, tail) = rest.split_first_chunk().ok_or_else(damaged)?;
            (*number, rest) = (u64::from_le_bytes(*bytes), tail);
        }
        let mut parts: [&[u8]; 2] = [&[]; 2];
        for part in &mut parts {
            let (bytes, tail) = rest.split_first_chunk().ok_or_else(damaged)?;
            let length = usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| damaged())?;
            (*part, rest) = tail.split_at_checked(length).ok_or_else(damaged)?;
        }
        let ([last_bit, inflated, text], [before, window]) = (numbers, parts);
        let window = if flags & STARTS_AT_BLOCK == 0 {
            None
        } else {
            let window = zstd::bulk::decompress(window, WINDOW_BYTES);
            Some(window.map_err(|_| damaged())?.into())
        };
        let length = usize::try_from(inflated).unwrap_or(usize::MAX);
        let is_possible = length <= PIECE_TEXT_BYTES_MAX
            && before.len() <= PIECE_TEXT_BYTES_MAX
            && length / RATIO_MAX <= rest.len()
            && text <= inflated + before.len() as u64;
        if !is_possible {
            return Err(PieceDamage("its lengths are not possible"));
        }
        Ok(Self {
            first_bit,
            window,
            last_bit: (flags & ENDS_AT_BLOCK != 0).then_some(last_bit),
            inflated,
            text,
            before,
            bytes: rest,
        })
    }

    /// Bytes of text that are in memory to read it.
    pub fn text_bytes(&self) -> u64 {
        self.inflated.saturating_add(self.before.len() as u64)
    }

    /// The text of the packet.
    ///
    /// # Errors
    ///
    /// When its bytes do not inflate to it.
    pub fn text(&self, inflater: &mut Inflater) -> Result<Vec<u8>, PieceDamage> {
        let entry = Entry {
            bit_offset: u64::from(self.first_bit),
            text_offset: 0,
            window: self.window.clone(),
        };
        let byte_offset = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        let piece = Piece {
            entry: &entry,
            end: match self.last_bit {
                Some(bit_offset) => PieceEnd::Block { bit_offset },
                None => PieceEnd::Member { byte_offset },
            },
            text_len: self.inflated,
        };
        let mut inflated = TextBuffer::new();
        let done = inflater.piece(&piece, self.bytes, &mut inflated);
        done.map_err(|_: GzipError| PieceDamage("its bytes do not inflate"))?;
        let mut text = inflated.into_text(self.before);
        text.truncate(usize::try_from(self.text).unwrap_or(usize::MAX));
        Ok(text)
    }

    /// A packet of the text of a file alone, without bytes of it.
    pub fn of_text(text: &'p [u8]) -> Self {
        Self {
            first_bit: 0,
            window: None,
            last_bit: None,
            inflated: 0,
            text: text.len() as u64,
            before: text,
            bytes: &[],
        }
    }

    /// The text before the piece and its bytes, if it ends before it begins: nothing inflates.
    pub(crate) fn backwards(&self) -> Option<(&'p [u8], &'p [u8])> {
        let ends_at_start = self.window.is_none() && self.last_bit == Some(0);
        (ends_at_start && self.inflated > 0).then_some((self.before, self.bytes))
    }

    /// The bytes of the file that the packet has beyond those of the packet before.
    pub fn own_bytes(&self) -> &'p [u8] {
        let shared = usize::from(self.first_bit > 0);
        self.bytes.get(shared..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
