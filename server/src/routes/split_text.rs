//! Splits as the text that a client keeps and sends back.

use http::StatusCode;
use query_engine::Split;

use crate::base64::{base64_url, from_base64_url};
use crate::problem::Problem;
use crate::query::Question;

/// The text of a split.
pub(super) fn text_of(split: &Split) -> String {
    base64_url(&split.encode())
}

/// The split with this text, if it is one of the question.
pub(super) fn split_of(text: &str, question: &Question) -> Result<Split, Problem> {
    let bytes = from_base64_url(text).ok_or_else(|| refused("it is not base64url".to_owned()))?;
    let split = Split::decode(&bytes).map_err(|error| refused(error.to_string()))?;
    if split.question == question.checksum() {
        Ok(split)
    } else {
        Err(refused(
            "it was made of another expression, other times or another `derived`".to_owned(),
        ))
    }
}

fn refused(why: String) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "split_malformed",
        "the split is not one of this query",
    )
    .detail(why)
    .cause("a split belongs to the expression, the times and the `derived` that it was made of")
    .remedy("send it as POST …/query/splits returned it, with the same query")
}
