//! The wall clock and random numbers: only this module gets them from the system.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Now, in ns since the epoch; arrivals are measured with it.
#[must_use]
pub fn now_ns() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Eight random bytes.
pub(crate) fn random_u64() -> u64 {
    // The version and variant bits of a UUID are in its middle; fold them away.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high.rotate_left(32) ^ low
}

/// Ten random bytes for a storage id.
pub(crate) fn random_10() -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&random_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&random_u64().to_le_bytes()[..2]);
    bytes
}
