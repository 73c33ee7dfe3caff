//! Full files: damage of them is shown, and storages arrange theirs in turn.

use std::{path::Path, time::Duration};

use storage_format::{StorageId, paths::FileName};

use super::{STREAMS, World, arranged_files, config, full_files::data_files, small_files};
use crate::{Engine, NewStorage, io::faulty::FaultPlan};

/// The scrub reads every file of an open storage but the one that is written.
#[tokio::test(flavor = "multi_thread")]
async fn damage_of_the_newest_arranged_file_is_found() {
    let mut world = World::with(|config| {
        arranged_files(config);
        config.scrub_bytes_per_second = 1 << 30;
        config.scrub_pass_interval = Duration::from_millis(1);
        config.scrub_delay = Duration::ZERO;
    })
    .await;
    while world.files_arranged() < 3 {
        world.push_some(2).await;
    }
    let folder = world.folder_of(&world.engine);
    let (newest, path) = data_files(&folder).pop_last().unwrap();
    assert!(newest.replaced().is_some());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let name = FileName::Data(newest).to_string();
    let is_found = || {
        let status = world.engine.storages().status(world.storage).unwrap();
        status.damage.iter().any(|damage| damage.file == name)
    };
    for _ in 0..500 {
        if is_found() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_found());
    world.engine.shutdown().await.unwrap();
}

/// A damaged file is not arranged, and somebody is told.
#[tokio::test(flavor = "multi_thread")]
async fn damage_that_arranging_finds_is_shown() {
    let base = World::of_full_files().await;
    let folder = base.folder_of(&base.engine);
    let (first, path) = data_files(&folder).pop_first().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // After the headers of file, batch, segment, leaf and frame.
    bytes[4096 + 64 + 40 + 512 + 88] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let world = base.copy_that_arranges(FaultPlan::default()).await;
    let name = FileName::Data(first).to_string();
    let places = || {
        let status = world.engine.storages().status(world.storage).unwrap();
        let places = status.damage.into_iter();
        places.filter(|damage| damage.file == name).count()
    };
    for _ in 0..500 {
        if places() > 0 && world.files_arranged() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(places(), 1);
    assert!(world.files_arranged() > 0, "the others are arranged");
    world.engine.shutdown().await.unwrap();
}

/// The number of arranged files in a folder.
fn arranged(folder: &Path) -> usize {
    let files = data_files(folder);
    files.keys().filter(|id| id.replaced().is_some()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn storages_arrange_their_files_in_turn() {
    let mut world = World::of_small_files().await;
    world.push_some(16).await;
    let new = NewStorage {
        name: "second".into(),
        is_open: true,
        ..NewStorage::default()
    };
    let second = world.engine.storages().create(new).await.unwrap().0.id;
    for next in (0..32).step_by(2) {
        for stream in STREAMS {
            let pushed = world.push_into(&world.engine, second, stream, next..next + 2);
            assert!(pushed.await.unwrap().await.refused.is_none());
        }
    }
    world.engine.shutdown().await.unwrap();
    let mut config = config(world.folder.path());
    small_files(&mut config);
    config.index_merge_count = usize::MAX;
    // A file takes some tens of milliseconds.
    config.full_file_arranging_bytes_per_second_max = 1 << 20;
    let engine = Engine::open(config).await.unwrap();
    let folder = |storage: StorageId| {
        let storages = world.folder.path().join("storages");
        storages.join(storage.to_string())
    };
    let folders = [folder(world.storage), folder(second)];
    let mut counts = [0, 0];
    for _ in 0..2000 {
        counts = [arranged(&folders[0]), arranged(&folders[1])];
        let [first, second] = counts;
        if first > 0 && second > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let [first, second] = counts;
    assert!(first > 0 && second > 0, "{counts:?}");
    assert!(first.max(second) <= 2, "{counts:?}");
    engine.shutdown().await.unwrap();
}
