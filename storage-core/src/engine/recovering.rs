//! Recovers unfinished storages in the background, while all others are served.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use io_trace::{Scope, current};
use parking_lot::Mutex;
use storage_format::{paths::FileName, storage_file::StorageState};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{folders::remove_leftovers, tasks::Tasks};
use crate::{
    Progress, RecoveryStatus, StorageError,
    known_repairs::publish_repairs,
    nature::Nature,
    panic::panic_message,
    recovery::{LostEnd, Recovered, Scan, ScanThreads, in_use, recover},
    state::accepts_packets,
    storage::Storage,
    storage_copy::publish_file,
    traced::on_thread,
    writer::Services,
};

/// Wait before a recovery that lacked file descriptors or memory is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The recoveries of an engine.
#[derive(Debug)]
pub(super) struct Recoveries {
    services: Services,
    writers: Arc<Tasks>,
    /// Storages that are recovered at the same time.
    turns: Arc<Semaphore>,
    threads: Arc<ScanThreads>,
    tasks: Mutex<JoinSet<()>>,
    /// What was to be recovered at the start.
    all: Mutex<Vec<Arc<Storage>>>,
    is_stopping: AtomicBool,
}

fn ended_unexpectedly(panic: &(dyn Any + Send)) -> String {
    format!("its recovery ended unexpectedly: {}", panic_message(panic))
}

/// A storage to recover.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) storage: Arc<Storage>,
    /// The state in its storage file, which may be one that a restart ends.
    pub(super) on_disk: StorageState,
}

impl Recoveries {
    pub(super) fn new(services: &Services, writers: &Arc<Tasks>) -> Self {
        let threads = services.config.recovery_thread_count.max(1);
        Self {
            services: services.clone(),
            writers: Arc::clone(writers),
            turns: Arc::new(Semaphore::new(threads.min(Semaphore::MAX_PERMITS))),
            threads: Arc::new(ScanThreads::new(threads)),
            tasks: Mutex::default(),
            all: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Recovers `storages`, those with the least bytes first: most storages are ready soon.
    pub(super) fn begin(self: &Arc<Self>, mut storages: Vec<Unfinished>) {
        storages.sort_by_key(|Unfinished { storage, .. }| {
            let recovery = storage.readiness.recovery().unwrap_or_default();
            (recovery.bytes_total, storage.id)
        });
        let all = storages.iter().map(|each| Arc::clone(&each.storage));
        *self.all.lock() = all.collect();
        let (recoveries, scope) = (Arc::clone(self), current());
        self.tasks.lock().spawn(async move {
            let mut running = JoinSet::new();
            for unfinished in storages {
                let turn = Arc::clone(&recoveries.turns).acquire_owned().await;
                // Those that have ended are collected, so that the set does not grow.
                while running.try_join_next().is_some() {}
                let (recoveries, scope) = (Arc::clone(&recoveries), scope.clone());
                running.spawn(async move {
                    let _turn = turn;
                    let recovery = recoveries.recover(unfinished, scope.clone());
                    match scope {
                        Some(scope) => scope.around(recovery).await,
                        None => recovery.await,
                    }
                });
            }
            while running.join_next().await.is_some() {}
        });
    }

    /// How far all recoveries are; `None` when all storages are ready.
    pub(super) fn status(&self) -> Option<RecoveryStatus> {
        let mut all = self.all.lock();
        let mut status = RecoveryStatus::default();
        for storage in &*all {
            status.add(&storage.readiness.progress);
            if !storage.readiness.is_ready() {
                status.storages = status.storages.saturating_add(1);
            }
        }
        if status.storages == 0 {
            all.clear();
            return None;
        }
        Some(status)
    }

    /// Waits until every storage is ready.
    pub(super) async fn ended(&self) {
        let all = self.all.lock().clone();
        for storage in all {
            storage.readiness.ended().await;
        }
    }

    /// Ends all recoveries; one whose result is being applied is completed. Threads that wait for
    /// the disk only read, and stop at their next read.
    pub(super) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let all = std::mem::take(&mut *self.all.lock());
        all.iter()
            .for_each(|storage| storage.readiness.progress.cancel());
        for storage in all {
            drop(storage.readiness.adopting.lock().await);
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    /// Recovers a storage and serves it. It stays as it is when the server stops meanwhile.
    async fn recover(&self, unfinished: Unfinished, scope: Option<Scope>) {
        let storage = &unfinished.storage;
        let progress = &storage.readiness.progress;
        let recovered = self.read(storage, progress, scope).await;
        let failure = match &recovered {
            Ok(recovered) => self.take_back_repairs(storage, recovered).await.err(),
            Err(_) => None,
        };
        let _adopting = storage.readiness.adopting.lock().await;
        // The server stops, or the storage has been deleted.
        if self.is_stopping.load(Ordering::Relaxed) || storage.readiness.is_ready() {
            return;
        }
        let adopted = match recovered {
            Ok(recovered) => {
                let adopting = AssertUnwindSafe(self.adopt(&unfinished, recovered, failure));
                let adopted = adopting.catch_unwind().await;
                adopted.map_err(|panic| ended_unexpectedly(&*panic))
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = adopted {
            tracing::error!(
                reason, storage = %storage.id,
                "the storage cannot be read and is FAILED; restore its files, import it again, or \
                 delete it"
            );
            storage.poison.set(&reason);
            storage.set_unreadable(&reason);
        }
        storage.readiness.set_ready();
    }

    /// Reads the tree of a storage; the error says why that is impossible.
    async fn read(
        &self,
        storage: &Storage,
        progress: &Arc<Progress>,
        scope: Option<Scope>,
    ) -> Result<Recovered, String> {
        loop {
            let scan = Scan {
                progress: Arc::clone(progress),
                threads: Arc::clone(&self.threads),
                is_strict: true,
            };
            let (folder, id) = (storage.folder.clone(), storage.id);
            let torn_bytes_max = self.services.config.in_flight_bytes_max;
            #[cfg(test)]
            let faults = self.services.config.faults.clone();
            let named = storage.info().files.into_iter().map(|file| file.name);
            let named: Vec<_> = named.collect();
            let read = move || {
                #[cfg(test)]
                if let Some(plan) = &faults {
                    plan.panic_at(crate::io::faulty::Operation::Recover);
                }
                recover(&folder, id, &named, torn_bytes_max, &scan)
            };
            match on_thread(scope.clone(), read).await {
                Ok(Ok(recovered)) => return Ok(recovered),
                Ok(Err(error @ StorageError::Exhausted { .. })) => {
                    tracing::warn!(%error, storage = %id, "the storage cannot be recovered now; its recovery is tried again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Ok(Err(error)) => return Err(error.to_string()),
                Err(error) => {
                    return Err(match error.try_into_panic() {
                        Ok(panic) => ended_unexpectedly(&*panic),
                        Err(error) => format!("its recovery ended unexpectedly: {error}"),
                    });
                }
            }
        }
    }

    /// Takes back repairs that ended before they took effect: one would do so with the next data
    /// file. Until that is written, nothing else is.
    async fn take_back_repairs(
        &self,
        storage: &Storage,
        recovered: &Recovered,
    ) -> Result<(), StorageError> {
        let is_failed = recovered.damage.is_some() || storage.state() == StorageState::Failed;
        if is_failed || !recovered.has_void_repairs {
            return Ok(());
        }
        let io_thread = &self.services.io_thread;
        loop {
            let repairs = &recovered.repairs;
            match publish_repairs(&storage.folder, repairs, io_thread).await {
                // The storage is neither damaged nor written: it waits.
                Err(error)
                    if error.nature() == Nature::Transient && !storage.readiness.is_ready() =>
                {
                    tracing::warn!(%error, storage = %storage.id, "the repair file of the storage cannot be written now; its recovery goes on later");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                published => return published,
            }
        }
    }

    /// Takes the result of a recovery, and starts the writer.
    async fn adopt(
        &self,
        unfinished: &Unfinished,
        recovered: Recovered,
        failure: Option<StorageError>,
    ) {
        let Unfinished { storage, on_disk } = unfinished;
        #[cfg(test)]
        if let Some(plan) = &self.services.config.faults {
            plan.panic_at(crate::io::faulty::Operation::Adopt);
        }
        let mut file = storage.info();
        let names: Vec<_> = file.files.iter().map(|file| file.name.clone()).collect();
        let in_use = in_use(&names, &recovered.repairs);
        file.files.retain(|listed| in_use.contains(&listed.name));
        let damage = recovered.damage.as_ref().or(failure.as_ref());
        let damage = damage.map(ToString::to_string);
        if let Some(damage) = recovered.damage {
            storage.set_damage(damage);
        }
        // A file that seems to be left over may be what remains of a damaged log.
        if damage.is_none() && file.state != StorageState::Failed {
            crate::fault_point!(async "start.recovered");
            remove_leftovers(recovered.leftovers).await;
            if file.state != StorageState::Finalizing {
                remove_leftovers(recovered.arranged).await;
            }
        }
        if let Some(damage) = damage
            && file.state != StorageState::Failed
        {
            file.state = StorageState::Failed;
            file.failure = Some(damage);
        }
        if file.state != *on_disk {
            let Services {
                io_thread, catalog, ..
            } = &self.services;
            let published = publish_file(&storage.folder, (&file, None), io_thread, catalog);
            if let Err(error) = published.await {
                tracing::error!(
                    %error, storage = %file.id,
                    "the storage file cannot be updated; its state is known until the restart only"
                );
            }
        }
        crate::fault_point!(async "start.adopted");
        if let Some(failure) = &file.failure {
            tracing::error!(storage = %file.id, failure, "the storage has failed and is read-only");
        }
        // The writer finalizes, too.
        let is_written = accepts_packets(file.state) || file.state == StorageState::Finalizing;
        storage.set_repairs(recovered.repairs);
        storage.recovered(file, recovered.tree);
        if let Some(lost) = recovered.lost_end {
            note_lost_end(storage, &lost);
        }
        if is_written {
            self.writers.start_writer(storage, &self.services);
        }
    }
}

/// Remembers that the log lacks the last batch that its index has.
fn note_lost_end(storage: &Storage, lost: &LostEnd) {
    let LostEnd {
        file,
        offset,
        error,
    } = lost;
    tracing::error!(
        %error, storage = %storage.id,
        "the end of the log is damaged, and acknowledged packets are lost: verify and repair the \
         storage; if later ones were lost with them, nothing says so"
    );
    let name = FileName::Data(*file).to_string();
    storage
        .checked
        .scrubbed
        .add(&name, *offset, error.to_string());
}
