//! A log of which a disk lost the end: zeros from the header of a batch on.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_core::{Engine, IoChoice, Progress};
use storage_format::{LeafType, StorageId, log::BLOCK_BYTES, storage_file::StorageState};
use support::{check_packets, config, copy_of_running, data_file, prepare, push_all};

/// Offsets of the batches of a data file.
fn batches(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
    let batches = blocks.filter(|(_, block)| block.starts_with(b"THBA"));
    batches.map(|(at, _)| (at * BLOCK_BYTES) as u64).collect()
}

/// Zeros from `offset` on.
fn lose(path: &Path, offset: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let zeros = vec![0; (length - offset) as usize];
    file.write_all_at(&zeros, offset).unwrap();
}

async fn open(folder: &Path) -> Engine {
    Engine::open(config(folder, IoChoice::Auto)).await.unwrap()
}

/// A storage with packets, each in a batch of its own: an index part covers the first file, and no
/// one the second, as a killed server leaves it. Returns both files, too.
async fn killed(covered: u64, uncovered: u64) -> (tempfile::TempDir, StorageId, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    push_all(&engine, storage, "array", 0..covered).await;
    let first = data_file(&engine, storage).await;
    engine.shutdown().await.unwrap();
    let engine = open(folder.path()).await;
    push_all(&engine, storage, "array", covered..covered + uncovered).await;
    let copy = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    let first = copy.path().join(first.strip_prefix(folder.path()).unwrap());
    let second = first.with_file_name("0000000000000001.itdata");
    (copy, storage, [first, second])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_index_part_covers_is_missed_at_the_start() {
    const COUNT: u64 = 10;
    for uncovered in [0, 2] {
        // The last batch, several, the last one and the torn part of it.
        for lost in 1..=COUNT {
            let (folder, storage, [first, _]) = killed(COUNT, uncovered).await;
            let begins = batches(&first);
            assert_eq!(begins.len() as u64, COUNT);
            let from = begins[(COUNT - lost) as usize];
            lose(&first, from);
            let context = format!("{lost} lost, {uncovered} not covered");
            let engine = open(folder.path()).await;
            let found = engine.storages().status(storage).unwrap();
            assert_eq!(found.state, StorageState::Open, "{context}");
            assert_eq!(found.damaged_places, 1, "{context}");
            assert!(found.damage[0].offset >= from, "{context}");
            let progress = Arc::new(Progress::default());
            let repaired = engine.storages().repair(storage, true, progress).await;
            assert_eq!(repaired.unwrap().missing_packets, lost, "{context}");
            let found = engine.storages().status(storage).unwrap();
            assert_eq!((found.damaged_places, found.missing_packets), (0, lost));
            engine.shutdown().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intact_end_is_not_missed() {
    for (covered, uncovered) in [(1, 0), (10, 0), (10, 2), (60, 1)] {
        let (folder, storage, _) = killed(covered, uncovered).await;
        for _ in 0..2 {
            let engine = open(folder.path()).await;
            let found = engine.storages().status(storage).unwrap();
            assert_eq!((found.state, found.damaged_places), (StorageState::Open, 0));
            check_packets(&engine, storage, covered + uncovered).await;
            engine.shutdown().await.unwrap();
        }
    }
}

/// Nothing on the disk tells it from a write that was torn before it was acknowledged
/// (docs/durability.md). The producer is told, by the position of its stream.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_covers_is_taken_for_a_torn_end() {
    let (folder, storage, [_, second]) = killed(4, 6).await;
    lose(&second, batches(&second)[3]);
    let engine = open(folder.path()).await;
    let found = engine.storages().status(storage).unwrap();
    assert_eq!((found.state, found.damaged_places), (StorageState::Open, 0));
    check_packets(&engine, storage, 7).await;
    push_all(&engine, storage, "array", 7..9).await;
    check_packets(&engine, storage, 9).await;
    engine.shutdown().await.unwrap();
}
