//! The wall clock and identifiers: the only module of this crate that reads the time of day.

use jiff::Timestamp;
use uuid::Uuid;

/// The time now.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Nanoseconds since 1970-01-01 UTC.
pub(crate) fn now_nanos() -> i64 {
    i64::try_from(now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// A new identifier; later ones sort after earlier ones.
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
