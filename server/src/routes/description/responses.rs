//! Responses: descriptions, and the refusals that operations share.

use serde_json::{Value, json};

/// What a status means, for responses that describe nothing else.
const MEANINGS: &[(&str, &str)] = &[
    (
        "400",
        "The request is malformed, or a value in it is invalid",
    ),
    (
        "403",
        "The web page that sent the request may not change anything",
    ),
    ("404", "What the path or the body names does not exist"),
    ("405", "The path has no such method"),
    ("408", "The body arrives too slowly"),
    (
        "409",
        "The state of the server does not allow this; `code` says why",
    ),
    ("412", "If-Match or If-Unmodified-Since does not match"),
    ("413", "The body is too large"),
    (
        "415",
        "The media type or the content encoding is not supported",
    ),
    ("416", "No requested range can be sent"),
    ("421", "The host of the request is not one of the server's"),
    ("422", "The content of the body cannot be stored"),
    (
        "429",
        "The server is busy; repeat the request after Retry-After",
    ),
    ("431", "The request head is too large"),
    ("500", "The server failed, or stored bytes are damaged"),
    ("501", "The transfer coding is not supported"),
    (
        "503",
        "The server or the storage is not ready; repeat the request after Retry-After",
    ),
    ("507", "The disk is low on space or full"),
];

/// A rule: the statuses that operations have which it selects.
struct Rule {
    statuses: &'static [&'static str],
    selects: fn(&Selected<'_>) -> bool,
}

/// An operation as rules see it.
struct Selected<'a> {
    path: &'a str,
    method: &'a str,
    operation: &'a Value,
}

impl Selected<'_> {
    fn is_change(&self) -> bool {
        !matches!(self.method, "get" | "head")
    }

    fn has_body(&self) -> bool {
        self.operation.get("requestBody").is_some()
    }

    fn is_query(&self) -> bool {
        self.path.ends_with("/query") || self.path.ends_with("/splits")
    }
}

const RULES: &[Rule] = &[
    // The gate refuses requests to any path, and the server may be stopping or out of a resource.
    Rule {
        statuses: &["400", "421", "431", "500", "501", "503"],
        selects: |_| true,
    },
    Rule {
        statuses: &["403"],
        selects: |selected| selected.is_change(),
    },
    Rule {
        statuses: &["408", "413", "415"],
        selects: |selected| selected.has_body(),
    },
    Rule {
        statuses: &["404"],
        selects: |selected| selected.path.contains('{') || selected.path.ends_with("/copy"),
    },
    Rule {
        statuses: &["409", "507"],
        selects: |selected| selected.is_change() && !selected.is_query(),
    },
    // What can be read of a storage depends on its state.
    Rule {
        statuses: &["409"],
        selects: |selected| selected.path.contains("/{id}/"),
    },
    // Strict queries refuse what is incomplete.
    Rule {
        statuses: &["409"],
        selects: |selected| selected.is_query(),
    },
    // Positions may be out of range.
    Rule {
        statuses: &["422"],
        selects: |selected| selected.path.ends_with("/packets") && selected.is_change(),
    },
    // Jobs and queries are limited in number.
    Rule {
        statuses: &["429"],
        selects: |selected| {
            let last = selected.path.rsplit('/').next().unwrap_or_default();
            matches!(
                last,
                "verify" | "export" | "import" | "copy" | "query" | "queries" | "splits"
            )
        },
    },
];

/// Adds the refusals that `operation` shares with others, and the descriptions that are missing.
pub(super) fn complete(path: &str, method: &str, operation: &mut Value) {
    let selected = Selected {
        path,
        method,
        operation,
    };
    let rules = RULES.iter().filter(|rule| (rule.selects)(&selected));
    let statuses: Vec<&str> = rules.flat_map(|rule| rule.statuses).copied().collect();
    let Some(responses) = operation
        .get_mut("responses")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for status in statuses {
        responses.entry(status).or_insert_with(|| json!({}));
    }
    for (status, response) in responses {
        describe(status, response);
    }
}

fn describe(status: &str, response: &mut Value) {
    let meaning = MEANINGS.iter().find(|(known, _)| *known == status);
    let Some(response) = response.as_object_mut() else {
        return;
    };
    if let Some((_, meaning)) = meaning {
        response
            .entry("description")
            .or_insert_with(|| json!(meaning));
    }
    if status.starts_with(['4', '5']) {
        let content = response.entry("content").or_insert_with(|| json!({}));
        if let Some(content) = content.as_object_mut() {
            content
                .entry("application/problem+json")
                .or_insert_with(problem);
        }
    }
}

fn problem() -> Value {
    json!({ "schema": { "$ref": "#/components/schemas/ProblemDocument" } })
}
