//! JSON request bodies: limited in size, with errors that name the location.

use std::fmt::Formatter;
use std::marker::PhantomData;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::strict_json::StrictMembers;
use crate::app_state::AppState;
use crate::ingest::IngestError;
use crate::media_type::is_json;
use crate::problem::Problem;

/// Reads a JSON body. An absent body is an empty object.
pub(super) async fn read_json<T: DeserializeOwned>(
    app: &AppState,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    if headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(IngestError::EncodingUnsupported.into());
    }
    let text = read_body(body, app.config.http.json_bytes_max).await?;
    let is_absent = text.is_empty() && !headers.contains_key(header::CONTENT_TYPE);
    if !is_absent && !is_json(headers) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type_unsupported",
            "the media type is not supported",
        )
        .cause("Content-Type is not application/json")
        .remedy("send JSON, with Content-Type: application/json"));
    }
    let text = if text.is_empty() {
        &b"{}"[..]
    } else {
        &text[..]
    };
    let object = serde_json::from_slice(text);
    object.map(|Object(body)| body).map_err(|error| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "json_malformed",
            "the JSON body is invalid",
        )
        .detail(error.to_string())
        .cause("it is not JSON, lacks a member, or has an unknown one")
        .remedy("GET /openapi.json describes the body")
        .member("line", error.line())
        .member("column", error.column())
    })
}

/// What is written as an object, with objects for all structs in it: a derived struct also accepts
/// the list of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        let members = StrictMembers(members);
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Reads a complete body of at most `max` bytes.
pub(super) async fn read_body(mut body: Body, max: u64) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "the body is too large",
        )
        .cause(format!("the limit is {max} bytes"))
        .remedy("send a smaller body, or raise http.json_bytes_max or http.metadata_bytes_max")
        .closing()
    };
    if http_body::Body::size_hint(&body).lower() > max {
        return Err(too_large());
    }
    let mut complete = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(IngestError::of_body)?;
        if let Ok(data) = frame.into_data() {
            if (complete.len() + data.len()) as u64 > max {
                return Err(too_large());
            }
            complete.extend_from_slice(&data);
        }
    }
    Ok(complete.freeze())
}

/// Adds `Location` with a path of the API.
pub(super) fn with_location(mut response: Response, path: String) -> Response {
    if let Ok(location) = HeaderValue::try_from(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
