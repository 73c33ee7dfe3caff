//! The deadline of a call.

use std::time::Duration;

use http::HeaderMap;

/// The field is not a number of at most eight digits and a unit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimeoutMalformed;

/// How long the caller waits, if it says so.
pub(crate) fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, TimeoutMalformed> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| TimeoutMalformed)?;
    let (digits, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or(TimeoutMalformed)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number {
        return Err(TimeoutMalformed);
    }
    let count: u64 = digits.parse().map_err(|_| TimeoutMalformed)?;
    let timeout = match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return Err(TimeoutMalformed),
    };
    Ok(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_or_refused() {
        for (text, wanted) in [
            ("10S", Ok(Duration::from_secs(10))),
            ("99999999H", Ok(Duration::from_secs(99_999_999 * 3600))),
            ("2M", Ok(Duration::from_secs(120))),
            ("250m", Ok(Duration::from_millis(250))),
            ("7u", Ok(Duration::from_micros(7))),
            ("0n", Ok(Duration::ZERO)),
            ("", Err(TimeoutMalformed)),
            ("S", Err(TimeoutMalformed)),
            ("100000000S", Err(TimeoutMalformed)),
            ("1s", Err(TimeoutMalformed)),
            ("-1S", Err(TimeoutMalformed)),
            ("1.5S", Err(TimeoutMalformed)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout_of(&headers), wanted.map(Some), "{text}");
        }
        assert_eq!(timeout_of(&HeaderMap::new()), Ok(None));
    }
}
