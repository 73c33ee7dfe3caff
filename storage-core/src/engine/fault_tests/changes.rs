//! Creations, deletions and imports while operations fail, the server is killed, or the power
//! fails: each happens as a whole or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::io::Errno;
use storage_format::{StorageId, paths::FileName, storage_file::StorageState};

use super::{World, config, copy_of, small_files};
use crate::{
    Engine, NewStorage, StorageError,
    io::faulty::{Fault, Operation},
};

const OPERATIONS: [Operation; 6] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::SyncFolder,
    Operation::Rename,
    Operation::Remove,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Create,
    DeleteOpen,
    DeleteFinalized,
    Import,
    /// An import in place of a storage that cannot be read.
    Replace,
}

const CHANGES: [Change; 5] = [
    Change::Create,
    Change::DeleteOpen,
    Change::DeleteFinalized,
    Change::Import,
    Change::Replace,
];

/// A finalized storage as an archive.
pub(super) struct Archive {
    pub(super) id: StorageId,
    pub(super) bytes: Vec<u8>,
    pub(super) acknowledged: BTreeMap<&'static str, u64>,
}

pub(super) async fn archive() -> Archive {
    let mut world = World::of_small_files().await;
    world.push_some(3).await;
    let Ok(info) = world.engine.storages().finalize(world.storage).await else {
        panic!("a storage is finalized");
    };
    let transfer = world.engine.transfer();
    let mut export = transfer.export(info.id, Arc::default()).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = export.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    world.engine.shutdown().await.unwrap();
    Archive {
        id: info.id,
        bytes,
        acknowledged: world.acknowledged,
    }
}

impl Change {
    /// Whether the storage exists before the change.
    fn removes(self) -> bool {
        matches!(self, Self::DeleteOpen | Self::DeleteFinalized)
    }

    /// What is there before the change. `storage` of an import is the one that is imported.
    async fn prepare(self, archive: &Archive) -> World {
        let mut world = World::of_small_files().await;
        match self {
            Self::Create => {}
            Self::DeleteOpen => {
                world.push_some(3).await;
                world.index_written().await;
            }
            Self::DeleteFinalized => {
                world.push_some(3).await;
                let storages = world.engine.storages();
                storages.finalize(world.storage).await.unwrap();
            }
            Self::Import => {
                world.storage = archive.id;
                world.acknowledged = archive.acknowledged.clone();
            }
            Self::Replace => {
                world.storage = archive.id;
                world.acknowledged = archive.acknowledged.clone();
                let folder = world.folder_of(&world.engine);
                std::fs::create_dir(&folder).unwrap();
                let name = FileName::Storage(archive.id).to_string();
                std::fs::write(folder.join(name), "damaged").unwrap();
                std::fs::write(folder.join("0000000000000001.itdata"), "its bytes").unwrap();
                world.engine.shutdown().await.unwrap();
                let mut config = config(world.folder.path());
                small_files(&mut config);
                config.faults = Some(Arc::clone(&world.plan));
                world.engine = Engine::open(config).await.unwrap();
            }
        }
        world
    }

    async fn run(self, world: &World, archive: &Archive) -> Result<(), StorageError> {
        match self {
            Self::Create => {
                let new = NewStorage {
                    name: "new".into(),
                    ..NewStorage::default()
                };
                world.engine.storages().create(new).await.map(drop)
            }
            Self::DeleteOpen | Self::DeleteFinalized => {
                world.engine.storages().delete(world.storage).await
            }
            Self::Import | Self::Replace => {
                let source = std::io::Cursor::new(archive.bytes.clone());
                let transfer = world.engine.transfer();
                let imported = transfer.import(source, None, Arc::default());
                imported.await.map(drop)
            }
        }
    }

    /// Whether the storage is there, and then as a whole.
    async fn is_there(self, world: &World, engine: &Engine, context: &str) -> bool {
        if self == Self::Create {
            let all = engine.storages().list(&crate::StorageFilter::default());
            let is_sound = |info: &crate::StorageInfo| info.state != StorageState::Failed;
            assert!(all.iter().all(is_sound), "{context}: {all:?}");
            return all.len() == 2;
        }
        match engine.storages().get(world.storage) {
            Err(_) => false,
            Ok(info) if info.state == StorageState::Failed => {
                assert_eq!(self, Self::Replace, "{context}: {:?}", info.failure);
                false
            }
            Ok(info) => {
                world.check(engine).await;
                if info.state == StorageState::Finalized {
                    world.check_files(engine).await;
                }
                true
            }
        }
    }

    /// Whether the storage is there when the engine starts on a copy of the disk. Nothing remains
    /// of what is not there.
    async fn is_there_in(self, world: &World, folder: &Path, context: &str) -> bool {
        let mut config = config(folder);
        small_files(&mut config);
        let engine = Engine::open(config).await.unwrap();
        let is_there = self.is_there(world, &engine, context).await;
        let names = std::fs::read_dir(folder.join("storages")).unwrap();
        for name in names {
            let name = name.unwrap().file_name();
            let name = name.to_string_lossy();
            assert!(!name.starts_with('.'), "{context}: {name} remains");
        }
        engine.shutdown().await.unwrap();
        is_there
    }
}

/// Makes the change while some operations fail; returns whether one did.
async fn check_fault(
    change: Change,
    archive: &Archive,
    (operation, nth, errno): (Operation, Range<usize>, Errno),
) -> bool {
    let context = format!("{change:?} {operation:?} {nth:?} {errno}");
    let world = change.prepare(archive).await;
    let plan = Arc::clone(&world.plan);
    plan.inject(operation, nth.clone(), Fault::Fail(errno));
    let changed = change.run(&world, archive).await;
    let is_hit = plan.hits() > 0;
    let is_there = change.is_there(&world, &world.engine, &context).await;
    let was_there = change.removes();
    let expected = match &changed {
        Ok(()) => !was_there,
        // The folder has its new name already, and packets that were accepted under the old one
        // could be lost.
        Err(_) if was_there && operation == Operation::SyncFolder => false,
        Err(_) => was_there,
    };
    assert_eq!(is_there, expected, "{context}: {changed:?}");
    let killed = {
        let _disk = plan.freeze().await;
        copy_of(world.folder.path())
    };
    let remains = change.is_there_in(&world, killed.path(), &context).await;
    // What cannot be taken back is found by the next start.
    let is_stuck = changed.is_err() && nth.end == usize::MAX && !was_there;
    assert!(remains == expected || is_stuck, "{context}: {changed:?}");
    plan.heal();
    assert_eq!(plan.syncs_after_failed_sync(), 0, "{context}");
    if changed.is_err() && is_there == was_there {
        if world.engine.storages().get(world.storage).is_ok() && world.is_open() {
            let pushed = world.submit("one", 1).await.unwrap().await;
            assert!(pushed.refused.is_none(), "{context}: {:?}", pushed.refused);
        }
        let again = change.run(&world, archive).await;
        let is_stuck = is_stuck && again.is_err();
        assert!(again.is_ok() || is_stuck, "{context}: {again:?}");
    }
    let World { engine, .. } = &world;
    engine.shutdown().await.unwrap();
    let folder = world.folder.path();
    let is_there = change.is_there_in(&world, folder, &context).await;
    assert_eq!(is_there, !was_there, "{context}");
    is_hit
}

impl World {
    fn is_open(&self) -> bool {
        self.state() == StorageState::Open
    }

    /// Waits for the index part of the packets so far, which is written in the background: a fault
    /// of another operation would make the storage FAILED if its publication met it.
    async fn index_written(&self) {
        while self.engine.counters().index_parts.get() == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_at_any_operation_changes_nothing() {
    let archive = archive().await;
    for change in CHANGES {
        let mut hits = 0;
        for operation in OPERATIONS {
            let mut nth = 0;
            let once = |nth| (operation, nth..nth + 1, Errno::NOSPC);
            while check_fault(change, &archive, once(nth)).await {
                // The disk fails for a while.
                let lasting = (operation, nth..usize::MAX, Errno::IO);
                check_fault(change, &archive, lasting).await;
                nth += 1;
            }
            hits += nth;
        }
        assert!(hits > 2, "{change:?} meets {hits} faults");
    }
}

/// The disk stops after some operations, and then the power fails. Returns whether the change had
/// an end.
async fn check_power_cut(change: Change, archive: &Archive, at: usize, seed: u64) -> bool {
    let context = format!("{change:?} cut at {at}, seed {seed}");
    let world = change.prepare(archive).await;
    let plan = Arc::clone(&world.plan);
    plan.forget_unsynced();
    plan.halt_after(at);
    let has_ended = tokio::select! {
        changed = change.run(&world, archive) => {
            changed.unwrap();
            true
        }
        () = async {
            plan.halted().await;
            // What does not wait for the disk goes on.
            tokio::time::sleep(Duration::from_millis(3)).await;
        } => false,
    };
    let copy = world.torn_copy(seed).await;
    plan.resume();
    let is_there = change.is_there_in(&world, copy.path(), &context).await;
    assert!(!has_ended || is_there != change.removes(), "{context}");
    world.engine.shutdown().await.unwrap();
    has_ended
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_leaves_a_change_done_or_undone() {
    let archive = archive().await;
    for change in CHANGES {
        let mut at = 0;
        while !check_power_cut(change, &archive, at, at as u64).await {
            check_power_cut(change, &archive, at, !(at as u64)).await;
            at += 1;
        }
        assert!(at > 2, "{change:?} has {at} operations");
        for seed in 0..8 {
            check_power_cut(change, &archive, usize::MAX, seed).await;
        }
    }
}

/// The new name of the folder of a deleted storage cannot be synced: the deletion fails, and the
/// storage is gone. After a power failure it is there as a whole, or not at all; one whose deletion
/// succeeded later stays deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_cannot_be_synced_fails_and_removes_no_file() {
    let archive = archive().await;
    for change in [Change::DeleteOpen, Change::DeleteFinalized] {
        let world = change.prepare(&archive).await;
        let folder = world.folder_of(&world.engine);
        let names = |folder: &Path| {
            let entries = std::fs::read_dir(folder).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names.collect::<BTreeSet<_>>()
        };
        let before = names(&folder);
        world.plan.forget_unsynced();
        let failing = Fault::Fail(Errno::IO);
        world.plan.inject(Operation::SyncFolder, 0..1, failing);
        let error = change.run(&world, &archive).await.unwrap_err();
        assert_eq!(error.code(), "io_error", "{change:?}: {error}");
        assert!(error.to_string().starts_with("sync "), "{error}");
        world.plan.heal();
        let context = format!("{change:?} not synced");
        assert!(!change.is_there(&world, &world.engine, &context).await);
        let again = change.run(&world, &archive).await.unwrap_err();
        assert_eq!(again.code(), "storage_not_found", "{again}");
        let moved = folder.with_file_name(format!(".deleted-{}", world.storage));
        assert_eq!(names(&moved), before, "{context}");
        let mut outcomes = BTreeMap::new();
        for seed in 0..16 {
            let copy = world.torn_copy(seed).await;
            let is_there = change.is_there_in(&world, copy.path(), &context).await;
            *outcomes.entry(is_there).or_insert(0) += 1;
        }
        assert_eq!(outcomes.len(), 2, "{context}: {outcomes:?}");
        let new = NewStorage {
            name: "later".into(),
            ..NewStorage::default()
        };
        let storages = world.engine.storages();
        let (later, _) = storages.create(new).await.unwrap();
        storages.delete(later.id).await.unwrap();
        for seed in 0..8 {
            let copy = world.torn_copy(seed).await;
            let engine = Engine::open(config(copy.path())).await.unwrap();
            let found = engine.storages().get(later.id).map(|info| info.state);
            assert_eq!(found.unwrap_err().code(), "storage_not_found", "{seed}");
            engine.shutdown().await.unwrap();
        }
        world.engine.shutdown().await.unwrap();
    }
}

/// Nothing changes a storage once it is deleted, although something still refers to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_storage_is_not_changed() {
    let archive = archive().await;
    for change in [Change::DeleteOpen, Change::DeleteFinalized] {
        let world = change.prepare(&archive).await;
        let inner = &world.engine.inner;
        let storage = inner.storages.registry.find(world.storage).unwrap();
        change.run(&world, &archive).await.unwrap();
        let services = &inner.services;
        let changed = storage.change(&services.io_thread, &services.catalog, |_| Ok(()));
        assert_eq!(changed.await.unwrap_err().code(), "storage_not_found");
        let read = tokio::task::spawn_blocking(move || storage.check_copy().map(drop));
        let error = read.await.unwrap().unwrap_err();
        assert!(error.code() != "damaged", "{change:?}: {error}");
        world.engine.shutdown().await.unwrap();
    }
}

/// A storage whose deletion fails is written as before, at once and after the next deletion fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_cannot_be_deleted_accepts_packets() {
    let mut world = World::of_small_files().await;
    let full = Fault::Fail(Errno::NOSPC);
    for round in 0..3 {
        world.plan.inject(Operation::Rename, 0..usize::MAX, full);
        let pending = world.submit("one", 2).await.unwrap();
        let deleted = world.engine.storages().delete(world.storage).await;
        assert!(deleted.is_err());
        let outcome = pending.await;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        *world.acknowledged.entry("one").or_default() += 2;
        world.plan.heal();
        assert_eq!(world.push_together(2).await.len(), 0, "round {round}");
        world.check(&world.engine).await;
    }
    assert_eq!(world.check_killed().await, StorageState::Open);
    world.engine.shutdown().await.unwrap();
}
