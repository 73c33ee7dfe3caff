//! The media types that each route accepts, as the OpenAPI document describes them.
//!
//! A form of a web page can send a body to any server, but only with three media types. A body of a
//! type that its route does not describe is therefore refused before the route sees it, whether or
//! not it is empty.

use std::collections::HashMap;

use axum::extract::{MatchedPath, Request};
use http::{HeaderMap, Method, StatusCode, header};
use utoipa::openapi::{OpenApi, RefOr};

use crate::media_type::media_type;
use crate::problem::Problem;

/// Media types by path and method.
pub(super) type MediaTypes = HashMap<(String, Method), Vec<String>>;

/// What routes accept besides the type that the document describes: generators of clients cannot
/// choose between several types of bytes.
const ALSO: [(&str, &str); 2] = [
    ("/api/v1/storages/import", "application/octet-stream"),
    ("/api/v1/agents/{agent}/metadata", "text/plain"),
];

/// The media types of the bodies of all routes of `description`; none for a route without a body.
pub(super) fn described(description: &OpenApi) -> MediaTypes {
    let mut described = MediaTypes::new();
    for (path, item) in &description.paths.paths {
        for (method, operation) in [
            (Method::POST, &item.post),
            (Method::PUT, &item.put),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ] {
            let Some(operation) = operation else {
                continue;
            };
            let body = operation.request_body.as_ref();
            let mut types: Vec<String> = match body {
                Some(RefOr::T(body)) => body.content.keys().cloned().collect(),
                Some(RefOr::Ref(_)) | None => Vec::new(),
            };
            if !types.is_empty() {
                let also = ALSO.iter().filter(|(route, _)| route == path);
                types.extend(also.map(|(_, name)| (*name).to_owned()));
            }
            described.insert((path.clone(), method), types);
        }
    }
    described
}

/// Refuses a request whose `Content-Type` its route does not describe. Programs may leave the field
/// out; what needs it refuses its absence.
pub(super) fn check(described: &MediaTypes, request: &Request) -> Result<(), Problem> {
    if !request.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(());
    }
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str).to_owned();
    let types = described.get(&(path, request.method().clone()));
    types.map_or(Ok(()), |types| refuse_other(types, request.headers()))
}

fn refuse_other(types: &[String], headers: &HeaderMap) -> Result<(), Problem> {
    let sent = media_type(headers);
    let is = |name: &str| sent.eq_ignore_ascii_case(name.as_bytes());
    let is_accepted = match types {
        // Programs name some type by habit; a form names one of these.
        [] => !FORMS.iter().any(|form| is(form)),
        types => types.iter().any(|known| is(known)),
    };
    if is_accepted && headers.get_all(header::CONTENT_TYPE).iter().count() == 1 {
        return Ok(());
    }
    let expected = match types {
        [] => "a request without Content-Type, as it has no body".to_owned(),
        types => types.join(" or "),
    };
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "media_type_unsupported",
        "the media type is not supported",
    )
    .cause(format!("the route expects {expected}"))
    .remedy("send what it expects, with one Content-Type that says so"))
}

/// What a form of a web page can send without asking the server.
const FORMS: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
];
