//! The scrub finds damage that nobody reads.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use storage_core::{Damage, Engine, EngineConfig, IoChoice};
use storage_format::{LeafType, StorageId, paths::FileRole};
use support::{check_intact, config, prepare, push_all};

const PATIENCE: Duration = Duration::from_secs(60);

fn scrubbing(folder: &Path) -> EngineConfig {
    EngineConfig {
        scrub_bytes_per_second: 1 << 30,
        scrub_pass_interval: Duration::from_millis(1),
        scrub_delay: Duration::ZERO,
        data_file_bytes_max: 64 << 10,
        full_file_arranging_bytes_per_second_max: 0,
        ..config(folder, IoChoice::Auto)
    }
}

/// A folder on a disk: a file system in memory has no direct reads.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

async fn until(mut is_so: impl AsyncFnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for two more passes: the first may have passed the file before it changed.
async fn next_passes(engine: &Engine) {
    let passes = |engine: &Engine| engine.counters().scrub_passes.get();
    let before = passes(engine);
    until(
        async || passes(engine) >= before + 2,
        "the scrub does not end a pass",
    )
    .await;
}

fn damage(engine: &Engine, storage: StorageId) -> Vec<Damage> {
    engine.storages().status(storage).unwrap().damage
}

fn flip(path: &Path, at: usize) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let mut flipped = bytes.clone();
    flipped[at] ^= 4;
    put(path, &flipped);
    bytes
}

/// Replaces a file at once: the scrub never reads a part of it.
fn put(path: &Path, bytes: &[u8]) {
    let storages = path.parent().and_then(Path::parent).unwrap();
    let aside = storages.with_file_name("aside");
    std::fs::write(&aside, bytes).unwrap();
    std::fs::rename(aside, path).unwrap();
}

async fn files(engine: &Engine, storage: StorageId) -> Vec<(String, FileRole)> {
    let files = engine.reading().files(storage).await.unwrap();
    files
        .into_iter()
        .map(|file| (file.name, file.role))
        .collect()
}

fn place(folder: &Path, storage: StorageId, name: &str) -> PathBuf {
    folder.join("storages").join(storage.to_string()).join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_finalized_storage_is_found_and_forgotten_when_it_is_restored() {
    let folder = folder();
    let engine = Engine::open(scrubbing(folder.path())).await.unwrap();
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    push_all(&engine, storage, "array", 0..40).await;
    engine.storages().finalize(storage).await.unwrap();
    next_passes(&engine).await;
    assert!(damage(&engine, storage).is_empty());
    for (name, role) in files(&engine, storage).await {
        let path = place(folder.path(), storage, &name);
        if role == FileRole::Index && !path.exists() {
            // It was rebuilt with another part.
            continue;
        }
        let found = || engine.counters().scrub_places.get();
        let before = found();
        let bytes = flip(&path, 40);
        match role {
            FileRole::Storage => {
                // Restored from its second copy, or from what is in memory.
                until(async || found() > before, "the scrub finds no damage").await;
                next_passes(&engine).await;
                assert!(damage(&engine, storage).is_empty());
                assert!(std::fs::read(&path).unwrap() == bytes, "{name}");
            }
            FileRole::Index => {
                until(async || found() > before, "the scrub finds no damage").await;
                next_passes(&engine).await;
                assert!(!path.exists(), "{name}");
                assert!(damage(&engine, storage).is_empty());
            }
            _ => {
                until(async || !damage(&engine, storage).is_empty(), &name).await;
                next_passes(&engine).await;
                let places = damage(&engine, storage);
                assert_eq!(places.len(), 1, "{places:?}");
                assert_eq!(places[0].file, name);
                assert_eq!(found(), before + 1, "{name}");
                assert_eq!(engine.storage_counts().damaged, 1);
                put(&path, &bytes);
                next_passes(&engine).await;
                assert!(damage(&engine, storage).is_empty(), "{name}");
            }
        }
    }
    check_intact(&engine, storage, 40).await;
    engine.shutdown().await.unwrap();
    let off = EngineConfig {
        scrub_bytes_per_second: 0,
        ..scrubbing(folder.path())
    };
    let engine = Engine::open(off).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(engine.counters().scrub_bytes.get(), 0, "it is off");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_complete_file_of_an_open_storage_is_found() {
    let folder = folder();
    let engine = Engine::open(scrubbing(folder.path())).await.unwrap();
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    let mut next = 0;
    let is_data = |file: &&(String, FileRole)| file.1 == FileRole::Data;
    while files(&engine, storage).await.iter().filter(is_data).count() < 3 {
        push_all(&engine, storage, "array", next..next + 10).await;
        next += 10;
    }
    let names = files(&engine, storage).await;
    let first = names.iter().find(is_data).unwrap();
    let path = place(folder.path(), storage, &first.0);
    next_passes(&engine).await;
    assert!(damage(&engine, storage).is_empty());
    let bytes = flip(&path, 9000);
    until(
        async || !damage(&engine, storage).is_empty(),
        "no damage is found",
    )
    .await;
    assert_eq!(damage(&engine, storage)[0].file, first.0);
    put(&path, &bytes);
    next_passes(&engine).await;
    assert!(damage(&engine, storage).is_empty());
    check_intact(&engine, storage, next).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_ended_is_remembered() {
    let folder = folder();
    let daily = EngineConfig {
        scrub_pass_interval: Duration::from_secs(86_400),
        ..scrubbing(folder.path())
    };
    let engine = Engine::open(daily.clone()).await.unwrap();
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    push_all(&engine, storage, "array", 0..5).await;
    let ended = || engine.counters().scrub_finished_seconds.get();
    until(async || ended() > 0, "the scrub does not end a pass").await;
    let at = ended();
    engine.shutdown().await.unwrap();
    let engine = Engine::open(daily).await.unwrap();
    let shown = || engine.counters().scrub_finished_seconds.get();
    until(async || shown() == at, "the scrub forgot when it ended").await;
    assert_eq!(engine.counters().scrub_passes.get(), 0);
    engine.shutdown().await.unwrap();
}
