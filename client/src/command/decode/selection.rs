//! Which events are printed.

use ctf_folder::{OnFault, TimeWindow};
use query_engine::BareTimes;
use query_language::time::{Time, TimeErrorKind};

use super::options::BabeltraceOptions;
use crate::command::CommandError;

/// A limit of the window as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) time: Time,
    /// Whether it was an integer without a unit.
    pub(super) is_bare: bool,
}

/// Which events are printed and how, and whether damaged packets are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'o> {
    pub(super) from: Option<Limit>,
    pub(super) to: Option<Limit>,
    pub(super) salvage: bool,
    pub(super) babeltrace: &'o BabeltraceOptions,
}

impl Selection<'_> {
    /// What to do with damaged packets.
    pub(super) fn on_fault(&self) -> OnFault {
        if self.salvage {
            OnFault::Skip
        } else {
            OnFault::Stop
        }
    }

    /// Whether events are selected by time.
    pub(super) fn has_times(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.babeltrace.has_times()
    }

    /// Whether a time of day needs the day on which the trace begins.
    pub(super) fn needs_begin(&self) -> bool {
        let is_of_day = |limit: Option<Limit>| {
            limit.is_some_and(|limit| matches!(limit.time, Time::TimeOfDay(_)))
        };
        is_of_day(self.from) || is_of_day(self.to) || self.babeltrace.needs_begin()
    }

    /// Which limits are integers without a unit.
    pub(super) fn bare_times(&self) -> BareTimes {
        let is_bare = |limit: Option<Limit>| limit.is_some_and(|limit| limit.is_bare);
        BareTimes {
            from: is_bare(self.from),
            to: is_bare(self.to),
        }
    }

    /// The requested window; `begin` supplies the day for times of day.
    pub(super) fn window(&self, begin: Option<i64>) -> Result<TimeWindow, CommandError> {
        let resolve = |limit: Option<Limit>, option: &str| {
            let instant = limit.map(|limit| match (limit.time, begin) {
                (Time::Instant(instant), _) => Ok(instant),
                (time @ Time::TimeOfDay(_), Some(begin)) => time.on_day_of(begin),
                (Time::TimeOfDay(_), None) => Err(TimeErrorKind::NoDate),
            });
            let instant = instant.transpose();
            instant.map_err(|error| CommandError::usage(format!("--{option}: {error}")))
        };
        let (first, last) = self.babeltrace.window(begin).map_err(|error| {
            CommandError::usage(format!("--begin, --end or --timerange: {error}"))
        })?;
        // Nothing is after the last instant.
        let after = last.and_then(|last| last.checked_add(1));
        let window = TimeWindow {
            from: resolve(self.from, "from")?.or(first),
            to: resolve(self.to, "to")?.or(after),
        };
        let is_reversed = first.zip(last).is_some_and(|(first, last)| first > last)
            || window
                .from
                .zip(window.to)
                .is_some_and(|(from, to)| from > to);
        if is_reversed {
            let what = "the window begins after its end; exchange the two times";
            return Err(CommandError::usage(what));
        }
        Ok(window)
    }
}
