//! The wall clock and identifiers: the only module of this crate that reads the time of day.

use jiff::Timestamp;
use uuid::Uuid;

/// The time now.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A new identifier; later ones sort after earlier ones.
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
