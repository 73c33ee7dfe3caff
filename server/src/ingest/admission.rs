//! Reservations of memory for packets in flight: parts of the engine's byte budget, acquired before
//! the bytes are read.

use std::time::Duration;

use storage_core::{ByteBudget, BytePermit, Holder, StorageError, packet_charge};

/// Whether memory is not available now, and may be later.
pub(super) fn is_busy(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::Busy { .. } | StorageError::ShareUsed { .. }
    )
}

/// How long a request waits for admission before it is refused.
pub(super) const ADMISSION_WAIT: Duration = Duration::from_secs(5);

/// Memory for one packet or group of packets; dropping it returns the memory.
pub(super) struct Reservation {
    budget: ByteBudget,
    permit: BytePermit,
    /// For what a single packet needs in addition to its payload.
    bookkeeping: BytePermit,
}

impl Reservation {
    /// Reserves `bytes` for packets of `holder` if they are free and no request waits for them.
    ///
    /// # Errors
    /// As [`ByteBudget::try_acquire_for`] when they are not available now; see [`is_busy`].
    pub(super) fn try_new(
        budget: &ByteBudget,
        holder: Holder<'_>,
        bytes: u64,
    ) -> Result<Self, StorageError> {
        Ok(Self::of(budget, budget.try_acquire_for(holder, bytes)?))
    }

    /// Reserves `bytes` for packets of `holder`, waiting for its turn.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when the turn does not come in time.
    pub(super) async fn wait_for(
        budget: &ByteBudget,
        holder: Holder<'_>,
        bytes: u64,
    ) -> Result<Self, StorageError> {
        let first = budget.acquire(holder, bytes, ADMISSION_WAIT).await?;
        Ok(Self::of(budget, first))
    }

    /// Reserves memory for a packet of `holder` of which `bytes` are expected, waiting for its
    /// turn.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when the turn does not come in time.
    pub(super) async fn wait_for_packet(
        budget: &ByteBudget,
        holder: Holder<'_>,
        bytes: u64,
    ) -> Result<Self, StorageError> {
        let mut reservation = Self::wait_for(budget, holder, packet_charge(bytes)).await?;
        reservation.bookkeeping = reservation.split(packet_charge(0));
        Ok(reservation)
    }

    fn of(budget: &ByteBudget, permit: BytePermit) -> Self {
        Self {
            budget: budget.clone(),
            permit,
            bookkeeping: budget.nothing(),
        }
    }

    /// Reserves `bytes` in addition.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        let grown = self.try_grow(bytes);
        grown.inspect_err(|_| self.budget.count_refusal())
    }

    /// As [`Self::grow`], for a request that goes on without them.
    pub(super) fn try_grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        let own = self.permit.bytes() + self.bookkeeping.bytes();
        self.permit.try_grow(bytes, own)
    }

    /// Reserves `bytes` in all for the first bytes of a packet, waiting for the turn of `holder` as
    /// a new request would: it keeps nothing meanwhile that others could wait for.
    pub(super) async fn ensure(
        &mut self,
        holder: Holder<'_>,
        bytes: u64,
    ) -> Result<(), StorageError> {
        let lacking = bytes.saturating_sub(self.left());
        if lacking == 0 || self.try_grow(lacking).is_ok() {
            return Ok(());
        }
        self.permit = self.budget.nothing();
        self.bookkeeping = self.budget.nothing();
        *self = Self::wait_for_packet(&self.budget, holder, bytes).await?;
        Ok(())
    }

    /// Returns what is reserved beyond `bytes`.
    pub(super) fn keep(&mut self, bytes: u64) {
        let kept = self.permit.split(bytes);
        self.permit = kept;
    }

    /// Bytes that `split` can still return.
    pub(super) fn left(&self) -> u64 {
        self.permit.bytes()
    }

    /// Splits off `bytes` for a group of packets that is passed to the engine.
    pub(super) fn split(&mut self, bytes: u64) -> BytePermit {
        self.permit.split(bytes)
    }

    /// The permit for everything that is reserved.
    pub(super) fn into_permit(mut self) -> BytePermit {
        self.permit.merge(self.bookkeeping);
        self.permit
    }

    /// The permit of a packet of `bytes`; what was reserved beyond is returned.
    pub(super) fn into_packet_permit(mut self, bytes: usize) -> BytePermit {
        let mut permit = self.permit.split(bytes as u64);
        permit.merge(self.bookkeeping);
        permit
    }
}
