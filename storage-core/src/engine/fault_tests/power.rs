//! Power failures: what no sync covered is lost in part.

use std::time::Duration;

use storage_format::storage_file::StorageState;

use super::{World, arranged_files, check_copies, config, small_files};
use crate::{Engine, EngineConfig};

/// Pushes that fill several files and index parts, and a finalization.
async fn workload(world: &mut World) -> bool {
    for round in 0..8 {
        world.push("one", 1 + round % 3).await;
        world.push_together(2).await;
    }
    let finalized = world.engine.storages().finalize(world.storage).await;
    finalized.unwrap();
    true
}

/// The disk stops after some operations, and then the power fails. Returns whether the storage was
/// finalized before.
async fn check_power_cut(files: fn(&mut EngineConfig), at: usize, seed: u64) -> bool {
    let mut world = World::with(files).await;
    world.plan.forget_unsynced();
    world.plan.halt_after(at);
    let plan = std::sync::Arc::clone(&world.plan);
    let is_finalized = tokio::select! {
        is_finalized = workload(&mut world) => is_finalized,
        () = async {
            plan.halted().await;
            // Acknowledgements under way arrive.
            tokio::time::sleep(Duration::from_millis(3)).await;
        } => false,
    };
    let copy = world.torn_copy(seed).await;
    plan.resume();
    check_copies(copy.path());
    let mut config = config(copy.path());
    files(&mut config);
    let engine = Engine::open(config).await.unwrap();
    let state = world.check_recovered(&engine).await;
    assert_ne!(state, StorageState::Failed, "cut at {at}, seed {seed}");
    assert!(!is_finalized || state == StorageState::Finalized);
    engine.shutdown().await.unwrap();
    world.engine.shutdown().await.unwrap();
    is_finalized
}

async fn check_power_cuts(files: fn(&mut EngineConfig)) {
    let mut at = 0;
    while !check_power_cut(files, at, at as u64).await {
        at += 1;
    }
    assert!(at > 150, "the workload has {at} operations");
    for seed in 0..8 {
        check_power_cut(files, usize::MAX, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    check_power_cuts(small_files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_while_full_files_are_arranged_loses_nothing() {
    check_power_cuts(arranged_files).await;
}
