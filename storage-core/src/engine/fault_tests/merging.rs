//! Index parts are merged on a disk that fails, fills up, or loses power.

use std::path::PathBuf;

use rustix::io::Errno;
use storage_format::storage_file::StorageState;

use super::{World, config, copy_of, small_files};
use crate::{
    Engine, EngineConfig,
    io::faulty::{Fault, FaultPlan, Operation},
    leaf_bytes::LeafMap,
};

/// Operations of a merge.
const OPERATIONS: [Operation; 5] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::SyncFolder,
];

fn merges(config: &mut EngineConfig, count: usize) {
    small_files(config);
    config.index_merge_count = count;
}

impl World {
    /// A storage with many index parts, of which none was merged; its engine has ended.
    async fn of_unmerged_parts() -> Self {
        let mut world = Self::with(|config| merges(config, usize::MAX)).await;
        world.push_some(16).await;
        world.engine.shutdown().await.unwrap();
        assert!(world.parts().len() > 4, "the workload writes many parts");
        world
    }

    /// Starts an engine that merges, on a copy of the folder.
    async fn copy_that_merges(&self, plan: FaultPlan) -> Self {
        let folder = copy_of(self.folder.path());
        let plan = std::sync::Arc::new(plan);
        let mut config = config(folder.path());
        merges(&mut config, 2);
        config.faults = Some(std::sync::Arc::clone(&plan));
        let engine = Engine::open(config).await.unwrap();
        plan.cover(folder.path());
        Self {
            engine,
            plan,
            storage: self.storage,
            folder,
            acknowledged: self.acknowledged.clone(),
            arranges: false,
        }
    }

    /// Waits until a merge has succeeded or failed since there were `before` outcomes.
    async fn merge_outcome(&self, before: u64) -> u64 {
        loop {
            let outcomes = self.merge_failures() + self.engine.counters().index_merges.get();
            if outcomes > before {
                return outcomes;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn merged(&self) {
        while self.engine.counters().index_merges.get() == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until all parts became one, and the others were removed.
    async fn all_merged(&self) {
        self.merged().await;
        while self.parts().len() > 1 {
            tokio::task::yield_now().await;
        }
    }

    fn merge_failures(&self) -> u64 {
        self.engine.counters().index_merge_failures.get()
    }

    /// Whether the recovered index parts describe all packets, so that nothing was rebuilt.
    fn has_all_parts(&self, engine: &Engine) -> bool {
        let storage = engine.inner.storages.registry.find(self.storage).unwrap();
        let tree = storage.tree.read();
        tree.as_ref().unwrap().uncovered_bytes() == 0
    }

    /// The files of the storage that are index parts, whole or not.
    fn parts(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("storages");
        let folder = folder.join(self.storage.to_string());
        let names = std::fs::read_dir(folder).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let mut parts: Vec<_> = paths
            .filter(|path| path.to_string_lossy().contains(".index"))
            .collect();
        parts.sort();
        parts
    }
}

/// The n-th operation of a merge fails, once or until it is healed: nothing is lost, the storage
/// stays open, and the parts are merged later. Returns whether an operation failed.
async fn check_fault(
    base: &World,
    operation: Operation,
    nth: std::ops::Range<usize>,
    errno: Errno,
) -> bool {
    let context = format!("{operation:?} {nth:?} {errno}");
    let plan = FaultPlan::default();
    plan.inject(operation, nth, Fault::Fail(errno));
    let mut world = base.copy_that_merges(plan).await;
    world.merge_outcome(0).await;
    let is_hit = world.plan.hits() > 0;
    assert_eq!(world.merge_failures() > 0, is_hit, "{context}");
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open);
    world.plan.heal();
    world.merged().await;
    assert_eq!(world.state(), StorageState::Open, "{context}");
    let is_unpublished = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "tmp");
    assert_eq!(world.parts().iter().find(|path| is_unpublished(path)), None);
    world.push_some(2).await;
    world.check(&world.engine).await;
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    world.check(&world.engine).await;
    world.check_files(&world.engine).await;
    world.engine.shutdown().await.unwrap();
    is_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_fails_at_any_operation_loses_nothing_and_is_repeated() {
    let base = World::of_unmerged_parts().await;
    for operation in OPERATIONS {
        for errno in [Errno::NOSPC, Errno::IO] {
            let mut nth = 0;
            while check_fault(&base, operation, nth..nth + 1, errno).await {
                check_fault(&base, operation, nth..usize::MAX, errno).await;
                nth += 1;
            }
            assert!(nth > 0, "{operation:?} {errno}: no fault was met");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_while_parts_are_merged_loses_nothing() {
    let base = World::of_unmerged_parts().await;
    for (at, seed) in (0..8).flat_map(|at| (0..4).map(move |seed| (at, seed))) {
        let plan = FaultPlan::default();
        plan.forget_unsynced();
        plan.halt_after(at);
        let world = base.copy_that_merges(plan).await;
        tokio::select! {
            () = world.plan.halted() => {}
            () = world.all_merged() => {}
        }
        let copy = world.torn_copy(seed).await;
        world.plan.resume();
        let engine = Engine::open(config(copy.path())).await.unwrap();
        assert!(world.has_all_parts(&engine), "cut at {at}, seed {seed}");
        let state = world.check_recovered(&engine).await;
        assert_eq!(state, StorageState::Open, "cut at {at}, seed {seed}");
        engine.shutdown().await.unwrap();
        world.engine.shutdown().await.unwrap();
    }
}

/// After a crash that left a merged part and `kept` of those that it replaces: the storage is
/// whole, and what is not used is removed.
async fn check_leftovers(base: &World, kept: impl Fn(usize) -> bool, is_damaged: bool) {
    let world = base.copy_that_merges(FaultPlan::default()).await;
    world.all_merged().await;
    world.engine.shutdown().await.unwrap();
    let merged = world.parts();
    assert_eq!(merged.len(), 1, "all parts became one");
    if is_damaged {
        let mut bytes = std::fs::read(&merged[0]).unwrap();
        let at = bytes.len() - 40;
        bytes[at] ^= 1;
        std::fs::write(&merged[0], bytes).unwrap();
    }
    let folder = merged[0].parent().unwrap();
    let copied = base
        .parts()
        .into_iter()
        .enumerate()
        .filter(|(at, _)| kept(*at));
    for (_, part) in copied {
        std::fs::copy(&part, folder.join(part.file_name().unwrap())).unwrap();
    }
    let mut config = config(world.folder.path());
    // What is rebuilt from frames stays in memory.
    config.index_merge_count = usize::MAX;
    let engine = Engine::open(config).await.unwrap();
    let is_expected = !is_damaged || (0..base.parts().len()).all(&kept);
    assert_eq!(world.has_all_parts(&engine), is_expected);
    let after = world.parts();
    assert_eq!(after == merged, !is_damaged, "{after:?} after {merged:?}");
    assert_eq!(world.check_recovered(&engine).await, StorageState::Open);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_replaced_parts_are_removed_loses_nothing() {
    let base = World::of_unmerged_parts().await;
    for is_damaged in [false, true] {
        check_leftovers(&base, |_| true, is_damaged).await;
        check_leftovers(&base, |_| false, is_damaged).await;
        for nth in 0..base.parts().len() {
            check_leftovers(&base, |at| at == nth, is_damaged).await;
            check_leftovers(&base, |at| at != nth, is_damaged).await;
        }
    }
}

/// A merge halts at an operation while the storage is finalized, or deleted.
async fn check_interrupted(base: &World, at: usize, deletes: bool) {
    let plan = FaultPlan::default();
    plan.halt_after(at);
    let world = base.copy_that_merges(plan).await;
    tokio::select! {
        () = world.plan.halted() => {}
        _ = world.merge_outcome(0) => {}
    }
    let storages = world.engine.storages().clone();
    let id = world.storage;
    let ending = tokio::spawn(async move {
        if deletes {
            storages.delete(id).await.map(drop)
        } else {
            storages.finalize(id).await.map(drop)
        }
    });
    tokio::task::yield_now().await;
    world.plan.resume();
    ending.await.unwrap().unwrap();
    if deletes {
        let folder = world.folder.path().join("storages").join(id.to_string());
        assert!(!folder.exists());
    } else {
        let listed = world.engine.reading().files(id).await.unwrap();
        let listed = listed.iter().filter(|file| file.name.ends_with(".index"));
        world.check(&world.engine).await;
        world.check_files(&world.engine).await;
        let count = listed.count();
        world.engine.shutdown().await.unwrap();
        assert_eq!(world.parts().len(), count, "halted at {at}");
        return;
    }
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_is_finalized_or_deleted_while_its_parts_are_merged() {
    let base = World::of_unmerged_parts().await;
    for at in 0..8 {
        check_interrupted(&base, at, false).await;
        check_interrupted(&base, at, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_keep_the_parts_that_they_began_with() {
    let base = World::of_unmerged_parts().await;
    let plan = FaultPlan::default();
    plan.halt_after(0);
    let world = base.copy_that_merges(plan).await;
    let maps: Vec<LeafMap> = {
        let storage = world.engine.inner.storages.registry.find(world.storage);
        let storage = storage.unwrap();
        let tree = storage.tree.read();
        let tree = tree.as_ref().unwrap();
        assert!(tree.parts().len() > 4, "the merge has not ended");
        let leaves = tree.leaves().map(|leaf| leaf.id);
        let map = |leaf| {
            LeafMap::new(
                &storage.folder,
                &storage.cache,
                tree.pin(),
                tree.leaf(leaf).unwrap(),
                &(0..u64::MAX),
            )
        };
        leaves.map(map).collect()
    };
    world.plan.resume();
    world.merged().await;
    for map in &maps {
        assert!(!map.extents(&(0..u64::MAX)).unwrap().is_empty());
    }
    let before = world.parts().len();
    assert!(before > 1, "the replaced parts are still there");
    drop(maps);
    world.all_merged().await;
    world.engine.shutdown().await.unwrap();
}
