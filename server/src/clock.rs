//! The wall clock and identifiers: the only module of this crate that reads the time of day.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use jiff::Timestamp;
use uuid::Uuid;

/// The last second of the year 9999, which is the last that a date of HTTP can say.
pub(crate) const LATEST_DATE: u64 = 253_402_300_799;

/// The time since 1970, and zero on a machine whose clock is before that.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time now, in ns since 1970, which does not follow a wall clock that jumps.
pub(crate) fn now_ns() -> i64 {
    storage_core::clock::now_ns()
}

/// The time now, for documents; as [`now_ns`].
pub(crate) fn now() -> Timestamp {
    Timestamp::from_nanosecond(now_ns().into()).unwrap_or(Timestamp::MAX)
}

thread_local! {
    static DATE: RefCell<(u64, HeaderValue)> = const {
        RefCell::new((u64::MAX, HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT")))
    };
}

/// The value of `Date`: what the wall clock shows, even if it was set back.
pub(crate) fn http_date() -> HeaderValue {
    let seconds = since_epoch().as_secs().min(LATEST_DATE);
    DATE.with_borrow_mut(|(shown, text)| {
        if *shown != seconds {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            if let Ok(date) = HeaderValue::try_from(date) {
                (*shown, *text) = (seconds, date);
            }
        }
        text.clone()
    })
}

/// A new identifier; later ones sort after earlier ones.
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
