//! Tasks that run until the server stops. One that ends before is dead, and readiness says so.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app_state::AppState;
use crate::chunk_indexes;
use crate::connection::Stage;
use crate::retention;
use crate::tier;

/// The tasks of a server.
pub(crate) struct Background {
    tasks: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts all tasks.
    pub(crate) fn start(app: &Arc<AppState>, stage_seen: watch::Receiver<Stage>) -> Self {
        let seen = stage_seen.clone();
        let indexing = tokio::spawn(chunk_indexes::maintain(app.index_maker(), seen));
        let retention = tokio::spawn(retention::enforce(Arc::clone(app)));
        app.background.watch("chunk indexes", &indexing);
        app.background.watch("retention", &retention);
        let mut tasks = vec![indexing, retention];
        if let Some(store) = &app.tier {
            let rounds = tier::maintain(Arc::clone(app), Arc::clone(store), stage_seen);
            let rounds = tokio::spawn(rounds);
            app.background.watch("object store", &rounds);
            tasks.push(rounds);
        }
        Self { tasks }
    }

    /// Waits for the tasks, which end by themselves when the server stops.
    pub(crate) async fn end(self) {
        for task in self.tasks {
            // A panic in it has already been logged.
            let _ = task.await;
        }
    }
}
