//! Limits of the window of a query that were written as integers without a unit.

use std::collections::BTreeSet;

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
    /// [`ReadError::BareTime`], which gives all readings.
    pub fn check(
        self,
        (from, to): (Option<i64>, Option<i64>),
        units: impl Iterator<Item = BareUnit>,
    ) -> Result<(), ReadError> {
        let factors: BTreeSet<u32> = units
            .filter_map(|unit| match unit {
                BareUnit::Nanos(factor) => Some(factor),
                BareUnit::Mixed => None,
            })
            .collect();
        for (name, is_bare, limit) in [("from", self.from, from), ("to", self.to, to)] {
            // All units count from the same moment, so 0 is the same time in each.
            let Some(number) = limit.filter(|limit| is_bare && *limit != 0) else {
                continue;
            };
            let readings: Vec<(Unit, Option<i64>)> = factors
                .iter()
                .filter(|factor| **factor != 1)
                .map(|factor| (Unit::of(*factor), number.checked_mul(i64::from(*factor))))
                .collect();
            if factors.len() > 1 || readings.iter().any(|(_, nanos)| nanos.is_some()) {
                return Err(refusal(name, number, &factors, &readings));
            }
        }
        Ok(())
    }
}

/// A unit in words.
struct Unit {
    name: &'static str,
    suffix: &'static str,
}

impl Unit {
    fn of(factor: u32) -> Unit {
        let (name, suffix) = match factor {
            1 => ("nanoseconds", "ns"),
            1_000 => ("microseconds", "us"),
            1_000_000 => ("milliseconds", "ms"),
            _ => ("seconds", "s"),
        };
        Unit { name, suffix }
    }
}

fn refusal(
    name: &'static str,
    number: i64,
    factors: &BTreeSet<u32>,
    readings: &[(Unit, Option<i64>)],
) -> ReadError {
    let units: Vec<&str> = (factors.iter().rev())
        .map(|factor| Unit::of(*factor).name)
        .collect();
    let traces = match units.as_slice() {
        [unit] => format!("the traces have times in {unit}"),
        [first, others @ ..] => {
            let others = others.iter().map(|unit| format!("others in {unit}"));
            let others: Vec<String> = others.collect();
            format!(
                "some of the traces have times in {first} and {}",
                others.join(" and ")
            )
        }
        [] => String::new(),
    };
    let mut written = format!("{number}ns");
    let mut read = format!("as nanoseconds since 1970 it is {}", rfc3339(number));
    for (Unit { name, suffix }, nanos) in readings {
        let time = nanos.map_or_else(|| "after the year 2262".to_owned(), rfc3339);
        read.push_str(&format!(", as {name} {time}"));
        if nanos.is_some() {
            written.push_str(&format!(", {number}{suffix}"));
        }
    }
    ReadError::BareTime {
        name,
        number,
        why: format!("{traces}: {read}; write {written}, or a date"),
    }
}

#[cfg(test)]
mod tests {
    use super::{BareTimes, BareUnit};

    const NANOS: BareUnit = BareUnit::NANOS;
    const MICROS: BareUnit = BareUnit::MICROS;
    const MILLIS: BareUnit = BareUnit::Nanos(1_000_000);
    const MIXED: BareUnit = BareUnit::Mixed;

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
        let two = "to: 1795222800000 has no unit, and some of the traces have times in milliseconds \
                   and others in microseconds: as nanoseconds since 1970 it is \
                   1970-01-01T00:29:55.2228Z, as microseconds 1970-01-21T18:40:22.8Z, as \
                   milliseconds 2026-11-21T01:00:00Z; write 1795222800000ns, 1795222800000us, \
                   1795222800000ms, or a date";
        let three = two.replace(
            "others in microseconds",
            "others in microseconds and others in nanoseconds",
        );
        let three = three.as_str();
        check(1_795_222_800_000_000, &[MICROS, MICROS], Some(both));
        check(1_795_222_800_000_000_000, &[NANOS, MICROS], Some(mixed));
        check(
            1_795_222_800_000_000_000,
            &[MIXED, MICROS, NANOS],
            Some(mixed),
        );
        check(1_795_222_800_000, &[MILLIS, MICROS], Some(two));
        check(1_795_222_800_000, &[NANOS, MILLIS, MICROS], Some(three));
        // Microseconds cannot be meant.
        check(1_795_222_800_000_000_000, &[MICROS], None);
        check(1_795_222_800_000_000, &[NANOS, NANOS], None);
        check(0, &[NANOS, MICROS], None);
        check(5, &[], None);
    }
}
