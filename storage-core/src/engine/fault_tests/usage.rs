//! What agents have stored is known while it is wanted, and is what the packets have.

use std::time::Duration;

use storage_format::storage_file::StorageState;

use super::{World, agent, config, small_files};
use crate::{Engine, Selection};

const INTERVAL: Duration = Duration::from_millis(10);

impl World {
    /// Bytes of all packets, by the list of them.
    async fn stored(&self) -> u64 {
        let selection = Selection {
            limit: usize::MAX,
            ..Selection::default()
        };
        let page = self.engine.reading().descriptors(self.storage, selection);
        let sizes = page.await.unwrap().items.into_iter();
        sizes
            .map(|packet| u64::from(packet.entry.stored_size))
            .sum()
    }

    async fn reopened_small(&mut self) {
        self.engine.shutdown().await.unwrap();
        let mut config = config(self.folder.path());
        small_files(&mut config);
        config.usage_interval = INTERVAL;
        self.engine = Engine::open(config).await.unwrap();
        let recovered = self.engine.storages().recovered(self.storage);
        recovered.await.unwrap();
    }

    /// Waits until what is known is what there is.
    async fn check_usage(&self, stored: u64) {
        let quotas = self.engine.quotas();
        for _ in 0..500 {
            if quotas.stored_bytes() == Some(stored) {
                break;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        assert_eq!(quotas.stored_bytes(), Some(stored));
        assert_eq!(quotas.of(&agent()).stored_bytes, Some(stored));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_added_up_only_when_it_is_wanted() {
    let mut world = World::with(|config| {
        small_files(config);
        config.usage_interval = INTERVAL;
    })
    .await;
    world.push_some(3).await;
    tokio::time::sleep(20 * INTERVAL).await;
    assert_eq!(world.engine.quotas().stored_bytes(), None, "nobody asked");
    world.engine.quotas().ask().await;
    world.check_usage(world.stored().await).await;
    world.reopened_small().await;
    tokio::time::sleep(20 * INTERVAL).await;
    assert_eq!(world.engine.quotas().stored_bytes(), None, "nobody asked");
    let quotas = world.engine.quotas();
    quotas.set(&agent(), Some(Some(1 << 40))).await.unwrap();
    world.check_usage(world.stored().await).await;
    world.engine.shutdown().await.unwrap();
}

/// Index parts that are written, merged, read by a start and arranged change no sum.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_what_the_packets_have() {
    let mut world = World::with(|config| {
        small_files(config);
        config.usage_interval = INTERVAL;
    })
    .await;
    world.engine.quotas().ask().await;
    for _ in 0..4 {
        world.push_some(6).await;
        world.check_usage(world.stored().await).await;
    }
    let stored = world.stored().await;
    world.reopened_small().await;
    world.engine.quotas().ask().await;
    world.check_usage(stored).await;
    world.push_some(6).await;
    let stored = world.stored().await;
    let (storages, id) = (world.engine.storages(), world.storage);
    let finalized = storages.finalize(id).await.unwrap();
    assert_eq!(finalized.state, StorageState::Finalized);
    world.check_usage(stored).await;
    // Now the index is not in memory.
    world.reopened_small().await;
    world.engine.quotas().ask().await;
    world.check_usage(stored).await;
    let storages = world.engine.storages();
    storages.delete(id).await.unwrap();
    world.check_usage(0).await;
    world.engine.shutdown().await.unwrap();
}
