//! Intervals of time since 1970.

/// The interval of so many nanoseconds that contains a time.
pub(crate) fn interval_of(ts: i64, every: i64) -> i64 {
    let start = ts.div_euclid(every).checked_mul(every);
    // Only the first interval begins before the first time.
    start.unwrap_or(i64::MIN)
}
