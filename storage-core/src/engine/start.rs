//! Starting and stopping the engine.

use std::{fs::File, path::Path, sync::Arc};

use io_trace::{Cause, Operation, Scope, Tracer, current};
use parking_lot::Mutex;
use rustix::fs::syncfs;
use storage_format::{
    paths::{AGENTS_FOLDER, CATALOG_FOLDER, STORAGES_FOLDER},
    storage_file::StorageState,
};
use tokio::sync::{Semaphore, oneshot};

use super::{
    DerivedFiles, Documents, Engine, EventFiles, IdempotencyKey, Ingest, Inner, Labels, QueryCache,
    Reading, Rings, Storages, Tiering, Transfer,
    blocking::Blocking,
    checksums::complete,
    discovery::{OnDisk, find_storages},
    disk_probe::DiskProbe,
    folder_lock::lock_folder,
    quotas::Quotas,
    recovering::{Recoveries, Unfinished},
    registry::Registry,
    scrub::Scrub,
    tasks::Tasks,
    trees::TreeLoader,
    usage::UsageTask,
};
use crate::{
    ByteBudget, Counters, EngineConfig, RecoveryStatus, Share, StorageError,
    agents::Agents,
    catalog::Catalog,
    checksums::{MissingChecksums, are_missing},
    droppable::Droppable,
    io_thread::{IoThread, IoThreadConfig},
    labels::LabelTypes,
    live_index::LiveIndex,
    removals,
    replica::ReplicaSlot,
    serializer::SerializerPool,
    space::Space,
    state::after_restart,
    storage::Storage,
    tier::Slots,
    traced::{on_thread, operation},
    tree::{BlockCache, IndexTree},
    writer::{Services, WriterMessage},
};

impl Engine {
    /// Opens the data folder, and recovers unfinished storages: all are ready.
    ///
    /// # Errors
    /// When the folder cannot be used, or another server uses it.
    pub async fn open(config: EngineConfig) -> Result<Self, StorageError> {
        let engine = Self::start(config, Arc::default()).await?;
        engine.inner.recoveries.ended().await;
        Ok(engine)
    }

    /// Opens the data folder, and begins to recover unfinished storages: until one is ready, what
    /// needs it is refused with [`StorageError::Recovering`]. The tracer may be on already: then it
    /// records the start as well.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn start(config: EngineConfig, tracer: Arc<Tracer>) -> Result<Self, StorageError> {
        let scope = tracer
            .is_on()
            .then(|| Scope::within(&tracer, Cause::Recovery));
        match scope {
            Some(scope) => scope.around(Self::begin(config, tracer)).await,
            None => Self::begin(config, tracer).await,
        }
    }

    async fn begin(config: EngineConfig, tracer: Arc<Tracer>) -> Result<Self, StorageError> {
        let config = Arc::new(config);
        let counters = Arc::<Counters>::default();
        let prepared = {
            let (config, counters) = (Arc::clone(&config), Arc::clone(&counters));
            on_thread(current(), move || prepare(&config, &counters, tracer)).await
        };
        let Prepared {
            lock,
            services,
            io_thread_join,
            found,
        } = prepared.map_err(|_| StorageError::Stopping)??;
        let registry = Registry::new(
            config.data_dir.join(STORAGES_FOLDER),
            config.storage_count_max,
        );
        let engine = Self::assemble(Arc::new(registry), services, lock, io_thread_join);
        engine.inner.quotas.load().await?;
        let unfinished = found.into_iter().filter_map(|found| engine.register(found));
        let unfinished = unfinished.collect();
        engine.inner.recoveries.begin(unfinished);
        engine.watch_space();
        engine.complete_checksums();
        engine.watch_io_thread();
        engine.scrub();
        engine.probe_disk();
        engine.look_at_usage();
        Ok(engine)
    }

    /// Builds the handles, each from what it needs.
    fn assemble(
        registry: Arc<Registry>,
        services: Services,
        lock: File,
        io_thread_join: std::thread::JoinHandle<()>,
    ) -> Self {
        let blocking = Blocking::new(&services.tracer);
        let tasks = Arc::<Tasks>::default();
        let config = &services.config;
        let counters = Arc::clone(&services.counters);
        let block_cache = Arc::new(BlockCache::new(config.index_cache_bytes_max, counters));
        let trees = Arc::new(TreeLoader::new(&registry, &services, &tasks, &blocking));
        let ingest = Ingest {
            registry: Arc::clone(&registry),
            services: services.clone(),
            budget: budget(&services),
            trees: Arc::clone(&trees),
        };
        let derived_files = DerivedFiles::new(&registry, &services, &blocking);
        let reading = Reading {
            registry: Arc::clone(&registry),
            agents: Arc::clone(&services.agents),
            trees,
            derived: derived_files.clone(),
            counters: Arc::clone(&services.counters),
            blocking: blocking.clone(),
        };
        let slots = Slots::new(registry.folder().to_owned());
        let handles = (&registry, &services, &tasks, &blocking);
        let transfer = transfer(handles, (&reading, &ingest), (&block_cache, &slots));
        let tiering = Tiering {
            registry: Arc::clone(&registry),
            transfer: transfer.clone(),
            io_thread: services.io_thread.clone(),
            blocking: blocking.clone(),
            slots,
        };
        let recoveries = Arc::new(Recoveries::new(&services, &tasks));
        let inner = Inner {
            recoveries,
            storages: Storages {
                registry: Arc::clone(&registry),
                services: services.clone(),
                blocking: blocking.clone(),
                tasks: Arc::clone(&tasks),
                block_cache,
            },
            event_files: EventFiles::new(&registry, &services, &blocking),
            labels: Labels::new(&registry, &services),
            rings: Rings::new(&registry, &blocking),
            query_cache: QueryCache::new(&registry, &services, &blocking),
            disk_probe: Arc::new(DiskProbe::of(&services)),
            quotas: Quotas::new(&services, Documents::new(&services, blocking.clone())),
            documents: Documents::new(&services, blocking),
            transfer,
            tiering,
            ingest,
            reading,
            derived_files,
            services,
            tasks,
            io_thread_join: Mutex::new(Some(io_thread_join)),
            lock: Mutex::new(Some(lock)),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Registers a storage from disk; returns it if it has to be recovered.
    fn register(&self, found: OnDisk) -> Option<Unfinished> {
        let OnDisk {
            folder,
            mut file,
            unfinished_bytes,
            is_unreadable,
            are_labels_lost,
        } = found;
        let Storages {
            registry,
            block_cache,
            ..
        } = &self.inner.storages;
        let cache = Arc::clone(block_cache);
        if is_unreadable {
            // Nothing is written to it, so that it can be repaired or examined.
            let storage = Storage::unreadable(folder, file, cache, are_labels_lost);
            registry.insert(Arc::new(storage), None);
            return None;
        }
        let on_disk = file.state;
        file.state = after_restart(on_disk);
        let key = file.idempotency_key.as_deref().map(IdempotencyKey::of_text);
        let storage = match unfinished_bytes {
            Some(bytes) => Storage::recovering(folder, file, cache, bytes),
            None => {
                let tree = (on_disk == StorageState::Created).then(|| IndexTree::new(file.id));
                Storage::new(folder, file, tree, cache)
            }
        };
        storage.load_repairs();
        storage.load_tier(&self.inner.tiering.slots);
        let storage = Arc::new(storage);
        let (state, id) = (storage.state(), storage.id);
        if state == StorageState::Finalized && are_missing(&storage.folder, &storage.info()) {
            self.inner.services.missing_checksums.add(id);
        }
        registry.insert(Arc::clone(&storage), key);
        unfinished_bytes.map(|_| Unfinished { storage, on_disk })
    }

    /// How far the recovery of storages after the start is; `None` when all are ready.
    #[must_use]
    pub fn recovery(&self) -> Option<RecoveryStatus> {
        let status = self.inner.recoveries.status();
        let counters = self.counters();
        let RecoveryStatus {
            storages,
            bytes_scanned,
            bytes_total,
        } = status.unwrap_or_default();
        counters.recovering_storages.set(storages);
        counters.recovery_scanned_bytes.set(bytes_scanned);
        counters.recovery_bytes.set(bytes_total);
        status
    }

    fn watch_space(&self) {
        let space = Arc::clone(&self.inner.services.space);
        let interval = self.inner.services.config.disk_low.check_interval;
        let mut ticks = tokio::time::interval(interval.max(std::time::Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.inner.tasks.spawn(async move {
            loop {
                ticks.tick().await;
                let space = Arc::clone(&space);
                let looked = tokio::task::spawn_blocking(move || space.look()).await;
                if looked.is_err() {
                    return;
                }
            }
        });
    }

    /// Computes the checksums of finalized storages that have none yet, one after another.
    fn complete_checksums(&self) {
        let services = self.inner.services.clone();
        let registry = Arc::clone(&self.inner.storages.registry);
        self.inner.tasks.spawn(async move {
            loop {
                let id = services.missing_checksums.next().await;
                // It may have been deleted.
                if let Ok(storage) = registry.find(id) {
                    complete(&storage, &services).await;
                }
            }
        });
    }

    /// Reads all storages again and again.
    fn scrub(&self) {
        let scrub = Scrub {
            registry: Arc::clone(&self.inner.storages.registry),
            services: self.inner.services.clone(),
            trees: Arc::clone(&self.inner.reading.trees),
            documents: self.inner.documents.clone(),
            blocking: self.inner.reading.blocking.clone(),
        };
        self.inner.tasks.spawn(scrub.run());
    }

    /// Adds up what agents have stored.
    fn look_at_usage(&self) {
        let interval = self.inner.services.config.usage_interval;
        if !interval.is_zero() {
            let task = UsageTask {
                usage: Arc::clone(&self.inner.quotas.usage),
                registry: Arc::clone(&self.inner.storages.registry),
                blocking: self.inner.reading.blocking.clone(),
                documents: self.inner.documents.clone(),
                counters: Arc::clone(&self.inner.services.counters),
            };
            self.inner.tasks.spawn(task.run(interval));
        }
    }

    fn probe_disk(&self) {
        let interval = self.inner.services.config.disk_probe_interval;
        if !interval.is_zero() {
            let probe = Arc::clone(&self.inner.disk_probe);
            self.inner.tasks.spawn(probe.run(interval));
        }
    }

    /// Fails every storage that is being written when the I/O thread ends unexpectedly.
    fn watch_io_thread(&self) {
        let io_thread = self.inner.services.io_thread.clone();
        let registry = Arc::clone(&self.inner.storages.registry);
        self.inner.tasks.spawn(async move {
            let reason = io_thread.failed().await;
            tracing::error!(
                reason,
                "nothing can be written; restart the server to write again"
            );
            for storage in registry.all() {
                if storage.writer.read().is_some() {
                    storage.poison.set(&reason);
                }
            }
        });
    }

    /// Ends all tasks in the middle of their work.
    #[cfg(test)]
    pub(super) async fn abort_tasks(&self) {
        self.inner.recoveries.stop().await;
        self.inner.tasks.shutdown().await;
    }

    /// Drains every writer, saves every tree, closes every file.
    ///
    /// # Errors
    /// When the I/O thread has panicked.
    pub async fn shutdown(&self) -> Result<(), StorageError> {
        self.inner.storages.interrupt_finalizations();
        self.inner.recoveries.stop().await;
        let storages = self.inner.storages.registry.all();
        let mut stopped = Vec::new();
        for storage in storages {
            let writer = storage.writer.read().clone();
            let (reply, done) = oneshot::channel();
            if let Some(writer) = writer
                && writer.send(WriterMessage::Stop { reply }).await.is_ok()
            {
                stopped.push(done);
            }
        }
        for done in stopped {
            // A writer that ended meanwhile has drained, too.
            let _ = done.await;
        }
        let io_thread = &self.inner.services.io_thread;
        crate::fault_point!(async "stop.writers_ended");
        io_thread.stop().await;
        let thread = self.inner.io_thread_join.lock().take();
        let catalog = Arc::clone(&self.inner.services.catalog);
        let ended = tokio::task::spawn_blocking(move || {
            let ended = thread.is_none_or(|thread| thread.join().is_ok());
            catalog.flush();
            crate::fault_point!("stop.catalog_flushed");
            ended
        });
        self.inner.tasks.shutdown().await;
        let ended = ended.await;
        removals::done(&self.inner.services.config.data_dir).await;
        drop(self.inner.lock.lock().take());
        match (ended, io_thread.failure()) {
            (Ok(true), None) => Ok(()),
            (_, failure) => Err(StorageError::Io {
                operation: "finish writing to",
                path: self.inner.services.config.data_dir.clone(),
                source: std::io::Error::other(failure.unwrap_or_default()),
            }),
        }
    }
}

/// The handle of copies, exports and imports.
fn transfer(
    (registry, services, tasks, blocking): (&Arc<Registry>, &Services, &Arc<Tasks>, &Blocking),
    (reading, ingest): (&Reading, &Ingest),
    (block_cache, slots): (&Arc<BlockCache>, &Slots),
) -> Transfer {
    Transfer {
        registry: Arc::clone(registry),
        agents: Arc::clone(&services.agents),
        reading: reading.clone(),
        ingest: ingest.clone(),
        import_share: import_share(&services.config),
        io_thread: services.io_thread.clone(),
        catalog: Arc::clone(&services.catalog),
        space: Arc::clone(&services.space),
        block_cache: Arc::clone(block_cache),
        blocking: blocking.clone(),
        tasks: Arc::clone(tasks),
        slots: slots.clone(),
    }
}

/// What imports may have of the bytes in flight: a quarter.
fn import_share(config: &EngineConfig) -> Arc<Share> {
    Arc::new(Share::new("imports", config.in_flight_bytes_max / 4))
}

/// The budget of the bytes in flight.
fn budget(services: &Services) -> ByteBudget {
    let config = &services.config;
    let droppable = Arc::clone(&services.droppable);
    ByteBudget::new(
        config.in_flight_bytes_max,
        config.agent_in_flight_bytes_max,
        droppable,
        Arc::clone(&services.counters),
    )
}

struct Prepared {
    lock: File,
    services: Services,
    io_thread_join: std::thread::JoinHandle<()>,
    found: Vec<OnDisk>,
}

/// The blocking part of the start.
fn prepare(
    config: &Arc<EngineConfig>,
    counters: &Arc<Counters>,
    tracer: Arc<Tracer>,
) -> Result<Prepared, StorageError> {
    let storages = config.data_dir.join(STORAGES_FOLDER);
    std::fs::create_dir_all(&storages).map_err(StorageError::io("create", &storages))?;
    let lock = lock_folder(&config.data_dir)?;
    let io_thread_config = IoThreadConfig {
        choice: config.io,
        buffer_count: config.io_buffer_count,
        commit_window: config.commit_window,
        open_channel_count_max: config.open_channel_count_max,
        channel_idle: config.channel_idle,
        preallocation_bytes_max: config.preallocation_bytes_max,
        data_file_bytes_max: config.data_file_bytes_max,
        tracer: Arc::clone(&tracer),
        #[cfg(test)]
        faults: config.faults.clone(),
    };
    let (io_thread, io_thread_join) = IoThread::start(io_thread_config, Arc::clone(counters))
        .map_err(StorageError::io(
            "start the I/O thread for",
            &config.data_dir,
        ))?;
    let serializers = start_serializers(config, counters)?;
    let agents_folder = config.data_dir.join(AGENTS_FOLDER);
    let agents = Agents::load(&agents_folder, &io_thread, config.agent_count_max)?;
    let labels = LabelTypes::load(&config.data_dir, io_thread.clone())?;
    // Recovery trusts what it finds, so bytes that a killed server did not sync are synced first.
    sync_everything(&config.data_dir)?;
    crate::fault_point!("start.synced");
    let catalog = Catalog::open(&config.data_dir.join(CATALOG_FOLDER), &tracer)?;
    let found = find_storages(&storages, &catalog)?;
    let services = Services {
        config: Arc::clone(config),
        io_thread,
        serializers,
        agents: Arc::new(agents),
        catalog: Arc::new(catalog),
        counters: Arc::clone(counters),
        tracer,
        space: Arc::new(Space::new(
            &config.data_dir,
            config.disk_low,
            Arc::clone(counters),
        )),
        labels: Arc::new(labels),
        live_index: Arc::new(LiveIndex::new(
            config.live_index_bytes_max,
            Arc::clone(counters),
        )),
        missing_checksums: Arc::<MissingChecksums>::default(),
        replica: ReplicaSlot::default(),
        merges: Arc::new(Semaphore::new(1)),
        arrangings: Arc::new(Semaphore::new(1)),
        is_stopping: Arc::default(),
        stream_counts: Arc::default(),
        droppable: Arc::new(Droppable::new(
            config.in_flight_bytes_max,
            Arc::clone(counters),
        )),
    };
    Ok(Prepared {
        lock,
        services,
        io_thread_join,
        found,
    })
}

fn start_serializers(
    config: &EngineConfig,
    counters: &Arc<Counters>,
) -> Result<SerializerPool, StorageError> {
    let (count, level) = (config.serializer_count, config.zstd_level);
    let started = SerializerPool::start(count, level, Arc::clone(counters));
    started.map_err(StorageError::io("start serializers for", &config.data_dir))
}

fn sync_everything(folder: &Path) -> Result<(), StorageError> {
    let file = File::open(folder).map_err(StorageError::io("open", folder))?;
    let sync = || syncfs(&file).map_err(std::io::Error::from);
    operation(Operation::Sync, folder, sync).map_err(StorageError::io("sync", folder))
}
