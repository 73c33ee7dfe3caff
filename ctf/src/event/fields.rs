//! Iteration over decoded values.

use super::compiled_plan::CompiledPlan;
use super::token::{Item, Packing, Token, TokenKind};
use crate::class::FieldKind;
use crate::element::Field;
use crate::integer::{byte_of, low_u32, usize_saturating};
use crate::procedure::NodeId;
use crate::text::until_null;

/// A decoded value, or the beginning or end of values inside another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unsigned integer or enumeration of fixed or variable length.
    Unsigned(u64),
    /// Signed integer or enumeration of fixed or variable length.
    Signed(i64),
    /// Boolean.
    Bool(bool),
    /// Floating-point number; a single-precision one is widened.
    Float(f64),
    /// Bit array.
    BitArray(u64),
    /// Bit map.
    BitMap(u64),
    /// Text in the encoding of its class. A null-terminated string is given without its terminator,
    /// a string with a length with all of its bytes; see [`Datum::text`].
    Text(&'a [u8]),
    /// Bytes of a BLOB.
    Blob(&'a [u8]),
    /// A structure; its members follow.
    StructBegin,
    /// The end of a structure.
    StructEnd,
    /// An array; this number of elements follows.
    ArrayBegin(u64),
    /// The end of an array.
    ArrayEnd,
    /// A variant; its field follows.
    VariantBegin {
        /// The index of the option that was selected.
        option: u32,
        /// The selector; two's complement when it is signed.
        selector: u64,
    },
    /// The end of a variant.
    VariantEnd,
    /// An optional field, which follows when it is present.
    OptionalBegin(bool),
    /// The end of an optional field.
    OptionalEnd,
}

/// A value and its field.
#[derive(Clone, Copy, Debug)]
pub struct Datum<'a> {
    /// The field; all elements of an array have the same.
    pub field: Field<'a>,
    /// The value.
    pub value: Value<'a>,
}

impl<'a> Datum<'a> {
    /// The text of a string up to its terminator, when the value is text.
    pub fn text(&self) -> Option<&'a [u8]> {
        let Value::Text(bytes) = self.value else {
            return None;
        };
        Some(match &self.field.class().kind {
            FieldKind::String(class) => until_null(bytes, class.encoding),
            _ => bytes,
        })
    }
}

/// The remaining elements of a packed array.
#[derive(Clone, Copy, Debug)]
struct Elements<'a> {
    packing: &'a Packing,
    /// Bit offset of the next element in the packet.
    at: u64,
    left: u64,
}

impl<'a> Elements<'a> {
    /// The elements as a slice, when each of them is an unsigned byte.
    #[inline]
    fn octets(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let load = &self.packing.load;
        let is_octet = load.is_octet() && self.packing.stride == 8 && self.at & 7 == 0;
        let begin = usize::try_from(self.at >> 3).ok().filter(|_| is_octet)?;
        bytes.get(begin..begin.checked_add(usize::try_from(self.left).ok()?)?)
    }
}

/// An iterator over decoded values in the order of the packet. Values inside structures, arrays,
/// optionals and variants appear between their beginning and end.
///
/// Fields at known offsets of a run are loaded by the iterator.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    plan: &'a CompiledPlan,
    bytes: &'a [u8],
    tokens: std::slice::Iter<'a, Token>,
    /// The remaining items of the current run, and the bit offset of the run in the packet.
    items: std::slice::Iter<'a, Item>,
    run: u64,
    elements: Option<Elements<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(plan: &'a CompiledPlan, bytes: &'a [u8], tokens: &'a [Token]) -> Self {
        Self {
            plan,
            bytes,
            tokens: tokens.iter(),
            items: [].iter(),
            run: 0,
            elements: None,
        }
    }

    /// All elements of the array that just began, when each of them is an unsigned byte; the next
    /// value is then the end of the array.
    #[inline]
    pub fn take_octets(&mut self) -> Option<&'a [u8]> {
        let elements = self.elements.as_mut()?;
        let octets = elements.octets(self.bytes)?;
        elements.left = 0;
        Some(octets)
    }

    #[inline(always)]
    fn datum(&self, node: NodeId, value: Value<'a>) -> Datum<'a> {
        Datum {
            field: Field::new(&self.plan.procedure, node),
            value,
        }
    }

    #[inline]
    fn element(&mut self, elements: Elements<'a>) -> Datum<'a> {
        let Elements { packing, at, left } = elements;
        let Some(left) = left.checked_sub(1) else {
            self.elements = None;
            return self.datum(packing.node, Value::ArrayEnd);
        };
        let next = at + u64::from(packing.stride);
        self.elements = Some(Elements {
            packing,
            at: next,
            left,
        });
        let load = &packing.load;
        let value = load.read(self.bytes, at);
        self.datum(load.node, scalar(load.token_kind(), value))
    }

    /// Folds a packed array, from its beginning to its end.
    #[inline(always)]
    fn fold_elements<B>(
        &self,
        elements: Elements<'a>,
        init: B,
        f: &mut impl FnMut(B, Datum<'a>) -> B,
    ) -> B {
        let begin = Value::ArrayBegin(elements.left);
        let folded = f(init, self.datum(elements.packing.node, begin));
        self.fold_left(elements, folded, f)
    }

    /// Folds the remaining elements of a packed array, and its end.
    #[inline(always)]
    fn fold_left<B>(
        &self,
        elements: Elements<'a>,
        init: B,
        f: &mut impl FnMut(B, Datum<'a>) -> B,
    ) -> B {
        let Elements { packing, at, left } = elements;
        let load = packing.load;
        let kind = load.token_kind();
        let mut folded = init;
        match elements.octets(self.bytes) {
            Some(octets) => {
                for &octet in octets {
                    let value = Value::Unsigned(octet.into());
                    folded = f(folded, self.datum(load.node, value));
                }
            }
            None => {
                for index in 0..left {
                    let bit = at + index * u64::from(packing.stride);
                    let value = scalar(kind, load.read(self.bytes, bit));
                    folded = f(folded, self.datum(load.node, value));
                }
            }
        }
        f(folded, self.datum(packing.node, Value::ArrayEnd))
    }

    /// The bytes at `bit`; zeros when they are out of range, which the interpreter has excluded.
    #[inline(always)]
    fn word<const BYTES: usize>(&self, bit: u64) -> [u8; BYTES] {
        let rest = self.bytes.get(byte_of(bit)..);
        let word = rest.and_then(|rest| rest.first_chunk());
        word.copied().unwrap_or([0; BYTES])
    }

    #[inline]
    fn slice(&self, begin: u64, length: u64) -> &'a [u8] {
        let begin = usize_saturating(begin);
        // The interpreter checked the range against the content.
        self.bytes
            .get(begin..begin.saturating_add(usize_saturating(length)))
            .unwrap_or_default()
    }

    /// The elements of the packed array `index`.
    #[inline]
    fn packed(&self, index: NodeId, at: u64, left: u64) -> Elements<'a> {
        let packing = &self.plan.packings[index.index()];
        Elements { packing, at, left }
    }

    /// The items of a token.
    #[inline(always)]
    fn items_of(&self, token: &Token) -> &'a [Item] {
        let first = token.node.index();
        let items = self
            .plan
            .items
            .get(first..first + usize_saturating(token.length));
        items.unwrap_or_default()
    }

    /// The value of an item that is not a packed array.
    #[inline(always)]
    fn of_item(&self, run: u64, item: &Item) -> Datum<'a> {
        let bit = run + u64::from(item.load.at);
        let value = match item.kind {
            TokenKind::Unsigned8 => Value::Unsigned(u8::from_le_bytes(self.word(bit)).into()),
            TokenKind::Unsigned16 => Value::Unsigned(u16::from_le_bytes(self.word(bit)).into()),
            TokenKind::Unsigned32 => Value::Unsigned(u32::from_le_bytes(self.word(bit)).into()),
            TokenKind::Unsigned64 => Value::Unsigned(u64::from_le_bytes(self.word(bit))),
            TokenKind::Signed32 => Value::Signed(i32::from_le_bytes(self.word(bit)).into()),
            TokenKind::Signed64 => Value::Signed(i64::from_le_bytes(self.word(bit))),
            TokenKind::Text => Value::Text(self.slice(bit >> 3, item.count.into())),
            TokenKind::Blob => Value::Blob(self.slice(bit >> 3, item.count.into())),
            TokenKind::StructBegin => Value::StructBegin,
            TokenKind::StructEnd => Value::StructEnd,
            TokenKind::ArrayEnd => Value::ArrayEnd,
            TokenKind::VariantEnd => Value::VariantEnd,
            TokenKind::OptionalEnd => Value::OptionalEnd,
            kind => scalar(kind, item.load.read(self.bytes, bit)),
        };
        self.datum(item.load.node, value)
    }

    /// The value of a token that is neither a run of items nor a packed array.
    #[inline(always)]
    fn of_token(&self, token: &Token) -> Datum<'a> {
        let value = match token.kind {
            TokenKind::Text => Value::Text(self.slice(token.value, token.length)),
            TokenKind::Blob => Value::Blob(self.slice(token.value, token.length)),
            TokenKind::StructBegin => Value::StructBegin,
            TokenKind::StructEnd => Value::StructEnd,
            TokenKind::ArrayBegin => Value::ArrayBegin(token.length),
            TokenKind::ArrayEnd => Value::ArrayEnd,
            TokenKind::VariantBegin => Value::VariantBegin {
                option: low_u32(token.length),
                selector: token.value,
            },
            TokenKind::VariantEnd => Value::VariantEnd,
            TokenKind::OptionalBegin => Value::OptionalBegin(token.length != 0),
            TokenKind::OptionalEnd => Value::OptionalEnd,
            kind => scalar(kind, token.value),
        };
        self.datum(token.node, value)
    }

    /// The beginning of a packed array; its elements are next.
    #[inline]
    fn begin_packed(&mut self, elements: Elements<'a>) -> Datum<'a> {
        self.elements = Some(elements);
        self.datum(elements.packing.node, Value::ArrayBegin(elements.left))
    }
}

#[inline(always)]
fn scalar<'a>(kind: TokenKind, value: u64) -> Value<'a> {
    match kind {
        TokenKind::Signed => Value::Signed(value.cast_signed()),
        TokenKind::Bool => Value::Bool(value != 0),
        TokenKind::Float32 => Value::Float(f64::from(f32::from_bits(low_u32(value)))),
        TokenKind::Float64 => Value::Float(f64::from_bits(value)),
        TokenKind::BitArray => Value::BitArray(value),
        TokenKind::BitMap => Value::BitMap(value),
        _ => Value::Unsigned(value),
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        if let Some(elements) = self.elements {
            return Some(self.element(elements));
        }
        loop {
            if let Some(item) = self.items.next() {
                return Some(match item.kind {
                    TokenKind::Packed => {
                        let at = self.run + u64::from(item.load.at);
                        let elements = self.packed(item.load.node, at, item.count.into());
                        self.begin_packed(elements)
                    }
                    _ => self.of_item(self.run, item),
                });
            }
            let token = self.tokens.next()?;
            match token.kind {
                TokenKind::Items => {
                    self.items = self.items_of(token).iter();
                    self.run = token.value;
                }
                TokenKind::Packed => {
                    let elements = self.packed(token.node, token.value, token.length);
                    return Some(self.begin_packed(elements));
                }
                _ => return Some(self.of_token(token)),
            }
        }
    }

    /// Faster than repeated calls of [`Self::next`]: runs and arrays need no state between their
    /// values.
    #[inline]
    fn fold<B, F: FnMut(B, Datum<'a>) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        if let Some(elements) = self.elements.take() {
            folded = self.fold_left(elements, folded, &mut f);
        }
        let (mut items, mut run) = (self.items.as_slice(), self.run);
        loop {
            for item in items {
                if item.kind != TokenKind::Packed {
                    folded = f(folded, self.of_item(run, item));
                    continue;
                }
                let at = run + u64::from(item.load.at);
                let elements = self.packed(item.load.node, at, item.count.into());
                folded = self.fold_elements(elements, folded, &mut f);
            }
            items = &[];
            let Some(token) = self.tokens.next() else {
                return folded;
            };
            match token.kind {
                TokenKind::Items => (items, run) = (self.items_of(token), token.value),
                TokenKind::Packed => {
                    let elements = self.packed(token.node, token.value, token.length);
                    folded = self.fold_elements(elements, folded, &mut f);
                }
                _ => folded = f(folded, self.of_token(token)),
            }
        }
    }
}
