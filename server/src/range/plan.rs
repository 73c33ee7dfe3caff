//! Plans the response to a request for the bytes of a resource, as a pure function: no file, no
//! clock, no network.
//!
//! Sources: RFC 9110 sections 13 (conditional requests), 14 (ranges) and 15.3.7 (206); the limits
//! against abuse follow section 17.15.

use http::header::RANGE;
use http::{HeaderMap, Method};

use super::conditions::{self, Validators, Verdict};
use super::header::{Asked, ByteRange, asked};

/// A resource of at most this size is sent completely in response to an excessive request; a larger
/// one is not sent.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// The planned response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// 200 with all bytes.
    Whole,
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
    match conditions::verdict(headers, validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Plan::NotModified,
        Verdict::Failed => return Plan::PreconditionFailed,
    }
    let mut values = headers.get_all(RANGE).iter();
    // Ranges apply to GET only, and the field must occur once.
    let (Some(value), None, true) = (values.next(), values.next(), method == Method::GET) else {
        return Plan::Whole;
    };
    if !conditions::range_counts(headers, validators, clock) {
        return Plan::Whole;
    }
    match asked(value.as_bytes(), length) {
        Asked::Nothing | Asked::Everything => Plan::Whole,
        Asked::Unsatisfiable => Plan::NotSatisfiable,
        Asked::Abuse if length <= SMALL_BYTES_MAX => Plan::Whole,
        Asked::Abuse => Plan::NotSatisfiable,
        Asked::Ranges(ranges) => match *ranges {
            [one] => Plan::Part(one),
            _ => Plan::Parts(ranges),
        },
    }
}

#[cfg(test)]
mod tests;
