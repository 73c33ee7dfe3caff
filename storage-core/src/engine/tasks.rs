//! Tasks that run until the engine stops: writers, imports, the watch over free space.

use std::{future::Future, sync::Arc};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    storage::Storage,
    writer::{Services, Writer},
};

/// The tasks of an engine.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        // Collect the tasks that ended, so that the set does not grow.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Starts the writer of a storage whose tree is loaded.
    pub(super) fn start_writer(&self, storage: &Arc<Storage>, services: &Services) {
        let mut tasks = self.0.lock();
        // Collect the writers that ended, so that the set does not grow.
        while tasks.try_join_next().is_some() {}
        Writer::start(storage, services, &mut tasks);
    }

    /// Ends all tasks.
    pub(super) async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock());
        tasks.shutdown().await;
    }
}
