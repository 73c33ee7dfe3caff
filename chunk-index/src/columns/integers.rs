//! Integers of the rows of a chunk.
//!
//! ```text
//! column  flags: byte (1: some are missing, 2: each is its distance from the one before),
//!         scale, base (signed), width: byte; if some are missing a bit per row, 1 for present;
//!         then `width` planes of a byte per row: the lowest byte of every row, then the next ..
//! value   (base + number of the row) * scale, or with distances their running sum, folded
//! ```
//!
//! Planes are separate because the upper ones hardly change and so compress well.

use super::bits::Bits;
use crate::wire::{Damage, Reader, put_signed, put_varint};

/// Integers, one per row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Integers {
    /// One per row; arbitrary if it is missing.
    pub(crate) values: Vec<i64>,
    /// The rows that have a value; `None` if all have.
    pub(crate) present: Option<Bits>,
}

const FORM_MISSING: u8 = 1;
const FORM_DISTANCES: u8 = 2;
/// Units of times: integers that are multiples of a unit are stored in it.
const SCALES: [i64; 4] = [1_000_000_000, 1_000_000, 1_000, 1];

/// Appends a column, as distances if `distances` says that consecutive rows are close.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a plane is one byte of each number"
)]
pub(crate) fn encode(column: &Integers, distances: bool, out: &mut Vec<u8>) {
    let divides = |scale: &&i64| column.values.iter().all(|value| value % **scale == 0);
    let scale = *SCALES.iter().find(divides).unwrap_or(&1);
    let scaled = column.values.iter().map(|value| value / scale);
    let (base, numbers): (i64, Vec<u64>) = if distances {
        let base = scaled.clone().next().unwrap_or(0);
        let mut before = base;
        let step = |value: i64| {
            let step = value.wrapping_sub(std::mem::replace(&mut before, value));
            (step << 1 ^ step >> 63).cast_unsigned()
        };
        (base, scaled.map(step).collect())
    } else {
        let base = scaled.clone().min().unwrap_or(0);
        let above = |value: i64| value.wrapping_sub(base).cast_unsigned();
        (base, scaled.map(above).collect())
    };
    let largest = numbers.iter().fold(0, |all, number| all | number);
    let width = (u64::BITS - largest.leading_zeros()).div_ceil(8) as u8;
    let mut form = 0;
    form |= if column.present.is_some() {
        FORM_MISSING
    } else {
        0
    };
    form |= if distances { FORM_DISTANCES } else { 0 };
    out.push(form);
    put_varint(out, scale.cast_unsigned());
    put_signed(out, base);
    out.push(width);
    if let Some(present) = &column.present {
        present.encode(out);
    }
    for plane in 0..u32::from(width) {
        out.extend(numbers.iter().map(|number| (number >> (8 * plane)) as u8));
    }
}

/// Reads a column of `rows` rows.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Integers, Damage> {
    let mut reader = Reader::new(bytes);
    let form = reader.byte()?;
    if form & !(FORM_MISSING | FORM_DISTANCES) != 0 {
        return Err(Damage("unknown flags of a column"));
    }
    let scale = reader.varint()?.cast_signed();
    if !SCALES.contains(&scale) {
        return Err(Damage("unknown scale of column"));
    }
    let base = reader.signed()?;
    let width = usize::from(reader.byte()?);
    if width > 8 {
        return Err(Damage("column too wide"));
    }
    let present = match form & FORM_MISSING {
        0 => None,
        _ => Some(Bits::decode(&mut reader, rows)?),
    };
    let mut numbers = vec![0_u64; rows];
    for plane in 0..width {
        let bytes = reader.bytes(rows)?;
        for (number, byte) in numbers.iter_mut().zip(bytes) {
            *number |= u64::from(*byte) << (8 * plane);
        }
    }
    reader.end()?;
    // A sum that wraps around was not written by an encoder; the value is wrong, and nothing else.
    let values = match form & FORM_DISTANCES {
        0 => numbers
            .iter()
            .map(|number| base.wrapping_add(number.cast_signed()).wrapping_mul(scale))
            .collect(),
        _ => {
            let mut at = base;
            let follow = |number: &u64| {
                let step = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
                at = at.wrapping_add(step);
                at.wrapping_mul(scale)
            };
            numbers.iter().map(follow).collect()
        }
    };
    Ok(Integers { values, present })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_survive_a_round_trip(
            values in proptest::collection::vec(prop_oneof![
                (0_i64..5_000).prop_map(|value| value * 1_000),
                any::<i64>(),
            ], 0..200),
            odd in any::<bool>(),
            missing in any::<bool>(),
            distances in any::<bool>(),
        ) {
            let values: Vec<i64> = values
                .into_iter()
                .map(|value| if odd { value } else { value / 1_000 % 9_000 * 1_000 })
                .collect();
            let rows: Vec<usize> = (0..values.len()).collect();
            let present = missing.then(|| Bits::of(&rows, |row| row % 3 != 0));
            let column = Integers { values, present };
            let mut bytes = Vec::new();
            encode(&column, distances, &mut bytes);
            let rows = column.values.len();
            prop_assert!(decode(&bytes[..bytes.len() - 1], rows).is_err());
            prop_assert_eq!(decode(&bytes, rows), Ok(column));
        }
    }
}
