//! Heads of earlier records.
//!
//! The head of a record, between its `id` and its `ts`, contains `name`, `cat`, `type`, `pid` and
//! `tid`. A trace repeats a few hundred heads, so these bytes are parsed once and compared from
//! then on, which takes a tenth of the time. The next head is predicted, too, and so is the
//! [remainder](super::remainder) of a record.

use hashbrown::HashTable;

use super::remainder::Remainder;
use super::scalar::Scalar;

/// The fields of a head that follows an `id`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShapedHead<'a> {
    pub(super) name: &'a [u8],
    pub(super) cat: &'a [u8],
    pub(super) type_: Scalar<'a>,
    pub(super) pid: Scalar<'a>,
    pub(super) tid: Scalar<'a>,
}

/// Heads of earlier records, by number. One instance serves all slices of a file, so that they
/// share the numbers.
#[derive(Debug, Default)]
pub struct Shapes {
    shapes: Vec<Shape>,
    bytes: Vec<u8>,
    /// Numbers of shapes by the hash of their bytes.
    numbers: HashTable<usize>,
    last: usize,
}

/// The position and the fields of a parsed head.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParsedHead<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Start and end of the text of `name` and of `cat`.
    pub(super) name: (usize, usize),
    pub(super) cat: (usize, usize),
    pub(super) type_: Scalar<'a>,
    pub(super) pid: Scalar<'a>,
    pub(super) tid: Scalar<'a>,
}

#[derive(Debug)]
struct Shape {
    /// Offset of its bytes in [`Shapes::bytes`].
    start: usize,
    len: usize,
    name: (usize, usize),
    cat: (usize, usize),
    type_: Scalar<'static>,
    pid: Scalar<'static>,
    tid: Scalar<'static>,
    /// The shape that followed it last, and the one before that.
    next: [usize; 2],
    remainder: Remainder,
}

/// Limit on the number of shapes; later heads are always parsed.
const SHAPES_MAX: usize = 4_096;
/// The longest head that is stored.
const HEAD_BYTES_MAX: usize = 512;

impl Shapes {
    /// The shape of the head at `start`, if it is one of those predicted: its number, its fields
    /// and its end.
    #[inline(always)]
    pub(super) fn expected<'a>(
        &mut self,
        bytes: &'a [u8],
        start: usize,
    ) -> Option<(u32, ShapedHead<'a>, usize)> {
        let last = self.shapes.get(self.last)?;
        let [likely, less_likely] = last.next;
        let number = if self.is_at(likely, bytes, start) {
            likely
        } else if self.is_at(less_likely, bytes, start) {
            self.follow(less_likely);
            less_likely
        } else if self.is_at(self.last, bytes, start) {
            self.last
        } else {
            return None;
        };
        self.last = number;
        let shape = self.shapes.get(number)?;
        let part = |(from, to): (usize, usize)| &bytes[start + from..start + to];
        let head = ShapedHead {
            name: part(shape.name),
            cat: part(shape.cat),
            type_: shape.type_,
            pid: shape.pid,
            tid: shape.tid,
        };
        #[expect(clippy::cast_possible_truncation, reason = "below SHAPES_MAX")]
        let shape_number = number as u32;
        Some((shape_number, head, start + shape.len))
    }

    #[inline(always)]
    fn is_at(&self, number: usize, bytes: &[u8], start: usize) -> bool {
        let Some(shape) = self.shapes.get(number) else {
            return false;
        };
        let known = &self.bytes[shape.start..shape.start + shape.len];
        bytes.get(start..start + shape.len) == Some(known)
    }

    /// The number of the shape of a parsed head; `None` if it is not stored.
    pub(super) fn learn(&mut self, bytes: &[u8], head: &ParsedHead<'_>) -> Option<u32> {
        let piece = &bytes[head.start..head.end];
        let found = self.numbers.find(hash(piece), |number| {
            piece_of(&self.shapes, &self.bytes, *number) == piece
        });
        let number = match found {
            Some(number) => *number,
            None => self.insert(piece, head)?,
        };
        self.follow(number);
        self.last = number;
        u32::try_from(number).ok()
    }

    /// Records that `number` followed the last shape.
    fn follow(&mut self, number: usize) {
        if let Some(last) = self.shapes.get_mut(self.last)
            && last.next[0] != number
        {
            last.next = [number, last.next[0]];
        }
    }

    #[cold]
    fn insert(&mut self, piece: &[u8], head: &ParsedHead<'_>) -> Option<usize> {
        let number = self.shapes.len();
        if number >= SHAPES_MAX || piece.len() > HEAD_BYTES_MAX {
            return None;
        }
        let plain = |value| match value {
            Scalar::UInt(value) => Some(Scalar::UInt(value)),
            Scalar::Null => Some(Scalar::Null),
            _ => None,
        };
        let inside = |(from, to): (usize, usize)| (from - head.start, to - head.start);
        self.shapes.push(Shape {
            start: self.bytes.len(),
            len: piece.len(),
            name: inside(head.name),
            cat: inside(head.cat),
            type_: plain(head.type_)?,
            pid: plain(head.pid)?,
            tid: plain(head.tid)?,
            next: [number; 2],
            remainder: Remainder::default(),
        });
        self.bytes.extend_from_slice(piece);
        let (shapes, bytes) = (&self.shapes, &self.bytes);
        let rehash = |number: &usize| hash(piece_of(shapes, bytes, *number));
        self.numbers.insert_unique(hash(piece), number, rehash);
        Some(number)
    }

    /// The expected remainder of the records of a shape.
    #[inline(always)]
    pub(super) fn remainder(&mut self, shape: Option<u32>) -> Option<&mut Remainder> {
        let shape = self.shapes.get_mut(shape? as usize)?;
        Some(&mut shape.remainder)
    }
}

/// The bytes of a shape.
fn piece_of<'s>(shapes: &[Shape], bytes: &'s [u8], number: usize) -> &'s [u8] {
    let shape = &shapes[number];
    &bytes[shape.start..shape.start + shape.len]
}

/// The lower and the upper word.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product")]
fn words_of(product: u128) -> [u64; 2] {
    [product as u64, (product >> 64) as u64]
}

/// A few multiplications over words, good enough to spread heads.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let seed = rest.iter().fold(bytes.len() as u64, |hash, byte| {
        hash << 8 ^ u64::from(*byte)
    });
    words.iter().fold(seed, |hash, word| {
        let product = u128::from(hash ^ u64::from_le_bytes(*word)) * 0xa076_1d64_78bd_642f;
        let [low, high] = words_of(product);
        low ^ high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8], tid: u64) -> ParsedHead<'static> {
        ParsedHead {
            start: 2,
            end: bytes.len(),
            name: (2, 4),
            cat: (3, 5),
            type_: Scalar::Null,
            pid: Scalar::UInt(1),
            tid: Scalar::UInt(tid),
        }
    }

    #[test]
    fn a_head_is_known_again_and_others_are_not() {
        let mut shapes = Shapes::default();
        let line = |number: u64| format!("..{number:06}");
        for round in 0..2 {
            for number in 0..300 {
                let text = line(number);
                let expected = shapes.expected(text.as_bytes(), 2);
                if round == 1 {
                    let (shape, known, end) = expected.expect("the shape that followed it before");
                    assert_eq!((u64::from(shape), end), (number, text.len()));
                    assert_eq!(
                        (known.tid, known.name),
                        (Scalar::UInt(number), b"00".as_slice())
                    );
                    continue;
                }
                assert!(expected.is_none(), "{text}");
                let learned = shapes.learn(text.as_bytes(), &head(text.as_bytes(), number));
                assert_eq!(learned.map(u64::from), Some(number));
            }
            // The first one follows the last one again.
            let first = line(0);
            if round == 0 {
                assert!(shapes.expected(first.as_bytes(), 2).is_none());
            }
            let again = shapes.learn(first.as_bytes(), &head(first.as_bytes(), 0));
            assert_eq!(again, Some(0));
            shapes.last = 299;
        }
    }

    #[test]
    fn heads_with_other_values_or_beyond_the_limits_are_not_stored() {
        let mut shapes = Shapes::default();
        let mut quoted = head(b"..000001", 1);
        quoted.pid = Scalar::Str(b"1");
        assert_eq!(shapes.learn(b"..000001", &quoted), None);
        let long = vec![b'x'; HEAD_BYTES_MAX + 3];
        assert_eq!(shapes.learn(&long, &head(&long, 1)), None);
        for number in 0..SHAPES_MAX + 10 {
            let text = format!("..{number:06}");
            let learned = shapes.learn(text.as_bytes(), &head(text.as_bytes(), 1));
            assert_eq!(learned.is_some(), number < SHAPES_MAX);
        }
    }
}
