//! The media type of a request.

use http::{HeaderMap, header};

/// The media type in `Content-Type` without parameters; empty if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.map_or(&b""[..], |value| value.as_bytes());
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii()
}

/// Whether the request has a JSON body.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).eq_ignore_ascii_case(b"application/json")
}
