use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An RFC 9457 problem document.
///
/// `Display` prints detail, cause and remedy, one per line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Problem type as a URI reference.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Short name of the problem type.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// What happened.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Why it happened.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// What to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Id of the request in the server's log.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Any other fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Maximum number of characters shown of a body that is not a problem document.
const EXCERPT_CHARS_MAX: usize = 200;

impl Problem {
    /// Parses the body of an error response. Any other body becomes the detail of a problem.
    pub fn from_answer(status: u16, content_type: Option<&str>, body: &[u8]) -> Self {
        let is_json = content_type.is_some_and(|value| value.contains("json"));
        let read = is_json.then(|| serde_json::from_slice::<Self>(body).ok());
        let mut problem = read.flatten().unwrap_or_else(|| Self {
            detail: excerpt(body),
            ..Self::default()
        });
        problem.status = status;
        problem
    }
}

/// The beginning of a body on one line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(EXCERPT_CHARS_MAX).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = [&self.detail, &self.title]
            .into_iter()
            .find(|text| !text.is_empty());
        match what {
            Some(text) => f.write_str(text)?,
            None => f.write_str("the server refused the request without a reason")?,
        }
        if self.code.is_empty() {
            write!(f, " (HTTP {})", self.status)?
        } else {
            write!(f, " ({}, HTTP {})", self.code, self.status)?
        }
        if !self.cause.is_empty() {
            write!(f, "\ncause: {}", self.cause)?;
        }
        if !self.remedy.is_empty() {
            write!(f, "\nremedy: {}", self.remedy)?;
        }
        if !self.instance.is_empty() {
            write!(f, "\nrequest: {}", self.instance)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content_type: &str, body: &str, expected: &str) {
        let problem = Problem::from_answer(409, Some(content_type), body.as_bytes());
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn a_problem_says_what_why_and_what_to_do() {
        check(
            "application/problem+json",
            r#"{"title":"t","status":409,"code":"storage_not_open","detail":"d","cause":"c",
               "remedy":"r","instance":"i"}"#,
            "d (storage_not_open, HTTP 409)\ncause: c\nremedy: r\nrequest: i",
        );
        check(
            "application/problem+json",
            r#"{"title":"only a title"}"#,
            "only a title (HTTP 409)",
        );
    }

    #[test]
    fn any_other_body_is_shown_in_short() {
        check(
            "text/html",
            "<h1>no\n  way</h1>",
            "<h1>no way</h1> (HTTP 409)",
        );
        check("application/json", "[1]", "[1] (HTTP 409)");
        check(
            "text/plain",
            "",
            "the server refused the request without a reason (HTTP 409)",
        );
        let long = Problem::from_answer(500, None, &[b'x'; 5000]);
        assert_eq!(long.detail.len(), EXCERPT_CHARS_MAX);
    }
}
