//! Instants in requests and answers.

use jiff::Timestamp;

/// Nanoseconds since the epoch as RFC 3339 text; none beyond the years that text can hold.
pub(super) fn rfc3339(nanoseconds: i64) -> Option<String> {
    Timestamp::from_nanosecond(i128::from(nanoseconds))
        .ok()
        .map(|instant| instant.to_string())
}

/// Reads an instant: integer nanoseconds since the epoch, or RFC 3339.
pub(super) fn parse(text: &str) -> Option<i64> {
    if let Ok(nanoseconds) = text.parse() {
        return Some(nanoseconds);
    }
    let instant: Timestamp = text.parse().ok()?;
    i64::try_from(instant.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::{parse, rfc3339};

    #[test]
    fn instants_are_numbers_or_rfc_3339() {
        for (text, nanoseconds) in [
            ("1763690400000000001", Some(1_763_690_400_000_000_001)),
            ("-5", Some(-5)),
            (
                "2025-11-21T02:00:00.000000001Z",
                Some(1_763_690_400_000_000_001),
            ),
            (
                "2025-11-21T03:00:00.000000001+01:00",
                Some(1_763_690_400_000_000_001),
            ),
            ("yesterday", None),
            ("", None),
            ("9999-12-31T00:00:00Z", None),
        ] {
            assert_eq!(parse(text), nanoseconds, "{text}");
        }
        assert_eq!(
            rfc3339(1_763_690_400_000_000_001).unwrap(),
            "2025-11-21T02:00:00.000000001Z"
        );
    }
}
