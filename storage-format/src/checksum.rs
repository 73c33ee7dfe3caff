//! CRC32C (Castagnoli), the checksum of frames, blocks and files.

/// The generator polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(2^n) modulo the polynomial, for each n.
const POWERS: [u32; 32] = powers();

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the bytes that `crc` covers, followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of two neighbouring pieces from the checksum of each; `second_length` in bytes, below
/// 2^29.
///
/// Appending n zero bytes multiplies a remainder by x^(8n), and that power is a product of at most
/// 32 known ones (the method of zlib's `crc32_combine`). Some hundred ns, whatever the length; the
/// `crc32c` crate multiplies matrices for it and takes a hundred times as long.
#[must_use]
pub fn crc32c_combine(first: u32, second: u32, second_length: u32) -> u32 {
    assert!(second_length < 1 << 29, "the length in bits has 32 bits");
    let mut power = 1 << 31;
    // In bits: 8 = 2^3.
    for (bit, &square) in (0..).zip(POWERS.iter().cycle().skip(3)).take(32) {
        if (second_length >> bit) & 1 == 1 {
            power = multiply(square, power);
        }
    }
    multiply(power, first) ^ second
}

/// a · b modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 == 0 {
            b >> 1
        } else {
            (b >> 1) ^ POLYNOMIAL
        };
    }
    product
}

const fn powers() -> [u32; 32] {
    let mut powers = [1 << 30; 32];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n.saturating_sub(1)], powers[n.saturating_sub(1)]);
        n = n.saturating_add(1);
    }
    powers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_of_crc32c_is_right() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn combining_is_the_same_as_appending(
            first in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            let length = u32::try_from(bytes.len()).unwrap();
            let combined = crc32c_combine(first, crc32c(&bytes), length);
            prop_assert_eq!(combined, crc32c_append(first, &bytes));
        }

        #[test]
        fn combining_is_right_for_every_length_of_a_packet(
            first in any::<u32>(),
            second in any::<u32>(),
            length in 0..=crate::limits::PACKET_BYTES_MAX,
        ) {
            let slow = crc32c::crc32c_combine(first, second, length as usize);
            prop_assert_eq!(crc32c_combine(first, second, length), slow);
        }
    }
}
