//! Reservations of memory for packets in flight: parts of the engine's byte budget, acquired before
//! the bytes are read.

use std::time::Duration;

use storage_core::{ByteBudget, BytePermit, StorageError};
/// How long a request waits for its turn before it is refused.
pub(super) const ADMISSION_WAIT: Duration = Duration::from_secs(5);

/// Reservation for one packet or group of packets. It comes back when this is dropped.
pub(super) struct Reservation {
    budget: ByteBudget,
    first: BytePermit,
    /// What was taken on top, while a body of unknown length grew.
    more: Vec<BytePermit>,
}

impl Reservation {
    /// Reservation for `bytes`, if it is there and nobody waits for it.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when there is none now.
    pub(super) fn take_now(budget: &ByteBudget, bytes: u64) -> Result<Self, StorageError> {
        Ok(Self::of(budget, budget.try_acquire(bytes)?))
    }

    /// Reservation for `bytes` of a packet of `agent`, when its turn comes.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when it does not come in time.
    pub(super) async fn take(
        budget: &ByteBudget,
        agent: &str,
        bytes: u64,
    ) -> Result<Self, StorageError> {
        let first = budget.acquire(agent, bytes, ADMISSION_WAIT).await?;
        Ok(Self::of(budget, first))
    }

    fn of(budget: &ByteBudget, first: BytePermit) -> Self {
        Self {
            budget: budget.clone(),
            first,
            more: Vec::new(),
        }
    }

    /// Reservation for `bytes` on top.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        let more = self.budget.try_grow(bytes);
        self.more
            .push(more.inspect_err(|_| self.budget.count_refusal())?);
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
