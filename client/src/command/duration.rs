//! Durations among arguments.

use query_language::time::parse_duration;

const SECOND_NS: u64 = 1_000_000_000;

/// Whole seconds of a duration.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let nanoseconds = parse_duration(text).map_err(|error| error.to_string())?;
    match u64::try_from(nanoseconds).map(|nanoseconds| nanoseconds / SECOND_NS) {
        Ok(seconds @ 1..) => Ok(seconds),
        _ => Err("expected at least 1s".to_owned()),
    }
}
