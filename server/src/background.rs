//! Tasks that run until the server stops. One that ends before is dead, and readiness says so.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app_state::AppState;
use crate::chunk_indexes;
use crate::connection::Stage;
use crate::retention;

/// The tasks of a server.
pub(crate) struct Background {
    tasks: [JoinHandle<()>; 2],
}

impl Background {
    /// Starts all tasks.
    pub(crate) fn start(app: &Arc<AppState>, stage_seen: watch::Receiver<Stage>) -> Self {
        let indexing = tokio::spawn(chunk_indexes::maintain(app.index_maker(), stage_seen));
        let retention = tokio::spawn(retention::enforce(Arc::clone(app)));
        app.background.watch("chunk indexes", &indexing);
        app.background.watch("retention", &retention);
        Self {
            tasks: [indexing, retention],
        }
    }

    /// Waits for the tasks, which end by themselves when the server stops.
    pub(crate) async fn end(self) {
        for task in self.tasks {
            // A panic in it has already been logged.
            let _ = task.await;
        }
    }
}
