//! Times in microseconds with a fraction, as nanoseconds.

/// Digits that fit in an `i128` with room for a shift by three.
const DIGITS_MAX: usize = 34;
/// The largest exponent that is examined.
const EXPONENT_MAX: i32 = 64;

/// The nanoseconds of a decimal number of microseconds, rounded to the nearest as Perfetto
/// does. `None` if the text is not a decimal number or the value does not fit.
pub(super) fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut value, mut digits, mut shift) = (0_i128, 0_usize, 3_i32);
    let mut has_digit = false;
    let mut after_point = false;
    while let Some((byte, tail)) = rest.split_first() {
        match byte {
            b'0'..=b'9' => {
                has_digit = true;
                // Digits beyond the limit are parts of a nanosecond, or the value does not fit.
                if digits < DIGITS_MAX {
                    value = value * 10 + i128::from(byte - b'0');
                    digits += usize::from(value != 0);
                    shift -= i32::from(after_point);
                } else if !after_point {
                    shift = shift.checked_add(1)?;
                }
            }
            b'.' if !after_point && has_digit => after_point = true,
            b'e' | b'E' if has_digit => {
                let exponent: i32 = std::str::from_utf8(tail).ok()?.parse().ok()?;
                shift = shift.checked_add(exponent)?;
                rest = &[];
                break;
            }
            _ => return None,
        }
        rest = tail;
    }
    if !has_digit || !rest.is_empty() {
        return None;
    }
    while shift > 0 && value != 0 {
        value = value.checked_mul(10).filter(|_| shift <= EXPONENT_MAX)?;
        shift -= 1;
    }
    while shift < -1 && value != 0 {
        value /= 10;
        shift += 1;
    }
    if shift == -1 {
        value = (value + 5) / 10;
    }
    i64::try_from(if is_negative { -value } else { value }).ok()
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn microseconds_are_read_exactly() {
        let cases: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("-1.5", Some(-1_500)),
            ("123.456", Some(123_456)),
            ("123.4569", Some(123_457)),
            ("123.4564999999", Some(123_456)),
            ("123.4565", Some(123_457)),
            ("-1.0005", Some(-1_001)),
            ("0.00049", Some(0)),
            ("0.0000000000000000000000000000000000000000001", Some(0)),
            ("1763856000000000.123", Some(1_763_856_000_000_000_123)),
            ("1.5e3", Some(1_500_000)),
            ("15E-1", Some(1_500)),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("1e400", None),
            ("0e400", Some(0)),
            ("1e99999999999", None),
            ("100000000000000000000000000000000000000000", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("1.2.3", None),
            ("1e", None),
            ("abc", None),
            (" 1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(nanoseconds(text.as_bytes()), *expected, "{text}");
        }
    }
}
