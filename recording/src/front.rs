//! Where a stream is that has places of its own, since the server started.

use storage_core::StorageError;
use storage_format::{Arrival, StorageId, StreamPosition};

use crate::RecordingError;

/// Where a stream is.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The next position; not known before the first packet since the start.
    pub(crate) next: Option<StreamPosition>,
    /// Where the stream goes on in storages that had packets of it before the start, as long as
    /// some of these may come again; not asked yet when there is none.
    pub(crate) before: Option<Vec<(StorageId, StreamPosition)>>,
}

impl Front {
    /// Whether the packet at this position came since the start; a gap is refused.
    pub(crate) fn is_there(&self, position: StreamPosition) -> Result<bool, RecordingError> {
        let Some(next) = self.next else {
            return Ok(false);
        };
        let arrival = position.follows(next).map_err(StorageError::from)?;
        Ok(arrival == Arrival::Duplicate)
    }

    /// Whether nothing is known of what came before the start.
    pub(crate) fn is_unknown(&self) -> bool {
        self.next.is_none() && self.before.is_none()
    }

    /// The storages that were past this position when the server started.
    pub(crate) fn there_before(&mut self, position: StreamPosition) -> Vec<StorageId> {
        let Some(before) = &mut self.before else {
            return Vec::new();
        };
        before.retain(|(_, next)| position < *next);
        before.iter().map(|(storage, _)| *storage).collect()
    }
}
