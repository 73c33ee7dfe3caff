//! The wall clock and identifiers: the only module of this crate that reads the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use uuid::Uuid;

/// The time since 1970, and zero on a machine whose clock is before that.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time now, in ns since 1970.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// The time now, for documents.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A new identifier; later ones sort after earlier ones.
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
