//! The log of a storage after crashes, refused writes and damage: what was acknowledged is read
//! back once, and what cannot be read back fails its storage.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{collections::BTreeMap, os::unix::fs::FileExt, path::Path};

use storage_core::{Engine, EngineConfig, IoChoice, Selection};
use storage_format::{
    LeafType, StorageId,
    log::{BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES},
    paths::{FileName, STORAGES_FOLDER},
    storage_file::StorageState,
};
use support::{
    agent, check_packets, config, copy_of_running, data_file, packet, payload, prepare, push,
    push_all, stream,
};

const ARRAY: [(&str, LeafType); 1] = [("array", LeafType::Array)];

/// Sequences of the packets that can be read, after a check of their bytes.
async fn readable(engine: &Engine, storage: StorageId) -> Vec<u64> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = engine.reading().descriptors(storage, selection).await;
    let mut found = Vec::new();
    for item in page.unwrap().items {
        let sequence = item.entry.position.sequence;
        let number = item.entry.number;
        if let Ok(bytes) = engine.reading().read_packet(storage, number).await {
            assert_eq!(bytes, payload(sequence), "packet {number}");
            found.push(sequence);
        }
    }
    found
}

/// The batch headers of a data file.
fn batches(path: &Path, storage: StorageId) -> Vec<(u64, BatchHeader)> {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let Ok(FileName::Data(file)) = name.parse() else {
        panic!("{name} is not a data file");
    };
    let mut found = Vec::new();
    let mut offset = FILE_HEADER_BYTES as u64;
    while let Some(bytes) = bytes.get(offset as usize..) {
        let location = BatchLocation {
            storage,
            file,
            offset,
        };
        let Ok(header) = BatchHeader::decode(bytes, location) else {
            break;
        };
        found.push((offset, header));
        offset += header.padded_length();
    }
    found
}

/// A storage with `count` packets, each in a batch of its own, as a killed server leaves it.
async fn killed(count: u64) -> (tempfile::TempDir, StorageId, std::path::PathBuf) {
    killed_after((0..count).map(|at| at..at + 1)).await
}

/// A storage with the packets of these pushes, each in a batch of its own, as a killed server
/// leaves it.
async fn killed_after(
    pushes: impl Iterator<Item = std::ops::Range<u64>>,
) -> (tempfile::TempDir, StorageId, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let storage = prepare(&engine, &ARRAY).await;
    for sequences in pushes {
        let packets = sequences.map(|sequence| packet(0, sequence)).collect();
        let outcome = push(&engine, storage, "array", packets).await;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
    }
    let data = data_file(&engine, storage).await;
    let copy = copy_of_running(folder.path());
    let data = copy.path().join(data.strip_prefix(folder.path()).unwrap());
    engine.shutdown().await.unwrap();
    (copy, storage, data)
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Opens a killed storage after `change`; it must be in `state` with the first `count` packets,
/// and accept a repeat of the next one if it is open.
async fn check_change(
    state: StorageState,
    count: u64,
    change: impl FnOnce(&Path, &[(u64, BatchHeader)], StorageId),
) {
    let (folder, storage, data) = killed(6).await;
    change(&data, &batches(&data, storage), storage);
    check_opened((folder.path(), storage, &data), state, count).await;
}

/// As [`check_change`], of a storage that was changed.
async fn check_opened(
    (folder, storage, data): (&Path, StorageId, &Path),
    state: StorageState,
    count: u64,
) {
    let engine = Engine::open(config(folder, IoChoice::Auto)).await.unwrap();
    let found = engine.storages().status(storage).unwrap();
    assert_eq!(found.state, state, "{:?}", found.failure);
    let expected: Vec<u64> = (0..count).collect();
    assert_eq!(readable(&engine, storage).await, expected);
    if state == StorageState::Open {
        push_all(&engine, storage, "array", count..count + 3).await;
        let before = std::fs::read(data).unwrap();
        check_packets(&engine, storage, count + 3).await;
        assert_eq!(
            std::fs::read(data).unwrap(),
            before,
            "a recovered file is never written again"
        );
        engine.storages().finalize(storage).await.unwrap();
        check_packets(&engine, storage, count + 3).await;
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_last_batch_is_cut() {
    check_change(StorageState::Open, 5, |data, batches, _| {
        overwrite(data, batches[5].0 + 100, &[0xff; 8]);
    })
    .await;
    check_change(StorageState::Open, 5, |data, batches, _| {
        overwrite(data, batches[5].0, &[0; BLOCK_BYTES]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_before_a_durable_batch_fails_the_storage() {
    for batch in 0..5 {
        // The header of the batch, and a payload in it.
        for is_in_header in [true, false] {
            check_change(StorageState::Failed, batch as u64, |data, batches, _| {
                let mut byte = [0];
                let (offset, header) = batches[batch];
                let within = if is_in_header { 20 } else { header.length - 9 };
                let offset = offset + within;
                let file = std::fs::File::open(data).unwrap();
                file.read_exact_at(&mut byte, offset).unwrap();
                overwrite(data, offset, &[byte[0] ^ 1]);
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_an_earlier_use_of_the_blocks_are_not_believed() {
    // The last batch again after itself: intact, of this file, but its place is another.
    check_change(StorageState::Open, 6, |data, batches, _| {
        let (offset, header) = batches[5];
        let bytes = std::fs::read(data).unwrap();
        let batch = &bytes[offset as usize..][..header.padded_length() as usize];
        overwrite(data, offset + header.padded_length(), batch);
    })
    .await;
    // A batch that was valid at its place, with another salt, or after another batch.
    for (salt, chain) in [(1, 0), (0, 1)] {
        check_change(StorageState::Open, 6, |data, batches, storage| {
            let (last, header) = batches[5];
            let offset = last + header.padded_length();
            let bytes = std::fs::read(data).unwrap();
            let head = &bytes[last as usize..][..BATCH_HEADER_BYTES];
            let stale = BatchHeader {
                salt: header.salt ^ salt,
                number: 6,
                durable_mark: 6,
                chain: BatchHeader::checksum_of(head.try_into().unwrap()) ^ chain,
                ..header
            };
            let location = BatchLocation {
                storage,
                file: storage_format::DataFileId(0),
                offset,
            };
            let mut batch = stale.encode(location).to_vec();
            batch.extend(&bytes[last as usize + BATCH_HEADER_BYTES..][..header.length as usize]);
            overwrite(data, offset, &batch);
        })
        .await;
    }
}

/// Whether the batches of an earlier use of the blocks are as they were written there, or as if
/// written at this place: nothing but the salt and the chain says that they are not of this log.
#[derive(Debug, Clone, Copy)]
enum Stale {
    AsWritten,
    OfOtherSalt,
}

/// The blocks of some batches, which an earlier use left with their beginning `shift` blocks behind
/// the end of the log.
fn stale_blocks(
    bytes: &[u8],
    batches: &[(u64, BatchHeader)],
    (storage, begin): (StorageId, u64),
    stale: Stale,
) -> Vec<u8> {
    let mut blocks = Vec::new();
    let (last, before) = *batches.last().unwrap();
    let head = &bytes[last as usize..][..BATCH_HEADER_BYTES];
    let mut chain = BatchHeader::checksum_of(head.try_into().unwrap());
    for (at, (offset, header)) in batches.iter().enumerate() {
        let batch = &bytes[*offset as usize..][..header.padded_length() as usize];
        let Stale::OfOtherSalt = stale else {
            blocks.extend_from_slice(batch);
            continue;
        };
        let number = before.number + 1 + at as u64;
        let again = BatchHeader {
            salt: header.salt ^ 1,
            number,
            durable_mark: number,
            chain,
            ..*header
        };
        let location = BatchLocation {
            storage,
            file: storage_format::DataFileId(0),
            offset: begin + blocks.len() as u64,
        };
        let head = again.encode(location);
        chain = BatchHeader::checksum_of(&head);
        blocks.extend_from_slice(&head);
        blocks.extend_from_slice(&batch[BATCH_HEADER_BYTES..]);
    }
    blocks
}

/// A log ends anywhere within what an earlier use of its blocks left there: in front of a batch, in
/// one, and between two. Batches begin at blocks, so these are all alignments.
#[tokio::test(flavor = "multi_thread")]
async fn stale_frames_at_every_alignment_of_blocks_are_not_believed() {
    let pushes = [0..1, 1..7, 7..20, 20..21, 21..36];
    let (folder, storage, data) = killed_after(pushes.into_iter()).await;
    let (bytes, all) = (std::fs::read(&data).unwrap(), batches(&data, storage));
    let stale_of = &all[1..];
    let (last, header) = *all.last().unwrap();
    let end = last + header.padded_length();
    let count: u64 = stale_of.iter().map(|(_, it)| it.padded_length()).sum();
    let count = i64::try_from(count / BLOCK_BYTES as u64).unwrap();
    let blocks = |(_, it): &(u64, BatchHeader)| it.padded_length() / BLOCK_BYTES as u64;
    let of_several = stale_of.iter().filter(|batch| blocks(batch) > 1).count();
    assert!(of_several > 1, "batches of several blocks: {stale_of:?}");
    for shift in 1 - count..=3 {
        let begin = end.checked_add_signed(shift * BLOCK_BYTES as i64).unwrap();
        for stale in [Stale::AsWritten, Stale::OfOtherSalt] {
            let blocks = stale_blocks(&bytes, stale_of, (storage, begin), stale);
            let covered = end.saturating_sub(begin) as usize;
            let copy = copy_of(folder.path());
            let data = copy.path().join(data.strip_prefix(folder.path()).unwrap());
            overwrite(&data, begin.max(end), &blocks[covered..]);
            println!("{stale:?}, shifted by {shift}");
            check_opened((copy.path(), storage, &data), StorageState::Open, 36).await;
        }
    }
}

/// A copy of a folder that no server uses.
fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let mut copying = std::process::Command::new("cp");
    copying.args(["-r", "--sparse=always"]);
    let status = copying.arg(folder.join(".")).arg(copy.path()).status();
    assert!(status.unwrap().success());
    copy
}

fn small_files(folder: &Path) -> EngineConfig {
    EngineConfig {
        data_file_bytes_max: 16 << 10,
        ..config(folder, IoChoice::Auto)
    }
}

/// Files of the log in the folder of a storage, and their lengths.
fn files_of(folder: &Path, storage: StorageId) -> BTreeMap<String, u64> {
    let folder = folder.join(STORAGES_FOLDER).join(storage.to_string());
    let names = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let data = names.filter(|name| name.path().extension().is_some_and(|e| e == "itdata"));
    data.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, entry.metadata().unwrap().len())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_many_files_survives_kills_and_is_finalized() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut storage = None;
    for round in 0..4 {
        let engine = Engine::open(small_files(folder.path())).await.unwrap();
        let id = match storage {
            Some(id) => id,
            None => prepare(&engine, &ARRAY).await,
        };
        storage = Some(id);
        check_packets(&engine, id, round * 12).await;
        push_all(&engine, id, "array", round * 12..(round + 1) * 12).await;
        let copy = copy_of_running(folder.path());
        engine.shutdown().await.unwrap();
        folder = copy;
    }
    let storage = storage.unwrap();
    assert!(files_of(folder.path(), storage).len() > 4);
    let engine = Engine::open(small_files(folder.path())).await.unwrap();
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, 48).await;
    let listed = engine.reading().files(storage).await.unwrap();
    for (name, length) in files_of(folder.path(), storage) {
        let file = listed.iter().find(|file| file.name == name).unwrap();
        assert_eq!(file.length, length, "{name} is cut to its batches");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_short_file_of_the_log_fails_the_storage() {
    for removes in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(small_files(folder.path())).await.unwrap();
        let storage = prepare(&engine, &ARRAY).await;
        push_all(&engine, storage, "array", 0..30).await;
        let copy = copy_of_running(folder.path());
        engine.shutdown().await.unwrap();
        let files = files_of(copy.path(), storage);
        let name = files.keys().nth(1).unwrap();
        let path = copy.path().join(STORAGES_FOLDER).join(storage.to_string());
        let path = path.join(name);
        let bytes = std::fs::read(&path).unwrap();
        if removes {
            std::fs::remove_file(&path).unwrap();
        } else {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(2 * BLOCK_BYTES as u64).unwrap();
        }
        let engine = Engine::open(small_files(copy.path())).await.unwrap();
        let found = engine.storages().status(storage).unwrap();
        assert_eq!(found.state, StorageState::Failed, "{removes}");
        let left = readable(&engine, storage).await;
        assert!(!left.is_empty() && left.len() < 30, "{removes}: {left:?}");
        let expected: Vec<u64> = (0..left.len() as u64).collect();
        assert_eq!(left, expected, "what is before the damage is read");
        engine.shutdown().await.unwrap();
        // Nothing was removed, so the file can be restored from a backup.
        std::fs::write(&path, bytes).unwrap();
        let engine = Engine::open(small_files(copy.path())).await.unwrap();
        let all: Vec<_> = (0..30).collect();
        assert_eq!(readable(&engine, storage).await, all);
        engine.shutdown().await.unwrap();
    }
}

/// Packets of many streams share batches, and each stream remains in order.
#[tokio::test(flavor = "multi_thread")]
async fn many_streams_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let names: Vec<String> = (0..300).map(|at| format!("s{at}")).collect();
    let streams: Vec<_> = names
        .iter()
        .map(|name| (&**name, LeafType::Array))
        .collect();
    let storage = prepare(&engine, &streams).await;
    for sequence in 0..3 {
        let pushes = names.iter().map(|name| {
            let packets = vec![packet(0, sequence)];
            push(&engine, storage, name, packets)
        });
        for outcome in futures_util::future::join_all(pushes).await {
            assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        }
    }
    assert_eq!(files_of(folder.path(), storage).len(), 1);
    let copy = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    let engine = Engine::open(config(copy.path(), IoChoice::Auto))
        .await
        .unwrap();
    check_packets(&engine, storage, 3).await;
    let next = engine
        .ingest()
        .next_position(storage, &agent(), &stream("s299"))
        .await;
    assert_eq!(next.unwrap().sequence, 3);
    engine.shutdown().await.unwrap();
}

/// A storage with interleaved packets of many streams.
async fn interleaved(engine: &Engine, streams: usize, packets: u64) -> StorageId {
    let names: Vec<String> = (0..streams).map(|at| format!("s{at}")).collect();
    let specs: Vec<_> = names
        .iter()
        .map(|name| (&**name, LeafType::Array))
        .collect();
    let storage = prepare(engine, &specs).await;
    for sequence in 0..packets {
        for name in &names {
            let outcome = push(engine, storage, name, vec![packet(0, sequence)]).await;
            assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        }
    }
    storage
}

/// Whether each stream is one range of a file without a gap, padding of frames apart.
async fn check_arranged(engine: &Engine, storage: StorageId) {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = engine.reading().descriptors(storage, selection).await;
    let mut ends = BTreeMap::new();
    for item in page.unwrap().items {
        let (file, start) = (item.descriptor.file(), item.descriptor.offset());
        if let Some((last, end)) = ends.insert(item.leaf, (file, item.descriptor.end())) {
            assert_eq!(last, file);
            assert!(start >= end && start - end < 96, "a gap before {start}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finalization_arranges_interleaved_streams() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let storage = interleaved(&engine, 20, 8).await;
    let before = files_of(folder.path(), storage);
    // A reader that began before the finalization ends after it.
    let leaves = engine.reading().leaves(storage).await.unwrap().leaves;
    let read = |at: usize| {
        let bytes = engine
            .reading()
            .leaf_bytes(&leaves[at], io_trace::Cause::Query);
        bytes
            .read(std::slice::from_ref(&(0..leaves[at].length)))
            .unwrap()
            .remove(0)
            .0
    };
    let bytes: Vec<_> = (0..20).map(read).collect();
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, 8).await;
    check_arranged(&engine, storage).await;
    assert_eq!((0..20).map(read).collect::<Vec<_>>(), bytes);
    drop(leaves);
    support::check_intact(&engine, storage, 160).await;
    // It waits until the files are removed.
    engine.shutdown().await.unwrap();
    let after = files_of(folder.path(), storage);
    assert!(
        before.keys().all(|name| !after.contains_key(name)),
        "{after:?}"
    );
    assert!(after.values().sum::<u64>() < before.values().sum());

    // The index is rebuilt from the arranged files alone.
    let path = folder
        .path()
        .join(STORAGES_FOLDER)
        .join(storage.to_string());
    for entry in std::fs::read_dir(&path).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "index") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    check_packets(&engine, storage, 8).await;
    check_arranged(&engine, storage).await;
    support::check_intact(&engine, storage, 160).await;
    engine.shutdown().await.unwrap();
}

/// What a finalization leaves that was killed before it published is removed, and the storage is as
/// it was; what one leaves that was killed after it published is removed, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_arrangement_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let storage = interleaved(&engine, 5, 6).await;
    let open = copy_of_running(folder.path());
    engine.storages().finalize(storage).await.unwrap();
    let finalized = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    let path = |folder: &Path| folder.join(STORAGES_FOLDER).join(storage.to_string());
    for (from, to) in [(&finalized, &open), (&open, &finalized)] {
        let keep = files_of(to.path(), storage);
        for entry in std::fs::read_dir(path(from.path())).unwrap() {
            let name = entry.unwrap().file_name();
            let target = path(to.path()).join(&name);
            if !target.exists() {
                std::fs::copy(path(from.path()).join(&name), target).unwrap();
            }
        }
        let engine = Engine::open(config(to.path(), IoChoice::Auto))
            .await
            .unwrap();
        check_packets(&engine, storage, 6).await;
        let left = files_of(to.path(), storage);
        assert_eq!(
            left.keys().collect::<Vec<_>>(),
            keep.keys().collect::<Vec<_>>()
        );
        if engine.storages().get(storage).unwrap().state == StorageState::Open {
            let next = push(&engine, storage, "s1", vec![packet(0, 6)]).await;
            assert!(next.refused.is_none());
            engine.storages().finalize(storage).await.unwrap();
        }
        engine.shutdown().await.unwrap();
    }
}

/// A damaged storage keeps every file, because each may be needed for a repair.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_from_a_damaged_storage() {
    let folder = tempfile::tempdir().unwrap();
    let config = |folder: &Path| EngineConfig {
        tree_packet_count_max: 4,
        ..config(folder, IoChoice::Auto)
    };
    let engine = Engine::open(config(folder.path())).await.unwrap();
    let storage = prepare(&engine, &ARRAY).await;
    push_all(&engine, storage, "array", 0..6).await;
    let data = data_file(&engine, storage).await;
    engine.shutdown().await.unwrap();
    let names = || std::fs::read_dir(data.parent().unwrap()).unwrap();
    let parts = names().map(|name| name.unwrap().path());
    let parts = parts.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
    let parts: Vec<_> = parts.collect();
    assert!(!parts.is_empty());
    for part in &parts {
        overwrite(part, 0, &[0xff; 16]);
    }
    overwrite(&data, batches(&data, storage)[0].0, &[0xff; 16]);
    let engine = Engine::open(config(folder.path())).await.unwrap();
    let state = engine.storages().get(storage).unwrap().state;
    assert_eq!(state, StorageState::Failed);
    let remain = parts.iter().all(|part| part.exists());
    assert!(remain, "the damaged index parts remain");
    engine.shutdown().await.unwrap();
}

/// What remains of a refused write after the last batch of a file that a later one continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_ends_where_the_next_one_says() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(small_files(folder.path())).await.unwrap();
    let storage = prepare(&engine, &ARRAY).await;
    push_all(&engine, storage, "array", 0..30).await;
    let copy = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    let name = files_of(copy.path(), storage)
        .keys()
        .next()
        .unwrap()
        .clone();
    let path = copy.path().join(STORAGES_FOLDER).join(storage.to_string());
    let path = path.join(name);
    let (last, header) = *batches(&path, storage).last().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let head = &bytes[last as usize..][..BATCH_HEADER_BYTES];
    let refused = BatchHeader {
        number: header.number + 1,
        chain: BatchHeader::checksum_of(head.try_into().unwrap()),
        ..header
    };
    let offset = last + header.padded_length();
    let location = BatchLocation {
        storage,
        file: storage_format::DataFileId(0),
        offset,
    };
    let mut batch = refused.encode(location).to_vec();
    batch.extend(&bytes[last as usize + BATCH_HEADER_BYTES..offset as usize]);
    overwrite(&path, offset, &batch);
    let engine = Engine::open(small_files(copy.path())).await.unwrap();
    check_packets(&engine, storage, 30).await;
    let state = engine.storages().get(storage).unwrap().state;
    assert_eq!(state, StorageState::Open);
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, 30).await;
    engine.shutdown().await.unwrap();
}

/// A finalized storage has no torn end: where its index is rebuilt, every byte must be a packet's.
#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_finalized_log_is_not_taken_for_a_torn_end() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let storage = prepare(&engine, &ARRAY).await;
    // One batch, which is published as it is.
    let packets = (0..10).map(|sequence| packet(0, sequence)).collect();
    assert!(
        push(&engine, storage, "array", packets)
            .await
            .refused
            .is_none()
    );
    let data = data_file(&engine, storage).await;
    engine.storages().finalize(storage).await.unwrap();
    engine.shutdown().await.unwrap();
    let (offset, header) = batches(&data, storage)[0];
    assert!(header.length > 800);
    // In the header of the first frame, after those of batch, segment and leaf.
    overwrite(&data, offset + 64 + 40 + 512 + 9, &[0xff]);
    for entry in std::fs::read_dir(data.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "index") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    let found = engine
        .reading()
        .descriptors(storage, Selection::default())
        .await;
    assert_eq!(found.unwrap_err().code(), "damaged");
    assert!(data.exists());
    engine.shutdown().await.unwrap();
}
