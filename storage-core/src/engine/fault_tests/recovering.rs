//! A recovery that panics concerns its own storage only.

use storage_format::storage_file::StorageState;

use super::{World, config};
use crate::{
    Engine, NewStorage, StorageError, StorageFilter,
    io::faulty::{Fault, FaultPlan, Operation, PANIC_MESSAGE},
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
