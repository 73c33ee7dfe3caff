//! Index parts of an open storage are derived: whichever are left of those that were ever written,
//! every packet is found once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::cast_possible_wrap, reason = "the numbers of tests are small")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use storage_core::{Engine, IoChoice};
use storage_format::{LeafType, StorageId, paths::STORAGES_FOLDER, storage_file::StorageState};
use support::{check_intact, check_packets, config, copy_of_running, prepare, push_all};

/// Packets that are pushed before each stop, which writes an index part.
const PACKETS: u64 = 3;
const STOPS: u64 = 4;

async fn open(folder: &Path) -> Engine {
    Engine::open(config(folder, IoChoice::Auto)).await.unwrap()
}

fn folder_of(folder: &Path, storage: StorageId) -> PathBuf {
    folder.join(STORAGES_FOLDER).join(storage.to_string())
}

/// The index parts in a folder.
fn parts(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = std::fs::read_dir(folder).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let parts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
    parts
        .map(|path| {
            let name = PathBuf::from(path.file_name().unwrap());
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

/// A storage after some stops, and every index part that was there after one of them.
async fn stopped() -> (tempfile::TempDir, StorageId, BTreeMap<PathBuf, Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let mut storage = None;
    let mut all = BTreeMap::new();
    for stop in 0..STOPS {
        let engine = open(folder.path()).await;
        let id = match storage {
            Some(id) => id,
            None => prepare(&engine, &[("array", LeafType::Array)]).await,
        };
        storage = Some(id);
        push_all(&engine, id, "array", stop * PACKETS..(stop + 1) * PACKETS).await;
        engine.shutdown().await.unwrap();
        all.extend(parts(&folder_of(folder.path(), id)));
    }
    (folder, storage.unwrap(), all)
}

/// Starts a copy of the folder with these index parts: it has all packets, also after another push
/// and a kill, and when it is finalized.
async fn check(folder: &Path, storage: StorageId, left: &[(&PathBuf, Vec<u8>)], context: &str) {
    let copy = copy_of_running(folder);
    let of_storage = folder_of(copy.path(), storage);
    for name in parts(&of_storage).into_keys() {
        std::fs::remove_file(of_storage.join(name)).unwrap();
    }
    for (name, bytes) in left {
        std::fs::write(of_storage.join(name), bytes).unwrap();
    }
    let count = STOPS * PACKETS;
    let engine = open(copy.path()).await;
    let found = engine.storages().status(storage).unwrap();
    assert_eq!(
        (found.state, found.damaged_places),
        (StorageState::Open, 0),
        "{context}"
    );
    check_packets(&engine, storage, count).await;
    check_intact(&engine, storage, count).await;
    push_all(&engine, storage, "array", count..count + 1).await;
    let killed = copy_of_running(copy.path());
    engine.shutdown().await.unwrap();
    let engine = open(killed.path()).await;
    check_packets(&engine, storage, count + 1).await;
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, count + 1).await;
    check_intact(&engine, storage, count + 1).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn any_of_the_parts_may_be_lost() {
    let (folder, storage, all) = stopped().await;
    assert!((3..=6).contains(&all.len()), "{} parts", all.len());
    for subset in 0..1_u32 << all.len() {
        let of_subset = all.iter().enumerate();
        let of_subset = of_subset.filter(|(at, _)| subset & (1 << at) != 0);
        let left: Vec<_> = of_subset
            .map(|(_, (name, bytes))| (name, bytes.clone()))
            .collect();
        let context = format!("left are the parts {subset:b}");
        check(folder.path(), storage, &left, &context).await;
    }
}

/// A part that is damaged anywhere is as one that is lost, and one in the place of another is not
/// believed.
#[tokio::test(flavor = "multi_thread")]
async fn any_of_the_parts_may_be_damaged_or_in_a_wrong_place() {
    let (folder, storage, all) = stopped().await;
    let names: Vec<_> = all.keys().collect();
    for (at, name) in names.iter().enumerate() {
        let length = all[*name].len();
        for place in [0, 40, 64, length / 2, length - 40, length - 1] {
            let mut left: Vec<_> = all.iter().map(|(name, it)| (name, it.clone())).collect();
            left[at].1[place] ^= 1;
            let context = format!("byte {place} of {} is damaged", name.display());
            check(folder.path(), storage, &left, &context).await;
        }
        let mut left: Vec<_> = all.iter().map(|(name, it)| (name, it.clone())).collect();
        left[at].1 = all[names[(at + 1) % names.len()]].clone();
        let context = format!("{} is another part", name.display());
        check(folder.path(), storage, &left, &context).await;
    }
}
