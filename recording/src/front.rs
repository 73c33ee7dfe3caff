//! Where a stream is that has places of its own, since the server started.

use storage_core::StorageError;
use storage_format::StorageId;

use crate::RecordingError;

/// Where a stream is.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// Epoch and sequence that come next; not known before the first packet since the start.
    pub(crate) next: Option<(u64, u64)>,
    /// Where the stream goes on in storages that had packets of it before the start, as long as
    /// some of these may come again; not asked yet when there is none.
    pub(crate) before: Option<Vec<(StorageId, (u64, u64))>>,
}

impl Front {
    /// Whether the packet with this place came since the start; a gap is refused.
    pub(crate) fn is_there(&self, (epoch, found): (u64, u64)) -> Result<bool, RecordingError> {
        let Some((current, next)) = self.next else {
            return Ok(false);
        };
        if epoch < current {
            return Err(StorageError::EpochStale {
                current,
                found: epoch,
            }
            .into());
        }
        let expected = if epoch == current { next } else { 0 };
        match found.cmp(&expected) {
            std::cmp::Ordering::Less => Ok(true),
            std::cmp::Ordering::Equal => Ok(false),
            std::cmp::Ordering::Greater => Err(StorageError::SequenceGap {
                epoch,
                expected,
                found,
            }
            .into()),
        }
    }

    /// Whether nothing is known of what came before the start.
    pub(crate) fn is_unknown(&self) -> bool {
        self.next.is_none() && self.before.is_none()
    }

    /// The storages that were beyond this place when the server started.
    pub(crate) fn there_before(&mut self, place: (u64, u64)) -> Vec<StorageId> {
        let Some(before) = &mut self.before else {
            return Vec::new();
        };
        before.retain(|(_, next)| place < *next);
        before.iter().map(|(storage, _)| *storage).collect()
    }
}
