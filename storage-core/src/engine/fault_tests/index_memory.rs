//! No index part can be written while packets arrive: memory stays bounded.

use rustix::io::Errno;

use super::World;
use crate::{
    NewStorage, StorageError,
    io::faulty::{Fault, Operation},
};

const BYTES_MAX: u64 = 16 << 10;
/// More than the packets of one push take.
const PUSH_BYTES: u64 = 4 << 10;

/// Pushes until a packet is refused.
async fn push_until_refused(world: &mut World) -> StorageError {
    for _ in 0..1_000 {
        if let Some(refused) = world.push("one", 8).await.refused {
            return refused;
        }
    }
    panic!("no packet was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_are_refused_before_the_memory_for_the_index_is_exceeded() {
    let mut world = World::with(|config| config.live_index_bytes_max = BYTES_MAX).await;
    let other = NewStorage {
        name: "other".into(),
        ..NewStorage::default()
    };
    let other = world.engine.storages().create(other).await.unwrap().0.id;
    world.engine.storages().open(other).await.unwrap();
    // There is space for packets, and none for the names of index parts.
    let full = Fault::Fail(Errno::NOSPC);
    world.plan.inject(Operation::Rename, 0..usize::MAX, full);
    let refused = push_until_refused(&mut world).await;
    assert_eq!(refused.code(), "disk_full", "{refused}");
    let bytes = world.engine.counters().live_index_bytes.get();
    let max = 2 * BYTES_MAX;
    assert!((max..max + PUSH_BYTES).contains(&bytes), "{bytes} bytes");
    assert!(
        world.acknowledged["one"] > 100,
        "packets were accepted before"
    );
    // Another storage must not grow in its place.
    let pushed = world.push_into(&world.engine, other, "one", 0..1).await;
    let refused = match pushed {
        Ok(pending) => pending.await.refused.unwrap(),
        Err(error) => error,
    };
    assert_eq!(refused.code(), "disk_full", "{refused}");
    world.check(&world.engine).await;
    world.check_killed().await;
    world.plan.heal();
    while world.push("one", 8).await.refused.is_some() {
        tokio::task::yield_now().await;
    }
    assert!(world.engine.counters().index_parts.get() > 0);
    world.push_some(3).await;
    world.check(&world.engine).await;
    world.restart_without_faults().await;
}
