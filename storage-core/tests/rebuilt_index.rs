//! The index of a storage is derived: when a part of it is damaged or gone, it is rebuilt from the
//! data files, completely or not at all.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]

mod support;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use storage_core::{Engine, IoChoice, NewPacket, Progress, Selection, VerifyReport};
use storage_format::{
    LeafType, StorageId, StreamPosition,
    frame::Facts,
    index_part::HEADER_BYTES,
    log::LogFileHeader,
    paths::{FileName, STORAGES_FOLDER},
    storage_file::StorageState,
};
use support::{config, prepare, push};

const STREAMS: [(&str, LeafType); 2] = [("array", LeafType::Array), ("other", LeafType::Array)];
/// Packets of a storage.
const PACKETS: u64 = 24;
/// In the ordinal, the time, the number of replaced ordinals and the checksum of an index part.
const HEADER_FACTS: [u64; 4] = [33, 40, 48, 61];

async fn open(folder: &Path) -> Engine {
    let mut config = config(folder, IoChoice::Auto);
    config.data_file_bytes_max = 256 << 10;
    Engine::open(config).await.unwrap()
}

/// Incompressible bytes.
fn payload(seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..60_000).map(next).collect()
}

/// A storage with some data files, on the disk; `streams` write in turn. The storage of one stream
/// is not arranged when it is finalized, because that would not pay.
struct Stored {
    folder: tempfile::TempDir,
    storage: StorageId,
}

impl Stored {
    async fn new(streams: usize, is_finalized: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = open(folder.path()).await;
        let storage = prepare(&engine, &STREAMS[..streams]).await;
        for number in 0..PACKETS {
            let (stream, _) = STREAMS[number as usize % streams];
            let position = StreamPosition::new(0, number / streams as u64);
            let packet = NewPacket::new(position, payload(number), Facts::default());
            let outcome = push(&engine, storage, stream, vec![packet]).await;
            assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        }
        if is_finalized {
            engine.storages().finalize(storage).await.unwrap();
        }
        engine.shutdown().await.unwrap();
        let stored = Self { folder, storage };
        let data = stored.files("itdata");
        assert!(data.len() > 1, "{data:?}");
        let start = std::fs::read(&data[0]).unwrap();
        let header = LogFileHeader::decode_any(&start).unwrap();
        assert_eq!(header.is_arranged, is_finalized && streams > 1);
        stored
    }

    /// Its files with this ending.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join(STORAGES_FOLDER);
        let names = std::fs::read_dir(folder.join(self.storage.to_string())).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let mut files: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|found| found == ending))
            .collect();
        files.sort();
        files
    }

    /// What its storage file and its index parts contain.
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let storage = format!("{}.", self.storage);
        let folder = self.folder.path().join(STORAGES_FOLDER);
        let names = std::fs::read_dir(folder.join(self.storage.to_string())).unwrap();
        let mut paths: Vec<_> = names.map(|name| name.unwrap().path()).collect();
        paths.retain(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(".index") || name.starts_with(&storage)
        });
        paths.sort();
        let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
        paths.into_iter().map(read).collect()
    }

    fn without_index(&self) {
        let parts = self.files("index");
        assert!(!parts.is_empty());
        parts
            .iter()
            .for_each(|part| std::fs::remove_file(part).unwrap());
    }

    /// Flips a bit in a block of each index part; header and footer stay intact.
    fn damage_blocks(&self) -> Vec<PathBuf> {
        let parts = self.files("index");
        parts
            .iter()
            .for_each(|part| flip(part, HEADER_BYTES as u64 + 8));
        parts
    }

    /// All packets but those of `missing` are readable, and listed.
    async fn check(&self, engine: &Engine, damaged: &[u64]) {
        for number in 0..PACKETS {
            let read = engine.reading().read_packet(self.storage, number).await;
            match read {
                Ok(bytes) => {
                    assert!(!damaged.contains(&number), "{number}");
                    assert_eq!(bytes, payload(number), "{number}");
                }
                Err(error) => {
                    assert!(damaged.contains(&number), "{number}: {error}");
                    assert_eq!(error.code(), "damaged", "{number}: {error}");
                }
            }
        }
        let all = Selection {
            limit: usize::MAX,
            ..Selection::default()
        };
        let listed = engine.reading().descriptors(self.storage, all).await;
        assert_eq!(listed.unwrap().items.len() as u64, PACKETS);
    }

    async fn verify(&self, engine: &Engine) -> VerifyReport {
        let progress = Arc::new(Progress::default());
        engine
            .reading()
            .verify(self.storage, progress)
            .await
            .unwrap()
    }
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

type Damage = fn(&Path);

#[tokio::test(flavor = "multi_thread")]
async fn a_short_index_is_never_published() {
    for streams in [1, 2] {
        let stored = Stored::new(streams, true).await;
        let intact: Vec<_> = stored.files("itdata");
        let intact: Vec<_> = (intact.into_iter())
            .map(|path| (std::fs::read(&path).unwrap(), path))
            .collect();
        stored.without_index();
        let damages: [(&str, Damage); 3] = [
            ("its header is damaged", |path| flip(path, 2816)),
            ("it is short", |path| {
                let bytes = std::fs::read(path).unwrap();
                std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            }),
            ("it is gone", |path| std::fs::remove_file(path).unwrap()),
        ];
        for (what, damage) in damages {
            for (bytes, path) in &intact {
                damage(path);
                let engine = open(stored.folder.path()).await;
                let read = engine.reading().read_packet(stored.storage, 0).await;
                let error = read.unwrap_err();
                assert_eq!(error.code(), "damaged", "{what}: {error}");
                let verified = stored.verify(&engine).await;
                let name = path.file_name().unwrap().to_str().unwrap();
                let is_named = verified.damage.iter().any(|damage| damage.file == name);
                assert!(is_named, "{what}: {name} {verified:?}");
                assert!(stored.files("index").is_empty(), "{what}");
                engine.shutdown().await.unwrap();
                std::fs::write(path, bytes).unwrap();
            }
        }
        let engine = open(stored.folder.path()).await;
        stored.check(&engine, &[]).await;
        assert_eq!(stored.verify(&engine).await.damage, []);
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_payload_does_not_hide_the_packets_behind_it() {
    for streams in [1, 2] {
        let stored = Stored::new(streams, true).await;
        let engine = open(stored.folder.path()).await;
        let place = engine.reading().packet(stored.storage, 9).await.unwrap();
        engine.shutdown().await.unwrap();
        let file = FileName::Data(place.descriptor.file()).to_string();
        let data = stored.files("itdata");
        let path = data.iter().find(|path| path.ends_with(&file)).unwrap();
        flip(path, place.descriptor.offset() + 1000);
        stored.without_index();
        let engine = open(stored.folder.path()).await;
        stored.check(&engine, &[9]).await;
        let verified = stored.verify(&engine).await;
        assert!(verified.damage.iter().all(|found| found.file == file));
        assert!(!verified.damage.is_empty());
        // The index has the checksums of what was written.
        flip(path, place.descriptor.offset() + 1000);
        stored.check(&engine, &[]).await;
        assert_eq!(stored.verify(&engine).await.damage, []);
        engine.shutdown().await.unwrap();
    }
}

/// A seal proves the files that were there when it was made.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_index_part_is_restored_as_it_was_on_first_read() {
    for streams in [1, 2] {
        let stored = Stored::new(streams, true).await;
        let intact = stored.contents();
        let part = stored.files("index").pop().unwrap();
        let length = std::fs::read(&part).unwrap().len() as u64;
        let blocks = HEADER_BYTES as u64;
        let in_header_and_blocks = [0, 17, 56, blocks, blocks + 72, blocks + 240];
        // An arranged storage has several parts, and only its footer says which one this is.
        let in_the_only_footer = [300, 100, 31, 1].map(|before| length - before);
        let footer = in_the_only_footer.into_iter().filter(|_| streams == 1);
        for at in in_header_and_blocks.into_iter().chain(footer) {
            flip(&part, at);
            let engine = open(stored.folder.path()).await;
            stored.check(&engine, &[]).await;
            assert!(stored.contents() == intact, "{streams} streams, byte {at}");
            assert_eq!(stored.verify(&engine).await.damage, [], "byte {at}");
            engine.shutdown().await.unwrap();
        }
        // Nothing else says which part it was, and when it was written.
        for at in HEADER_FACTS {
            let part = stored.files("index").pop().unwrap();
            flip(&part, at);
            let engine = open(stored.folder.path()).await;
            stored.check(&engine, &[]).await;
            assert!(!part.exists(), "byte {at}");
            assert_eq!(stored.verify(&engine).await.damage, [], "byte {at}");
            engine.shutdown().await.unwrap();
        }
        let engine = open(stored.folder.path()).await;
        stored.check(&engine, &[]).await;
        engine.shutdown().await.unwrap();
    }
}

/// An index that cannot be rebuilt is not rebuilt by each read, but when its files are restored.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_be_rebuilt_is_tried_once() {
    let stored = Stored::new(2, true).await;
    stored.damage_blocks();
    let data = stored.files("itdata").pop().unwrap();
    let intact = std::fs::read(&data).unwrap();
    flip(&data, 2816);
    let engine = open(stored.folder.path()).await;
    let reading = engine.reading();
    for _ in 0..2 {
        let mut refused: u64 = 0;
        for number in 0..PACKETS {
            match reading.read_packet(stored.storage, number).await {
                // The block of the other leaf is intact.
                Ok(bytes) => assert_eq!(bytes, payload(number), "{number}"),
                Err(error) => {
                    assert_eq!(error.code(), "damaged", "{number}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(refused >= PACKETS / 2, "{refused}");
    }
    let attempts = || {
        let counters = engine.counters();
        let (all, failed) = (&counters.index_rebuilds, &counters.index_rebuild_failures);
        (all.get(), failed.get())
    };
    assert_eq!(attempts(), (1, 1));
    std::fs::write(&data, intact).unwrap();
    let lost = async || {
        let mut numbers = 0..PACKETS;
        loop {
            let Some(number) = numbers.next() else {
                return false;
            };
            if reading.read_packet(stored.storage, number).await.is_err() {
                return true;
            }
        }
    };
    for _ in 0..100 {
        if !lost().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stored.check(&engine, &[]).await;
    assert_eq!(attempts(), (2, 1));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_block_of_an_open_storage_is_rebuilt_by_the_start() {
    for streams in [1, 2] {
        let stored = Stored::new(streams, false).await;
        let damaged = stored.damage_blocks();
        let engine = open(stored.folder.path()).await;
        let info = engine.storages().get(stored.storage).unwrap();
        stored.check(&engine, &[]).await;
        assert_eq!(info.state, StorageState::Open);
        assert!(damaged.iter().all(|part| !part.exists()), "{damaged:?}");
        engine.storages().finalize(stored.storage).await.unwrap();
        stored.check(&engine, &[]).await;
        assert_eq!(stored.verify(&engine).await.damage, []);
        engine.shutdown().await.unwrap();
    }
}
