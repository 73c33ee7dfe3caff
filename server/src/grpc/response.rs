//! Responses: their HTTP status is always 200, and the status of the call is in fields.

use std::convert::Infallible;
use std::fmt::Write;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::{BodyExt, Full};

use crate::base64::base64;
use crate::media_type::media_type;
use crate::rpc_status::{Code, RpcStatus};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The encodings of messages.
const ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,zstd");

/// Bytes of a message in a field; clients refuse large heads.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Whether a request is a call, so that its response has to be one.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    kind.eq_ignore_ascii_case(b"application/grpc")
        || kind
            .get(..17)
            .is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/grpc+"))
}

/// The reply to a call that succeeded.
pub(crate) fn reply(message: &[u8]) -> Response {
    let mut framed = Vec::with_capacity(5 + message.len());
    framed.push(0);
    // Replies have a few hundred bytes.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    let trailers = std::future::ready(Some(Ok::<_, Infallible>(HeaderMap::from_iter([(
        STATUS,
        HeaderValue::from(u16::from(Code::Ok.number())),
    )]))));
    let body = Full::new(Bytes::from(framed)).with_trailers(trailers);
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    response.headers_mut().insert(ACCEPTED, ENCODINGS);
    response
}

/// The response to a call that was refused: a head, which is also its end.
pub(crate) fn refusal(status: &RpcStatus) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert(ACCEPTED, ENCODINGS);
    headers.insert(STATUS, HeaderValue::from(u16::from(status.code.number())));
    let details = base64(&status.to_protobuf());
    for (name, text) in [(MESSAGE, encoded(&status.message)), (DETAILS, details)] {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
    response
}

/// A message as its field contains it: the bytes that are not printable, and `%`, as hex digits.
fn encoded(message: &str) -> String {
    let mut text = String::new();
    for byte in message.bytes() {
        if text.len() >= MESSAGE_BYTES_MAX {
            break;
        }
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_and_bounded() {
        for (message, wanted) in [
            ("a b: 5", "a b: 5"),
            ("100 % of \u{e9}\n", "100 %25 of %C3%A9%0A"),
        ] {
            assert_eq!(encoded(message), wanted);
        }
        assert_eq!(encoded(&"\n".repeat(5000)).len(), 1026);
    }

    #[test]
    fn calls_are_recognized_by_their_media_type() {
        for (kind, wanted) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/GRPC; charset=x", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), wanted, "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
