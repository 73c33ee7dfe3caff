//! Whether tasks still run that run until the server stops.

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};

/// Tasks with their names.
#[derive(Default)]
pub(crate) struct WatchedTasks(Mutex<Vec<(&'static str, AbortHandle)>>);

impl WatchedTasks {
    pub(crate) fn watch(&self, name: &'static str, task: &JoinHandle<()>) {
        self.0.lock().push((name, task.abort_handle()));
    }

    /// The names of those that have ended.
    pub(crate) fn ended(&self) -> Vec<&'static str> {
        let tasks = self.0.lock();
        let ended = tasks.iter().filter(|(_, task)| task.is_finished());
        ended.map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::WatchedTasks;

    #[tokio::test]
    async fn a_task_that_panics_has_ended() {
        let tasks = WatchedTasks::default();
        let running = tokio::spawn(std::future::pending());
        let dead = tokio::spawn(async { panic!("as intended by the test") });
        tasks.watch("running", &running);
        tasks.watch("dead", &dead);
        assert!(dead.await.is_err());
        assert_eq!(tasks.ended(), ["dead"]);
        running.abort();
    }
}
