//! What follows the times of a record, as records of its shape had it before.
//!
//! Behind `dur` stand the phase and the arguments. Records of one shape have the same phase and
//! the same keys in the same order, and values of the same kind and often the same length. So
//! what lies between two values is compared as one piece, and a value is read as what it was the
//! last time; whatever differs is read the general way and remembered instead.

use super::scalar::{Cursor, SHORT_TEXT_MAX, Scalar};

/// Bytes that are expected at a place of a line; at least one.
#[derive(Debug, Clone, Default)]
struct Piece {
    /// The first sixteen bytes, zeros behind a shorter piece.
    word: u128,
    mask: u128,
    len: usize,
    /// What follows the first sixteen.
    rest: Box<[u8]>,
}

/// Bytes of a piece that are compared at once.
const WORD_BYTES: usize = 16;
/// The longest piece that is remembered.
const PIECE_BYTES_MAX: usize = 128;

impl Piece {
    /// `None` for nothing and for too much.
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

    /// Steps over the piece where it stands. So near to the end of the text that a word reaches
    /// over it, a piece is never there.
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

/// What a value was the last time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Text; the piece in front holds its opening quote.
    Text {
        len: usize,
    },
    /// An integer that is not negative.
    UInt,
    Other,
}

/// An argument: what stands in front of its value, where that goes, what it was.
#[derive(Debug)]
struct KnownArgument {
    lead: Piece,
    slot: Option<usize>,
    kind: Kind,
}

impl KnownArgument {
    /// Reads a value of the kind that is known.
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

/// What follows the times of the records of one shape.
#[derive(Debug, Default)]
pub(super) struct Remainder {
    middle: Option<Middle>,
    arguments: Vec<KnownArgument>,
}

/// From behind the times up to the arguments: the phase and the keys around it.
#[derive(Debug)]
struct Middle {
    piece: Piece,
    /// A phase that is no text.
    plain: Scalar<'static>,
    /// Where the text of the phase stands in the piece.
    text: Option<(usize, usize)>,
}

/// What stands in front of a phase.
pub(super) const PHASE_KEY: &[u8] = b",\"ph\":";
/// Arguments of one shape that are remembered.
const ARGUMENTS_MAX: usize = 16;

impl Remainder {
    /// Steps over the phase and the key of the arguments when they are what they were the last
    /// time; gives the phase.
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

    /// Remembers the phase, which was read from `start` up to the cursor.
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

    /// Steps over the argument of number `place` when it has the same key and the same kind of
    /// value as the last time, and shows that value to `keep` with its slot. `None` when it
    /// differs; the cursor is then in front of it.
    #[inline(always)]
    pub(super) fn argument<'a>(
        &self,
        place: usize,
        cursor: &mut Cursor<'a>,
        keep: impl FnOnce(usize, Scalar<'a>),
    ) -> Option<()> {
        let known = self.arguments.get(place)?;
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

    /// Remembers the argument that was read as number `place`: its key with what stands in front
    /// of it, `lead`, and its value.
    #[inline(never)]
    pub(super) fn learn_argument(
        &mut self,
        place: usize,
        lead: &[u8],
        slot: Option<usize>,
        value: Scalar<'_>,
    ) {
        if place >= ARGUMENTS_MAX || place > self.arguments.len() {
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
        match self.arguments.get_mut(place) {
            Some(old) => *old = known,
            None => self.arguments.push(known),
        }
    }
}
