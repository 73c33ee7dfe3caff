//! Limits of the window of a query that were written as integers without a unit.

use query_language::BareUnit;
use query_language::time::rfc3339;

use crate::ReadError;

/// Which limits of the window people wrote as integers without a unit. They are nanoseconds, but
/// may have been meant in the unit of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BareTimes {
    /// The first time of the window.
    pub from: bool,
    /// The end of the window.
    pub to: bool,
}

impl BareTimes {
    /// Refuses a limit that could as well be a time in the unit of a source, or whose sources have
    /// different units.
    ///
    /// # Errors
    ///
    /// [`ReadError::BareTime`], which gives both readings.
    pub(crate) fn check(
        self,
        (from, to): (Option<i64>, Option<i64>),
        units: impl Iterator<Item = BareUnit> + Clone,
    ) -> Result<(), ReadError> {
        let mixed = units.clone().reduce(BareUnit::and) == Some(BareUnit::Mixed);
        let other = units.into_iter().find(|unit| *unit != BareUnit::NANOS);
        let BareUnit::Nanos(factor) = other.unwrap_or(BareUnit::NANOS) else {
            return Ok(());
        };
        for (name, is_bare, limit) in [("from", self.from, from), ("to", self.to, to)] {
            // All units count from the same moment.
            let Some(number) = limit.filter(|limit| is_bare && *limit != 0) else {
                continue;
            };
            let scaled = number.checked_mul(i64::from(factor));
            if factor != 1 && (mixed || scaled.is_some()) {
                return Err(refusal(name, number, factor, scaled, mixed));
            }
        }
        Ok(())
    }
}

fn refusal(
    name: &'static str,
    number: i64,
    factor: u32,
    scaled: Option<i64>,
    mixed: bool,
) -> ReadError {
    let (unit, suffix) = match factor {
        1_000 => ("microseconds", "us"),
        1_000_000 => ("milliseconds", "ms"),
        _ => ("seconds", "s"),
    };
    let traces = if mixed {
        format!("some of the traces have times in {unit} and others in nanoseconds")
    } else {
        format!("the traces have times in {unit}")
    };
    let (reading, written) = match scaled {
        Some(nanos) => (rfc3339(nanos), format!("{number}{suffix}, ")),
        None => ("after the year 2262".to_owned(), String::new()),
    };
    ReadError::BareTime {
        name,
        number,
        why: format!(
            "{traces}: as nanoseconds since 1970 it is {}, as {unit} {reading}; write \
             {number}ns, {written}or a date",
            rfc3339(number),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{BareTimes, BareUnit};

    const NANOS: BareUnit = BareUnit::NANOS;
    const MICROS: BareUnit = BareUnit::MICROS;

    #[test]
    fn a_bare_limit_with_two_readings_is_refused() {
        let check = |number: i64, units: &[BareUnit], expected: Option<&str>| {
            let limits = (None, Some(number));
            let bare = BareTimes {
                from: true,
                to: true,
            };
            let found = bare.check(limits, units.iter().copied()).err();
            let found = found.map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{number} {units:?}");
            let none = BareTimes::default().check(limits, units.iter().copied());
            assert!(none.is_ok(), "{number} {units:?}");
        };
        let both = "to: 1795222800000000 has no unit, and the traces have times in microseconds: as \
                    nanoseconds since 1970 it is 1970-01-21T18:40:22.8Z, as microseconds \
                    2026-11-21T01:00:00Z; write 1795222800000000ns, 1795222800000000us, or a date";
        let mixed = "to: 1795222800000000000 has no unit, and some of the traces have times in \
                     microseconds and others in nanoseconds: as nanoseconds since 1970 it is \
                     2026-11-21T01:00:00Z, as microseconds after the year 2262; write \
                     1795222800000000000ns, or a date";
        check(1_795_222_800_000_000, &[MICROS, MICROS], Some(both));
        check(1_795_222_800_000_000_000, &[NANOS, MICROS], Some(mixed));
        // Microseconds cannot be meant.
        check(1_795_222_800_000_000_000, &[MICROS], None);
        check(1_795_222_800_000_000, &[NANOS, NANOS], None);
        check(0, &[NANOS, MICROS], None);
        check(5, &[], None);
    }
}
