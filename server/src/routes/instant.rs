//! Instants in requests and responses.

use query_language::time::{IntegerUnit, parse_instant};
use recording::{Instant, TimeRange};

use super::page::malformed;
use crate::problem::Problem;

/// Reads the instant in the parameter `name` of a URL: integer nanoseconds since the epoch, RFC
/// 3339, or another form of [`query_language::time`].
pub(super) fn parse(text: &str, name: &str) -> Result<i64, Problem> {
    let read = |text: &str| parse_instant(text, IntegerUnit::Nanoseconds);
    read(text).map_err(|error| {
        // A `+` in a query string is a space.
        let hint = match text.rsplit_once(' ') {
            Some((time, offset)) if read(&format!("{time}+{offset}")).is_ok() => {
                "; write + as %2B in a URL"
            }
            _ => "",
        };
        malformed(format!("{name}: {text:?}: {error}{hint}"))
    })
}

/// The range of the members `from` and `to` of a body.
pub(super) fn time_range(
    from: Option<&Instant>,
    to: Option<&Instant>,
) -> Result<TimeRange, Problem> {
    let range = recording::time_range(from, to).map_err(|error| malformed(error.to_string()))?;
    // The empty result would look like one of events that there are not.
    match range {
        (Some(from), Some(to)) if from > to => {
            Err(malformed("from is after to; exchange them".to_owned()))
        }
        range => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use recording::Instant;

    use super::{parse, time_range};

    #[test]
    fn a_range_does_not_end_before_it_begins() {
        let [one, two] = [1, 2].map(Instant::Nanos);
        assert!(time_range(Some(&two), Some(&one)).is_err());
        for (from, to) in [
            (Some(&one), Some(&one)),
            (Some(&one), Some(&two)),
            (None, Some(&one)),
        ] {
            assert!(time_range(from, to).is_ok());
        }
    }

    #[test]
    fn instants_are_integers_or_rfc_3339() {
        for (text, nanoseconds) in [
            ("1763690400000000001", Some(1_763_690_400_000_000_001)),
            ("-5", Some(-5)),
            ("2025-11-21", Some(1_763_683_200_000_000_000)),
            (
                "2025-11-21T03:00:00.000000001+01:00",
                Some(1_763_690_400_000_000_001),
            ),
            ("yesterday", None),
            ("12:30", None),
            ("", None),
            ("9999-12-31T00:00:00Z", None),
        ] {
            assert_eq!(parse(text, "from").ok(), nanoseconds, "{text}");
        }
        for (text, is_hinted) in [
            ("2025-11-21T03:00:00 01:00", true),
            ("2025-11-21 03:00 01:00", true),
            ("2025-11-31 03:00", false),
            ("now", false),
        ] {
            let detail = format!("{:?}", parse(text, "from").unwrap_err());
            assert_eq!(detail.contains("%2B"), is_hinted, "{detail}");
        }
    }
}
