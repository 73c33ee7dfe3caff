//! Plans the response to a request for the bytes of a resource, as a pure function: no file, no
//! clock, no network.
//!
//! Sources: RFC 9110 sections 13 (conditional requests), 14 (ranges) and 15.3.7 (206); the limits
//! against abuse follow section 17.15.

use http::header::RANGE;
use http::{HeaderMap, Method};

use super::conditions::{self, Preconditions, Validators};
use super::header::{ByteRange, RequestedRanges, requested};

/// A resource of at most this size is sent completely in response to an excessive request; a larger
/// one is not sent.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// The planned response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// 200 with all bytes.
    Full,
    /// 206 with one range.
    Part(ByteRange),
    /// 206 multipart, in this order; at least two ranges.
    Parts(Vec<ByteRange>),
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    NotSatisfiable,
}

/// Plans the response to `method` with `headers` for a resource of `length` bytes; `clock` is the
/// current time in seconds since the epoch.
pub(crate) fn plan(
    method: &Method,
    headers: &HeaderMap,
    length: u64,
    validators: &Validators<'_>,
    clock: u64,
) -> Plan {
    match conditions::evaluate(headers, validators) {
        Preconditions::Proceed => {}
        Preconditions::NotModified => return Plan::NotModified,
        Preconditions::Failed => return Plan::PreconditionFailed,
    }
    let mut values = headers.get_all(RANGE).iter();
    // Ranges apply to GET only, and the field must occur once.
    let (Some(value), None, true) = (values.next(), values.next(), method == Method::GET) else {
        return Plan::Full;
    };
    if !conditions::range_applies(headers, validators, clock) {
        return Plan::Full;
    }
    match requested(value.as_bytes(), length) {
        RequestedRanges::Ignored | RequestedRanges::Everything => Plan::Full,
        RequestedRanges::Unsatisfiable => Plan::NotSatisfiable,
        RequestedRanges::Excessive if length <= SMALL_BYTES_MAX => Plan::Full,
        RequestedRanges::Excessive => Plan::NotSatisfiable,
        RequestedRanges::Ranges(ranges) => match *ranges {
            [one] => Plan::Part(one),
            _ => Plan::Parts(ranges),
        },
    }
}

#[cfg(test)]
mod tests;
