//! What protects a finalized storage: checksums of pieces, and the second copy of its storage file.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bytes::Bytes;
use storage_format::{
    StreamPosition,
    checksum_file::{ChecksumFile, PIECE_BYTES},
    frame::Facts,
    paths::{FileName, FileRole},
    storage_file::{StorageFile, StorageState},
};

use super::World;
use crate::{
    Engine, EngineConfig, FileInfo, NewPacket, Push, StorageInfo, StoragePatch, UnknownLabels,
};

/// A finalized storage with packets of 3 MiB, one push after another.
async fn finalized(packets: u64, change: impl FnOnce(&mut EngineConfig)) -> World {
    let world = World::with(change).await;
    for sequence in 0..packets {
        for stream in super::STREAMS {
            let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| (at >> 5) as u8).collect();
            let position = StreamPosition::new(0, sequence);
            let push = Push {
                agent: super::agent(),
                stream: stream.parse().unwrap(),
                packets: vec![NewPacket::new(
                    position,
                    Bytes::from(bytes),
                    Facts::default(),
                )],
                permit: world.engine.budget().try_acquire(1).unwrap(),
            };
            let pending = world.engine.ingest().submit(world.storage, push).await;
            assert!(pending.unwrap().await.refused.is_none());
        }
    }
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    world
}

impl World {
    fn info(&self) -> StorageInfo {
        self.engine.storages().get(self.storage).unwrap()
    }

    /// Waits until the storage lists its checksums.
    async fn with_checksums(&self) -> StorageInfo {
        while !self.info().lists(FileRole::Checksums) {
            tokio::task::yield_now().await;
        }
        self.info()
    }

    async fn reopen(self, config: EngineConfig) -> Self {
        self.engine.shutdown().await.unwrap();
        let engine = Engine::open(config).await.unwrap();
        Self { engine, ..self }
    }

    fn own_file(&self) -> std::path::PathBuf {
        let name = FileName::Storage(self.storage).to_string();
        self.folder_of(&self.engine).join(name)
    }

    fn copy(&self) -> std::path::PathBuf {
        let name = FileName::StorageCopy(self.storage).to_string();
        self.own_file().with_file_name(name)
    }

    async fn files(&self) -> Vec<FileInfo> {
        self.engine.reading().files(self.storage).await.unwrap()
    }
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Data files of the storage have checksums of their pieces, and verification says which pieces
/// are damaged.
async fn check_pieces(change: impl FnOnce(&mut EngineConfig)) {
    let world = finalized(2, change).await;
    let info = world.with_checksums().await;
    world.check_files(&world.engine).await;
    let folder = world.folder_of(&world.engine);
    let listed = info.files.iter().find(|f| f.role == FileRole::Checksums);
    let bytes = std::fs::read(folder.join(&listed.unwrap().name)).unwrap();
    let checksums = ChecksumFile::decode(&bytes).unwrap();
    assert_eq!(checksums.storage, world.storage);
    let data: Vec<_> = (info.files.iter())
        .filter(|file| file.role == FileRole::Data)
        .collect();
    assert_eq!(checksums.files.len(), data.len());
    for (checksums, file) in checksums.files.iter().zip(&data) {
        assert_eq!(FileName::Data(checksums.file).to_string(), file.name);
        assert_eq!(checksums.length, file.length);
    }
    let at = 2 * PIECE_BYTES + 5;
    flip(&folder.join(&data[0].name), at);
    flip(&folder.join(&data[0].name), PIECE_BYTES);
    let verified = world
        .engine
        .reading()
        .verify(world.storage, Arc::default())
        .await;
    let damage = verified.unwrap().damage;
    let end = data[0].length.min(3 * PIECE_BYTES);
    let what = format!("the checksums of bytes {PIECE_BYTES} to {end} do not match");
    let is_located = |damage: &crate::Damage| {
        damage.file == data[0].name && damage.offset == PIECE_BYTES && damage.what == what
    };
    assert!(damage.iter().any(is_located), "{damage:?}");
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_located_by_piece() {
    // Arranged.
    check_pieces(|config| config.data_file_bytes_max = 1 << 30).await;
    // Published as it is.
    let one_stream = |config: &mut EngineConfig| config.checksums_at_once_bytes_max = u64::MAX;
    check_pieces(one_stream).await;
    // As it is, and read afterwards.
    check_pieces(|config| config.checksums_at_once_bytes_max = 0).await;
}

/// A server that ends before it has read a storage for its checksums reads it after its start.
#[tokio::test(flavor = "multi_thread")]
async fn checksums_that_are_missing_are_computed_after_a_restart() {
    let slow = |config: &mut EngineConfig| {
        config.checksums_at_once_bytes_max = 0;
        config.arranging_bytes_per_second_max = 1;
    };
    let world = finalized(1, slow).await;
    let mut config = super::config(world.folder.path());
    let world = world.reopen(config.clone()).await;
    world.with_checksums().await;
    world.check_files(&world.engine).await;
    // Nothing is missing any more.
    config.checksums_at_once_bytes_max = 0;
    let world = world.reopen(config).await;
    assert!(world.info().lists(FileRole::Checksums));
    let unpublished = world.files().await;
    assert!(unpublished.iter().all(|file| !file.name.ends_with(".tmp")));
    world.engine.shutdown().await.unwrap();
}

/// Whether a storage file that `damage` changed is restored, at the start and while it is served.
async fn check_restored(damage: impl Fn(&Path)) {
    let world = finalized(1, |_| {}).await;
    let labels = BTreeMap::from([("status".to_owned(), "checked".to_owned())]);
    let patch = StoragePatch {
        labels: Some(labels),
        ..StoragePatch::default()
    };
    let info = world.engine.storages().update(world.storage, patch).await;
    let info = info.unwrap();
    let intact = std::fs::read(world.own_file()).unwrap();
    assert_eq!(std::fs::read(world.copy()).unwrap(), intact);

    damage(&world.own_file());
    let length = world.files().await[0].length;
    assert_eq!(length, intact.len() as u64);
    assert_eq!(std::fs::read(world.own_file()).unwrap(), intact);

    damage(&world.copy());
    let verified = world
        .engine
        .reading()
        .verify(world.storage, Arc::default())
        .await;
    let damaged = verified.unwrap().damage;
    assert!(
        damaged.iter().all(|d| world.copy().ends_with(&d.file)),
        "{damaged:?}"
    );
    assert_eq!(std::fs::read(world.copy()).unwrap(), intact);

    damage(&world.own_file());
    let config = super::config(world.folder.path());
    let world = world.reopen(config.clone()).await;
    assert_eq!(world.info(), info);
    assert_eq!(std::fs::read(world.own_file()).unwrap(), intact);
    world.check_files(&world.engine).await;

    // Neither is intact.
    damage(&world.own_file());
    damage(&world.copy());
    let world = world.reopen(config).await;
    assert_eq!(world.info().state, StorageState::Failed);
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_storage_file_is_restored_from_its_copy() {
    check_restored(|path| flip(path, 40)).await;
    check_restored(|path| std::fs::write(path, b"").unwrap()).await;
    check_restored(|path| std::fs::remove_file(path).unwrap()).await;
}

/// A copy that is older than the storage file is written again by the next start.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_is_replaced() {
    let world = finalized(1, |_| {}).await;
    let own = std::fs::read(world.own_file()).unwrap();
    let mut older = StorageFile::decode(&own).unwrap();
    older.name = "older.".into();
    std::fs::write(world.copy(), older.encode().unwrap()).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(world.copy())
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let config = super::config(world.folder.path());
    let world = world.reopen(config).await;
    assert_eq!(std::fs::read(world.copy()).unwrap(), own);
    world.engine.shutdown().await.unwrap();
}

/// The storage file of an open storage is restored from its second copy, which is as new: with its
/// labels, and with the packets that were acknowledged since.
async fn check_open_restored(damage: impl Fn(&Path)) {
    let mut world = World::new().await;
    world.push_some(2).await;
    let labels = BTreeMap::from([("status".to_owned(), "checked".to_owned())]);
    let patch = StoragePatch {
        labels: Some(labels),
        ..StoragePatch::default()
    };
    let updated = world.engine.storages().update(world.storage, patch).await;
    let labels = updated.unwrap().labels;
    assert!(labels.contains_key("status"));
    world.push_some(2).await;
    let intact = std::fs::read(world.own_file()).unwrap();
    assert_eq!(std::fs::read(world.copy()).unwrap(), intact);
    let config = super::config(world.folder.path());
    for is_copy in [false, true] {
        let path = if is_copy {
            world.copy()
        } else {
            world.own_file()
        };
        damage(&path);
        world = world.reopen(config.clone()).await;
        let info = world.info();
        assert_eq!((info.state, &info.labels), (StorageState::Open, &labels));
        assert_eq!(std::fs::read(world.own_file()).unwrap(), intact);
        assert_eq!(std::fs::read(world.copy()).unwrap(), intact);
        super::check_packets(&world.engine, world.storage, &world.acknowledged).await;
    }
    // It goes on, and its copy with it.
    world.push_some(1).await;
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let own = std::fs::read(world.own_file()).unwrap();
    assert_eq!(std::fs::read(world.copy()).unwrap(), own);
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_storage_file_of_an_open_storage_is_restored() {
    check_open_restored(|path| flip(path, 40)).await;
    check_open_restored(|path| std::fs::write(path, b"").unwrap()).await;
    check_open_restored(|path| std::fs::remove_file(path).unwrap()).await;
}

/// A storage file of an open storage is not replaced by one that says that it is finalized, and a
/// copy that is one change ahead, of which nobody was told, does not count.
#[tokio::test(flavor = "multi_thread")]
async fn an_intact_storage_file_counts_and_not_its_copy() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let own = std::fs::read(world.own_file()).unwrap();
    let config = super::config(world.folder.path());
    for state in [StorageState::Finalized, StorageState::Finalizing] {
        let mut file = StorageFile::decode(&own).unwrap();
        file.state = state;
        std::fs::write(world.copy(), file.encode().unwrap()).unwrap();
        world = world.reopen(config.clone()).await;
        assert_eq!(world.info().state, StorageState::Open);
        assert_eq!(std::fs::read(world.copy()).unwrap(), own);
    }
    flip(&world.own_file(), 40);
    flip(&world.copy(), 40);
    let world = world.reopen(config).await;
    assert_eq!(world.info().state, StorageState::Failed);
    world.engine.shutdown().await.unwrap();
}

/// A storage whose storage file is lost may be held: it is deleted only by who says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_without_labels_is_not_deleted_by_accident() {
    let world = finalized(1, |_| {}).await;
    let held = ["true".to_owned()];
    let labels = world.engine.labels();
    labels
        .set(world.storage, "legal_hold", &held, false)
        .await
        .unwrap();
    let delete = |world: &World, labels| {
        let (storages, id) = (world.engine.storages().clone(), world.storage);
        async move { storages.delete_with(id, labels).await }
    };
    let refused = delete(&world, UnknownLabels::Accepted).await.unwrap_err();
    assert_eq!(refused.code(), "storage_held", "its labels are known");
    flip(&world.own_file(), 40);
    flip(&world.copy(), 40);
    let config = super::config(world.folder.path());
    let world = world.reopen(config).await;
    assert_eq!(world.info().state, StorageState::Failed);
    for _ in 0..2 {
        let refused = delete(&world, UnknownLabels::Refused).await.unwrap_err();
        assert_eq!(refused.code(), "labels_unknown");
        assert!(world.folder_of(&world.engine).exists());
    }
    delete(&world, UnknownLabels::Accepted).await.unwrap();
    assert!(!world.folder_of(&world.engine).exists());
    world.engine.shutdown().await.unwrap();
}
