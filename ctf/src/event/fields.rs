//! Walks over decoded values.

use super::plan::Inner;
use super::token::{Packing, Token, TokenKind};
use crate::element::Field;
use crate::procedure::NodeId;

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
    /// Text in the encoding of its class. A null-terminated string comes without its terminator;
    /// a string with a length comes with all of its bytes, see [`Datum::text`].
    Text(&'a [u8]),
    /// Bytes of a BLOB.
    Blob(&'a [u8]),
    /// A structure; its members follow.
    StructBegin,
    /// The end of a structure.
    StructEnd,
    /// An array; so many elements follow.
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
    /// An optional field; it follows when it is there.
    OptionalBegin(bool),
    /// The end of an optional field.
    OptionalEnd,
}

/// A value and the field it is of.
#[derive(Clone, Copy, Debug)]
pub struct Datum<'a> {
    /// The field; for elements of an array it is the same for all of them.
    pub field: Field<'a>,
    /// The value.
    pub value: Value<'a>,
}

impl<'a> Datum<'a> {
    /// The text of a string up to its terminator, when the value is text.
    pub fn text(&self) -> Option<&'a [u8]> {
        use crate::class::FieldKind;
        let Value::Text(bytes) = self.value else {
            return None;
        };
        let unit = match &self.field.class().kind {
            FieldKind::String(class) => class.encoding.unit_bytes(),
            _ => return Some(bytes),
        };
        let end = match unit {
            1 => memchr::memchr(0, bytes),
            unit => {
                let mut units = bytes.chunks_exact(unit);
                units
                    .position(|unit| unit.iter().all(|byte| *byte == 0))
                    .map(|at| at * unit)
            }
        };
        Some(&bytes[..end.unwrap_or(bytes.len())])
    }
}

/// The elements of a packed array that are still to come.
#[derive(Clone, Copy, Debug)]
struct Elements<'a> {
    packing: &'a Packing,
    /// Bit offset of the next one in the packet.
    at: u64,
    left: u64,
}

/// An iterator over decoded values in the order of the packet. Values inside structures, arrays,
/// optionals and variants stand between their beginning and end.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    plan: &'a Inner,
    bytes: &'a [u8],
    tokens: std::slice::Iter<'a, Token>,
    elements: Option<Elements<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(plan: &'a Inner, bytes: &'a [u8], tokens: &'a [Token]) -> Self {
        Self {
            plan,
            bytes,
            tokens: tokens.iter(),
            elements: None,
        }
    }

    #[inline]
    fn datum(&self, node: NodeId, value: Value<'a>) -> Option<Datum<'a>> {
        Some(Datum {
            field: Field::new(&self.plan.procedure, node),
            value,
        })
    }

    #[inline]
    fn element(&mut self, elements: Elements<'a>) -> Option<Datum<'a>> {
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

    #[inline(always)]
    fn fold_elements<B>(
        &self,
        elements: Elements<'a>,
        init: B,
        f: &mut impl FnMut(B, Datum<'a>) -> B,
    ) -> B {
        let Elements {
            packing,
            mut at,
            left,
        } = elements;
        let load = packing.load;
        let procedure = &self.plan.procedure;
        let (field, kind) = (Field::new(procedure, load.node), load.token_kind());
        let mut folded = init;
        for _ in 0..left {
            let value = scalar(kind, load.read(self.bytes, at));
            folded = f(folded, Datum { field, value });
            at += u64::from(packing.stride);
        }
        let field = Field::new(procedure, packing.node);
        f(
            folded,
            Datum {
                field,
                value: Value::ArrayEnd,
            },
        )
    }

    #[inline]
    fn slice(&self, token: &Token) -> &'a [u8] {
        let begin = token.value as usize;
        // The engine checked it against the content.
        self.bytes
            .get(begin..begin + token.length as usize)
            .unwrap_or_default()
    }
}

#[inline]
fn scalar<'a>(kind: TokenKind, value: u64) -> Value<'a> {
    match kind {
        TokenKind::Signed => Value::Signed(value.cast_signed()),
        TokenKind::Bool => Value::Bool(value != 0),
        TokenKind::Float32 => Value::Float(f64::from(f32::from_bits(value as u32))),
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
            return self.element(elements);
        }
        let token = self.tokens.next()?;
        let value = match token.kind {
            TokenKind::Text => Value::Text(self.slice(token)),
            TokenKind::Blob => Value::Blob(self.slice(token)),
            TokenKind::StructBegin => Value::StructBegin,
            TokenKind::StructEnd => Value::StructEnd,
            TokenKind::ArrayBegin => Value::ArrayBegin(token.length),
            TokenKind::ArrayEnd => Value::ArrayEnd,
            TokenKind::Packed => {
                let packing = &self.plan.packings[token.node.index()];
                self.elements = Some(Elements {
                    packing,
                    at: token.value,
                    left: token.length,
                });
                return self.datum(packing.node, Value::ArrayBegin(token.length));
            }
            TokenKind::VariantBegin => Value::VariantBegin {
                option: token.length as u32,
                selector: token.value,
            },
            TokenKind::VariantEnd => Value::VariantEnd,
            TokenKind::OptionalBegin => Value::OptionalBegin(token.length != 0),
            TokenKind::OptionalEnd => Value::OptionalEnd,
            kind => scalar(kind, token.value),
        };
        self.datum(token.node, value)
    }

    /// Faster than calling [`Self::next`] until the end: elements of arrays need no state between
    /// them.
    #[inline]
    fn fold<B, F: FnMut(B, Datum<'a>) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        loop {
            if let Some(elements) = self.elements.take() {
                folded = self.fold_elements(elements, folded, &mut f);
            }
            match self.next() {
                Some(datum) => folded = f(folded, datum),
                None => return folded,
            }
        }
    }
}
