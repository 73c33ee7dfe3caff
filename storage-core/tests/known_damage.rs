//! Damage that was found is shown until it is gone, and no longer.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]

mod support;

use std::{path::PathBuf, sync::Arc};

use storage_core::{Engine, IoChoice, ServedBytes, StorageError};
use storage_format::{LeafType, StorageId, index_part::HEADER_BYTES, paths::FileRole};
use support::{config, prepare, push_all};

/// A finalized storage.
struct Stored {
    folder: tempfile::TempDir,
    engine: Engine,
    storage: StorageId,
}

impl Stored {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), IoChoice::Blocking);
        config.scrub_bytes_per_second = 0;
        let engine = Engine::open(config).await.unwrap();
        let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
        push_all(&engine, storage, "array", 0..20).await;
        engine.storages().finalize(storage).await.unwrap();
        Self {
            folder,
            engine,
            storage,
        }
    }

    /// The files that the storage file lists.
    async fn listed(&self) -> Vec<(String, FileRole, PathBuf)> {
        let files = self.engine.reading().files(self.storage).await.unwrap();
        let folder = self.folder.path().join("storages");
        let folder = folder.join(self.storage.to_string());
        let listed = files
            .into_iter()
            .filter(|file| file.role != FileRole::Storage);
        let listed = listed.map(|file| (file.name.clone(), file.role, folder.join(file.name)));
        listed.collect()
    }

    /// Opens a file and compares all of it, as a range request does.
    async fn read(&self, name: &str) -> Result<(), StorageError> {
        let served = self.engine.reading().open_file(self.storage, name).await?;
        match served.bytes {
            ServedBytes::InFile { checked, .. } => checked.ensure(0..served.length).await,
            ServedBytes::InMemory(_) => Ok(()),
        }
    }

    /// The places of damage that the status shows.
    fn places(&self) -> Vec<(String, u64)> {
        let status = self.engine.storages().status(self.storage).unwrap();
        assert_eq!(status.damage.len() as u64, status.damaged_places);
        let places = status.damage.into_iter();
        places.map(|damage| (damage.file, damage.offset)).collect()
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1;
    flipped
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_cut_extended_or_gone_is_damaged() {
    let stored = Stored::new().await;
    let counted = || stored.engine.counters().damaged_blocks.get();
    for (name, _, path) in stored.listed().await {
        let intact = std::fs::read(&path).unwrap();
        let extended = [&intact[..], b"x"].concat();
        for changed in [Some(&intact[..intact.len() - 1]), Some(&extended[..]), None] {
            let context = format!("{name} {:?}", changed.map(<[u8]>::len));
            match changed {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let before = counted();
            for _ in 0..2 {
                let error = stored.read(&name).await.unwrap_err();
                assert_eq!(error.code(), "damaged", "{context}: {error}");
            }
            assert_eq!(counted(), before + 1, "{context}");
            assert_eq!(stored.places(), [(name.clone(), 0)], "{context}");
            std::fs::write(&path, &intact).unwrap();
            stored.read(&name).await.unwrap();
            assert_eq!(stored.places(), [], "{context}");
        }
    }
    stored.engine.shutdown().await.unwrap();
}

/// As the documentation says: put the file into its place, and verify the storage.
#[tokio::test(flavor = "multi_thread")]
async fn a_verification_forgets_damage_of_restored_files() {
    let stored = Stored::new().await;
    for (name, _, path) in stored.listed().await {
        let intact = std::fs::read(&path).unwrap();
        std::fs::write(&path, flipped(&intact, intact.len() / 2)).unwrap();
        stored.read(&name).await.unwrap_err();
        assert_eq!(stored.places().len(), 1, "{name}");
        assert_eq!(stored.engine.storage_counts().damaged, 1);
        std::fs::write(&path, &intact).unwrap();
        let verified = stored
            .engine
            .reading()
            .verify(stored.storage, Arc::default());
        assert_eq!(verified.await.unwrap().damage, [], "{name}");
        assert_eq!(stored.places(), [], "{name}");
        assert_eq!(stored.engine.storage_counts().damaged, 0);
    }
    stored.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_rebuilt_index_part_is_forgotten() {
    let stored = Stored::new().await;
    let listed = stored.listed().await;
    let part = listed
        .iter()
        .find(|file| file.1 == FileRole::Index)
        .unwrap();
    let intact = std::fs::read(&part.2).unwrap();
    std::fs::write(&part.2, flipped(&intact, HEADER_BYTES + 8)).unwrap();
    stored.read(&part.0).await.unwrap_err();
    assert_eq!(stored.places(), [(part.0.clone(), 0)]);
    for number in 0..20 {
        let read = stored.engine.reading().read_packet(stored.storage, number);
        read.await.unwrap();
    }
    assert!(std::fs::read(&part.2).unwrap() == intact);
    assert_eq!(stored.places(), []);
    stored.engine.shutdown().await.unwrap();
}
