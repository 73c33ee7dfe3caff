//! Pieces of a file that readers in order are waiting for: fetched once for all who want the same
//! piece at the same time.

use std::{collections::HashMap, ops::Range};

use futures_util::future::WeakShared;
use parking_lot::Mutex;

use super::window::{Arriving, Asked, Work};

/// By their first byte, with their end.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<HashMap<u64, (u64, WeakShared<Work>)>>);

impl Pieces {
    /// The piece, if somebody waits for it.
    pub(super) fn join(&self, range: &Range<u64>) -> Option<Asked> {
        let pieces = self.0.lock();
        let (_, arriving) = pieces
            .get(&range.start)
            .filter(|(end, _)| *end == range.end)?;
        Some(Asked {
            range: range.clone(),
            arriving: arriving.upgrade()?,
            is_of_another: true,
        })
    }

    /// Lets others join those who wait for a piece.
    pub(super) fn add(&self, range: &Range<u64>, arriving: &Arriving) {
        let mut pieces = self.0.lock();
        pieces.retain(|_, (_, arriving)| arriving.upgrade().is_some());
        if let Some(weak) = arriving.downgrade() {
            pieces.insert(range.start, (range.end, weak));
        }
    }
}
