//! What the OpenAPI document says of tokens.

use http::Method;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, OpenApi};

use super::refusals::problem_response;
use crate::access::{Right, rule_of};

/// The name of the scheme.
const SCHEME: &str = "token";

/// Adds the scheme, and to every operation whether it needs a token and how it refuses one.
pub(super) fn describe(description: &mut OpenApi) {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A token of `tracehold token create`. A server without tokens needs none.",
        ))
        .build();
    let components = description.components.get_or_insert_with(Components::new);
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    for (path, item) in &mut description.paths.paths {
        for (method, operation) in [
            (Method::GET, &mut item.get),
            (Method::HEAD, &mut item.head),
            (Method::POST, &mut item.post),
            (Method::PUT, &mut item.put),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ] {
            let is_open = |right| matches!(right, Right::Nothing | Right::Metrics);
            let rule = rule_of(&method, path);
            match operation {
                Some(operation) if !rule.is_some_and(|rule| is_open(rule.right)) => {
                    needs_token(operation);
                }
                _ => {}
            }
        }
    }
}

fn needs_token(operation: &mut Operation) {
    let requirement = SecurityRequirement::new(SCHEME, Vec::<String>::new());
    operation.security = Some(vec![requirement]);
    for (status, description) in [
        ("401", "The token is absent or not accepted"),
        ("403", "The role or scope of the token does not allow it"),
    ] {
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert_with(|| problem_response(description));
    }
}
