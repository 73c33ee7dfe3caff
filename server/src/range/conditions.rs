//! Conditional requests (RFC 9110 section 13): comparison of entity tags and dates with the current
//! state of the resource.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderMap, HeaderValue};

use crate::clock::LATEST_DATE;

/// What distinguishes the versions of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validators<'a> {
    /// A strong entity tag, with quotes.
    pub(crate) etag: &'a [u8],
    /// Time of the last change, in seconds since the epoch.
    pub(crate) modified: Option<u64>,
}

/// The result of evaluating the preconditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Preconditions {
    /// Continue with `Range`.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Evaluates all preconditions except `If-Range`, in the order of RFC 9110 section 13.2.2, for GET
/// and HEAD.
pub(super) fn evaluate(headers: &HeaderMap, now: &Validators<'_>) -> Preconditions {
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, IF_MATCH, |tag| tag == b"*" || tag == now.etag) {
            return Preconditions::Failed;
        }
    } else if let (Some(limit), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), now.modified)
        && modified > limit
    {
        return Preconditions::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if is_known(headers, now.etag) {
            return Preconditions::NotModified;
        }
    } else if let (Some(limit), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), now.modified)
        && modified <= limit
    {
        return Preconditions::NotModified;
    }
    Preconditions::Proceed
}

/// Whether `If-None-Match` has this entity tag. A proxy that compresses a response makes the tag
/// weak.
pub(crate) fn is_known(headers: &HeaderMap, etag: &[u8]) -> bool {
    let current = opaque(etag);
    any_tag(headers, IF_NONE_MATCH, |tag| {
        tag == b"*" || opaque(tag) == current
    })
}

/// Whether `Range` applies: there is no `If-Range`, or it matches the current state exactly. A date
/// matches only if it cannot hide a second change within the same second.
pub(super) fn range_applies(headers: &HeaderMap, now: &Validators<'_>, clock: u64) -> bool {
    let mut values = headers.get_all(IF_RANGE).iter();
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some(value), None) => {
            let tag = value.as_bytes().trim_ascii();
            tag == now.etag
                || matches!(
                    (seconds(value), now.modified),
                    (Some(date), Some(modified)) if date == modified && modified < clock
                )
        }
    }
}

/// A tag without the mark of weakness, which weak comparison ignores.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether any element of a list of entity tags satisfies `matches`. Tags may contain commas within
/// their quotes.
fn any_tag(headers: &HeaderMap, name: HeaderName, matches: impl Fn(&[u8]) -> bool) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut quoted = false;
        value
            .as_bytes()
            .split(|&byte| {
                quoted ^= byte == b'"';
                byte == b',' && !quoted
            })
            .any(|tag| matches(tag.trim_ascii()))
    })
}

/// A date field that occurs once and is valid; anything else is ignored, as section 13.1.3
/// requires.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    seconds(value)
}

fn seconds(value: &HeaderValue) -> Option<u64> {
    let date = httpdate::parse_http_date(value.to_str().ok()?.trim()).ok()?;
    date.duration_since(UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}

/// Seconds since the epoch as an HTTP date.
pub(super) fn date_value(seconds: u64) -> Option<HeaderValue> {
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds.min(LATEST_DATE));
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}
