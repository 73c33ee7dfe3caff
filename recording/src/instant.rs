//! Instants in requests, and in the configuration of processors.

use std::fmt;

use query_language::time::{IntegerUnit, parse_instant};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ConfigError;

/// An instant: nanoseconds since the epoch as a number, seconds as a number with a fraction, or any
/// text that [`query_language::time`] reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Instant {
    /// Nanoseconds since the epoch.
    Nanos(i64),
    /// A date, RFC 3339, or digits.
    Text(String),
}

/// Begin and end of a range of times.
pub type TimeRange = (Option<i64>, Option<i64>);

impl Instant {
    /// Nanoseconds since the epoch. `member` is the name of the instant, for the error.
    ///
    /// # Errors
    /// When the text is not a time.
    pub fn nanos(&self, member: &'static str) -> Result<i64, ConfigError> {
        match self {
            Instant::Nanos(nanos) => Ok(*nanos),
            Instant::Text(text) => parse_instant(text, IntegerUnit::Nanoseconds)
                .map_err(|error| ConfigError::new(member, format!("{text:?}: {error}"))),
        }
    }
}

/// The range of the members `from` and `to`.
///
/// # Errors
/// When one of them is not a time.
pub fn time_range(from: Option<&Instant>, to: Option<&Instant>) -> Result<TimeRange, ConfigError> {
    let from = from.map(|from| from.nanos("from")).transpose()?;
    let to = to.map(|to| to.nanos("to")).transpose()?;
    Ok((from, to))
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InstantVisitor)
    }
}

struct InstantVisitor;

impl Visitor<'_> for InstantVisitor {
    type Value = Instant;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "a time such as \"2026-11-21T01:00:00Z\" or \"2026-11-21\", or nanoseconds since 1970",
        )
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Instant, E> {
        Ok(Instant::Nanos(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Instant, E> {
        // A number beyond 64 bits with a sign is refused with the name of its member.
        Ok(i64::try_from(value).map_or_else(|_| Instant::Text(value.to_string()), Instant::Nanos))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Instant, E> {
        Ok(Instant::Text(if value.fract() == 0.0 {
            format!("{value:.1}")
        } else {
            value.to_string()
        }))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Instant, E> {
        Ok(Instant::Text(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Instant;

    #[test]
    fn numbers_and_texts_are_the_same_instants() {
        let check = |json: &str, expected: Result<i64, &[&str]>| {
            let found = serde_json::from_str::<Instant>(json)
                .map_err(|error| error.to_string())
                .and_then(|instant| instant.nanos("from").map_err(|error| error.to_string()));
            match expected {
                Ok(nanos) => assert_eq!(found, Ok(nanos), "{json}"),
                Err(parts) => {
                    let error = found.unwrap_err();
                    for part in parts {
                        assert!(error.contains(part), "{json}: {error} lacks {part:?}");
                    }
                    assert!(!error.contains("enum"), "{json}: {error}");
                }
            }
        };
        for json in ["1795226501.877", "\"1795226501.877\""] {
            check(json, Ok(1_795_226_501_877_000_000));
        }
        check("1795226501.0", Ok(1_795_226_501_000_000_000));
        check("1795226501877000000", Ok(1_795_226_501_877_000_000));
        check("-5", Ok(-5));
        check("\"1970-01-02\"", Ok(86_400_000_000_000));
        check("18446744073709551615", Err(&["from: ", "out of range"]));
        check("1e300", Err(&["from: "]));
        check("\"02:01\"", Err(&["from: ", "\"02:01\"", "date"]));
        for json in ["true", "null", "[]", "{}"] {
            check(
                json,
                Err(&["expected a time such as", "2026-11-21T01:00:00Z"]),
            );
        }
    }
}
