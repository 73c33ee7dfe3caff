//! The refusals that routes share, for the OpenAPI document.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

fn problem(status: &str) -> BTreeMap<String, RefOr<Response>> {
    BTreeMap::from([(status.to_owned(), problem_response(""))])
}

/// A problem document for this reason.
pub(super) fn problem_response(description: &str) -> RefOr<Response> {
    let schema = Ref::from_schema_name("ProblemDocument");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().description(description);
    let response = response.content("application/problem+json", content);
    response.build().into()
}

macro_rules! refusals {
    ($($name:ident $status:literal)*) => {
        $(
            #[doc = concat!("A problem document with status ", $status, ".")]
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    problem($status)
                }
            }
        )*
    };
}

refusals! {
    BadRequest "400"
    NotFound "404"
    Conflict "409"
    PreconditionFailed "412"
    PayloadTooLarge "413"
    UnsupportedMediaType "415"
    RangeNotSatisfiable "416"
    UnprocessableEntity "422"
    TooManyRequests "429"
    ServiceUnavailable "503"
    InsufficientStorage "507"
}
