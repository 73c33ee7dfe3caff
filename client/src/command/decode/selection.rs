//! Which events are printed.

use ctf_folder::{OnFault, TimeWindow};
use query_language::time::{Time, TimeErrorKind};

use super::options::BabeltraceOptions;
use crate::command::CommandError;

/// Which events are printed and how, and whether damaged packets are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'o> {
    pub(super) from: Option<Time>,
    pub(super) to: Option<Time>,
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
        let is_of_day = |time: Option<Time>| matches!(time, Some(Time::TimeOfDay(_)));
        is_of_day(self.from) || is_of_day(self.to) || self.babeltrace.needs_begin()
    }

    /// The requested window; `begin` supplies the day for times of day.
    pub(super) fn window(&self, begin: Option<i64>) -> Result<TimeWindow, CommandError> {
        let resolve = |time: Option<Time>, option: &str| {
            let instant = time.map(|time| match (time, begin) {
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
        Ok(TimeWindow {
            from: resolve(self.from, "from")?.or(first),
            to: resolve(self.to, "to")?.or(after),
        })
    }
}
