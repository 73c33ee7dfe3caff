//! Notes the requests that change something.

use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::log::Audit;
use crate::access::{Caller, Right, rule_for};
use crate::problem::Problem;
use crate::request_id::RequestId;
use audit_log::Act;

/// A longer path or query string is cut in the log.
const TEXT_CHARS_MAX: usize = 4096;

/// Answers a request that needs the right of an operator after its line is durable. A request that
/// fails is noted, too, because it may have changed something before; one that is not admitted does
/// not come here.
pub(crate) async fn note(
    audit: &Audit,
    request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let Some(act) = act(&request) else {
        return answer(request).await;
    };
    let mut pending = Pending {
        audit,
        act: Some(act),
    };
    let response = answer(request).await;
    let Some(mut act) = pending.act.take() else {
        return response;
    };
    act.status = response.status().as_u16();
    let made = response.headers().get(header::LOCATION);
    act.made = made.and_then(|made| made.to_str().ok()).map(str::to_owned);
    if response.status() == StatusCode::BAD_REQUEST {
        // A parameter that no route has may be anything, even a token.
        act.query = None;
    }
    match audit.record(act).await {
        Ok(()) => response,
        Err(error) if !response.status().is_success() => {
            tracing::error!(%error, "a request that failed cannot be noted in the audit log");
            response
        }
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

/// A request that is not answered yet. If its client hangs up, it may have changed something.
struct Pending<'a> {
    audit: &'a Audit,
    act: Option<Act>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            self.audit.record_unattended(act);
        }
    }
}

/// What is noted of a request; `None` for one that changes nothing of the kind.
fn act(request: &Request) -> Option<Act> {
    if request.method().is_safe() {
        return None;
    }
    let path = request.extensions().get::<MatchedPath>()?;
    let rule = rule_for(request.method(), path.as_str(), request.uri().query())?;
    if rule.right != Right::Operate {
        return None;
    }
    let caller = match request.extensions().get::<Caller>() {
        Some(Caller::Token(token)) => format!("token {} ({})", token.id, token.name),
        Some(Caller::User(user)) => format!("user {}", user.name),
        Some(Caller::Anyone) | None => "anyone".to_owned(),
    };
    let id = request.extensions().get::<RequestId>();
    let id = id.and_then(|id| id.0.to_str().ok()).unwrap_or_default();
    Some(Act {
        caller,
        method: request.method().to_string(),
        path: bounded(request.uri().path()),
        query: request.uri().query().map(bounded),
        status: 0,
        made: None,
        request: id.to_owned(),
    })
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
