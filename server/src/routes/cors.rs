//! What web pages of other servers may read (CORS).

use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, LINK, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, AllowPrivateNetwork, CorsLayer};

use super::files::TRACEHOLD_READER;
use super::jobs::TRACEHOLD_JOB;
use super::packets::{EPOCH, NEXT_SEQUENCE};
use super::query::{MATCHED, NOTES, ROWS, SKIPPED, SKIPPED_REASONS};
use crate::config::{HttpConfig, items};

/// How long a browser may remember the answer to a preflight.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Fields that a page may send.
const SENT: [HeaderName; 13] = [
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
    TRACEHOLD_READER,
];

/// Fields that a page may see besides those that every page may.
const SEEN: [HeaderName; 22] = [
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
    EPOCH,
    MATCHED,
    NEXT_SEQUENCE,
    NOTES,
    ROWS,
    SKIPPED,
    SKIPPED_REASONS,
    TRACEHOLD_JOB,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test reads the sources")]
    fn a_page_sees_every_field_that_routes_define() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/routes");
        let mut defined = Vec::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let definitions = text.split("from_static(\"tracehold-").skip(1);
            defined.extend(definitions.map(|rest| {
                let name = rest.split('"').next().unwrap_or_default();
                format!("tracehold-{name}")
            }));
        }
        assert!(defined.len() > 8, "{defined:?}");
        for name in defined {
            let is_known = [&SENT[..], &SEEN]
                .concat()
                .iter()
                .any(|field| *field == *name);
            assert!(is_known, "{name}");
        }
    }
}
