//! The access log: one line for each request, if `log.access` is on.
//!
//! A line has no query string, no header field and no body, so that it has no secret: a token is in
//! one of them.

use std::time::Duration;

use axum::response::Response;
use http::{Method, Request, StatusCode, Version, header};
use http_body::Body as _;

/// The target of the lines, which the filter of the log switches on and off.
pub(crate) const ACCESS: &str = "access";

/// What a line says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessLine {
    method: Method,
    path: String,
    version: Version,
    /// The length of its body, if the request says it.
    received_bytes: Option<u64>,
}

impl AccessLine {
    /// The line of a request; `None` while the access log is off.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Self> {
        tracing::enabled!(target: ACCESS, tracing::Level::INFO).then(|| Self::new(request))
    }

    fn new<B>(request: &Request<B>) -> Self {
        let length = request.headers().get(header::CONTENT_LENGTH);
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            version: request.version(),
            received_bytes: length
                .and_then(|length| length.to_str().ok())
                .and_then(|length| length.parse().ok()),
        }
    }

    /// Writes the line when the response is known.
    pub(crate) fn write(
        self,
        request_id: &str,
        status: StatusCode,
        response: &Response,
        took: Duration,
    ) {
        let status = status.as_u16();
        // Unknown for a body that is sent in chunks.
        let sent_bytes = response.body().size_hint().exact();
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let Self {
            method,
            path,
            version,
            received_bytes,
        } = self;
        tracing::info!(
            target: ACCESS, request_id, %method, path, ?version, status, received_bytes,
            sent_bytes, microseconds, "answered"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_query_string() {
        let request = Request::post("http://host/path?token=secret")
            .header("content-length", "7")
            .header("authorization", "Bearer secret")
            .body(())
            .unwrap();
        let line = AccessLine::new(&request);
        assert_eq!(
            (line.path.as_str(), line.received_bytes),
            ("/path", Some(7))
        );
        assert!(!format!("{line:?}").contains("secret"));
    }
}
