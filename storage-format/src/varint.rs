//! Variable-length integers (LEB128): seven bits a byte, the lowest first, the top bit set on all
//! bytes but the last. Protocol Buffers, RocksDB and the bodies of sidecars write them alike.

/// The most bytes that a 64-bit integer takes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Why no varint could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end inside it.
    #[error("a number is cut off")]
    Truncated,
    /// It has more than [`VARINT_BYTES_MAX`] bytes.
    #[error("a number has more than ten bytes")]
    TooLong,
}

/// Appends `value`.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

#[inline]
fn low_bits(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Bytes that `value` takes.
#[inline]
pub fn varint_length(value: u64) -> usize {
    match value.checked_ilog2() {
        None => 1,
        Some(highest_bit) => crate::integer::usize_of(highest_bit / 7).saturating_add(1),
    }
}

/// The varint at the start of `bytes`, and how many bytes it takes. Bits above the 64th are
/// dropped; a reader that refuses them calls [`varint_fits`].
///
/// # Errors
///
/// When there is no complete varint.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match bytes.first() {
        Some(&byte) if byte < 0x80 => Ok((u64::from(byte), 1)),
        _ => read_long_varint(bytes),
    }
}

fn read_long_varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value = 0;
    for (length, byte) in (1..=VARINT_BYTES_MAX).zip(bytes) {
        value |= u64::from(byte & 0x7f) << length.wrapping_sub(1).wrapping_mul(7);
        if *byte < 0x80 {
            return Ok((value, length));
        }
    }
    Err(if bytes.len() < VARINT_BYTES_MAX {
        VarintError::Truncated
    } else {
        VarintError::TooLong
    })
}

/// Whether the varint with these bytes has no bits above the 64th.
#[inline]
pub fn varint_fits(bytes: &[u8]) -> bool {
    bytes.len() < VARINT_BYTES_MAX || bytes[VARINT_BYTES_MAX - 1] <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8], expected: Result<(u64, usize), VarintError>) {
        assert_eq!(read_varint(bytes), expected, "{bytes:?}");
    }

    #[test]
    fn malformed_numbers_are_refused() {
        check(&[], Err(VarintError::Truncated));
        check(&[0x80], Err(VarintError::Truncated));
        check(&[0xff; 9], Err(VarintError::Truncated));
        check(&[0xff; 10], Err(VarintError::TooLong));
        check(&[0xff; 11], Err(VarintError::TooLong));
    }

    #[test]
    fn bits_above_the_64th_are_dropped() {
        let mut bytes = [0x80; 10];
        for (last, value, fits) in [(0, 0, true), (1, 1 << 63, true), (2, 0, false)] {
            bytes[9] = last;
            check(&bytes, Ok((value, 10)));
            assert_eq!(varint_fits(&bytes), fits);
        }
    }

    proptest! {
        #[test]
        fn written_numbers_are_read(bits in 0_u32..65, number: u64, rest: Vec<u8>) {
            let number = number.checked_shr(bits).unwrap_or(0);
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let length = bytes.len();
            prop_assert_eq!(length, varint_length(number));
            prop_assert!(varint_fits(&bytes));
            bytes.extend(rest);
            prop_assert_eq!(read_varint(&bytes), Ok((number, length)));
        }
    }
}
