//! Time and random numbers: only this module gets them from the system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use uuid::Uuid;

/// The wall clock, ns since the epoch.
pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// The monotonic clock, which tests may pause.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// 32 hexadecimal digits that nobody had before.
pub(crate) fn nonce() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A pause between the half of `longest` and the whole, so that those who failed together do not
/// come back together.
pub(crate) fn jittered(longest: Duration) -> Duration {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    // The upper 16 bits of a UUID of version 4 are random.
    let share = u32::try_from(random >> 48).unwrap_or(0);
    let half = longest / 2;
    half + (half / 0x1_0000).saturating_mul(share)
}
