//! What a crash and a damaged disk leave at the end of a log look alike. What may have been
//! acknowledged is never cut off, and what proves nothing never stops a storage.
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
};

use storage_core::{Engine, IoChoice};
use storage_format::{
    DataFileId, LeafType, StorageId,
    log::{BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES},
    paths::{FileName, STORAGES_FOLDER},
    storage_file::StorageState,
};
use support::{check_packets, config, copy_of_running, prepare, push_all};

async fn open(folder: &Path) -> Engine {
    Engine::open(config(folder, IoChoice::Auto)).await.unwrap()
}

/// What a killed server left: an index part covers the first file of the log, and nothing the
/// second. Each packet is in a batch of its own.
struct Killed {
    folder: tempfile::TempDir,
    storage: StorageId,
    files: [PathBuf; 2],
}

impl Killed {
    /// Without covered packets there is one file, which no index part covers.
    async fn new(covered: u64, uncovered: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = open(folder.path()).await;
        let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
        if covered > 0 {
            push_all(&engine, storage, "array", 0..covered).await;
            engine.shutdown().await.unwrap();
            engine = open(folder.path()).await;
        }
        push_all(&engine, storage, "array", covered..covered + uncovered).await;
        let copy = copy_of_running(folder.path());
        engine.shutdown().await.unwrap();
        Self::of(copy, storage)
    }

    fn of(folder: tempfile::TempDir, storage: StorageId) -> Self {
        let parent = folder
            .path()
            .join(STORAGES_FOLDER)
            .join(storage.to_string());
        let files = [0, 1].map(|id| parent.join(FileName::Data(DataFileId(id)).to_string()));
        Self {
            folder,
            storage,
            files,
        }
    }

    /// The batches of one of its files.
    fn batches(&self, file: usize) -> Vec<(BatchLocation, BatchHeader)> {
        let bytes = std::fs::read(&self.files[file]).unwrap();
        let mut found = Vec::new();
        let mut offset = FILE_HEADER_BYTES as u64;
        while let Some(bytes) = bytes.get(offset as usize..) {
            let location = BatchLocation {
                storage: self.storage,
                file: DataFileId(file as u64),
                offset,
            };
            let Ok(header) = BatchHeader::decode(bytes, location) else {
                break;
            };
            found.push((location, header));
            offset += header.padded_length();
        }
        found
    }

    fn overwrite(&self, file: usize, offset: u64, bytes: &[u8]) {
        let opened = std::fs::File::options().write(true).open(&self.files[file]);
        opened.unwrap().write_all_at(bytes, offset).unwrap();
    }

    /// Tears a batch: its header is there, its packets are not.
    fn tear(&self, file: usize, batch: usize) {
        let (location, _) = self.batches(file)[batch];
        let offset = location.offset + BATCH_HEADER_BYTES as u64;
        self.overwrite(file, offset, &[0xff; 64]);
    }

    /// Starts it: it is OPEN or FAILED, and has the first `count` packets. An OPEN storage then
    /// takes the packets that follow, and has all of them after another start.
    async fn check(&self, state: StorageState, damaged_places: u64, count: u64, context: &str) {
        let engine = open(self.folder.path()).await;
        let found = engine.storages().status(self.storage).unwrap();
        assert_eq!(found.state, state, "{context}: {:?}", found.failure);
        if state == StorageState::Open {
            assert_eq!(found.damaged_places as u64, damaged_places, "{context}");
        }
        check_packets(&engine, self.storage, count).await;
        if state != StorageState::Open || damaged_places > 0 {
            engine.shutdown().await.unwrap();
            return;
        }
        push_all(&engine, self.storage, "array", count..count + 3).await;
        engine.shutdown().await.unwrap();
        let engine = open(self.folder.path()).await;
        check_packets(&engine, self.storage, count + 3).await;
        engine.shutdown().await.unwrap();
    }
}

/// A batch says which batches were durable when it was written. Two may be on their way to the disk
/// at once: the later one alone does not prove that the one before was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_batch_proves_what_its_mark_says_and_no_more() {
    for (mark, expected) in [
        (3, StorageState::Open),
        (4, StorageState::Open),
        (5, StorageState::Failed),
    ] {
        let killed = Killed::new(0, 6).await;
        let batches = killed.batches(0);
        assert_eq!(batches.len(), 6);
        let (location, header) = batches[5];
        assert_eq!((header.number, header.durable_mark), (5, 5));
        let marked = BatchHeader {
            durable_mark: mark,
            ..header
        };
        killed.overwrite(0, location.offset, &marked.encode(location));
        killed.tear(0, 4);
        let context = format!("torn before a batch with the mark {mark}");
        killed.check(expected, 0, 4, &context).await;
    }
}

/// A disk that lost blocks may give them back as holes of the file, which a search skips.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_behind_a_hole_proves_that_the_hole_was_acknowledged() {
    for lost in [3..4, 1..5, 2..5] {
        let killed = Killed::new(0, 6).await;
        let batches = killed.batches(0);
        let begin = batches[lost.start].0.offset as usize;
        let end = batches[lost.end].0.offset as usize;
        let bytes = std::fs::read(&killed.files[0]).unwrap();
        let file = std::fs::File::create(&killed.files[0]).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let at = at * BLOCK_BYTES;
            if !(begin..end).contains(&at) && block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, at as u64).unwrap();
            }
        }
        let context = format!("batches {lost:?} are a hole");
        let count = lost.start as u64;
        killed.check(StorageState::Failed, 0, count, &context).await;
    }
}

/// The first write to a new file has its header and a batch. Torn, it leaves a batch without the
/// header before it; only a second batch says that the first was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_a_header_was_torn_or_has_acknowledged_batches() {
    for (uncovered, expected) in [
        (1, StorageState::Open),
        (2, StorageState::Failed),
        (5, StorageState::Failed),
    ] {
        for header in [&[0; FILE_HEADER_BYTES][..], &[0xff; 40]] {
            let killed = Killed::new(4, uncovered).await;
            killed.overwrite(1, 0, header);
            let before = std::fs::read(&killed.files[1]).unwrap();
            let context = format!("{uncovered} batches behind {} bytes", header.len());
            killed.check(expected, 0, 4, &context).await;
            let after = std::fs::read(&killed.files[1]).unwrap();
            assert!(before == after, "{context}: nothing is removed or changed");
        }
    }
}

/// What is in a file of which no batch can be read may be what is left of an acknowledged batch. A
/// file to which nothing was written is removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_removed_only_when_nothing_was_written_to_it() {
    const LENGTH: usize = 5 << 19;
    let place = |at: usize| {
        let mut content = vec![0; LENGTH - FILE_HEADER_BYTES];
        content[at - FILE_HEADER_BYTES] = 1;
        content
    };
    for (name, content, stays) in [
        ("nothing", Vec::new(), false),
        ("zeros", vec![0; LENGTH - FILE_HEADER_BYTES], false),
        ("its first byte", place(FILE_HEADER_BYTES), true),
        ("a byte of the second MiB", place(3 << 19), true),
        ("its last byte", place(LENGTH - 1), true),
    ] {
        let killed = Killed::new(4, 1).await;
        let mut bytes = std::fs::read(&killed.files[1]).unwrap();
        bytes.truncate(FILE_HEADER_BYTES);
        bytes.extend(&content);
        std::fs::write(&killed.files[1], &bytes).unwrap();
        // Starts and stops, and never writes to the log.
        for _ in 0..2 {
            let engine = open(killed.folder.path()).await;
            let found = engine.storages().status(killed.storage).unwrap();
            assert_eq!((found.state, found.damaged_places), (StorageState::Open, 0));
            check_packets(&engine, killed.storage, 4).await;
            engine.shutdown().await.unwrap();
            let left = std::fs::read(&killed.files[1]).ok();
            assert_eq!(left.is_some(), stays, "{name}");
            assert!(left.is_none_or(|left| left == bytes), "{name}");
        }
        killed.check(StorageState::Open, 0, 4, name).await;
    }
}

/// The header of the last batch that an index part covers is compared with what the part says.
#[tokio::test(flavor = "multi_thread")]
async fn another_last_batch_is_missed_by_the_index() {
    let change = |header: &BatchHeader, what: &str| match what {
        "chain" => BatchHeader {
            chain: header.chain ^ 1,
            ..*header
        },
        "mark" => BatchHeader {
            durable_mark: header.durable_mark - 1,
            ..*header
        },
        "salt" => BatchHeader {
            salt: header.salt ^ 1,
            ..*header
        },
        _ => *header,
    };
    for (what, damaged_places) in [("nothing", 0), ("mark", 1), ("chain", 1), ("salt", 1)] {
        for covered in [2, 4] {
            let killed = Killed::new(covered, 0).await;
            let (location, header) = *killed.batches(0).last().unwrap();
            let changed = change(&header, what).encode(location);
            killed.overwrite(0, location.offset, &changed);
            let context = format!("{what} changed in the last of {covered}");
            killed
                .check(StorageState::Open, damaged_places, covered, &context)
                .await;
        }
    }
    // Nothing of this log is left.
    let killed = Killed::new(3, 0).await;
    for (location, header) in killed.batches(0) {
        let changed = change(&header, "salt").encode(location);
        killed.overwrite(0, location.offset, &changed);
    }
    killed
        .check(StorageState::Open, 1, 3, "all batches are of another log")
        .await;
}

/// A file that ends between two batches has nothing that is torn: only the next one says that
/// there was more.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_between_batches_is_missed_by_the_next() {
    for left in [0, 1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let engine = open(folder.path()).await;
        let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
        push_all(&engine, storage, "array", 0..5).await;
        let copy = copy_of_running(folder.path());
        engine.shutdown().await.unwrap();
        // After a kill the log continues in a second file.
        let engine = open(copy.path()).await;
        push_all(&engine, storage, "array", 5..8).await;
        let killed = Killed::of(copy_of_running(copy.path()), storage);
        engine.shutdown().await.unwrap();
        let parts = std::fs::read_dir(killed.files[0].parent().unwrap()).unwrap();
        for part in parts.map(|part| part.unwrap().path()) {
            if part.extension().is_some_and(|ending| ending == "index") {
                std::fs::remove_file(part).unwrap();
            }
        }
        let (location, _) = killed.batches(0)[left];
        let file = std::fs::File::options().write(true).open(&killed.files[0]);
        file.unwrap().set_len(location.offset).unwrap();
        let context = format!("{left} batches are left");
        killed
            .check(StorageState::Failed, 0, left as u64, &context)
            .await;
        let engine = open(killed.folder.path()).await;
        let failure = engine.storages().status(storage).unwrap().failure.unwrap();
        assert!(failure.contains("0000000000000000.itdata"), "{failure}");
        engine.shutdown().await.unwrap();
    }
}

/// What a disk does to the bytes of a batch.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// One bit of the header.
    Header,
    /// One bit of a payload.
    Payload,
    /// All blocks, as zeros.
    Zeros,
    /// All blocks, with what an earlier use of them left.
    Stale,
}

/// The same numbers for the same seed.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Whatever happens to whichever batches: what is before the first of them is read, and the storage
/// is cut there unless an intact batch behind it says that it was durable.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_damage_ends_a_log_and_a_later_mark_decides_how() {
    for seed in 0..24 {
        let mut next = numbers(seed);
        let count = 2 + next(7);
        let killed = Killed::new(0, count).await;
        let batches = killed.batches(0);
        assert_eq!(batches.len() as u64, count);
        let mut damaged = std::collections::BTreeMap::new();
        for _ in 0..=next(3) {
            let loss = [Loss::Header, Loss::Payload, Loss::Zeros, Loss::Stale][next(4) as usize];
            damaged.insert(next(count) as usize, loss);
        }
        for (&batch, loss) in &damaged {
            let (location, header) = batches[batch];
            let bytes = std::fs::read(&killed.files[0]).unwrap();
            let flipped = |at: u64| [bytes[(location.offset + at) as usize] ^ 1];
            let blocks = header.padded_length() as usize;
            match loss {
                Loss::Header => {
                    let at = next(BATCH_HEADER_BYTES as u64);
                    killed.overwrite(0, location.offset + at, &flipped(at));
                }
                // Before the padding of the last frame.
                Loss::Payload => {
                    let at = header.length - 9;
                    killed.overwrite(0, location.offset + at, &flipped(at));
                }
                Loss::Zeros => killed.overwrite(0, location.offset, &vec![0; blocks]),
                Loss::Stale => {
                    let of_other_log = BatchHeader {
                        salt: header.salt ^ 1,
                        durable_mark: header.number,
                        ..header
                    };
                    let head = of_other_log.encode(location);
                    killed.overwrite(0, location.offset, &head);
                }
            }
        }
        let (&first, _) = damaged.first_key_value().unwrap();
        // A header says so also if its packets are damaged.
        let is_proof = |batch: &usize| match damaged.get(batch) {
            None | Some(Loss::Payload) => batches[*batch].1.durable_mark > first as u64,
            Some(Loss::Header | Loss::Zeros | Loss::Stale) => false,
        };
        let is_known = (first + 1..batches.len()).any(|batch| is_proof(&batch));
        let state = if is_known {
            StorageState::Failed
        } else {
            StorageState::Open
        };
        let context = format!("seed {seed}: {damaged:?} of {count}");
        killed.check(state, 0, first as u64, &context).await;
    }
}
