//! The wall clock.

use std::time::SystemTime;

/// The time now.
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
