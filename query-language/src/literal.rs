//! Spellings of numbers, durations and times.

/// Nanoseconds in each unit. `m` is a minute, as `min`.
const UNITS: [(&str, i128); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Whether `text` begins like `2026-11-21`.
pub(crate) fn begins_date(text: &str) -> bool {
    text.len() >= 10
        && text
            .bytes()
            .take(10)
            .enumerate()
            .all(|(index, byte)| match index {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
}

/// Nanoseconds since the epoch of an RFC 3339 time, or of a date alone at midnight UTC.
pub(crate) fn parse_time(text: &str) -> Result<i128, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time.as_nanosecond());
    }
    let midnight = format!("{text}T00:00:00Z");
    match midnight.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(time.as_nanosecond()),
        Err(_) if text.len() == 10 => Err("no such day".to_owned()),
        Err(_) => Err("no such time, or no Z or offset at its end".to_owned()),
    }
}

/// The number at the start of `text`: sign, digits, fraction, exponent.
pub(crate) fn number_prefix(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from.min(bytes.len())..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let mut length = usize::from(text.starts_with('-'));
    length += digits(length);
    if bytes.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    &text[..length]
}

/// Length of the duration at the start of `text` (`10ms`, `1h30m`), if one stands there.
pub(crate) fn duration_length(text: &str) -> Option<usize> {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let number = number_prefix(rest);
        let signed_part = length > 0 && rest.starts_with('-');
        match unit_at(&rest[number.len()..]) {
            Some((unit, _)) if !number.is_empty() && !signed_part => {
                length += number.len() + unit.len();
            }
            _ => return (length > 0).then_some(length),
        }
    }
}

/// Nanoseconds of a duration whose length [`duration_length`] told; `None` when it is out of range.
pub(crate) fn parse_duration(text: &str) -> Option<i128> {
    let negative = text.starts_with('-');
    let mut rest = text.trim_start_matches('-');
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number = number_prefix(rest);
        let (unit, nanos) = unit_at(&rest[number.len()..])?;
        total = total.checked_add(scale_decimal(number, nanos)?)?;
        rest = &rest[number.len() + unit.len()..];
    }
    Some(if negative { -total } else { total })
}

fn unit_at(text: &str) -> Option<(&'static str, i128)> {
    let word = text
        .find(|c: char| !c.is_alphabetic())
        .map_or(text, |end| &text[..end]);
    UNITS.into_iter().find(|(name, _)| *name == word)
}

/// `text` times `unit`, rounded to a whole number.
fn scale_decimal(text: &str, unit: i128) -> Option<i128> {
    if let Ok(whole) = text.parse::<i128>() {
        return whole.checked_mul(unit).filter(|nanos| in_range(*nanos));
    }
    let value: f64 = text.parse().ok()?;
    let nanos = value * unit as f64;
    (nanos.abs() < NANOS_MAX as f64).then_some(nanos.round() as i128)
}

/// Far beyond all 64-bit nanoseconds, far below the end of `i128`.
const NANOS_MAX: i128 = 1 << 100;

fn in_range(nanos: i128) -> bool {
    (-NANOS_MAX..=NANOS_MAX).contains(&nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("10ms", Some(10_000_000)),
            ("1.5us", Some(1_500)),
            ("0.3\u{b5}s", Some(300)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-2s", Some(-2_000_000_000)),
            ("1e3ns", Some(1_000)),
            ("2d", Some(172_800_000_000_000)),
            ("1e99d", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration_length(text), Some(text.len()), "{text}");
            assert_eq!(parse_duration(text), expected, "{text}");
        }
        for text in ["10", "10 ms", "10and", "10S", "ms", "10msx"] {
            assert_eq!(duration_length(text), None, "{text}");
        }
    }

    #[test]
    fn times() {
        let second = 1_000_000_000;
        let day = 1_795_219_200 * second;
        let cases = [
            ("2026-11-21", day),
            ("2026-11-21T00:00:00Z", day),
            ("2026-11-21T01:00:00+01:00", day),
            ("2026-11-21T00:00:01.000000001Z", day + second + 1),
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59Z", -second),
        ];
        for (text, expected) in cases {
            assert!(begins_date(text), "{text}");
            assert_eq!(parse_time(text), Ok(expected), "{text}");
        }
        for text in [
            "2026-13-01",
            "2026-02-30",
            "2026-11-21T00:00:00",
            "2026-11-21T25:00:00Z",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_end_where_their_spelling_ends() {
        let cases = [
            ("12 ", "12"),
            ("-1.5e-3,", "-1.5e-3"),
            ("5and", "5"),
            ("1.", "1."),
            ("3e", "3"),
            ("7ms", "7"),
            ("-", "-"),
        ];
        for (text, number) in cases {
            assert_eq!(number_prefix(text), number, "{text}");
        }
    }
}
