//! Packets whose agents do not wait, around the repair of their storage.

use std::{sync::Arc, time::Duration};

use storage_format::{StreamPosition, frame::Facts, storage_file::StorageState};

use super::{
    World, agent, payload,
    repairing::{numbers, repair},
};
use crate::{Accepted, NewPacket, Push, StorageError};

impl World {
    fn offer(&self, sequences: std::ops::Range<u64>) -> Result<Accepted, StorageError> {
        self.offer_of("one", sequences)
    }

    /// Pushes packets of a stream without waiting.
    pub(super) fn offer_of(
        &self,
        stream: &str,
        sequences: std::ops::Range<u64>,
    ) -> Result<Accepted, StorageError> {
        let packets = sequences.map(|sequence| {
            let position = StreamPosition::new(0, sequence);
            NewPacket::new(position, payload(stream, sequence), Facts::default())
        });
        let push = Push {
            agent: agent(),
            stream: stream.parse().unwrap(),
            packets: packets.collect(),
            permit: self.engine.budget().try_acquire(1).unwrap(),
        };
        let ingest = self.engine.ingest();
        ingest.submit_droppable(self.storage, push, false)
    }

    /// Waits until the writer has written so many packets, and does nothing that would wake it.
    async fn written(&self, packets: u64) {
        let written = async {
            while numbers(self).await.len() as u64 != packets {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(20);
        let in_time = tokio::time::timeout(limit, written).await;
        in_time.expect("packets that were accepted are written");
    }

    fn lanes(&self) -> usize {
        self.engine.inner.services.droppable.lane_count()
    }
}

/// A packet that was lost at the end of its stream is taken again from an agent that does not wait,
/// and wakes the writer that the repair started.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_packet_is_taken_again_from_an_agent_that_does_not_wait() {
    // An open storage is repaired in another way than one that failed.
    for has_failed in [false, true] {
        let mut world = World::with_tree_of(1000).await;
        for sequence in 0..3 {
            world.offer(sequence..sequence + 1).unwrap();
            world.written(sequence + 1).await;
        }
        if has_failed {
            let storage = world.engine.inner.storages.registry.find(world.storage);
            storage.unwrap().mark_failed("a test");
        }
        world.damage_last_packet();
        let repaired = repair(&world, true).await.unwrap();
        assert!(repaired.is_repaired, "{repaired:?}");
        assert_eq!(numbers(&world).await, [0, 1], "{repaired:?}");
        assert_eq!(world.state(), StorageState::Open);
        assert_eq!(world.lanes(), 0, "the old writer left nothing");
        let accepted = world.offer(2..3).unwrap();
        assert!(accepted.refused.is_none());
        let duplicates = accepted.packets.iter().filter(|it| it.is_duplicate);
        assert_eq!(duplicates.count(), 0, "the packet is not there any more");
        world.written(3).await;
        world.acknowledged.insert("one", 3);
        world.check(&world.engine).await;
        world.engine.shutdown().await.unwrap();
    }
}

/// A finalized storage keeps nothing of the streams that were pushed without waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalized_storage_keeps_no_stream() {
    let world = World::new().await;
    world.offer(0..3).unwrap();
    let id = world.storage;
    let finalized = world.engine.storages().finalize(id).await.unwrap();
    assert_eq!(finalized.totals.packets, 3);
    assert_eq!(world.lanes(), 0);
    let refused = world.offer(3..4).unwrap_err();
    assert_eq!(refused.code(), "storage_state_conflict", "{refused}");
    let verified = world.engine.reading().verify(id, Arc::default()).await;
    assert_eq!(verified.unwrap().damage, []);
    world.engine.shutdown().await.unwrap();
}
