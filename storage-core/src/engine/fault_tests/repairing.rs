//! Repairs of storages that failed because of their disk, and on a disk that fails.

use std::sync::Arc;

use rustix::io::Errno;
use storage_format::storage_file::StorageState;

use super::World;
use crate::{
    Progress, RepairReport, Selection, StorageError,
    io::faulty::{Fault, Operation},
};

pub(super) async fn repair(
    world: &World,
    is_confirmed: bool,
) -> Result<RepairReport, StorageError> {
    let progress = Arc::new(Progress::default());
    let storages = world.engine.storages();
    storages.repair(world.storage, is_confirmed, progress).await
}

/// A storage that failed while it was written, on a disk that works again.
pub(super) async fn failed(operation: Operation) -> World {
    let mut world = World::with_tree_of(1000).await;
    world.push_some(4).await;
    world.plan.inject(operation, 0..1, Fault::Fail(Errno::IO));
    while world.state() == StorageState::Open {
        world.push_some(1).await;
    }
    world.plan.heal();
    assert_eq!(world.state(), StorageState::Failed);
    world
}

async fn check_writable(world: &mut World) {
    assert_eq!(world.state(), StorageState::Open);
    world.check(&world.engine).await;
    assert_eq!(world.push_together(3).await.len(), 0);
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_whose_bytes_are_whole_is_opened_again() {
    for operation in [Operation::Write, Operation::Sync] {
        let mut world = failed(operation).await;
        let plan = repair(&world, false).await.unwrap();
        assert_eq!((plan.missing_packets, plan.copied_packets), (0, 0));
        assert_eq!(world.state(), StorageState::Failed);
        let repaired = repair(&world, true).await.unwrap();
        assert!(repaired.is_repaired && repaired.missing.is_empty());
        check_writable(&mut world).await;
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
        world.check(&world.engine).await;
        world.engine.shutdown().await.unwrap();
    }
}

/// Damages the first packet of a storage.
pub(super) fn damage(world: &World) {
    let folder = world.folder.path().join("storages");
    let path = folder.join(world.storage.to_string());
    let path = path.join("0000000000000000.itdata");
    let mut bytes = std::fs::read(&path).unwrap();
    // After the headers of file, batch, segment, leaf and frame.
    bytes[4096 + 64 + 40 + 512 + 88] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

pub(super) async fn numbers(world: &World) -> Vec<u64> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = world.engine.reading().descriptors(world.storage, selection);
    let items = page.await.unwrap().items.into_iter();
    items.map(|packet| packet.entry.number).collect()
}

/// Each operation of a repair fails once: the storage is FAILED, and a repeat repairs it.
async fn check_repeated(operation: Operation, nth: usize, errno: Errno) -> bool {
    let context = format!("{operation:?} {nth} {errno}");
    let mut world = failed(Operation::Write).await;
    let mut before = numbers(&world).await;
    damage(&world);
    let hits = world.plan.hits();
    let fault = Fault::Fail(errno);
    world.plan.inject(operation, nth..nth + 1, fault);
    let repaired = repair(&world, true).await;
    let is_hit = world.plan.hits() > hits;
    world.plan.heal();
    if repaired.is_err() {
        assert!(is_hit, "{context}: {repaired:?}");
        assert_eq!(world.state(), StorageState::Failed, "{context}");
        assert_eq!(numbers(&world).await, before, "{context}");
        repair(&world, true).await.unwrap();
    }
    assert_eq!(world.state(), StorageState::Open, "{context}");
    let status = world.engine.storages().status(world.storage).unwrap();
    assert_eq!(status.missing_packets, 1, "{context}");
    before.remove(0);
    let after = numbers(&world).await;
    assert!(after.starts_with(&before), "{context}: {after:?}");
    assert_eq!(world.push_together(3).await.len(), 0, "{context}");
    world.engine.shutdown().await.unwrap();
    is_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_fails_is_repeated() {
    for errno in [Errno::IO, Errno::NOSPC] {
        for operation in [
            Operation::Open,
            Operation::Write,
            Operation::Sync,
            Operation::SyncFolder,
            Operation::Rename,
        ] {
            let mut nth = 0;
            while check_repeated(operation, nth, errno).await {
                nth += 1;
            }
            assert!(nth > 0, "{operation:?}: no fault was met");
        }
    }
}
