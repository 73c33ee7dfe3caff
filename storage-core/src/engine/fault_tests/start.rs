//! Starts while removals fail: every storage is served all the same, and the next start removes
//! what is left of creations, deletions, imports and finalizations.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use rustix::io::Errno;
use storage_format::{
    Kind, StorageId,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};

use super::{World, config, copy_of};
use crate::{
    Engine, NewStorage,
    io::faulty::{Fault, FaultPlan, Operation},
};

/// A finalized storage with packets, an open one, and all that a killed server can leave.
struct Left {
    world: World,
    open: StorageId,
    /// What a start leaves, as paths in the folder of the storages.
    sound: BTreeSet<String>,
}

/// The files below `folder`, except index parts, which are merged and named at any time.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap();
            if path.extension().is_none_or(|ending| ending != "index") {
                found.insert(name.to_string_lossy().into_owned());
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

async fn left() -> Left {
    let mut world = World::of_small_files().await;
    world.push_some(3).await;
    let storages = world.engine.storages();
    storages.finalize(world.storage).await.unwrap();
    let new = NewStorage {
        name: "open".into(),
        is_open: true,
        ..NewStorage::default()
    };
    let open = storages.create(new).await.unwrap().0.id;
    world.engine.shutdown().await.unwrap();
    let folder = world.folder.path().join("storages");
    let sound = files(&folder);
    let finalized = folder.join(world.storage.to_string());
    std::fs::write(finalized.join("00000000000000fe.itdata"), "replaced").unwrap();
    let is_open = folder.join(open.to_string());
    let own = is_open.join(FileName::Storage(open).to_string());
    let copy = FileName::StorageCopy(open).to_string();
    let bytes = std::fs::read(own).unwrap();
    let mut other = StorageFile::decode(&bytes).unwrap();
    other.state = StorageState::Finalized;
    std::fs::write(is_open.join(copy), other.encode().unwrap()).unwrap();
    let creation = StorageId::from_bytes([7; 16]).to_string();
    let unpublished = format!(
        "{creation}.storage{}",
        storage_format::paths::UNPUBLISHED_ENDING
    );
    for (name, file) in [
        (".deleted-1", "0000000000000001.itdata"),
        (".import-1", "0000000000000001.itdata"),
        (creation.as_str(), unpublished.as_str()),
    ] {
        std::fs::create_dir(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join(file), "left").unwrap();
    }
    Left { world, open, sound }
}

/// Starts on a copy in which the removal `nth` fails; whether there were so many.
async fn check(left: &Left, nth: usize) -> bool {
    let copy = copy_of(left.world.folder.path());
    let plan = Arc::<FaultPlan>::default();
    plan.inject(Operation::Remove, nth..nth + 1, Fault::Fail(Errno::IO));
    plan.cover(copy.path());
    let mut faulty = config(copy.path());
    faulty.faults = Some(Arc::clone(&plan));
    let engine = Engine::open(faulty).await.unwrap();
    left.world.check(&engine).await;
    let state = |engine: &Engine, id| engine.storages().get(id).unwrap().state;
    assert_eq!(state(&engine, left.world.storage), StorageState::Finalized);
    // A second copy that cannot be removed could be taken for the storage file later.
    let is_served = [StorageState::Open, StorageState::Failed];
    assert!(is_served.contains(&state(&engine, left.open)), "{nth}");
    engine.shutdown().await.unwrap();
    let was_hit = plan.hits() > 0;
    plan.heal();

    let engine = Engine::open(config(copy.path())).await.unwrap();
    left.world.check(&engine).await;
    assert_eq!(state(&engine, left.open), StorageState::Open, "{nth}");
    engine.shutdown().await.unwrap();
    assert_eq!(files(&copy.path().join("storages")), left.sound, "{nth}");
    was_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_fails_at_the_start_is_made_by_the_next() {
    let left = left().await;
    let mut nth = 0;
    while check(&left, nth).await {
        nth += 1;
    }
    assert!(nth >= 5, "{nth} removals at the start");
}

/// A start removes what a killed server left of files of events, and counts what is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_sweeps_files_of_events() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let storages = world.engine.storages();
    storages.finalize(world.storage).await.unwrap();
    let make = |sink: &mut crate::EventSink<'_>| {
        sink.write(b"events")?;
        Ok::<_, crate::StorageError>(0)
    };
    let files = world.engine.event_files();
    files.make(world.storage, Kind::Raw, make).await.unwrap();
    world.engine.shutdown().await.unwrap();
    let left = world
        .folder_of(&world.engine)
        .join("events/raw.parquet.tmp");
    std::fs::write(&left, "left").unwrap();
    let engine = Engine::open(config(world.folder.path())).await.unwrap();
    assert!(!left.exists());
    let files = engine.event_files();
    assert_eq!(files.bytes().await.unwrap(), 6);
    assert!(
        files
            .open(world.storage, Kind::Raw)
            .await
            .unwrap()
            .is_some()
    );
    files.remove(world.storage, Kind::Raw).await.unwrap();
    assert_eq!(files.bytes().await.unwrap(), 0);
    engine.shutdown().await.unwrap();
}
