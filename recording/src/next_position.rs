//! Where the streams go on whose packets have positions, since the server started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::StorageError;
use storage_format::{AgentId, Arrival, StorageId, StreamId, StreamPosition};

use crate::RecordingError;

/// Streams whose next position is remembered.
const STREAMS_MAX: usize = 65_536;

/// The next position of a stream.
#[derive(Debug, Default)]
pub(crate) struct NextPosition {
    /// `None` before the first packet since the server started.
    pub(crate) next: Option<StreamPosition>,
    /// The next positions in storages that had packets of the stream before the server started, as
    /// long as these may come again. `None` before the storages were queried.
    pub(crate) before_start: Option<Vec<(StorageId, StreamPosition)>>,
}

impl NextPosition {
    /// Whether the packet at `position` arrived since the server started; a gap is refused.
    pub(crate) fn is_duplicate(&self, position: StreamPosition) -> Result<bool, RecordingError> {
        let Some(next) = self.next else {
            return Ok(false);
        };
        let arrival = position.follows(next).map_err(StorageError::from)?;
        Ok(arrival == Arrival::Duplicate)
    }

    /// Whether the storages have to be queried for their positions before the server started.
    pub(crate) fn is_unknown(&self) -> bool {
        self.next.is_none() && self.before_start.is_none()
    }

    /// The storages that were past `position` when the server started.
    pub(crate) fn storages_past(&mut self, position: StreamPosition) -> Vec<StorageId> {
        let Some(before_start) = &mut self.before_start else {
            return Vec::new();
        };
        before_start.retain(|(_, next)| position < *next);
        before_start.iter().map(|(storage, _)| *storage).collect()
    }
}

/// Packets of a stream that are handed out, and whose agents have no receipt.
#[derive(Debug, Default)]
struct Unacknowledged {
    /// Those whose requests wait, and how often each does.
    waiting: BTreeMap<StreamPosition, u32>,
    /// Those whose requests ended without a receipt, from the first to behind the last.
    abandoned: Option<(StreamPosition, StreamPosition)>,
}

impl Unacknowledged {
    fn hand_out(&mut self, position: StreamPosition) {
        *self.waiting.entry(position).or_default() += 1;
    }

    fn end(&mut self, position: StreamPosition, is_acknowledged: bool) {
        if let Some(count) = self.waiting.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&position);
            }
        }
        let nothing = (position, position);
        let (from, until) = match self.abandoned.unwrap_or(nothing) {
            // The packets of an older epoch do not come again.
            (from, _) if from.epoch < position.epoch => nothing,
            (from, _) if from.epoch > position.epoch => return,
            abandoned => abandoned,
        };
        let (from, until) = match is_acknowledged {
            true if position == from => (position.next(), until),
            true => (from, until),
            false => (from.min(position), until.max(position.next())),
        };
        self.abandoned = (from < until).then_some((from, until));
    }

    fn first(&self, epoch: u64) -> Option<StreamPosition> {
        let abandoned = self.abandoned.map(|(from, _)| from);
        let all = self.waiting.keys().copied().chain(abandoned);
        all.filter(|position| position.epoch == epoch).min()
    }
}

/// A stream whose packets have positions.
#[derive(Debug, Default)]
pub(crate) struct PositionedStream {
    /// Locked while a packet of the stream is handed out.
    pub(crate) next: tokio::sync::Mutex<NextPosition>,
    unacknowledged: Mutex<Unacknowledged>,
}

impl PositionedStream {
    /// The position behind the packets that arrived since the server started, as far as their
    /// agents have receipts or can have them: of the others nobody knows whether they are durable.
    pub(crate) async fn acknowledged(&self) -> Option<StreamPosition> {
        let next = self.next.lock().await.next?;
        let first = self.unacknowledged.lock().first(next.epoch);
        Some(first.map_or(next, |first| first.min(next)))
    }
}

/// A packet without a receipt. When it is dropped before it is acknowledged, its agent is told to
/// send it again.
#[derive(Debug)]
pub struct HandedOut {
    stream: Arc<PositionedStream>,
    position: StreamPosition,
    is_acknowledged: bool,
}

impl HandedOut {
    pub(crate) fn new(stream: &Arc<PositionedStream>, position: StreamPosition) -> Self {
        stream.unacknowledged.lock().hand_out(position);
        Self {
            stream: Arc::clone(stream),
            position,
            is_acknowledged: false,
        }
    }

    /// Notes that the packet has its receipts.
    pub fn acknowledged(mut self) {
        self.is_acknowledged = true;
    }
}

impl Drop for HandedOut {
    fn drop(&mut self) {
        let mut unacknowledged = self.stream.unacknowledged.lock();
        unacknowledged.end(self.position, self.is_acknowledged);
    }
}

/// The next positions of all streams.
#[derive(Debug, Default)]
pub(crate) struct NextPositions(Mutex<HashMap<(AgentId, StreamId), Arc<PositionedStream>>>);

impl NextPositions {
    /// The next position of a stream.
    pub(crate) fn entry(&self, agent: &AgentId, stream: &StreamId) -> Arc<PositionedStream> {
        let mut positions = self.0.lock();
        if positions.len() >= STREAMS_MAX {
            // A stream whose position is forgotten may go on with any position.
            positions.retain(|_, position| Arc::strong_count(position) > 1);
        }
        let key = (agent.clone(), stream.clone());
        Arc::clone(positions.entry(key).or_default())
    }

    /// The next position of a stream of which a packet has arrived.
    pub(crate) fn get(&self, agent: &AgentId, stream: &StreamId) -> Option<Arc<PositionedStream>> {
        let key = (agent.clone(), stream.clone());
        self.0.lock().get(&key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first position that has no receipt after packets of epoch 1 were handed out, and ended
    /// as told: `(sequence, is_acknowledged)`.
    fn first_after(handed_out: &[u64], ended: &[(u64, bool)]) -> Option<u64> {
        let mut unacknowledged = Unacknowledged::default();
        for &sequence in handed_out {
            unacknowledged.hand_out(StreamPosition::new(1, sequence));
        }
        for &(sequence, is_acknowledged) in ended {
            unacknowledged.end(StreamPosition::new(1, sequence), is_acknowledged);
        }
        unacknowledged.first(1).map(|position| position.sequence)
    }

    #[test]
    fn the_first_packet_without_a_receipt_is_known() {
        type Case = (&'static [u64], &'static [(u64, bool)], Option<u64>);
        let cases: [Case; 8] = [
            (&[], &[], None),
            (&[4, 5, 6], &[], Some(4)),
            (&[4, 5, 6], &[(4, true), (6, true)], Some(5)),
            (&[4, 5, 6], &[(6, true), (4, true), (5, true)], None),
            // Its client hung up.
            (&[4, 5], &[(4, true), (5, false)], Some(5)),
            // It came again.
            (&[4, 5, 4, 5], &[(4, false), (5, false), (4, true)], Some(5)),
            (&[4, 4], &[(4, false), (4, true)], None),
            (&[4, 4], &[(4, true)], Some(4)),
        ];
        for (handed_out, ended, first) in cases {
            assert_eq!(
                first_after(handed_out, ended),
                first,
                "{handed_out:?} {ended:?}"
            );
        }
    }

    #[test]
    fn an_older_epoch_is_not_waited_for() {
        for is_acknowledged in [true, false] {
            let mut unacknowledged = Unacknowledged::default();
            unacknowledged.end(StreamPosition::new(1, 7), false);
            unacknowledged.end(StreamPosition::new(2, 0), is_acknowledged);
            // Of one that is older still, nothing is expected either.
            unacknowledged.end(StreamPosition::new(1, 9), false);
            let first = unacknowledged.first(2).map(|position| position.sequence);
            assert_eq!(first, (!is_acknowledged).then_some(0));
        }
    }
}
