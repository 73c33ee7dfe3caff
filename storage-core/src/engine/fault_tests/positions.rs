//! Where a stream continues, and the numbers of packets, when packets are refused.

use std::time::Duration;

use rustix::io::Errno;
use storage_format::{StreamPosition, storage_file::StorageState};

use super::{STREAMS, World, agent};
use crate::{
    Engine,
    io::faulty::{Fault, Operation},
};

impl World {
    /// Every stream continues after what was acknowledged.
    async fn check_positions(&self, engine: &Engine) {
        for stream in STREAMS {
            let (agent, id) = (agent(), stream.parse().unwrap());
            let next = engine.ingest().next_position(self.storage, &agent, &id);
            let count = self.acknowledged.get(stream).copied().unwrap_or(0);
            let expected = StreamPosition::new(0, count);
            assert_eq!(next.await.unwrap(), expected, "{stream}");
        }
    }

    fn leaf_count(&self) -> usize {
        let storage = self.engine.inner.storages.registry.find(self.storage);
        let storage = storage.unwrap();
        let tree = storage.tree.read();
        tree.as_ref().unwrap().leaf_count()
    }
}

/// A stream continues after its last packet, in whichever leaf that is.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_over_its_leaves() {
    let bucket = |config: &mut crate::EngineConfig| config.time_bucket = Duration::from_millis(1);
    let mut world = World::with(bucket).await;
    world.check_positions(&world.engine).await;
    while world.leaf_count() < 6 {
        world.push("one", 2).await;
        world.check_positions(&world.engine).await;
    }
    world.push("two", 1).await;
    world.check_positions(&world.engine).await;
    let (mut world, state) = world.restart_without_faults().await;
    assert_eq!(state, StorageState::Open);
    world.check_positions(&world.engine).await;
    assert_eq!(world.push_together(1).await.len(), 0);
    world.check_positions(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}

/// Packets that a full disk refuses leave the positions of their streams as they were. Their
/// numbers remain unused until a restart.
#[tokio::test(flavor = "multi_thread")]
async fn refused_packets_leave_positions_as_they_were() {
    let mut world = World::of_small_files().await;
    for round in 0..4 {
        world.push_some(2).await;
        let full = Fault::Fail(Errno::NOSPC);
        world.plan.inject(Operation::Write, 0..1, full);
        let refused = world.push("one", 3).await.refused.unwrap();
        assert_eq!(refused.code(), "disk_full", "round {round}: {refused}");
        world.check_positions(&world.engine).await;
        world.plan.heal();
        let before = world.engine.storages().get(world.storage).unwrap().totals;
        let outcome = world.push("one", 3).await;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        let numbers: Vec<_> = outcome.receipts.iter().map(|it| it.number).collect();
        assert!(numbers[0] >= before.packets + 3, "{numbers:?}");
        let reading = world.engine.reading();
        let unused = reading.read_packet(world.storage, numbers[0] - 1).await;
        assert_eq!(unused.unwrap_err().code(), "packet_not_found");
        world.check(&world.engine).await;
        world.check_positions(&world.engine).await;
    }
    assert_eq!(world.check_killed().await, StorageState::Open);
    world.engine.shutdown().await.unwrap();
}
