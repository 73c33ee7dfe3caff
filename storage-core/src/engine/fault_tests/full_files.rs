//! Full files of a storage are arranged while it is open: on a disk that fails, while packets are
//! read and written, and through restarts with files that are missing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use storage_format::{
    DataFileId,
    log::LogFileHeader,
    paths::{FileName, FileRole},
    storage_file::{StorageFile, StorageState},
};

use super::{
    World, arranged_files, config, copy_of,
    repairing::{damage, numbers, repair},
    small_files,
};
use crate::{
    Engine, EngineConfig,
    io::faulty::{Fault, FaultPlan, Operation},
    leaf_bytes::{LeafMap, LeafReader},
};

/// Operations of arranging a file.
const OPERATIONS: [Operation; 5] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::SyncFolder,
];

pub(super) fn data_files(folder: &Path) -> BTreeMap<DataFileId, PathBuf> {
    let names = std::fs::read_dir(folder).unwrap();
    let files = names.filter_map(|name| {
        let name = name.unwrap();
        match name.file_name().to_str()?.parse() {
            Ok(FileName::Data(file)) => Some((file, name.path())),
            _ => None,
        }
    });
    files.collect()
}

fn is_whole_name(path: &Path) -> bool {
    path.extension().is_none_or(|ending| ending != "tmp")
}

impl World {
    /// A storage with full files of which none is arranged; its engine has ended.
    pub(super) async fn of_full_files() -> Self {
        let mut world = Self::with(|config| {
            small_files(config);
            config.index_merge_count = usize::MAX;
        })
        .await;
        world.push_some(16).await;
        world.engine.shutdown().await.unwrap();
        assert!(data_files(&world.folder_of(&world.engine)).len() > 3);
        world
    }

    /// Starts an engine on a copy of the folder that arranges full files.
    pub(super) async fn copy_that_arranges(&self, plan: FaultPlan) -> Self {
        let folder = copy_of(self.folder.path());
        let plan = std::sync::Arc::new(plan);
        let mut config = config(folder.path());
        arranged_files(&mut config);
        config.faults = Some(std::sync::Arc::clone(&plan));
        // Arranging begins as soon as the engine is open.
        plan.cover(folder.path());
        let engine = Engine::open(config).await.unwrap();
        Self {
            engine,
            plan,
            storage: self.storage,
            folder,
            acknowledged: self.acknowledged.clone(),
            arranges: true,
        }
    }

    pub(super) fn files_arranged(&self) -> u64 {
        self.engine.counters().files_arranged.get()
    }

    /// Waits until some files are arranged, and those that they replaced were removed.
    pub(super) async fn some_arranged(&self) {
        let folder = self.folder_of(&self.engine);
        let is_replaced = || {
            let there = data_files(&folder);
            let replaced = there.keys().filter_map(|file| file.replaced());
            replaced.into_iter().any(|file| there.contains_key(&file))
        };
        while self.files_arranged() < 3 || is_replaced() {
            tokio::task::yield_now().await;
        }
    }

    /// The names of data files in the storage file.
    fn named(&self) -> Vec<String> {
        let folder = self.folder_of(&self.engine);
        let path = folder.join(FileName::Storage(self.storage).to_string());
        let file = StorageFile::decode(&std::fs::read(path).unwrap()).unwrap();
        let data = file.files.into_iter();
        let data = data.filter(|file| file.role == FileRole::Data);
        data.map(|file| file.name).collect()
    }

    /// A copy of the files of a storage of which several were arranged, and whose engine ended.
    async fn of_arranged_files() -> Self {
        let mut world = Self::with(arranged_files).await;
        while world.files_arranged() < 3 {
            world.push_some(2).await;
        }
        world.engine.shutdown().await.unwrap();
        world
    }

    /// Restarts an engine on a copy of which `change` changed the files.
    async fn check_changed(&self, change: impl FnOnce(&Path)) -> StorageState {
        let copy = copy_of(self.folder.path());
        let storages = copy.path().join("storages");
        change(&storages.join(self.storage.to_string()));
        let mut config = config(copy.path());
        arranged_files(&mut config);
        let engine = Engine::open(config).await.unwrap();
        engine.storages().recovered(self.storage).await.unwrap();
        let state = engine.storages().get(self.storage).unwrap().state;
        if state != StorageState::Failed {
            self.check_recovered(&engine).await;
        }
        engine.shutdown().await.unwrap();
        state
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_files_are_arranged_while_the_storage_is_open() {
    let base = World::of_full_files().await;
    let mut world = base.copy_that_arranges(FaultPlan::default()).await;
    world.some_arranged().await;
    world.check(&world.engine).await;
    let folder = world.folder_of(&world.engine);
    let named = world.named();
    assert!(named.len() > 2, "{named:?}");
    for name in &named {
        let Ok(FileName::Data(file)) = name.parse() else {
            panic!("{name} is not a data file");
        };
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let header = LogFileHeader::decode(&bytes, world.storage, file).unwrap();
        let replaced = header.replaces.unwrap();
        assert_eq!(replaced.arranged_length, bytes.len() as u64);
        assert_eq!(replaced.file.replacement(), Some(file));
    }
    world.push_some(4).await;
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open);
    let finalized = world.engine.storages().finalize(world.storage).await;
    let data = finalized.unwrap().files.into_iter();
    let data: Vec<_> = data.filter(|file| file.role == FileRole::Data).collect();
    let is_arranged = |name: &str| match name.parse() {
        Ok(FileName::Data(file)) => file.replaced().is_some(),
        _ => false,
    };
    let arranged = data.iter().filter(|file| is_arranged(&file.name));
    assert!(arranged.count() > named.len(), "{data:?}");
    world.check(&world.engine).await;
    world.check_files(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Finalized);
    world.engine.shutdown().await.unwrap();
}

/// The n-th operation fails, once or until it is healed: nothing is lost, the storage stays open,
/// and files are arranged later. Returns whether an operation failed.
async fn check_fault(
    base: &World,
    operation: Operation,
    nth: std::ops::Range<usize>,
    errno: Errno,
) -> bool {
    let context = format!("{operation:?} {nth:?} {errno}");
    let mut world = base.copy_that_arranges(FaultPlan::default()).await;
    world.plan.inject(operation, nth, Fault::Fail(errno));
    let failures = || world.engine.counters().file_arranging_failures.get();
    while failures() == 0 && world.plan.hits() == 0 && world.files_arranged() < 2 {
        tokio::task::yield_now().await;
    }
    let is_hit = world.plan.hits() > 0;
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open, "{context}");
    world.plan.heal();
    assert_eq!(world.state(), StorageState::Open, "{context}");
    world.push_some(2).await;
    world.check(&world.engine).await;
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    world.check(&world.engine).await;
    world.check_files(&world.engine).await;
    let folder = world.folder_of(&world.engine);
    let left = data_files(&folder).into_values();
    assert!(left.into_iter().all(|path| is_whole_name(&path)));
    world.engine.shutdown().await.unwrap();
    is_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn arranging_that_fails_at_any_operation_loses_nothing() {
    let base = World::of_full_files().await;
    for operation in OPERATIONS {
        for errno in [Errno::NOSPC, Errno::IO] {
            let mut nth = 0;
            while check_fault(&base, operation, nth..nth + 1, errno).await {
                nth += 1;
            }
            for nth in (0..nth).step_by(3) {
                check_fault(&base, operation, nth..usize::MAX, errno).await;
            }
        }
    }
}

/// The disk stops after some operations, and then the power fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_at_any_operation_of_arranging_loses_nothing() {
    let base = World::of_full_files().await;
    for at in 0..60 {
        let plan = FaultPlan::default();
        plan.forget_unsynced();
        let world = base.copy_that_arranges(plan).await;
        world.plan.halt_after(at);
        while world.files_arranged() < 3 {
            tokio::select! {
                () = world.plan.halted() => break,
                () = tokio::task::yield_now() => {}
            }
        }
        let copy = world.torn_copy(at as u64).await;
        world.plan.resume();
        let mut config = config(copy.path());
        arranged_files(&mut config);
        let engine = Engine::open(config).await.unwrap();
        let state = world.check_recovered(&engine).await;
        assert_eq!(state, StorageState::Open, "cut at {at}");
        engine.shutdown().await.unwrap();
        world.engine.shutdown().await.unwrap();
    }
}

/// The index is rebuilt from the data files alone, whichever parts are lost.
#[tokio::test(flavor = "multi_thread")]
async fn lost_index_parts_are_rebuilt_from_arranged_files() {
    let world = World::of_arranged_files().await;
    let is_part = |path: &Path| path.extension().is_some_and(|ending| ending == "index");
    let parts = |folder: &Path| {
        let names = std::fs::read_dir(folder).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let mut parts: Vec<_> = paths.filter(|path| is_part(path)).collect();
        parts.sort();
        parts
    };
    let count = parts(&world.folder_of(&world.engine)).len();
    assert!(count > 1);
    let lost = |which: &dyn Fn(usize) -> bool, folder: &Path| {
        let parts = parts(folder).into_iter().enumerate();
        let lost = parts.filter(|(at, _)| which(*at));
        lost.for_each(|(_, path)| std::fs::remove_file(path).unwrap());
    };
    let state = world.check_changed(|folder| lost(&|_| true, folder)).await;
    assert_eq!(state, StorageState::Open);
    for at in 0..count {
        let state = world.check_changed(|folder| lost(&|part| part == at, folder));
        assert_eq!(state.await, StorageState::Open, "without part {at}");
    }
}

/// What was durable in an arranged file is proven as it was in the file that it replaced.
#[tokio::test(flavor = "multi_thread")]
async fn damage_of_an_arranged_file_is_not_taken_for_the_end_of_the_log() {
    let world = World::of_arranged_files().await;
    let lose_index = |folder: &Path| {
        for name in std::fs::read_dir(folder).unwrap() {
            let path = name.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "index") {
                std::fs::remove_file(path).unwrap();
            }
        }
    };
    let arranged = |folder: &Path| {
        let files = data_files(folder).into_iter();
        let mut files = files.filter(|(file, _)| file.replaced().is_some());
        files.nth(1).unwrap().1
    };
    let changes: [&dyn Fn(&Path); 4] = [
        &|path| std::fs::remove_file(path).unwrap(),
        &|path| {
            let length = std::fs::metadata(path).unwrap().len();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(length - 1).unwrap();
        },
        // A byte of a frame, and one of the header.
        &|path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[4096 + 40 + 512 + 200] ^= 1;
            std::fs::write(path, bytes).unwrap();
        },
        &|path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[60] ^= 1;
            std::fs::write(path, bytes).unwrap();
        },
    ];
    for (at, change) in changes.iter().enumerate() {
        let state = world.check_changed(|folder| {
            change(&arranged(folder));
            lose_index(folder);
        });
        assert_eq!(state.await, StorageState::Failed, "change {at}");
    }
    // No later file says that it was there, as after a crash of a finalization.
    for (at, change) in changes.iter().enumerate() {
        let state = world.check_changed(|folder| {
            let last = arranged(folder);
            change(&last);
            for (file, path) in data_files(folder) {
                let is_later = file.is_of_log() || path > last;
                if is_later {
                    std::fs::remove_file(path).unwrap();
                }
            }
            lose_index(folder);
        });
        assert_eq!(state.await, StorageState::Failed, "change {at} of the last");
    }
    // An arranged file of the same storage that was made of another state of the file.
    let state = world.check_changed(|folder| {
        let path = arranged(folder);
        let bytes = std::fs::read(&path).unwrap();
        let id = path.file_stem().unwrap().to_str().unwrap();
        let header = LogFileHeader::decode(&bytes, world.storage, id.parse().unwrap()).unwrap();
        let mut replaced = header.replaces.unwrap();
        replaced.chain ^= 1;
        let header = LogFileHeader {
            replaces: Some(replaced),
            ..header
        };
        let mut changed = header.encode();
        changed.extend_from_slice(&bytes[4096..]);
        std::fs::write(&path, changed).unwrap();
        lose_index(folder);
    });
    assert_eq!(state.await, StorageState::Failed, "another chain");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_keep_the_file_that_they_began_with() {
    let mut world = World::with(arranged_files).await;
    world.push_some(4).await;
    let readers: Vec<_> = {
        let storage = world.engine.inner.storages.registry.find(world.storage);
        let storage = storage.unwrap();
        let tree = storage.tree.read();
        let tree = tree.as_ref().unwrap();
        let leaves = tree.leaves().map(|leaf| (leaf.id, leaf.tail.length));
        let reader = |(leaf, length): (_, u64)| {
            let map = LeafMap::new(
                &storage.folder,
                &storage.cache,
                tree.pin(),
                tree.leaf(leaf).unwrap(),
                &(0..length),
            );
            (LeafReader::new(map), usize::try_from(length).unwrap())
        };
        leaves.map(reader).collect()
    };
    let read = |(reader, length): &(LeafReader, usize)| {
        reader.close();
        reader.read(0, *length).unwrap()
    };
    let before: Vec<_> = readers.iter().map(read).collect();
    let arranged = world.files_arranged();
    while world.files_arranged() < arranged + 3 {
        world.push_some(1).await;
    }
    assert_eq!(readers.iter().map(read).collect::<Vec<_>>(), before);
    drop(readers);
    world.some_arranged().await;
    world.check(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}

/// A file that is arranged so slowly that it does not end does not hold up anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_is_finalized_deleted_or_stopped_while_a_file_is_arranged() {
    let slow = |config: &mut EngineConfig| {
        small_files(config);
        config.full_file_arranging_bytes_per_second_max = 1;
    };
    for ending in 0..3 {
        let mut world = World::with(slow).await;
        world.push_some(16).await;
        let folder = world.folder_of(&world.engine);
        let is_arranging = || {
            let mut names = std::fs::read_dir(&folder).unwrap();
            names.any(|name| {
                let name = name.unwrap().file_name();
                name.to_string_lossy().ends_with(".itdata.tmp")
            })
        };
        while !is_arranging() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.files_arranged(), 0);
        match ending {
            0 => {
                let finalized = world.engine.storages().finalize(world.storage).await;
                assert_eq!(finalized.unwrap().state, StorageState::Finalized);
                assert!(!is_arranging());
                world.check(&world.engine).await;
                world.check_files(&world.engine).await;
            }
            1 => world.engine.storages().delete(world.storage).await.unwrap(),
            _ => {
                world.engine.shutdown().await.unwrap();
                assert!(!is_arranging());
                continue;
            }
        }
        world.engine.shutdown().await.unwrap();
    }
}

/// The disk fails until the storage has failed.
async fn fail(world: &mut World) {
    world
        .plan
        .inject(Operation::Write, 0..usize::MAX, Fault::Fail(Errno::IO));
    while world.state() == StorageState::Open {
        world.push_some(1).await;
    }
    world.plan.heal();
    assert_eq!(world.state(), StorageState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_storage_with_arranged_files_is_opened_again_if_it_is_whole() {
    let mut world = World::with(arranged_files).await;
    while world.files_arranged() < 3 {
        world.push_some(2).await;
    }
    fail(&mut world).await;
    let named = world.named();
    assert!(named.len() > 2, "{named:?}");
    let plan = repair(&world, false).await.unwrap();
    assert_eq!((plan.missing_packets, plan.copied_packets), (0, 0));
    assert_eq!(world.state(), StorageState::Failed);
    assert!(repair(&world, true).await.unwrap().is_repaired);
    assert_eq!(world.state(), StorageState::Open);
    world.check(&world.engine).await;
    let before = world.files_arranged();
    while world.files_arranged() < before + 2 {
        world.push_some(2).await;
    }
    assert!(named.iter().all(|name| world.named().contains(name)));
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open);
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    world.check(&world.engine).await;
    world.check_files(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_a_storage_with_arranged_files_is_not_repaired() {
    let base = World::of_arranged_files().await;
    let folder = base.folder_of(&base.engine);
    let path = folder.join(base.named().first().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let world = base.copy_that_arranges(FaultPlan::default()).await;
    world
        .engine
        .storages()
        .recovered(world.storage)
        .await
        .unwrap();
    assert_eq!(world.state(), StorageState::Failed);
    let content = || {
        let names = std::fs::read_dir(world.folder_of(&world.engine)).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let content = paths.map(|path| (path.clone(), std::fs::read(path).unwrap()));
        content.collect::<BTreeMap<_, _>>()
    };
    let before = content();
    for is_confirmed in [false, true] {
        let refused = repair(&world, is_confirmed).await.unwrap_err();
        assert!(refused.to_string().contains(".itdata"), "{refused}");
        assert_eq!(world.state(), StorageState::Failed);
        assert!(content() == before, "nothing is changed");
    }
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_storage_whose_log_was_cut_are_not_arranged() {
    let mut base = World::with(small_files).await;
    base.push_some(8).await;
    fail(&mut base).await;
    damage(&base);
    let repaired = repair(&base, true).await.unwrap();
    assert_eq!(repaired.missing_packets, 1);
    base.push_some(8).await;
    let whole = numbers(&base).await;
    base.engine.shutdown().await.unwrap();
    let mut world = base.copy_that_arranges(FaultPlan::default()).await;
    for _ in 0..4 {
        world.push_some(4).await;
    }
    assert_eq!(world.files_arranged(), 0);
    assert!(world.named().is_empty());
    assert!(numbers(&world).await.starts_with(&whole));
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert!(finalized.unwrap().lists(FileRole::Repairs));
    assert!(numbers(&world).await.starts_with(&whole));
    world.engine.shutdown().await.unwrap();
}
