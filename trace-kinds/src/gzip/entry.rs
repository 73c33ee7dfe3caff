//! Places where inflating can start.

/// A place in a gzip file where inflating can start without the bytes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the file, in bits; a multiple of eight at a member.
    pub bit_offset: u64,
    /// Offset in the text of the first byte that inflates from here.
    pub text_offset: u64,
    /// `None` at a member; at a deflate block, the text before it, at most 32 KiB, with zeros for
    /// bytes that the following text does not refer to.
    pub window: Option<Box<[u8]>>,
}

impl Entry {
    /// Offset of the first byte that must be read.
    pub fn byte_offset(&self) -> u64 {
        self.bit_offset / 8
    }
}

/// Where the text between two entries ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceEnd {
    /// At a block of the same member: offset in the file, in bits.
    Block {
        /// The first bit after the piece.
        bit_offset: u64,
    },
    /// At the end of a member: offset in the file, in bytes, after its trailer (or the end of the
    /// file).
    Member {
        /// The first byte after the piece.
        byte_offset: u64,
    },
}

impl PieceEnd {
    /// Offset after the last byte that must be read.
    pub fn byte_offset(self) -> u64 {
        match self {
            PieceEnd::Block { bit_offset } => bit_offset.div_ceil(8),
            PieceEnd::Member { byte_offset } => byte_offset,
        }
    }
}

/// The part of a file between an entry and the next one (or the end of the file).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'e> {
    /// Where it starts.
    pub entry: &'e Entry,
    /// Where it ends.
    pub end: PieceEnd,
    /// Bytes of text.
    pub text_len: u64,
}

impl<'e> Piece<'e> {
    /// The pieces of a file of `file_len` bytes with `text_len` bytes of text, given its `entries`
    /// in their order.
    pub fn all(
        entries: &'e [Entry],
        file_len: u64,
        text_len: u64,
    ) -> impl Iterator<Item = Piece<'e>> {
        entries.iter().enumerate().map(move |(index, entry)| {
            let (end, text_end) = match entries.get(index + 1) {
                Some(next) if next.window.is_some() => (
                    PieceEnd::Block {
                        bit_offset: next.bit_offset,
                    },
                    next.text_offset,
                ),
                Some(next) => (
                    PieceEnd::Member {
                        byte_offset: next.byte_offset(),
                    },
                    next.text_offset,
                ),
                None => (
                    PieceEnd::Member {
                        byte_offset: file_len,
                    },
                    text_len,
                ),
            };
            Piece {
                entry,
                end,
                text_len: text_end.saturating_sub(entry.text_offset),
            }
        })
    }
}
