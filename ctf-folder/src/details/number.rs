//! Numbers with separators between their digits.

use ctf::class::DisplayBase;

/// Decimal numbers below this have no separators.
const SEPARATED_MIN: u64 = 10_000;

/// Appends an unsigned number in a base. Binary numbers are written in base 16.
pub(super) fn push_uint(out: &mut Vec<u8>, value: u64, base: DisplayBase) {
    match base {
        DisplayBase::Decimal if value < SEPARATED_MIN => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        DisplayBase::Decimal => push_separated(out, &value.to_string(), 3, b','),
        DisplayBase::Octal => {
            out.push(b'0');
            push_separated(out, &format!("{value:o}"), 3, b':');
        }
        DisplayBase::Binary | DisplayBase::Hexadecimal => {
            out.extend_from_slice(b"0x");
            push_separated(out, &format!("{value:x}"), 4, b':');
        }
    }
}

/// Appends a signed number: its sign, and its magnitude in a base.
pub(super) fn push_int(out: &mut Vec<u8>, value: i64, base: DisplayBase) {
    if value < 0 {
        out.push(b'-');
    }
    push_uint(out, value.unsigned_abs(), base);
}

/// Appends an unsigned decimal number.
pub(super) fn push_decimal(out: &mut Vec<u8>, value: u64) {
    push_uint(out, value, DisplayBase::Decimal);
}

/// Appends a number with six decimal places, as `%f` in C prints it.
pub(super) fn push_real(out: &mut Vec<u8>, value: f64) {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let magnitude = value.abs();
    let text = if value.is_nan() {
        format!("{sign}nan")
    } else if value.is_infinite() {
        format!("{sign}inf")
    } else {
        format!("{sign}{magnitude:.6}")
    };
    out.extend_from_slice(text.as_bytes());
}

fn push_separated(out: &mut Vec<u8>, digits: &str, group: usize, separator: u8) {
    for (index, digit) in digits.bytes().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(group) {
            out.push(separator);
        }
        out.push(digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: i64, base: DisplayBase, expected: &str) {
        let mut out = Vec::new();
        push_int(&mut out, value, base);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn digits_are_grouped() {
        check(0, DisplayBase::Decimal, "0");
        check(9_999, DisplayBase::Decimal, "9999");
        check(-9_999, DisplayBase::Decimal, "-9999");
        check(10_000, DisplayBase::Decimal, "10,000");
        check(-1_234_567, DisplayBase::Decimal, "-1,234,567");
        check(i64::MIN, DisplayBase::Decimal, "-9,223,372,036,854,775,808");
        check(0x7f, DisplayBase::Hexadecimal, "0x7f");
        check(0x12_3456, DisplayBase::Hexadecimal, "0x12:3456");
        check(5, DisplayBase::Binary, "0x5");
        check(0o1234, DisplayBase::Octal, "01:234");
        check(-8, DisplayBase::Octal, "-010");
    }

    #[test]
    fn reals_have_six_decimal_places() {
        for (value, expected) in [
            (0.0, "0.000000"),
            (-0.0, "-0.000000"),
            (1.5, "1.500000"),
            (1e20, "100000000000000000000.000000"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "-nan"),
        ] {
            let mut out = Vec::new();
            push_real(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
