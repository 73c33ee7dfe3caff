//! Damaged headers of the files of a log: acknowledged packets are neither removed nor forgotten.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{os::unix::fs::FileExt, path::Path};

use storage_core::{Engine, IoChoice};
use storage_format::{LeafType, storage_file::StorageState};
use support::{config, copy_of_running, data_file, prepare, push_all};

fn flip(path: &Path, at: u64) {
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_header_fails_the_storage_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let open = async |folder: &Path| Engine::open(config(folder, IoChoice::Auto)).await.unwrap();
    let engine = open(folder.path()).await;
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    push_all(&engine, storage, "array", 0..6).await;
    let covered = data_file(&engine, storage).await;
    engine.shutdown().await.unwrap();
    let engine = open(folder.path()).await;
    push_all(&engine, storage, "array", 6..12).await;
    let uncovered = covered.with_file_name("0000000000000001.itdata");
    for file in [&covered, &uncovered] {
        // Byte 10 marks an arranged file.
        for at in (0..96).chain([2000, 4095]) {
            let copy = copy_of_running(folder.path());
            let path = copy.path().join(file.strip_prefix(folder.path()).unwrap());
            flip(&path, at);
            let damaged = std::fs::read(&path).unwrap();
            let engine = open(copy.path()).await;
            let found = engine.storages().status(storage).unwrap();
            assert_eq!(found.state, StorageState::Failed, "byte {at}");
            engine.shutdown().await.unwrap();
            assert!(std::fs::read(&path).unwrap() == damaged, "byte {at}");
        }
    }
    engine.shutdown().await.unwrap();
}
