//! Room in memory for packets that are on their way: parts of the engine's budget, taken before the
//! bytes are.

use std::time::Duration;

use storage_core::{ByteBudget, BytePermit, StorageError};
use tokio::time::{Instant, sleep};

/// First pause before room is asked for again, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Room for one packet or group of packets. It comes back when this is dropped.
pub(super) struct Room {
    budget: ByteBudget,
    first: BytePermit,
    /// What was taken on top, while a body of unknown length grew.
    more: Vec<BytePermit>,
}

impl Room {
    /// Room for `bytes`.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when there is none now.
    pub(super) fn take(budget: &ByteBudget, bytes: u64) -> Result<Self, StorageError> {
        let first = budget.try_acquire(bytes)?;
        Ok(Self {
            budget: budget.clone(),
            first,
            more: Vec::new(),
        })
    }

    /// Room for `bytes`, asked for again and again until `limit` has passed.
    pub(super) async fn take_within(
        budget: &ByteBudget,
        bytes: u64,
        limit: Duration,
    ) -> Result<Self, StorageError> {
        let deadline = Instant::now() + limit;
        let mut pause = PAUSE_MIN;
        loop {
            match Self::take(budget, bytes) {
                Err(StorageError::Busy { .. }) if Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                taken => return taken,
            }
        }
    }

    /// Room for `bytes` on top.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.more.push(self.budget.try_acquire(bytes)?);
        Ok(())
    }

    /// Bytes that `split` can still give.
    pub(super) fn left(&self) -> u64 {
        self.first.bytes()
    }

    /// Cuts room for a group of `bytes` off, to be handed to the engine.
    pub(super) fn split(&mut self, bytes: u64) -> BytePermit {
        self.first.split(bytes)
    }

    /// The permit to hand to the engine with a single packet, and what has to be held besides until
    /// it is answered.
    pub(super) fn into_permit(self) -> (BytePermit, Vec<BytePermit>) {
        (self.first, self.more)
    }
}
