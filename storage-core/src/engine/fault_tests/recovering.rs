//! A recovery that panics concerns its own storage only, and one without resources is repeated.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustix::io::Errno;
use storage_format::{index_part::HEADER_BYTES, storage_file::StorageState};

use super::{World, config, repairing::damage};
use crate::{
    Engine, NewStorage, StorageError, StorageFilter,
    io::faulty::{Fault, FaultPlan, Operation, PANIC_MESSAGE, refusals::refuse},
    recovery::{Scan, recover},
};

/// The recovery of one of two storages panics at `operation`.
async fn check_panic(operation: Operation) {
    let mut world = World::new().await;
    world.push_some(5).await;
    let new = NewStorage {
        name: "second".into(),
        is_open: true,
        ..NewStorage::default()
    };
    let (second, _) = world.engine.storages().create(new).await.unwrap();
    world.engine.shutdown().await.unwrap();
    let plan = std::sync::Arc::<FaultPlan>::default();
    plan.inject(operation, 0..1, Fault::Panic);
    let mut config = config(world.folder.path());
    config.faults = Some(std::sync::Arc::clone(&plan));
    // The smallest storage comes first: the one without packets.
    config.recovery_thread_count = 1;
    let engine = Engine::open(config).await.unwrap();
    assert_eq!(plan.hits(), 1, "{operation:?}");
    let failed = engine.storages().get(second.id).unwrap();
    assert_eq!(failed.state, StorageState::Failed, "{operation:?}");
    let failure = failed.failure.unwrap();
    assert!(failure.contains(PANIC_MESSAGE), "{operation:?}: {failure}");
    let refused = engine.storages().open(second.id).await.unwrap_err();
    assert!(matches!(refused, StorageError::Failed { .. }), "{refused}");
    assert_eq!(engine.recovery(), None, "{operation:?}");
    assert_eq!(engine.failures(9).storage_count, 1, "{operation:?}");
    world.check(&engine).await;
    engine.shutdown().await.unwrap();
    let (world, state) = World { engine, ..world }.restart_without_faults().await;
    assert_eq!(state, StorageState::Open, "{operation:?}");
    let storages = world.engine.storages().list(&StorageFilter::default());
    let is_open = |storage: &crate::StorageInfo| storage.state == StorageState::Open;
    assert!(storages.iter().all(is_open), "{operation:?}");
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_recovery_does_not_concern_others() {
    for operation in [Operation::Recover, Operation::Adopt] {
        check_panic(operation).await;
    }
}

impl World {
    fn index_parts(&self) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.folder_of(&self.engine)).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let is_part = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "index");
        let mut parts: Vec<_> = paths.filter(is_part).collect();
        parts.sort();
        parts
    }
}

/// Without descriptors or memory nobody knows whether an index part is intact. The frames cannot
/// replace this one: a payload is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_part_that_cannot_be_read_now_is_kept() {
    for refused in [0, HEADER_BYTES as u64] {
        let mut world = World::with_tree_of(1000).await;
        world.push_some(6).await;
        world.engine.shutdown().await.unwrap();
        damage(&world);
        let parts = world.index_parts();
        assert_eq!(parts.len(), 1);
        let refusal = refuse(&parts[0], refused..refused + 1, Errno::NOMEM);
        let starting = Engine::start(config(world.folder.path()), Arc::default());
        let engine = starting.await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let found = engine.reading().packet(world.storage, 0).await;
        assert_eq!(found.unwrap_err().code(), "storage_recovering");
        drop(refusal);
        engine.storages().recovered(world.storage).await.unwrap();
        let state = engine.storages().get(world.storage).unwrap().state;
        assert_eq!(state, StorageState::Open);
        assert_eq!(world.index_parts(), parts);
        let read = engine.reading().read_packet(world.storage, 0).await;
        assert_eq!(read.unwrap_err().code(), "damaged");
        let read = engine.reading().read_packet(world.storage, 1).await;
        assert!(read.is_ok(), "{read:?}");
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_be_loaded_now_is_kept() {
    let mut world = World::with_tree_of(1000).await;
    world.push_some(6).await;
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    world.engine.shutdown().await.unwrap();
    let parts = world.index_parts();
    let engine = Engine::open(config(world.folder.path())).await.unwrap();
    let refusals: Vec<_> = (parts.iter())
        .map(|part| refuse(part, 0..1, Errno::MFILE))
        .collect();
    let found = engine.reading().packet(world.storage, 0).await;
    assert_eq!(found.unwrap_err().code(), "resources_exhausted");
    drop(refusals);
    world.check(&engine).await;
    assert_eq!(world.index_parts(), parts);
    engine.shutdown().await.unwrap();
}

/// What is read of the index is counted, and ends when the recovery is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn reading_the_index_is_counted_and_cancelled() {
    let mut world = World::with_tree_of(1000).await;
    world.push_some(6).await;
    world.engine.shutdown().await.unwrap();
    let recover_with = |scan: &Scan| {
        let folder = world.folder_of(&world.engine);
        recover(&folder, world.storage, &[], 0, scan)
    };
    let scan = Scan::alone();
    recover_with(&scan).unwrap();
    let counted = [&scan.progress.bytes_done, &scan.progress.bytes_total];
    let counted = counted.map(|bytes| bytes.load(std::sync::atomic::Ordering::Relaxed));
    let packets: u64 = world.acknowledged.values().sum();
    assert!(
        counted.iter().all(|bytes| *bytes >= packets * 72),
        "{counted:?}"
    );
    let cancelled = Scan::alone();
    cancelled.progress.cancel();
    let ended = recover_with(&cancelled).unwrap_err();
    assert_eq!(ended.code(), "job_cancelled");
}
