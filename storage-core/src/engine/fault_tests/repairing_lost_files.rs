//! Repairs of open storages of which a data file is gone.

use std::collections::BTreeMap;

use storage_format::{DataFileId, paths::FileName, storage_file::StorageState};

use super::{
    STREAMS, World, agent, config, copy_of,
    repairing::{numbers, repair},
};
use crate::{Engine, Selection};

/// Which file of the log is gone.
#[derive(Debug, Clone, Copy)]
enum Gone {
    Oldest,
    Middle,
    Newest,
}

/// The numbers of the packets of each data file.
async fn by_file(world: &World) -> BTreeMap<DataFileId, Vec<u64>> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = world.engine.reading().descriptors(world.storage, selection);
    let mut files = BTreeMap::<_, Vec<u64>>::new();
    for packet in page.await.unwrap().items {
        let numbers = files.entry(packet.descriptor.file()).or_default();
        numbers.push(packet.entry.number);
    }
    files
}

async fn check(gone: Gone, is_restarted: bool) {
    let context = &format!("{gone:?}, restarted: {is_restarted}");
    let mut world = World::of_small_files().await;
    world.push_some(14).await;
    if is_restarted {
        world.engine.shutdown().await.unwrap();
        let mut config = config(world.folder.path());
        world.small_files(&mut config);
        world.engine = Engine::open(config).await.unwrap();
        let recovered = world.engine.storages().recovered(world.storage);
        recovered.await.unwrap();
    }
    let mut files = by_file(&world).await;
    assert!(files.len() > 3, "{context}");
    let at = match gone {
        Gone::Oldest => 0,
        Gone::Middle => files.len() / 2,
        Gone::Newest => files.len() - 1,
    };
    let id = *files.keys().nth(at).unwrap();
    let missing = files.remove(&id).unwrap();
    let mut whole: Vec<u64> = files.into_values().flatten().collect();
    whole.sort_unstable();
    let name = FileName::Data(id).to_string();
    std::fs::remove_file(world.folder_of(&world.engine).join(name)).unwrap();

    let plan = repair(&world, false).await.unwrap();
    let lost = plan
        .missing
        .iter()
        .flat_map(|range| range.first..=range.last);
    assert_eq!(lost.collect::<Vec<_>>(), missing, "{context}");
    let repaired = repair(&world, true).await.unwrap();
    assert!(repaired.is_repaired, "{context}: {repaired:?}");
    assert_eq!(world.state(), StorageState::Open, "{context}");
    assert_eq!(numbers(&world).await, whole, "{context}");
    for number in whole {
        let read = world.engine.reading().read_packet(world.storage, number);
        assert!(read.await.is_ok(), "{context}: {number}");
    }

    for stream in STREAMS {
        let (agent, id) = (agent(), stream.parse().unwrap());
        let ingest = world.engine.ingest();
        let next = ingest.next_position(world.storage, &agent, &id).await;
        world.acknowledged.insert(stream, next.unwrap().sequence);
    }
    assert_eq!(world.push_together(3).await.len(), 0, "{context}");
    let before = numbers(&world).await;
    let killed = {
        let _disk = world.plan.freeze().await;
        copy_of(world.folder.path())
    };
    let mut config = config(killed.path());
    world.small_files(&mut config);
    world.engine.shutdown().await.unwrap();
    world.engine = Engine::open(config).await.unwrap();
    let storages = world.engine.storages();
    storages.recovered(world.storage).await.unwrap();
    assert_eq!(world.state(), StorageState::Open, "{context}");
    assert_eq!(numbers(&world).await, before, "{context}");
    let finalized = world.engine.storages().finalize(world.storage).await;
    finalized.unwrap();
    assert_eq!(numbers(&world).await, before, "{context}");
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_storage_goes_on_without_a_data_file() {
    for gone in [Gone::Oldest, Gone::Middle, Gone::Newest] {
        for is_restarted in [false, true] {
            check(gone, is_restarted).await;
        }
    }
}
