//! What happens to an open storage while it is repaired.

use std::{path::PathBuf, sync::Arc};

use storage_format::{
    LeafId,
    paths::{FileName, UNPUBLISHED_ENDING},
    storage_file::StorageState,
};

use super::{World, repairing::damage, repairing::numbers, repairing::repair};
use crate::{RepairReport, StorageError};

/// An open storage of which the index covers damage.
async fn damaged_world() -> World {
    let mut world = World::of_small_files().await;
    world.push_some(14).await;
    damage(&world);
    world
}

/// A storage in which a recording began while it was read for a repair, and the outcome of the
/// repair. Under load the reading may end before the recording begins: `None`.
async fn recorded_while_read(world: &World) -> Option<Result<RepairReport, StorageError>> {
    let (storages, id) = (world.engine.storages(), world.storage);
    let mut repairing = std::pin::pin!(storages.repair(id, true, Arc::default()));
    // It reads on another thread, and goes on only when it is polled again.
    tokio::select! {
        biased;
        repaired = &mut repairing => panic!("it reads first: {repaired:?}"),
        () = std::future::ready(()) => {}
    }
    match storages.begin_recording(id).await {
        Ok(_) => Some(repairing.await),
        Err(StorageError::Recovering { .. }) => {
            repairing.await.unwrap();
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_begins_while_a_storage_is_read_keeps_it() {
    let (mut world, before, repaired) = loop {
        let world = damaged_world().await;
        let before = numbers(&world).await;
        if let Some(repaired) = recorded_while_read(&world).await {
            break (world, before, repaired);
        }
        world.engine.shutdown().await.unwrap();
    };
    let error = repaired.unwrap_err();
    assert_eq!(error.code(), "storage_state_conflict", "{error}");
    assert_eq!(world.state(), StorageState::Recording);
    assert_eq!(numbers(&world).await, before);
    assert_eq!(world.push_together(2).await.len(), 0);
    let (storages, id) = (world.engine.storages(), world.storage);
    storages.end_recording(id).await.unwrap();
    assert!(repair(&world, true).await.unwrap().is_repaired);
    assert_eq!(world.push_together(2).await.len(), 0);
    world.engine.shutdown().await.unwrap();
}

/// A derived file that is being made is published after the repair; what the writer left is
/// removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_leaves_derived_files_that_are_being_made() {
    let world = damaged_world().await;
    let folder = world.folder_of(&world.engine);
    let temporary = |name: FileName| -> PathBuf {
        let path = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
        std::fs::write(&path, "begun").unwrap();
        path
    };
    let making = temporary(FileName::ChunkIndex(LeafId(7)));
    let left = temporary(FileName::Storage(world.storage));
    assert!(repair(&world, true).await.unwrap().is_repaired);
    assert!(making.exists(), "its publication goes on");
    assert!(!left.exists());
    world.engine.shutdown().await.unwrap();
}

/// The last steps of a repair write by path: a storage is not deleted, and another not imported in
/// its place, between them.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_is_not_deleted_while_its_repair_takes_effect() {
    for halted_at in 0.. {
        let world = Arc::new(damaged_world().await);
        world.plan.halt_after(halted_at);
        let own = Arc::clone(&world);
        let mut repairing = tokio::spawn(async move { repair(&own, true).await });
        let is_halted = tokio::select! {
            () = world.plan.halted() => true,
            repaired = &mut repairing => panic!("{halted_at}: {repaired:?}"),
        };
        assert!(is_halted);
        let name = FileName::Repairs(world.storage);
        let name = format!("{name}{UNPUBLISHED_ENDING}");
        let is_recording = world.folder_of(&world.engine).join(name).exists();
        let storage = world.engine.inner.storages.registry.find(world.storage);
        let may_change = storage.unwrap().changing.try_lock().is_ok();
        world.plan.resume();
        assert!(!is_recording || !may_change, "a deletion waits");
        assert!(repairing.await.unwrap().unwrap().is_repaired);
        world.engine.shutdown().await.unwrap();
        if is_recording {
            return;
        }
    }
}
