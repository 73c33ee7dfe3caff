//! What web pages of other servers may read (CORS).

use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, LINK, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, AllowPrivateNetwork, CorsLayer};

use crate::config::{HttpConfig, items};

/// How long a browser may remember the answer to a preflight.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Fields that a page may send.
const SENT: [HeaderName; 12] = [
    AUTHORIZATION,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    HeaderName::from_static("prefer"),
    HeaderName::from_static("want-repr-digest"),
    HeaderName::from_static("x-request-id"),
];

/// Fields that a page may see besides those that every page may.
const SEEN: [HeaderName; 16] = [
    ACCEPT_RANGES,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("x-checksum-crc32c"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("tracehold-epoch"),
    HeaderName::from_static("tracehold-next-sequence"),
];

/// The layer for the pages of `http.cors_origins`; `None` when there are none. A page has no
/// credentials of the server that a browser would add by itself, so that it reads what it has a
/// token for, and may read all when the server has no tokens.
pub(super) fn layer(http: &HttpConfig) -> Option<CorsLayer> {
    let listed = || items(&http.cors_origins).map(str::to_ascii_lowercase);
    let origins: Vec<HeaderValue> = listed().flat_map(HeaderValue::try_from).collect();
    let allowed = match &*origins {
        [] => return None,
        [one] if one == "*" => AllowOrigin::any(),
        _ => AllowOrigin::list(origins),
    };
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ];
    Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods(methods)
            .allow_headers(SENT)
            .expose_headers(SEEN)
            .allow_private_network(AllowPrivateNetwork::yes())
            .max_age(REMEMBERED),
    )
}
