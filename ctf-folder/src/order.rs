//! Times that go back within a stream, which CTF does not allow.

use std::path::Path;

use super::error::{FolderError, FolderFault};

/// Compares the time of each event of a stream with that of the event before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrderCheck {
    last: Option<i64>,
    first_step: Option<Step>,
    steps: u64,
}

/// The first event that is before the one before it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Index of the packet in the stream.
    packet: usize,
    before: i64,
    time: i64,
}

impl OrderCheck {
    /// Takes note of the next event, which is in the packet with this index.
    #[inline]
    pub(super) fn event(&mut self, packet: usize, time: Option<i64>) {
        let Some(time) = time else { return };
        if let Some(before) = self.last.replace(time)
            && time < before
        {
            self.steps += 1;
            self.first_step.get_or_insert(Step {
                packet,
                before,
                time,
            });
        }
    }

    /// What is wrong, if anything is; `packet` gives the path and offset of a packet.
    pub(super) fn fault<'p>(
        &self,
        packet: impl FnOnce(usize) -> Option<(&'p Path, u64)>,
    ) -> Option<FolderError> {
        let step = self.first_step?;
        let (path, offset) = packet(step.packet)?;
        let fault = FolderFault::Order {
            offset,
            before: step.before,
            time: step.time,
            count: self.steps,
        };
        Some(FolderError::new(path, fault))
    }
}
