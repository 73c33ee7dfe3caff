//! Places where inflating can begin.

/// A place in a gzip file where inflating can begin, without what lies in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the file, in bits. At the start of a member a multiple of eight.
    pub bit_offset: u64,
    /// Offset in the text of the first byte that inflates from here.
    pub text_offset: u64,
    /// `None` at the start of a member; at a deflate block the text in front of it, at most 32 KiB,
    /// with zeros in place of what the text behind does not refer to.
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
        /// The first bit that is not of the piece.
        bit_offset: u64,
    },
    /// With a member: offset in the file, in bytes, behind its trailer (or of the end of the file).
    Member {
        /// The first byte that is not of the piece.
        byte_offset: u64,
    },
}

impl PieceEnd {
    /// Offset behind the last byte that must be read.
    pub fn byte_offset(self) -> u64 {
        match self {
            PieceEnd::Block { bit_offset } => bit_offset.div_ceil(8),
            PieceEnd::Member { byte_offset } => byte_offset,
        }
    }
}

/// What lies between an entry and the next one (or the end of the file).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'e> {
    /// Where it begins.
    pub entry: &'e Entry,
    /// Where it ends.
    pub end: PieceEnd,
    /// Bytes of text.
    pub text_len: u64,
}

impl<'e> Piece<'e> {
    /// The pieces between `entries`, which are in the order of the file, up to the end of a file
    /// of `file_len` bytes that holds `text_len` bytes of text.
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
