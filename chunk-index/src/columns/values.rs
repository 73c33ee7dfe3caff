//! Values of a field by number: each value once, and a number per row.
//!
//! ```text
//! column  values: list of (type byte as in dictionaries: 0 signed, 1 varint, 2 eight bytes of a
//!         float, 3 boolean, 4 text); width: byte, 0 to 2; then `width` planes of a byte per row:
//!         the lowest byte of every row, then the next. The number of a row is 0 if the event
//!         lacks the field, else the index of its value plus one; with a width of 0 all rows have
//!         the only value, or no value if there is none.
//! ```

use query_language::Value;

use crate::OwnedValue;
use crate::wire::{Damage, Reader, put_signed, put_text, put_varint};

/// Values, and a number per row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    pub(crate) values: Vec<OwnedValue>,
    /// By row: 0 for none, else the index of the value plus one.
    pub(crate) numbers: Vec<u16>,
}

/// Bytes of all text of a column.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// Whether a reader accepts a column of these values.
pub(crate) fn is_readable<'a>(values: impl ExactSizeIterator<Item = Value<'a>>) -> bool {
    let is_few = values.len() < usize::from(u16::MAX);
    let texts = values.map(|value| match value {
        Value::Str(text) => text.len(),
        _ => 0,
    });
    is_few && texts.sum::<usize>() <= TEXT_BYTES_MAX
}

/// Appends a column.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a plane is one byte of each number"
)]
pub(crate) fn encode<'a>(
    values: impl ExactSizeIterator<Item = Value<'a>>,
    numbers: &[u16],
    out: &mut Vec<u8>,
) {
    let count = values.len();
    put_varint(out, count as u64);
    for value in values {
        match value {
            Value::Int(value) if value < 0 => {
                out.push(0);
                put_signed(out, value);
            }
            Value::Int(value) => {
                out.push(1);
                put_varint(out, value.cast_unsigned());
            }
            Value::Uint(value) => {
                out.push(1);
                put_varint(out, value);
            }
            Value::Float(value) => {
                out.push(2);
                out.extend(value.to_bits().to_le_bytes());
            }
            Value::Bool(value) => out.extend([3, u8::from(value)]),
            Value::Str(text) => {
                out.push(4);
                put_text(out, text);
            }
        }
    }
    let alike = count <= 1 && numbers.iter().all(|number| usize::from(*number) == count);
    let width = match count {
        _ if alike => 0,
        0..=255 => 1,
        _ => 2,
    };
    out.push(width);
    for plane in 0..width {
        out.extend(numbers.iter().map(|number| (number >> (8 * plane)) as u8));
    }
}

/// Reads a column of `rows` rows.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Values, Damage> {
    let mut reader = Reader::new(bytes);
    let length = reader.length(2)?;
    if length >= usize::from(u16::MAX) {
        return Err(Damage("column with too many values"));
    }
    let (mut values, mut text_bytes) = (Vec::with_capacity(length), 0);
    for _ in 0..length {
        values.push(match reader.byte()? {
            0 => OwnedValue::Int(reader.signed()?),
            1 => OwnedValue::Uint(reader.varint()?),
            2 => OwnedValue::Float(f64::from_bits(reader.word()?)),
            3 => OwnedValue::Bool(reader.byte()? != 0),
            4 => {
                let text = reader.text()?;
                text_bytes += text.len();
                if text_bytes > TEXT_BYTES_MAX {
                    return Err(Damage("column with too much text"));
                }
                OwnedValue::Str(text.into())
            }
            _ => return Err(Damage("unknown type of value")),
        });
    }
    let width = reader.byte()?;
    let numbers = match width {
        0 if length <= 1 => vec![u16::from(length == 1); rows],
        1 => reader
            .bytes(rows)?
            .iter()
            .map(|low| u16::from(*low))
            .collect(),
        2 => {
            let (low, high) = (reader.bytes(rows)?, reader.bytes(rows)?);
            let both = low.iter().zip(high);
            both.map(|(low, high)| u16::from_le_bytes([*low, *high]))
                .collect()
        }
        _ => return Err(Damage("column with an unknown width")),
    };
    reader.end()?;
    if numbers.iter().any(|number| usize::from(*number) > length) {
        return Err(Damage("row with an unknown value"));
    }
    Ok(Values { values, numbers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_survive_a_round_trip(
            values in proptest::collection::vec(prop_oneof![
                "[a-z]{0,20}".prop_map(|text| OwnedValue::Str(text.into_bytes().into())),
                (i64::MIN..0).prop_map(OwnedValue::Int),
                any::<u64>().prop_map(OwnedValue::Uint),
                (-9_i32..9).prop_map(|value| OwnedValue::Float(f64::from(value) / 2.0)),
                any::<bool>().prop_map(OwnedValue::Bool),
            ], 0..400),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..300),
            missing in any::<bool>(),
        ) {
            let lowest = usize::from(!missing && !values.is_empty());
            let number = |pick: &prop::sample::Index| {
                (lowest + pick.index(values.len() + 1 - lowest)) as u16
            };
            let numbers: Vec<u16> = picks.iter().map(number).collect();
            let mut bytes = Vec::new();
            encode(values.iter().map(OwnedValue::as_value), &numbers, &mut bytes);
            let rows = numbers.len();
            prop_assert_eq!(decode(&bytes, rows), Ok(Values { values, numbers }));
            prop_assert!(decode(&bytes[..bytes.len() - 1], rows).is_err());
        }
    }
}
