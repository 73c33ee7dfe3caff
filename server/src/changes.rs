//! Changes of state run to their end, whether or not the client waits for the answer.
//!
//! A connection drops the handler of a request when its client hangs up. Dropped between two
//! writes, a change would be half done: a storage file without its folder entry, a deleted storage
//! that the next start serves again. A request that changes something is therefore handled in a
//! task that this module owns, and the connection only waits for its answer.
//!
//! Three kinds of requests stay with their connection: pushes, whose packets belong to the writer
//! once it has them and whose receipts can be requested again; queries, which nobody needs without
//! a client; and jobs except repairs, which are cancelled when their client leaves and undo what
//! they began.

use std::future::Future;
use std::sync::Arc;

use axum::response::Response;
use http::{Method, Uri};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::metrics::OTLP_EXPORT;

/// The routes whose requests stay with their connection.
const WITH_CONNECTION: &[&str] = &[
    "/api/v1/agents/{agent}/streams/{stream}/packets",
    "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets",
    "/api/v1/query",
    "/api/v1/storages/{id}/query",
    "/api/v1/storages/{id}/queries",
    "/api/v1/query/splits",
    "/api/v1/storages/{id}/query/splits",
    VERIFY,
    "/api/v1/storages/{id}/copy",
    "/api/v1/storages/import",
    "/v1/traces",
    OTLP_EXPORT,
];

/// It also repairs, which its query string asks for.
const VERIFY: &str = "/api/v1/storages/{id}/verify";
/// The only query string of it that changes nothing.
const REPAIR_PLAN: &str = "repair=plan";

/// Whether a request changes state and has to run to its end. Names in a path can be any text, so
/// that only a whole path says what it is.
pub(crate) fn is_change(method: &Method, target: &Uri) -> bool {
    if method.is_safe() {
        return false;
    }
    let mut routes = WITH_CONNECTION.iter();
    let Some(route) = routes.find(|route| is_of_route(target.path(), route)) else {
        return true;
    };
    *route == VERIFY && target.query().is_some_and(|query| query != REPAIR_PLAN)
}

fn is_of_route(path: &str, route: &str) -> bool {
    let (mut path, mut route) = (path.split('/'), route.split('/'));
    loop {
        match (path.next(), route.next()) {
            (None, None) => return true,
            (Some(found), Some(wanted)) if wanted.starts_with('{') && !found.is_empty() => {}
            (Some(found), Some(wanted)) if found == wanted => {}
            _ => return false,
        }
    }
}

/// The changes that are in flight.
#[derive(Debug, Default, Clone)]
pub(crate) struct Changes(Arc<Mutex<JoinSet<()>>>);

impl Changes {
    /// Runs a change to its end; `None` when it was aborted or panicked. Dropping the returned
    /// future does not stop the change.
    pub(crate) async fn run(
        &self,
        change: impl Future<Output = Response> + Send + 'static,
    ) -> Option<Response> {
        if storage_core::sabotaged!("cancel-changes") {
            return Some(change.await);
        }
        let (reply, answered) = oneshot::channel();
        {
            let mut tasks = self.0.lock();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                // The client may have hung up: the change is done all the same.
                let answer = change.await;
                storage_core::fault_point!(async "change.finished");
                drop(reply.send(answer));
            });
        }
        answered.await.ok()
    }

    /// Waits until every change has finished. Call it when no request can arrive any more.
    pub(crate) async fn finish(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock());
        while tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn only_changes_of_state_leave_their_connection() {
        for (method, target, expected) in [
            (Method::PATCH, "/api/v1/storages/x", true),
            (Method::DELETE, "/api/v1/storages/x", true),
            (Method::POST, "/api/v1/storages", true),
            (Method::POST, "/api/v1/storages/x/finalize", true),
            (Method::PUT, "/api/v1/agents/a/metadata", true),
            (Method::POST, "/api/v1/recordings", true),
            (Method::POST, "/api/v1/buffer/copy", true),
            (Method::GET, "/api/v1/storages/x", false),
            (Method::HEAD, "/storage/x/y.itdata", false),
            (Method::POST, "/api/v1/agents/a/streams/s/packets", false),
            (
                Method::POST,
                "/api/v1/storages/x/agents/a/streams/s/packets",
                false,
            ),
            (Method::POST, "/api/v1/storages/x/query", false),
            (Method::POST, "/api/v1/storages/x/queries", false),
            (Method::POST, "/api/v1/query", false),
            (Method::POST, "/api/v1/storages/x/query/splits", false),
            (Method::POST, "/api/v1/query/splits", false),
            (Method::POST, "/api/v1/storages/x/copy", false),
            (Method::POST, "/api/v1/storages/x/verify", false),
            (Method::POST, "/api/v1/storages/x/verify?repair=plan", false),
            (
                Method::POST,
                "/api/v1/storages/x/verify?repair=confirm",
                true,
            ),
            (
                Method::POST,
                "/api/v1/storages/x/verify?repair=%63onfirm",
                true,
            ),
            (Method::POST, "/api/v1/storages/import", false),
            (Method::POST, "/v1/traces", false),
            (Method::POST, OTLP_EXPORT, false),
            // Names are any text.
            (Method::PUT, "/api/v1/storages/x/labels/copy", true),
            (Method::DELETE, "/api/v1/storages/x/labels/verify", true),
            (Method::DELETE, "/api/v1/label-types/query", true),
            (Method::DELETE, "/api/v1/label-types/a/values/query", true),
            (Method::PUT, "/api/v1/agents/packets", true),
            (Method::PUT, "/api/v1/agents/a/streams/packets", true),
            (Method::PUT, "/api/v1/agents/query/metadata", true),
        ] {
            let target: Uri = target.parse().unwrap();
            assert_eq!(is_change(&method, &target), expected, "{method} {target}");
        }
    }

    #[test]
    fn what_stays_with_its_connection_is_a_route() {
        let routes: Vec<&str> = crate::access::routes().map(|(_, path)| path).collect();
        let described = WITH_CONNECTION
            .iter()
            .filter(|route| **route != OTLP_EXPORT);
        for route in described {
            assert!(routes.contains(route), "{route}");
        }
    }

    #[tokio::test]
    async fn a_change_nobody_waits_for_finishes() {
        let changes = Changes::default();
        let is_done = Arc::new(AtomicBool::new(false));
        let change = {
            let is_done = Arc::clone(&is_done);
            async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                is_done.store(true, Ordering::SeqCst);
                "done".into_response()
            }
        };
        let hung_up = tokio::time::timeout(Duration::from_millis(1), changes.run(change)).await;
        assert!(hung_up.is_err());
        assert!(!is_done.load(Ordering::SeqCst));
        changes.finish().await;
        assert!(is_done.load(Ordering::SeqCst));
    }
}
