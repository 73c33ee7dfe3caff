//! Paginated lists and query strings.

use axum::extract::Query;
use http::{StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::problem::Problem;

/// Default and maximum number of items in a page.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// In the order of the list.
    pub(super) items: Vec<T>,
    /// `cursor` of the next page; null on the last page.
    pub(super) next: Option<String>,
}

impl<T> Page<T> {
    /// The first `limit` of `items`; `cursor` returns the cursor after an item.
    pub(super) fn of(
        mut items: impl Iterator<Item = T>,
        limit: usize,
        cursor: impl Fn(&T) -> String,
    ) -> Self {
        let page: Vec<T> = items.by_ref().take(limit).collect();
        let next = items.next().and_then(|_| page.last().map(cursor));
        Self { items: page, next }
    }

    /// The same page of other items.
    pub(super) fn map<U>(self, other: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(other).collect(),
            next: self.next,
        }
    }
}

/// The number of items in a page.
pub(super) fn limit_of(parameters: Option<usize>) -> Result<usize, Problem> {
    match parameters {
        None => Ok(LIMIT_DEFAULT),
        Some(limit @ 1..=LIMIT_MAX) => Ok(limit),
        Some(_) => Err(malformed(format!("limit must be 1 to {LIMIT_MAX}"))),
    }
}

/// Parses a query string. Unknown parameters are refused, because they would be ignored.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let parameters: Result<Query<T>, _> = Query::try_from_uri(uri);
    parameters
        .map(|Query(parameters)| parameters)
        .map_err(|error| malformed(error.body_text()))
}

/// The detail of a path with an id that is not a UUID.
pub(super) fn not_an_id(what: &str, text: &str) -> String {
    let shown: String = text.chars().take(64).collect();
    format!(
        "{shown:?} is not the id of a {what}; expected a UUID such as \
         01932c5e-0000-7000-8000-000000000000"
    )
}

/// The problem of an invalid query string.
pub(super) fn malformed(detail: String) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "query_malformed",
        "a query parameter is invalid",
    )
    .detail(detail)
    .cause("the parameter is unknown, or its value has the wrong type")
    .remedy("GET /openapi.json describes the parameters")
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn pages_end_where_the_list_ends() {
        let check = |count: u32, limit: usize, length: usize, next: Option<&str>| {
            let page = Page::of(1..=count, limit, |item| item.to_string());
            assert_eq!(
                (page.items.len(), page.next.as_deref()),
                (length, next),
                "{count} {limit}"
            );
        };
        check(0, 2, 0, None);
        check(2, 2, 2, None);
        check(3, 2, 2, Some("2"));
    }
}
