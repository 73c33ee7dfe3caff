//! Notes the requests that change something.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::chain::Act;
use super::log::Audit;
use crate::access::{Caller, Right, rule_for};
use crate::problem::Problem;
use crate::request_id::RequestId;

/// A longer path is cut in the log.
const PATH_CHARS_MAX: usize = 4096;

/// Answers a request that needs the right of an operator after its line is durable. Requests that
/// are refused change nothing and are not noted.
pub(crate) async fn note(
    State(audit): State<Arc<Audit>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(mut act) = act(&request) else {
        return next.run(request).await;
    };
    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
    }
    act.status = response.status().as_u16();
    let made = response.headers().get(header::LOCATION);
    act.made = made.and_then(|made| made.to_str().ok()).map(str::to_owned);
    match audit.record(act).await {
        Ok(()) => response,
        Err(error) => {
            tracing::error!(%error, "a change was made and cannot be noted in the audit log");
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "audit_failed",
                "the change is not in the audit log",
            )
            .cause(error.to_string())
            .remedy("the change was made; free space or mend the disk, and look at what it did")
            .into_response()
        }
    }
}

/// What is noted of a request; `None` for one that changes nothing of the kind.
fn act(request: &Request) -> Option<Act> {
    let path = request.extensions().get::<MatchedPath>()?;
    let rule = rule_for(request.method(), path.as_str(), request.uri().query())?;
    if rule.right != Right::Operate || request.method().is_safe() {
        return None;
    }
    let caller = match request.extensions().get::<Caller>() {
        Some(Caller::Token(token)) => format!("token {} ({})", token.id, token.name),
        Some(Caller::Anyone) | None => "anyone".to_owned(),
    };
    let id = request.extensions().get::<RequestId>();
    let id = id.and_then(|id| id.0.to_str().ok()).unwrap_or_default();
    Some(Act {
        caller,
        method: request.method().to_string(),
        path: request.uri().path().chars().take(PATH_CHARS_MAX).collect(),
        status: 0,
        made: None,
        request: id.to_owned(),
    })
}
