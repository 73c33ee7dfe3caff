use std::path::PathBuf;

use clap::Args;
use query_language::time::{Bound, parse_bound};
use serde_json::{Map, Value};

use super::CommandError;
use super::record::read_json;
use crate::clock::now_nanos;

/// Which events a copy takes, and what is done with them.
#[derive(Debug, Args)]
pub(super) struct CopiedEvents {
    /// Copy only packets that may contain events at or after TIME
    ///
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, a number since 1970 with the unit ns, us,
    /// ms or s, nanoseconds since 1970, seconds since 1970 with a fraction, or a duration before
    /// now (-1h, now-1h).
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    from: Option<Bound>,
    /// Copy only packets that may contain events before TIME
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    to: Option<Bound>,
    /// Copy only matching events
    #[arg(long, value_name = "EXPR")]
    query: Option<String>,
    /// JSON file with a chain of processors to apply
    #[arg(long, value_name = "FILE")]
    processors: Option<PathBuf>,
}

/// The number without a unit that is a time in microseconds, too, as DFTracer and Chrome have them.
fn two_readings(bound: Bound) -> Option<i64> {
    match bound {
        Bound::Bare(number) if number != 0 && number.checked_mul(1_000).is_some() => Some(number),
        _ => None,
    }
}

impl CopiedEvents {
    /// Adds them to a request for a copy.
    pub(super) fn add_to(self, request: &mut Map<String, Value>) -> Result<(), CommandError> {
        for (option, bound) in [("--from", self.from), ("--to", self.to)] {
            if let Some(number) = bound.and_then(two_readings) {
                return Err(CommandError::usage(format!(
                    "{option}: {number} has no unit, and there may be times in microseconds; write \
                     {number}us, {number}ns or a date"
                )));
            }
        }
        let now = now_nanos();
        let time = |bound: Bound| Value::from(bound.nanos(now));
        let processors = self.processors.map(|path| read_json(&path)).transpose()?;
        let members = [
            ("from", self.from.map(time)),
            ("to", self.to.map(time)),
            ("query", self.query.map(Value::from)),
            ("processors", processors),
        ];
        for (name, value) in members {
            request.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(())
    }
}
