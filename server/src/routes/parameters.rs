//! Query parameters that a route does not have are refused, because they would be ignored.

use std::collections::HashMap;

use axum::extract::{MatchedPath, Query, Request};
use http::{Method, Uri};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::page::malformed;
use crate::problem::Problem;

/// Prefix of the routes whose parameters are checked. Other programs add parameters to the paths of
/// files and of OTLP.
const CHECKED: &str = "/api/v1/";

/// Query parameters by path and method, as the OpenAPI document describes them.
pub(super) type Parameters = HashMap<(String, Method), Vec<String>>;

/// The parameters of all routes of `description`.
pub(super) fn known(description: &OpenApi) -> Parameters {
    let mut known = Parameters::new();
    for (path, item) in &description.paths.paths {
        for (method, operation) in [
            (Method::GET, &item.get),
            (Method::HEAD, &item.head),
            (Method::POST, &item.post),
            (Method::PUT, &item.put),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ] {
            if let Some(operation) = operation {
                known.insert((path.clone(), method), names(operation));
            }
        }
    }
    known
}

fn names(operation: &Operation) -> Vec<String> {
    let parameters = operation.parameters.iter().flatten();
    parameters
        .filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                Some(parameter.name.clone())
            }
            _ => None,
        })
        .collect()
}

/// Refuses a request with an unknown query parameter.
pub(super) fn check(known: &Parameters, request: &Request) -> Result<(), Problem> {
    if request.uri().query().is_none_or(str::is_empty) {
        return Ok(());
    }
    let path = request.extensions().get::<MatchedPath>();
    refuse_unknown(known, path, request.method(), request.uri())
}

fn refuse_unknown(
    known: &Parameters,
    path: Option<&MatchedPath>,
    method: &Method,
    uri: &Uri,
) -> Result<(), Problem> {
    let Some(path) = path.map(MatchedPath::as_str) else {
        return Ok(());
    };
    let of = |method: &Method| known.get(&(path.to_owned(), method.clone()));
    // HEAD is answered by GET where it has no description.
    let names = of(method).or_else(|| of(&Method::GET));
    let (true, Some(names)) = (path.starts_with(CHECKED), names) else {
        return Ok(());
    };
    let parameters: Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|error| malformed(error.body_text()))?;
    let unknown = parameters
        .iter()
        .find(|(name, _)| !names.iter().any(|known| known == name));
    let Some((unknown, _)) = unknown else {
        return Ok(());
    };
    let expected = if names.is_empty() {
        "this request has no query parameters".to_owned()
    } else {
        format!("expected one of: {}", names.join(", "))
    };
    Err(malformed(format!(
        "unknown parameter {unknown:?}; {expected}"
    )))
}
