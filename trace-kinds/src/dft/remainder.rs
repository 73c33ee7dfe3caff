//! The part of a record after its times, predicted from the last record of the same shape.
//!
//! The phase and the arguments follow `dur`. Records of one shape have the same phase, the same
//! keys in the same order, and values of the same type and often the same length. So the bytes
//! between two values are compared as one piece, and a value is read as the type that it had last
//! time. A record that differs is read without prediction, and is the prediction from then on.

use super::scalar::{Cursor, SHORT_TEXT_MAX, Scalar};

/// Expected bytes of a line; at least one.
#[derive(Debug, Clone, Default)]
struct Piece {
    /// The first sixteen bytes; a shorter piece is followed by zeros.
    word: u128,
    mask: u128,
    len: usize,
    /// The bytes after the first sixteen.
    rest: Box<[u8]>,
}

/// Bytes of a piece that are compared in one operation.
const WORD_BYTES: usize = 16;
/// The longest piece that is stored.
const PIECE_BYTES_MAX: usize = 128;

impl Piece {
    /// `None` if there are no bytes, or too many.
    fn new(bytes: &[u8]) -> Option<Piece> {
        if bytes.is_empty() || bytes.len() > PIECE_BYTES_MAX {
            return None;
        }
        let (first, rest) = bytes.split_at(bytes.len().min(WORD_BYTES));
        let mut word = [0; WORD_BYTES];
        word[..first.len()].copy_from_slice(first);
        Some(Piece {
            word: u128::from_le_bytes(word),
            mask: u128::MAX >> (8 * (WORD_BYTES - first.len())),
            len: bytes.len(),
            rest: rest.into(),
        })
    }

    /// Skips the piece if it is next. It never matches so close to the end of the text that a word
    /// would extend past it.
    #[inline(always)]
    fn eat(&self, cursor: &mut Cursor<'_>) -> bool {
        let (bytes, at) = (cursor.bytes(), cursor.position());
        let Some(word) = bytes.get(at..at + WORD_BYTES) else {
            return false;
        };
        let Ok(word) = word.try_into() else {
            return false;
        };
        let differs = (u128::from_le_bytes(word) ^ self.word) & self.mask != 0;
        if differs || (self.len > WORD_BYTES && !self.rest_is_at(bytes, at + WORD_BYTES)) {
            return false;
        }
        cursor.skip(self.len);
        true
    }

    #[inline(never)]
    fn rest_is_at(&self, bytes: &[u8], at: usize) -> bool {
        bytes.get(at..at + self.rest.len()) == Some(&*self.rest)
    }
}

/// The type that a value had last time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Text; the piece before it contains the opening quote.
    Text {
        len: usize,
    },
    /// A non-negative integer.
    UInt,
    Other,
}

/// An argument: the bytes before its value, the slot of the value, and its type.
#[derive(Debug)]
struct KnownArgument {
    lead: Piece,
    slot: Option<usize>,
    kind: Kind,
}

impl KnownArgument {
    /// Reads a value of the expected type.
    #[inline(always)]
    fn value<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        keep: impl FnOnce(usize, Scalar<'a>),
    ) -> Option<()> {
        let value = match (self.kind, self.slot) {
            (Kind::Text { len }, _) => match cursor.short_text(len) {
                Some(text) => Scalar::Str(text),
                None => Scalar::Str(cursor.string_body()?),
            },
            (Kind::UInt, Some(_)) => Scalar::UInt(cursor.unsigned()?),
            (Kind::UInt, None) => {
                cursor.digits()?;
                Scalar::Null
            }
            (Kind::Other, _) => return None,
        };
        if self.kind == Kind::UInt && !matches!(cursor.peek(), Some(b',' | b'}')) {
            // A fraction or an exponent follows.
            return None;
        }
        if let Some(slot) = self.slot {
            keep(slot, value);
        }
        Some(())
    }
}

/// The remainder of the last record of a shape.
#[derive(Debug, Default)]
pub(super) struct Remainder {
    middle: Option<Middle>,
    arguments: Vec<KnownArgument>,
}

/// The bytes between the times and the arguments: the phase and the keys around it.
#[derive(Debug)]
struct Middle {
    piece: Piece,
    /// A phase that is not text.
    plain: Scalar<'static>,
    /// The range of the text of the phase in the piece.
    text: Option<(usize, usize)>,
}

/// The bytes before a phase.
pub(super) const PHASE_KEY: &[u8] = b",\"ph\":";
/// Arguments of a shape that are stored.
const ARGUMENTS_MAX: usize = 16;

impl Remainder {
    /// Skips the phase and the key of the arguments if they are the same as last time; returns the
    /// phase.
    #[inline(always)]
    pub(super) fn eat_middle<'a>(&self, cursor: &mut Cursor<'a>) -> Option<Scalar<'a>> {
        let middle = self.middle.as_ref()?;
        let (bytes, at) = (cursor.bytes(), cursor.position());
        if !middle.piece.eat(cursor) {
            return None;
        }
        match middle.text {
            None => Some(middle.plain),
            Some((from, to)) => Some(Scalar::Str(&bytes[at + from..at + to])),
        }
    }

    /// Stores the phase, which was read from `start` to the cursor.
    #[cold]
    pub(super) fn learn_middle(&mut self, cursor: &Cursor<'_>, start: usize, phase: Scalar<'_>) {
        let bytes = &cursor.bytes()[start..cursor.position()];
        let (plain, text) = match phase {
            Scalar::UInt(value) => (Scalar::UInt(value), None),
            Scalar::Str(text) => {
                let from = PHASE_KEY.len() + 1;
                (Scalar::Null, Some((from, from + text.len())))
            }
            _ => return,
        };
        self.middle = Piece::new(bytes).map(|piece| Middle { piece, plain, text });
    }

    /// Skips argument `index` if it has the same key and the same type of value as last time, and
    /// calls `keep` with its slot and value. `None` if it differs; the cursor is then before it.
    #[inline(always)]
    pub(super) fn argument<'a>(
        &self,
        index: usize,
        cursor: &mut Cursor<'a>,
        keep: impl FnOnce(usize, Scalar<'a>),
    ) -> Option<()> {
        let known = self.arguments.get(index)?;
        let start = *cursor;
        if !known.lead.eat(cursor) {
            return None;
        }
        let value = known.value(cursor, keep);
        if value.is_none() {
            *cursor = start;
        }
        value
    }

    /// Stores argument `index`: `lead`, which is its key with the bytes before it, and its value.
    #[inline(never)]
    pub(super) fn learn_argument(
        &mut self,
        index: usize,
        lead: &[u8],
        slot: Option<usize>,
        value: Scalar<'_>,
    ) {
        if index >= ARGUMENTS_MAX || index > self.arguments.len() {
            return;
        }
        let (kind, lead) = match value {
            Scalar::Str(text) => {
                let len = text.len().min(SHORT_TEXT_MAX);
                (Kind::Text { len }, [lead, b"\""].concat())
            }
            Scalar::UInt(_) => (Kind::UInt, lead.to_vec()),
            _ => (Kind::Other, lead.to_vec()),
        };
        let Some(lead) = Piece::new(&lead) else {
            return;
        };
        let known = KnownArgument { lead, slot, kind };
        match self.arguments.get_mut(index) {
            Some(old) => *old = known,
            None => self.arguments.push(known),
        }
    }
}
