//! Numbers as C's `printf` formats them.

use crate::integer::{low_u8, low_u32, usize_from};

/// Eight decimal digits as text, the first one in the lowest byte. `value` is less than a hundred
/// million. The digits are computed two, four and eight at a time, without branches.
#[inline]
fn eight_digits(value: u32) -> u64 {
    eight_bcd(value) + 0x3030_3030_3030_3030
}

#[inline]
fn eight_bcd(value: u32) -> u64 {
    let value = u64::from(value);
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

/// Appends the first `length` of the bytes of `text`.
#[inline]
fn push_word(out: &mut Vec<u8>, text: u64, length: usize) {
    let end = out.len() + length;
    // A copy of constant length and a truncation are cheaper than a copy of variable length.
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// `%lu`
#[inline]
pub fn push_unsigned(out: &mut Vec<u8>, value: u64) {
    const LOW: u64 = 100_000_000;
    if value < LOW {
        let digits = eight_bcd(low_u32(value));
        let zeros = ((digits | 1 << 63).trailing_zeros() / 8).min(7);
        let text = (digits + 0x3030_3030_3030_3030) >> (zeros * 8);
        push_word(out, text, 8 - usize_from(zeros));
        return;
    }
    push_unsigned(out, value / LOW);
    push_word(out, eight_digits(low_u32(value % LOW)), 8);
}

/// `%ld`
#[inline]
pub fn push_signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_unsigned(out, value.unsigned_abs());
}

/// `%lX`
#[inline]
pub fn push_hexadecimal(out: &mut Vec<u8>, value: u64) {
    if value >> 32 != 0 {
        push_hexadecimal(out, value >> 32);
        push_word(out, eight_nibbles(low_u32(value)), 8);
        return;
    }
    let zeros = usize_from((low_u32(value) | 1).leading_zeros() / 4);
    push_word(out, eight_nibbles(low_u32(value)) >> (zeros * 8), 8 - zeros);
}

/// Eight hexadecimal digits as text, the first one in the lowest byte.
#[inline]
fn eight_nibbles(value: u32) -> u64 {
    let pairs = u64::from(value);
    let pairs = (pairs | pairs << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes | bytes << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'A' - b'9' - 1)).swap_bytes()
}

/// `%02x`
#[inline]
pub fn push_byte(out: &mut Vec<u8>, value: u8) {
    let digits = b"0123456789abcdef";
    out.extend_from_slice(&[
        digits[usize::from(value >> 4)],
        digits[usize::from(value & 0xf)],
    ]);
}

/// `%lo`
pub fn push_octal(out: &mut Vec<u8>, value: u64) {
    let bits = 64 - (value | 1).leading_zeros();
    for index in (0..bits.div_ceil(3)).rev() {
        out.push(b'0' + low_u8((value >> (index * 3)) & 7));
    }
}

/// The lowest `bits` bits, the highest first.
pub fn push_binary(out: &mut Vec<u8>, value: u64, bits: u32) {
    for index in (0..bits.min(64)).rev() {
        out.push(b'0' + low_u8((value >> index) & 1));
    }
}

/// Nine digits, as a fraction of a second has them. `value` is less than a billion.
#[inline]
pub fn nine_digits(value: u64) -> [u8; 9] {
    let mut text = [b'0' + low_u8(value / 100_000_000); 9];
    let rest = eight_digits(low_u32(value % 100_000_000));
    text[1..].copy_from_slice(&rest.to_le_bytes());
    text
}

/// Two digits. `value` is less than 100.
pub fn push_two_digits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&[b'0' + low_u8(value / 10), b'0' + low_u8(value % 10)]);
}

/// `%g`: six significant digits, the shorter of the two notations, no zeros at the end.
pub fn push_float(out: &mut Vec<u8>, value: f64) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = value.abs();
    if magnitude.is_nan() {
        out.extend_from_slice(b"nan");
    } else if magnitude.is_infinite() {
        out.extend_from_slice(b"inf");
    } else if magnitude == 0.0 {
        out.push(b'0');
    } else {
        let (digits, exponent) = match exact_digits(magnitude) {
            Some(found) => found,
            None => printed_digits(magnitude),
        };
        push_significant(out, digits, exponent);
    }
}

/// Six significant digits as an integer from 100,000 to 999,999, and the decimal exponent of the
/// first one, for numbers of moderate size. Exact: the product fits 128 bits.
fn exact_digits(magnitude: f64) -> Option<(u32, i32)> {
    if !(1e-4..1e6).contains(&magnitude) {
        return None;
    }
    const POWERS: [f64; 10] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4, 1e5];
    let power = POWERS.iter().rposition(|power| *power <= magnitude)?;
    let exponent = i32::try_from(power).ok()? - 4;
    let bits = magnitude.to_bits();
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    // magnitude = mantissa / 2^shift
    let shift = 1075 - low_u32(bits >> 52);
    let scaled = mantissa * 10_u128.pow(5_i32.abs_diff(exponent));
    let half = 1_u128 << (shift - 1);
    let floor = scaled >> shift;
    let rest = scaled & ((1_u128 << shift) - 1);
    let rounds_up = rest > half || (rest == half && floor & 1 == 1);
    let digits = u32::try_from(floor).ok()? + u32::from(rounds_up);
    match digits {
        1_000_000 => Some((100_000, exponent + 1)),
        100_000..=999_999 => Some((digits, exponent)),
        _ => None,
    }
}

/// The same for all numbers, with the standard library's exact formatting.
fn printed_digits(magnitude: f64) -> (u32, i32) {
    let text = format!("{magnitude:.5e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let digits = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    (digits, exponent.parse().unwrap_or(0))
}

fn push_significant(out: &mut Vec<u8>, mut digits: u32, exponent: i32) {
    let mut count = 6;
    while digits.is_multiple_of(10) && count > 1 {
        digits /= 10;
        count -= 1;
    }
    let start = out.len();
    push_unsigned(out, u64::from(digits));
    if (-4..0).contains(&exponent) {
        let zeros = usize_from(exponent.unsigned_abs()) - 1;
        let leading = b"0.000";
        out.splice(start..start, leading[..2 + zeros].iter().copied());
    } else if (0..6).contains(&exponent) {
        let whole = usize_from(exponent.unsigned_abs()) + 1;
        match count.cmp(&whole) {
            std::cmp::Ordering::Less => out.extend(std::iter::repeat_n(b'0', whole - count)),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => out.insert(start + whole, b'.'),
        }
    } else {
        if count > 1 {
            out.insert(start + 1, b'.');
        }
        out.push(b'e');
        out.push(if exponent < 0 { b'-' } else { b'+' });
        let exponent = exponent.unsigned_abs();
        if exponent < 10 {
            out.push(b'0');
        }
        push_unsigned(out, u64::from(exponent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_formatted_as_in_c() {
        let check = |value: f64, expected: &str| {
            assert_eq!(text(|out| push_float(out, value)), expected);
        };
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.0, "1");
        check(100_000.0, "100000");
        check(1_000_000.0, "1e+06");
        check(999_999.5, "1e+06");
        check(999_999.4, "999999");
        check(123_456.5, "123456");
        check(123_457.5, "123458");
        check(0.0001, "0.0001");
        check(0.000_099_999_96, "0.0001");
        check(0.000_01, "1e-05");
        check(3.140_625, "3.14062");
        check(-2.5, "-2.5");
        check(1e300, "1e+300");
        check(1.5e-310, "1.5e-310");
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
        check(-23.0, "-23");
        check(2.718_31, "2.71831");
        check(0.577_215_66, "0.577216");
        check(1.5e300, "1.5e+300");
    }

    #[test]
    fn integers_in_every_base() {
        assert_eq!(
            text(|out| push_unsigned(out, u64::MAX)),
            "18446744073709551615"
        );
        assert_eq!(
            text(|out| push_signed(out, i64::MIN)),
            "-9223372036854775808"
        );
        assert_eq!(text(|out| push_hexadecimal(out, 0)), "0");
        assert_eq!(text(|out| push_octal(out, 0o755)), "755");
        assert_eq!(text(|out| push_binary(out, 5, 4)), "0101");
        assert_eq!(
            text(|out| out.extend_from_slice(&nine_digits(12_345))),
            "000012345"
        );
    }

    proptest! {
        #[test]
        fn integers_agree_with_the_standard_library(value: u64) {
            prop_assert_eq!(text(|out| push_unsigned(out, value)), value.to_string());
            prop_assert_eq!(text(|out| push_hexadecimal(out, value)), format!("{value:X}"));
            prop_assert_eq!(text(|out| push_octal(out, value)), format!("{value:o}"));
            let low = value >> (value % 64);
            prop_assert_eq!(text(|out| push_unsigned(out, low)), low.to_string());
            prop_assert_eq!(text(|out| push_hexadecimal(out, low)), format!("{low:X}"));
            let fraction = value % 1_000_000_000;
            prop_assert_eq!(text(|out| out.extend_from_slice(&nine_digits(fraction))), format!("{fraction:09}"));
        }

        #[test]
        fn both_computations_of_six_digits_agree(value in 1e-4_f64..1e6) {
            prop_assert_eq!(exact_digits(value), Some(printed_digits(value)));
        }
    }
}
