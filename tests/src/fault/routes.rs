//! Every route that changes something is in a scenario, or has a reason not to be.

use super::scenario::{SCENARIOS, Step, What};
use crate::http::{Request, Response};

/// Routes without a scenario: method, path, and why.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("POST", "/query", "changes nothing"),
    ("POST", "/storages/{id}/query", "changes nothing"),
    ("POST", "/storages/{id}/queries", "changes nothing"),
    ("POST", "/query/splits", "changes nothing"),
    ("POST", "/storages/{id}/query/splits", "changes nothing"),
    (
        "POST",
        "/storages/{id}/tier",
        "needs an object store; the tests of it kill the server while it uploads",
    ),
    (
        "POST",
        "/storages/{id}/adopt",
        "needs an object store and a second node; the tests of takeovers kill the servers",
    ),
    ("DELETE", "/jobs/{job}", "cancels what another request does"),
    (
        "POST",
        "/storages/{id}/copy",
        "a repeated copy adds its packets again, in an epoch of its own",
    ),
    (
        "POST",
        "/io-trace/start",
        "what is traced differs between runs",
    ),
    (
        "POST",
        "/io-trace/stop",
        "what is traced differs between runs",
    ),
    (
        "POST",
        "/buffer/copy",
        "the buffer is empty after a restart",
    ),
    (
        "POST",
        "/v1/traces",
        "the packets have positions that the clock gives",
    ),
    (
        "POST",
        "/storages/{id}/shares",
        "makes a token, as the route of tokens",
    ),
    (
        "DELETE",
        "/storages/{id}/shares/{share}",
        "revokes a token, as the route of tokens",
    ),
];

/// The routes of the OpenAPI document that change something and are in no scenario.
pub(super) fn missing(openapi: &Response) -> Vec<String> {
    let document = openapi.json();
    let paths = document["paths"]
        .as_object()
        .expect("the document has paths");
    let mut missing = Vec::new();
    for (path, methods) in paths {
        let path = path.strip_prefix("/api/v1").unwrap_or(path);
        let methods = methods
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys);
        for method in methods.map(|method| method.to_uppercase()) {
            let is_change = matches!(method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE");
            if is_change && !is_known(&method, path) {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    missing
}

/// The request for the OpenAPI document.
pub(super) fn request() -> Request<'static> {
    Request::new("GET", "/openapi.json")
}

fn is_known(method: &str, path: &str) -> bool {
    let mut without = WITHOUT.iter();
    let is_without = without.any(|(known, of, _)| *known == method && *of == path);
    let steps = SCENARIOS
        .iter()
        .flat_map(|it| it.setup.iter().chain(it.steps));
    let mut routes = steps.filter_map(route);
    is_without || routes.any(|(known, of)| known == method && is_of(path, &of))
}

/// Method and path of a step.
fn route(step: &Step) -> Option<(&'static str, String)> {
    let of = |storage: Option<&str>| match storage {
        Some(_) => "/storages/{id}/agents/{agent}/streams/{stream}/packets",
        None => "/agents/{agent}/streams/{stream}/packets",
    };
    Some(match &step.what {
        What::Call { method, path, .. } => {
            let path = path.split_once('?').map_or(*path, |(path, _)| path);
            (*method, path.to_owned())
        }
        What::Create { .. } => ("POST", "/storages".to_owned()),
        What::Import { .. } => ("POST", "/storages/import".to_owned()),
        What::Push { storage, .. } => ("POST", of(*storage).to_owned()),
        What::Restart | What::Crash | What::Damage { .. } => return None,
    })
}

/// Whether a path is one of those that a template describes.
fn is_of(template: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || wanted.starts_with('{') => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_route_without_a_scenario_is_found() {
        let check = |paths: Value, expected: &[&str]| {
            let body = json!({ "paths": paths }).to_string().into_bytes();
            let response = Response {
                status: 200,
                headers: Vec::new(),
                trailers: Vec::new(),
                body,
            };
            assert_eq!(missing(&response), expected);
        };
        let any = json!({});
        check(
            json!({ "/api/v1/storages": { "post": any, "get": any } }),
            &[],
        );
        check(
            json!({ "/api/v1/storages/{id}/labels/{name}": { "put": any } }),
            &[],
        );
        check(json!({ "/api/v1/query": { "post": any } }), &[]);
        check(
            json!({ "/api/v1/storages/{id}/forget": { "post": any } }),
            &["POST /storages/{id}/forget"],
        );
        check(
            json!({ "/api/v1/storages": { "delete": any } }),
            &["DELETE /storages"],
        );
    }
}
