//! Where the streams go on whose packets have positions, since the server started.

use std::collections::HashMap;
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

/// The next position of a stream; locked while a packet of the stream is handed out.
pub(crate) type SharedPosition = Arc<tokio::sync::Mutex<NextPosition>>;

/// The next positions of all streams.
#[derive(Debug, Default)]
pub(crate) struct NextPositions(Mutex<HashMap<(AgentId, StreamId), SharedPosition>>);

impl NextPositions {
    /// The next position of a stream.
    pub(crate) fn entry(&self, agent: &AgentId, stream: &StreamId) -> SharedPosition {
        let mut positions = self.0.lock();
        if positions.len() >= STREAMS_MAX {
            // A stream whose position is forgotten may go on with any position.
            positions.retain(|_, position| Arc::strong_count(position) > 1);
        }
        let key = (agent.clone(), stream.clone());
        Arc::clone(positions.entry(key).or_default())
    }

    /// The next position of a stream of which a packet has arrived.
    pub(crate) fn get(&self, agent: &AgentId, stream: &StreamId) -> Option<SharedPosition> {
        let key = (agent.clone(), stream.clone());
        self.0.lock().get(&key).cloned()
    }
}
