//! What tokens and shares have in common: a secret that is answered once, an expiry, and lists
//! without secrets.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::json::with_location;
use super::page::{Page, limit_of};
use crate::access::Token;
use crate::clock::now_ns;
use crate::problem::Problem;

const SECOND_NS: i64 = 1_000_000_000;

/// A part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// Maximum number of items, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// When what is made now expires, ns since the epoch.
pub(super) fn expiry(seconds: u32) -> i64 {
    now_ns().saturating_add(i64::from(seconds) * SECOND_NS)
}

/// 201 with a secret, which nobody may keep.
pub(super) fn created(document: impl Serialize, location: String) -> Response {
    let mut response = (StatusCode::CREATED, Json(document)).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    with_location(response, location)
}

/// A page of `tokens`, sorted by id, as documents.
pub(super) fn page_of<D>(mut tokens: Vec<Arc<Token>>, asked: ListQuery) -> Result<Page<D>, Problem>
where
    D: for<'a> From<&'a Token>,
{
    let limit = limit_of(asked.limit)?;
    tokens.sort_by(|one, other| one.id.cmp(&other.id));
    let after = asked.cursor.unwrap_or_default();
    let rest = tokens.iter().filter(|token| token.id > after);
    let page = Page::of(rest, limit, |token| token.id.clone());
    Ok(page.map(|token| D::from(&**token)))
}
