//! Where the scrub is.

use std::{fmt::Write as _, time::Duration};

use storage_format::StorageId;

/// Where the scrub is, as it is remembered in the data folder: a line for each value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScrubPosition {
    /// When the pass began, ns since the epoch.
    begun: Option<i64>,
    /// The last storage that was read in this pass; storages are read in the order of their ids.
    pub(super) after: Option<StorageId>,
    /// When the last pass ended, ns since the epoch; `None` while there was none.
    finished: Option<i64>,
    /// Bytes that were read in this pass.
    pub(super) bytes: u64,
    /// Damaged places that were found in this pass.
    pub(super) places: u64,
    /// Whether the pass has ended.
    is_over: bool,
}

impl ScrubPosition {
    /// Begins a pass, or continues the one that a restart interrupted.
    pub(super) fn begin(&mut self, now: i64) {
        if self.is_over || self.begun.is_none() {
            *self = Self {
                begun: Some(now),
                finished: self.finished,
                ..Self::default()
            };
        }
    }

    /// Ends a pass.
    pub(super) fn finish(&mut self, now: i64) {
        self.is_over = true;
        self.finished = Some(now);
        self.after = None;
    }

    /// How long the next pass has to wait, so that passes begin at this interval at least. With a
    /// clock that was set back it begins at once.
    pub(super) fn wait(&self, now: i64, interval: Duration) -> Option<Duration> {
        let begun = self.begun.filter(|_| self.is_over)?;
        let since = u64::try_from(now.saturating_sub(begun)).ok()?;
        let left = interval.saturating_sub(Duration::from_nanos(since));
        (!left.is_zero()).then_some(left)
    }

    /// When the last pass ended, seconds since the epoch; 0 while there was none.
    pub(super) fn finished_seconds(&self) -> u64 {
        let finished = self.finished.unwrap_or(0);
        u64::try_from(finished).unwrap_or(0) / 1_000_000_000
    }

    /// The lines of the document.
    pub(super) fn encode(&self) -> String {
        let mut text = String::from("tracehold scrub 1\n");
        // Writing to memory does not fail.
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} {value}");
            }
        };
        line("begun", self.begun.map(|at| at.to_string()));
        line("after", self.after.map(|id| id.to_string()));
        line("finished", self.finished.map(|at| at.to_string()));
        line("bytes", Some(self.bytes.to_string()));
        line("places", Some(self.places.to_string()));
        line("over", self.is_over.then(|| "1".to_owned()));
        text
    }

    /// Reads a document; without one that can be read, the scrub begins.
    pub(super) fn decode(document: &[u8]) -> Self {
        let mut position = Self::default();
        let lines = str::from_utf8(document).unwrap_or_default().lines();
        for (name, value) in lines.filter_map(|line| line.split_once(' ')) {
            match name {
                "begun" => position.begun = value.parse().ok(),
                "after" => position.after = value.parse().ok(),
                "finished" => position.finished = value.parse().ok(),
                "bytes" => position.bytes = value.parse().unwrap_or(0),
                "places" => position.places = value.parse().unwrap_or(0),
                "over" => position.is_over = value == "1",
                _ => {}
            }
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_remembered_and_passes_have_an_interval() {
        let day = Duration::from_secs(86_400);
        let second = 1_000_000_000;
        let mut position = ScrubPosition::decode(b"\xff damaged");
        assert_eq!(position, ScrubPosition::default());
        assert_eq!(position.wait(0, day), None);
        position.begin(100 * second);
        position.after = Some(StorageId::new(7, [7; 10]));
        (position.bytes, position.places) = (70, 2);
        assert_eq!(
            ScrubPosition::decode(position.encode().as_bytes()),
            position
        );
        // A pass that was interrupted continues at once.
        assert_eq!(position.wait(101 * second, day), None);
        let before = position;
        position.begin(102 * second);
        assert_eq!(position, before);
        position.finish(200 * second);
        assert_eq!(
            ScrubPosition::decode(position.encode().as_bytes()),
            position
        );
        assert_eq!(position.finished_seconds(), 200);
        assert_eq!(
            position.wait(300 * second, day),
            Some(Duration::from_secs(86_200))
        );
        assert_eq!(position.wait(0, day), None);
        assert_eq!(position.wait((100 + 86_400) * second, day), None);
        position.begin(90_000 * second);
        assert_eq!(
            (position.after, position.bytes, position.places),
            (None, 0, 0)
        );
        assert_eq!(position.finished_seconds(), 200);
    }
}
