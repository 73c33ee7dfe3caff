//! Where the storage of a request is: here, in the store, or at another node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use storage_core::StorageInfo;
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::nodes::Writer;
use super::{Tier, adopting, takeover};
use crate::app_state::AppState;
use crate::error::problem;
use crate::problem::Problem;

/// How long a storage that was nowhere is not looked for again.
const UNKNOWN_LASTS: Duration = Duration::from_secs(2);
/// Storages that were nowhere and are remembered.
const UNKNOWN_MAX: usize = 4096;

/// Where the storage of a request is.
pub(crate) enum Located {
    /// Here, or nowhere, or the request names none.
    Here,
    /// Elsewhere: the answer.
    Elsewhere(Box<Response>),
}

/// The storage that a path names.
fn storage_in(path: &str) -> Option<StorageId> {
    let rest = path
        .strip_prefix("/storage/")
        .or_else(|| path.strip_prefix("/api/v1/storages/"))?;
    rest.split('/').next()?.parse().ok()
}

/// Finds the storage of a request that has been admitted; serves it from the store if it is there.
pub(crate) async fn locate(app: &Arc<AppState>, method: &Method, uri: &Uri) -> Located {
    let Some(tier) = &app.tier else {
        return Located::Here;
    };
    let Some(id) = storage_in(uri.path()) else {
        return Located::Here;
    };
    let is_of_packets = uri.path().ends_with("/packets");
    let is_push = *method == Method::POST && is_of_packets;
    // Where a stream goes on: who asks that pushes next.
    let precedes_push = *method == Method::HEAD && is_of_packets;
    if let Ok(info) = app.engine.storages().get(id) {
        return here(tier, &info, is_push).await;
    }
    // A takeover looks for itself who has the storage.
    if tier.is_unknown(id) || uri.path().ends_with("/adopt") {
        return Located::Here;
    }
    match adopting::adopt(app, tier, id).await {
        Ok(true) => return Located::Here,
        Ok(false) => {}
        Err(error) => return Located::Elsewhere(Box::new(unavailable(error.to_string()))),
    }
    match tier.nodes.writer(&tier.bucket, id).await {
        Ok(Writer::At(url)) => {
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            Located::Elsewhere(Box::new(redirect(&format!("{url}{path}"))))
        }
        Ok(Writer::Gone {
            node, is_chained, ..
        }) => {
            if is_chained && (is_push || precedes_push) && tier.chains().is_some() {
                takeover::begin(app, id);
                return Located::Elsewhere(Box::new(being_taken_over()));
            }
            Located::Elsewhere(Box::new(writer_gone(&node, is_chained)))
        }
        Ok(Writer::Lost) if tier.chains().is_some() => {
            takeover::begin(app, id);
            Located::Elsewhere(Box::new(being_taken_over()))
        }
        Ok(Writer::Nobody | Writer::This | Writer::Lost) => {
            tier.note_unknown(id);
            Located::Here
        }
        Err(error) => Located::Elsewhere(Box::new(unavailable(error.to_string()))),
    }
}

fn unavailable(detail: String) -> Response {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "object_store_unavailable",
        "the storage is not here, and the object store cannot be asked for it",
    )
    .detail(detail)
    .cause("the store does not answer, or what it has of the storage cannot be used")
    .remedy("send the request again after Retry-After")
    .retry_after(1)
    .into_response()
}

/// A storage of this node. With a chain, pushes wait until this node knows that it may append:
/// what is here may be outdated. One that is made again from its chain is not complete yet.
async fn here(tier: &Tier, info: &StorageInfo, is_push: bool) -> Located {
    let Some(chains) = tier.chains() else {
        return Located::Here;
    };
    if chains.is_rebuilding(info.id) {
        return Located::Elsewhere(Box::new(being_taken_over()));
    }
    let is_written = matches!(info.state, StorageState::Open | StorageState::Recording);
    if is_push && is_written && !chains.is_open(info.id).await {
        let said = chains.failure_of(info.id);
        let reason = said.unwrap_or_else(|| "it does not say who owns the storage".to_owned());
        let problem = problem("object_store_unavailable").detail(reason);
        return Located::Elsewhere(Box::new(problem.retry_after(1).into_response()));
    }
    Located::Here
}

fn being_taken_over() -> Response {
    problem("storage_taken_over")
        .detail("this node takes the storage over at this moment")
        .retry_after(1)
        .into_response()
}

fn writer_gone(node: &str, is_chained: bool) -> Response {
    let (detail, remedy) = if is_chained {
        (
            format!("node {node} has the storage on its disk; its packets are in the object store"),
            "start it again, or take the storage over: POST /api/v1/storages/{id}/adopt",
        )
    } else {
        (
            format!("node {node} has the storage on its disk, and nobody else does"),
            "start it again; GET /api/v1/nodes lists the nodes",
        )
    };
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "writer_gone",
        "the node that writes the storage gives no sign of life",
    )
    .detail(detail)
    .cause("the node is stopped, or cut off from the object store")
    .remedy(remedy)
    .retry_after(5)
    .into_response()
}

/// The same request, elsewhere.
fn redirect(url: &str) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    if let Ok(value) = HeaderValue::try_from(url) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

impl Tier {
    fn is_unknown(&self, id: StorageId) -> bool {
        let unknown = self.unknown.lock();
        unknown
            .get(&id)
            .is_some_and(|since| since.elapsed() < UNKNOWN_LASTS)
    }

    fn note_unknown(&self, id: StorageId) {
        let mut unknown = self.unknown.lock();
        if unknown.len() >= UNKNOWN_MAX {
            unknown.retain(|_, since| since.elapsed() < UNKNOWN_LASTS);
        }
        if unknown.len() < UNKNOWN_MAX {
            unknown.insert(id, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_one_storage_name_it() {
        let id = StorageId::from_bytes([0x11; 16]);
        for path in [
            format!("/storage/{id}/{id}.storage"),
            format!("/api/v1/storages/{id}"),
            format!("/api/v1/storages/{id}/query"),
        ] {
            assert_eq!(storage_in(&path), Some(id), "{path}");
        }
        for path in ["/api/v1/storages", "/storage/x/y", "/api/v1/query", "/"] {
            assert_eq!(storage_in(path), None, "{path}");
        }
    }
}
