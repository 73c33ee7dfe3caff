//! Keys of rows in an order by fields, as bytes that compare as the rows do.
//!
//! ```text
//! key   = field* tie
//! field = 2 (the event lacks the field) | 1 value, whose bytes are inverted in descending order
//! value = 1 bool u8 | 2 number i128 f64 | 3 (not a number) | 4 text 0 0, 0 in it is 0 255
//! tie   = ts i64, task u32, row u32
//! ```
//!
//! Integers are big-endian with their sign bit inverted. A number is its integer part and its
//! fraction, so integers and fractions compare exactly. Text that spells a number is that number,
//! as in comparisons of the query language.

use std::io::{self, Read, Write};

use query_language::{Number, Value};

use crate::run::{RowKey, RunKey};

/// The key of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey(Box<[u8]>);

/// Bits that are inverted in a descending order.
const INVERTED: u8 = 0xff;
/// 2^127: floats from here have no integer part of 128 bits.
const INT_LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

/// Builds keys in one buffer.
#[derive(Debug, Default)]
pub(crate) struct KeyWriter(Vec<u8>);

impl KeyWriter {
    /// Begins the next key.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends the value of a field.
    pub(crate) fn field(&mut self, value: Option<Value<'_>>, descending: bool) {
        write_field(value, descending, &mut self.0);
    }

    /// Appends what orders rows with equal fields.
    pub(crate) fn tie(&mut self, key: RowKey) {
        self.0.extend((key.ts ^ i64::MIN).to_be_bytes());
        self.0.extend(key.task.to_be_bytes());
        self.0.extend(key.row.to_be_bytes());
    }

    /// Whether the key is greater than `other`.
    pub(crate) fn exceeds(&self, other: &SortKey) -> bool {
        self.0.as_slice() > &*other.0
    }

    pub(crate) fn key(&self) -> SortKey {
        SortKey(self.0.as_slice().into())
    }
}

/// Appends the value of a field as bytes that compare as the values do. Missing values come last
/// in both directions.
pub(crate) fn write_field(value: Option<Value<'_>>, descending: bool, out: &mut Vec<u8>) {
    let Some(value) = value else {
        return out.push(2);
    };
    out.push(1);
    let start = out.len();
    match (value, value.as_number()) {
        (Value::Bool(value), _) => out.extend([1, u8::from(value)]),
        (_, Some(Number::Float(value))) if value.is_nan() => out.push(3),
        (_, Some(number)) => write_number(number, out),
        (Value::Str(text), None) => {
            out.push(4);
            for byte in text {
                out.push(*byte);
                if *byte == 0 {
                    out.push(255);
                }
            }
            out.extend([0, 0]);
        }
        // The other types are numbers.
        (Value::Int(_) | Value::Uint(_) | Value::Float(_), None) => out.push(3),
    }
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte ^= INVERTED);
    }
}

fn write_number(number: Number, out: &mut Vec<u8>) {
    let (whole, fraction) = match number {
        Number::Int(value) => (value, 0.0),
        Number::Float(value) if value >= INT_LIMIT => (i128::MAX, value),
        Number::Float(value) if value < -INT_LIMIT => (i128::MIN, value),
        #[expect(clippy::cast_possible_truncation, reason = "the float is in range")]
        Number::Float(value) => (value.trunc() as i128, value.fract()),
    };
    out.push(2);
    out.extend((whole ^ i128::MIN).to_be_bytes());
    // Adding zero makes -0.0 the same as 0.0.
    let bits = (fraction + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    };
    out.extend(ordered.to_be_bytes());
}

impl RunKey for SortKey {
    fn heap_bytes(&self) -> usize {
        self.0.len()
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let len = u32::try_from(self.0.len()).map_err(io::Error::other)?;
        out.write_all(&len.to_le_bytes())?;
        out.write_all(&self.0)
    }

    fn read(input: &mut impl Read) -> io::Result<SortKey> {
        let mut len = [0; 4];
        input.read_exact(&mut len)?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        input.read_exact(&mut bytes)?;
        Ok(SortKey(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: Option<Value<'_>>, descending: bool) -> Vec<u8> {
        let mut out = Vec::new();
        write_field(value, descending, &mut out);
        out
    }

    #[test]
    fn keys_compare_as_their_values() {
        // Ascending; those of one line are equal.
        let ordered: &[&[Value<'_>]] = &[
            &[Value::Bool(false)],
            &[Value::Bool(true)],
            &[Value::Float(f64::NEG_INFINITY)],
            &[Value::Float(-1e300)],
            &[
                Value::Int(i64::MIN),
                Value::Float(-9_223_372_036_854_775_808.0),
            ],
            &[Value::Float(-1.5)],
            &[Value::Int(-1), Value::from("-1"), Value::from("-1.0")],
            &[Value::Float(-1e-20)],
            &[
                Value::Int(0),
                Value::Uint(0),
                Value::Float(-0.0),
                Value::from("0"),
            ],
            &[Value::Float(0.5)],
            &[Value::from("9")],
            &[Value::from("10"), Value::Uint(10), Value::Float(10.0)],
            &[Value::Int(9_007_199_254_740_993)],
            &[Value::Float(9_007_199_254_740_994.0)],
            &[Value::Uint(u64::MAX)],
            &[Value::Float(1e300)],
            &[Value::Float(f64::INFINITY)],
            &[Value::Float(f64::NAN)],
            &[Value::from("")],
            &[Value::Str(b"\0")],
            &[Value::Str(b"\0a")],
            &[Value::from("a")],
            &[Value::Str(b"a\0")],
            &[Value::from("a1")],
            &[Value::from("b")],
        ];
        for (at, same) in ordered.iter().enumerate() {
            for value in *same {
                let (up, down) = (bytes(Some(*value), false), bytes(Some(*value), true));
                assert_eq!(up, bytes(Some(same[0]), false), "{value:?}");
                assert!(
                    up < bytes(None, false) && down < bytes(None, true),
                    "{value:?}"
                );
                if let Some(next) = ordered.get(at + 1) {
                    assert!(up < bytes(Some(next[0]), false), "{value:?} {next:?}");
                    assert!(down > bytes(Some(next[0]), true), "{value:?} {next:?}");
                }
            }
        }
    }
}
