//! Each operation on the disk fails once, or from there on until it is healed.

use std::ops::Range;

use rustix::io::Errno;
use storage_format::storage_file::StorageState;

use super::{World, arranged_files, small_files};
use crate::{
    EngineConfig,
    io::faulty::{Fault, Operation},
};

const OPERATIONS: [Operation; 8] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::Allocate,
    Operation::SetLength,
    Operation::SyncFolder,
    Operation::Rename,
    Operation::Remove,
];

/// Pushes that fill several files and index parts, and a finalization.
async fn workload(world: &mut World) {
    for round in 0..8 {
        world.push("one", 1 + round % 3).await;
        world.push_together(2).await;
    }
    let _ = world.engine.storages().finalize(world.storage).await;
}

/// Whether an error of this operation may end a storage.
fn may_fail(operation: Operation, errno: Errno) -> bool {
    match (operation, errno) {
        // Without preallocation a write allocates; a file that is not removed is not needed.
        (Operation::Allocate | Operation::Remove, _) => false,
        (Operation::Sync, _) | (_, Errno::IO) => true,
        (Operation::SyncFolder, errno) => errno == Errno::NOSPC,
        _ => false,
    }
}

/// Runs the workload while some operations fail; returns whether one did.
async fn check_fault(
    files: fn(&mut EngineConfig),
    operation: Operation,
    nth: Range<usize>,
    errno: Errno,
) -> bool {
    let context = format!("{operation:?} {nth:?} {errno}");
    let mut world = World::with(files).await;
    if operation == Operation::Remove {
        // Only a file in which nothing was written is removed.
        let full = Fault::Fail(Errno::NOSPC);
        world.plan.inject(Operation::Write, 0..1, full);
    }
    world.plan.inject(operation, nth, Fault::Fail(errno));
    let before = world.plan.hits();
    workload(&mut world).await;
    let is_hit = world.plan.hits() > before + usize::from(operation == Operation::Remove);
    world.check_killed().await;
    world.plan.heal();
    assert_eq!(world.plan.syncs_after_failed_sync(), 0, "{context}");
    let status = world.engine.storages().status(world.storage).unwrap();
    if status.state == StorageState::Failed {
        assert!(may_fail(operation, errno), "{context}: {status:?}");
        assert_ne!(status.failure, None, "{context}");
        let refused = world.push("one", 1).await.refused.unwrap();
        assert_eq!(refused.code(), "storage_failed", "{context}: {refused}");
    }
    if status.state == StorageState::Open {
        for _ in 0..3 {
            assert_eq!(world.push_together(2).await.len(), 0, "{context}");
        }
    }
    if [StorageState::Open, StorageState::Finalizing].contains(&status.state) {
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    }
    if world.state() == StorageState::Finalized {
        world.check_files(&world.engine).await;
    }
    world.check(&world.engine).await;
    world.check_killed().await;
    world.engine.shutdown().await.unwrap();
    is_hit
}

async fn check_each(files: fn(&mut EngineConfig), errno: Errno, first: usize) {
    for operation in OPERATIONS {
        let mut nth = 0;
        while check_fault(files, operation, nth..nth + 1, errno).await {
            nth += 1;
        }
        assert!(nth > 0, "{operation:?} {errno}: no fault was met");
        // The disk fails for a while.
        for nth in (first..nth).step_by(5) {
            check_fault(files, operation, nth..usize::MAX, errno).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_at_any_operation_loses_nothing() {
    check_each(small_files, Errno::NOSPC, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_error_at_any_operation_loses_nothing() {
    check_each(small_files, Errno::IO, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lack_of_descriptors_at_any_operation_loses_nothing() {
    check_each(small_files, Errno::MFILE, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_while_full_files_are_arranged_loses_nothing() {
    check_each(arranged_files, Errno::NOSPC, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_error_while_full_files_are_arranged_loses_nothing() {
    check_each(arranged_files, Errno::IO, 1).await;
}

/// A disk that fails while the storage file is published: whichever version of it is found after
/// the kill, all that it names is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_fails_halfway_loses_nothing() {
    for renames in 0..6 {
        for syncs in 0..6 {
            let mut world = World::of_small_files().await;
            for _ in 0..4 {
                world.push_together(2).await;
            }
            let fault = Fault::Fail(Errno::IO);
            world
                .plan
                .inject(Operation::Rename, renames..usize::MAX, fault);
            world
                .plan
                .inject(Operation::SyncFolder, syncs..usize::MAX, fault);
            let _ = world.engine.storages().finalize(world.storage).await;
            world.check_killed().await;
            world.plan.heal();
            world.check(&world.engine).await;
            let _ = world.engine.shutdown().await;
        }
    }
}

/// Folders that are not synced any more from some moment of a finalization on: a copy of the
/// storage file that was removed is not written again beside one that may say FINALIZED.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalization_without_syncs_of_folders_leaves_no_other_copy() {
    for syncs in 0.. {
        let mut world = World::of_small_files().await;
        world.push_together(2).await;
        let before = world.plan.hits();
        let fault = Fault::Fail(Errno::IO);
        (world.plan).inject(Operation::SyncFolder, syncs..usize::MAX, fault);
        let _ = world.engine.storages().finalize(world.storage).await;
        let is_hit = world.plan.hits() > before;
        world.check_killed().await;
        world.plan.heal();
        world.check(&world.engine).await;
        let _ = world.engine.shutdown().await;
        if !is_hit {
            assert!(syncs > 3, "no sync of a folder was met");
            break;
        }
    }
}
