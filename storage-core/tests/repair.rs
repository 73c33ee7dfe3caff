//! The way out of FAILED: what is whole of a damaged log stays, what is missing is known for ever,
//! and the storage is written again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]

mod support;

use std::{
    collections::BTreeMap,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use storage_core::{
    CopySelection, Engine, IoChoice, NewStorage, Progress, RepairReport, Selection,
};
use storage_format::{
    DataFileId, LeafType, StorageId,
    log::{BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES},
    paths::{FileName, STORAGES_FOLDER},
    storage_file::StorageState,
};
use support::{
    agent, check_intact, check_packets, config, copy_of_running, data_file, packet, payload,
    prepare, push, push_all, stream,
};

const ARRAY: [(&str, LeafType); 1] = [("array", LeafType::Array)];
/// Packets of a storage: each file of its log has half of them, each in a batch of its own.
const PACKETS: u64 = 12;

async fn open(folder: &Path) -> Engine {
    Engine::open(config(folder, IoChoice::Auto)).await.unwrap()
}

/// The files of the log, oldest first.
fn data_files(folder: &Path, storage: StorageId) -> Vec<PathBuf> {
    let folder = folder.join(STORAGES_FOLDER).join(storage.to_string());
    let names = std::fs::read_dir(folder).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "itdata"))
        .collect();
    files.sort();
    files
}

/// A storage whose log has two files. Index parts cover it only after a shutdown.
async fn two_files(is_covered: bool) -> (tempfile::TempDir, StorageId) {
    let first = tempfile::tempdir().unwrap();
    let engine = open(first.path()).await;
    let storage = prepare(&engine, &ARRAY).await;
    push_all(&engine, storage, "array", 0..PACKETS / 2).await;
    let second = copy_of_running(first.path());
    engine.shutdown().await.unwrap();
    let engine = open(second.path()).await;
    push_all(&engine, storage, "array", PACKETS / 2..PACKETS).await;
    let killed = copy_of_running(second.path());
    engine.shutdown().await.unwrap();
    let folder = if is_covered { second } else { killed };
    assert_eq!(data_files(folder.path(), storage).len(), 2);
    (folder, storage)
}

/// Offsets and headers of the batches of a file.
fn batches(path: &Path, storage: StorageId) -> Vec<(u64, BatchHeader)> {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
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

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn flip(path: &Path, offset: u64) {
    let mut byte = [0];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut byte, offset).unwrap();
    overwrite(path, offset, &[byte[0] ^ 1]);
}

async fn repair(engine: &Engine, storage: StorageId, is_confirmed: bool) -> RepairReport {
    let progress = Arc::new(Progress::default());
    let repaired = engine.storages().repair(storage, is_confirmed, progress);
    repaired.await.unwrap()
}

/// Sequences of the packets of a storage, after a check of their bytes.
async fn sequences(engine: &Engine, storage: StorageId) -> Vec<u64> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = engine.reading().descriptors(storage, selection).await;
    let mut found = Vec::new();
    for item in page.unwrap().items {
        let (number, sequence) = (item.entry.number, item.entry.position.sequence);
        let bytes = engine.reading().read_packet(storage, number).await;
        assert_eq!(bytes.unwrap(), payload(sequence), "packet {number}");
        found.push(sequence);
    }
    found
}

/// The data files by name, with their bytes.
fn snapshot(folder: &Path, storage: StorageId) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = data_files(folder, storage).into_iter();
    files
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// A storage has `whole` and says that `missing` is missing; all that is there is intact.
async fn check_storage(engine: &Engine, storage: StorageId, whole: &[u64], missing: &[u64]) {
    assert_eq!(sequences(engine, storage).await, whole);
    for &number in missing {
        let found = engine.reading().packet(storage, number).await;
        assert_eq!(found.unwrap_err().code(), "packet_missing", "{number}");
    }
    let status = engine.storages().status(storage).unwrap();
    assert!(status.missing_packets >= missing.len() as u64);
    let progress = Arc::new(Progress::default());
    let verified = engine.reading().verify(storage, progress).await.unwrap();
    assert_eq!(verified.damage, [], "all that is there is intact");
    assert_eq!(verified.packets, whole.len() as u64);
    assert_eq!(verified.missing_packets, status.missing_packets);
}

/// Damages a storage with two files, and takes it through repair, pushes, a kill, a restart and
/// finalization. `missing` are the sequences, which are also the numbers.
async fn check_repair(
    is_covered: bool,
    missing: std::ops::Range<u64>,
    damage: impl FnOnce(&[PathBuf], StorageId),
) {
    let (folder, storage) = two_files(is_covered).await;
    damage(&data_files(folder.path(), storage), storage);
    let missing: Vec<u64> = missing.collect();
    let mut whole: Vec<u64> = (0..PACKETS).filter(|at| !missing.contains(at)).collect();
    let engine = open(folder.path()).await;
    let found = engine.storages().status(storage).unwrap();
    assert_eq!(found.state, StorageState::Failed);

    let before = snapshot(folder.path(), storage);
    let plan = repair(&engine, storage, false).await;
    assert_eq!(plan.packets, whole.len() as u64, "{plan:?}");
    assert!(!plan.is_repaired);
    let is_told = |number| {
        let mut ranges = plan.missing.iter();
        ranges.any(|range| (range.first..=range.last).contains(number))
    };
    assert!(missing.iter().all(is_told), "{plan:?}");
    if whole.last() == Some(&(PACKETS - 1)) {
        assert_eq!(plan.missing_packets, missing.len() as u64, "{plan:?}");
    }
    assert_eq!(snapshot(folder.path(), storage), before, "nothing changed");
    let state = engine.storages().status(storage).unwrap().state;
    assert_eq!(state, StorageState::Failed);

    let repaired = repair(&engine, storage, true).await;
    let expected = RepairReport {
        is_repaired: true,
        ..plan
    };
    assert_eq!(repaired, expected);
    let state = engine.storages().status(storage).unwrap().state;
    assert_eq!(state, StorageState::Open);
    check_storage(&engine, storage, &whole, &missing).await;
    if let Some(&lost) = missing.iter().find(|at| whole.last() > Some(at)) {
        let repeated = push(&engine, storage, "array", vec![packet(0, lost)]).await;
        assert_eq!(repeated.refused.unwrap().code(), "repeat_missing");
    }
    let next = engine
        .ingest()
        .next_position(storage, &agent(), &stream("array"))
        .await
        .unwrap()
        .sequence;
    push_all(&engine, storage, "array", next..next + 3).await;
    whole.extend(next..next + 3);
    // What was missing at the end of the stream was pushed again, with other numbers.
    for (path, bytes) in &before {
        assert_eq!(
            &std::fs::read(path).unwrap(),
            bytes,
            "nothing is overwritten"
        );
    }
    let killed = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();

    let engine = open(killed.path()).await;
    let state = engine.storages().status(storage).unwrap().state;
    assert_eq!(state, StorageState::Open);
    check_storage(&engine, storage, &whole, &missing).await;
    push_all(&engine, storage, "array", next + 3..next + 5).await;
    whole.extend(next + 3..next + 5);
    engine.storages().finalize(storage).await.unwrap();
    check_storage(&engine, storage, &whole, &missing).await;
    engine.shutdown().await.unwrap();
    let engine = open(killed.path()).await;
    check_storage(&engine, storage, &whole, &missing).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_payload_loses_one_packet() {
    for (file, batch) in [(0, 0), (0, 3), (0, 5), (1, 2)] {
        let packet = file * PACKETS / 2 + batch;
        check_repair(false, packet..packet + 1, |files, storage| {
            let file = &files[file as usize];
            let (offset, header) = batches(file, storage)[batch as usize];
            // The first byte of the payload, after the headers of batch, segment, leaf and frame.
            let leaf_header = if batch == 0 { 512 } else { 0 };
            let payload = offset + BATCH_HEADER_BYTES as u64 + 40 + leaf_header + 88;
            assert!(payload < offset + header.length);
            flip(file, payload);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_batch_header_loses_one_packet() {
    check_repair(false, 2..3, |files, storage| {
        overwrite(
            &files[0],
            batches(&files[0], storage)[2].0,
            &[0; BLOCK_BYTES],
        );
    })
    .await;
    check_repair(false, 4..5, |files, storage| {
        let (offset, _) = batches(&files[0], storage)[4];
        flip(&files[0], offset + BATCH_HEADER_BYTES as u64 / 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_file_header_loses_nothing() {
    for file in 0..2 {
        check_repair(false, 0..0, |files, _| flip(&files[file], 100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_file_loses_its_end() {
    check_repair(false, 3..6, |files, storage| {
        let length = batches(&files[0], storage)[3].0 + 100;
        let file = std::fs::File::options()
            .write(true)
            .open(&files[0])
            .unwrap();
        file.set_len(length).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_loses_its_packets() {
    for is_covered in [false, true] {
        check_repair(is_covered, 0..6, |files, _| {
            std::fs::remove_file(&files[0]).unwrap();
        })
        .await;
    }
    // Only an index part knows what was in the last file.
    check_repair(true, 6..12, |files, _| {
        std::fs::remove_file(&files[1]).unwrap();
    })
    .await;
}

/// The end of the log is lost, from before the end of what the index parts cover: nothing says how
/// many packets there were behind that, so no number of theirs is given again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_end_is_missing_beyond_the_index_parts() {
    let (folder, storage) = two_files(true).await;
    let engine = open(folder.path()).await;
    push_all(&engine, storage, "array", PACKETS..PACKETS + 3).await;
    let killed = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    let files = data_files(killed.path(), storage);
    assert_eq!(files.len(), 3);
    let (offset, _) = *batches(&files[1], storage).last().unwrap();
    let file = std::fs::File::options().write(true).open(&files[1]);
    file.unwrap().set_len(offset).unwrap();
    let length = std::fs::metadata(&files[2]).unwrap().len();
    overwrite(&files[2], 0, &vec![0; length as usize]);
    let engine = open(killed.path()).await;
    let progress = Arc::new(Progress::default());
    let repaired = engine
        .storages()
        .repair(storage, true, Arc::clone(&progress));
    let repaired = repaired.await.unwrap();
    assert_eq!((repaired.packets, repaired.files), (PACKETS - 1, 3));
    let missing = [PACKETS - 1, PACKETS, PACKETS + 1, PACKETS + 2];
    let whole: Vec<u64> = (0..PACKETS - 1).collect();
    check_storage(&engine, storage, &whole, &missing).await;
    push_all(&engine, storage, "array", PACKETS - 1..PACKETS).await;
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = engine.reading().descriptors(storage, selection).await;
    let last = page.unwrap().items.last().unwrap().entry.number;
    assert!(last > PACKETS + 2, "{last} is the number of another packet");
    engine.shutdown().await.unwrap();
}

/// A survey counts no byte twice, and none that it was not to read.
#[tokio::test(flavor = "multi_thread")]
async fn a_survey_reads_what_it_says() {
    let (folder, storage) = two_files(false).await;
    let files = data_files(folder.path(), storage);
    flip(&files[0], batches(&files[0], storage)[1].0 + 200);
    let engine = open(folder.path()).await;
    let progress = Arc::new(Progress::default());
    let plan = engine
        .storages()
        .repair(storage, false, Arc::clone(&progress))
        .await
        .unwrap();
    assert_eq!((plan.files, plan.missing_packets), (2, 1));
    let lengths = files
        .iter()
        .map(|path| std::fs::metadata(path).unwrap().len());
    assert!(plan.bytes > 0 && plan.bytes <= lengths.sum());
    let done = progress.bytes_done.load(Ordering::Relaxed);
    let total = progress.bytes_total.load(Ordering::Relaxed);
    assert!(done > 0 && done <= total, "{done} of {total}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_can_be_repaired_twice() {
    let (folder, storage) = two_files(false).await;
    let files = data_files(folder.path(), storage);
    flip(&files[0], batches(&files[0], storage)[4].0 + 200);
    let engine = open(folder.path()).await;
    assert_eq!(repair(&engine, storage, true).await.missing_packets, 1);
    push_all(&engine, storage, "array", 12..14).await;
    let killed = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();
    // Damage before the first cut.
    flip(
        &data_files(killed.path(), storage)[0],
        batches(&files[0], storage)[1].0 + 200,
    );
    let engine = open(killed.path()).await;
    let repaired = repair(&engine, storage, true).await;
    assert_eq!(repaired.missing_packets, 2, "{repaired:?}");
    let whole = [0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13];
    check_storage(&engine, storage, &whole, &[1, 4]).await;
    push_all(&engine, storage, "array", 14..16).await;
    engine.shutdown().await.unwrap();
    let engine = open(killed.path()).await;
    assert_eq!(sequences(&engine, storage).await.len(), 14);
    engine.shutdown().await.unwrap();
}

/// An open storage that is whole is read, and nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_whole_is_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let storage = prepare(&engine, &ARRAY).await;
    push_all(&engine, storage, "array", 0..3).await;
    for is_confirmed in [false, true] {
        let report = repair(&engine, storage, is_confirmed).await;
        assert!(!report.is_needed && !report.is_repaired, "{report:?}");
        assert_eq!((report.files, report.packets), (1, 3), "{report:?}");
    }
    check_packets(&engine, storage, 3).await;
    check_intact(&engine, storage, 3).await;
    assert!(data_file(&engine, storage).await.exists());
    engine.storages().finalize(storage).await.unwrap();
    let repaired = engine.storages().repair(storage, true, Arc::default());
    assert_eq!(repaired.await.unwrap_err().code(), "storage_state_conflict");
    engine.shutdown().await.unwrap();
}

/// The repair file of an open storage is damaged or gone: where its log was cut, inside of a file
/// or between two, is in the data files.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_repair_file_is_derived_from_the_log() {
    let cases = [
        (false, 1, false),
        (false, 1, true),
        (true, 1, false),
        (true, 1, true),
        (true, PACKETS / 2, false),
    ];
    for (is_gone, damaged, is_damaged_again) in cases {
        let (folder, storage) = two_files(false).await;
        let files = data_files(folder.path(), storage);
        let file = &files[(damaged / (PACKETS / 2)) as usize];
        let batch = (damaged % (PACKETS / 2)) as usize;
        // The first batch of a file has the header of the leaf before the packet.
        let leaf_header = if batch == 0 { 512 } else { 0 };
        flip(file, batches(file, storage)[batch].0 + leaf_header + 200);
        let engine = open(folder.path()).await;
        repair(&engine, storage, true).await;
        push_all(&engine, storage, "array", PACKETS..PACKETS + 3).await;
        let killed = copy_of_running(folder.path());
        engine.shutdown().await.unwrap();
        let path = killed.path().join(STORAGES_FOLDER);
        let name = FileName::Repairs(storage).to_string();
        let repairs = path.join(storage.to_string()).join(name);
        if is_gone {
            std::fs::remove_file(repairs).unwrap();
        } else {
            flip(&repairs, 40);
        }
        let mut whole: Vec<u64> = (0..PACKETS + 3).filter(|&at| at != damaged).collect();
        if is_damaged_again {
            let copied = data_files(killed.path(), storage).pop().unwrap();
            let copied = copied.with_file_name(FileName::Data(DataFileId(2)).to_string());
            let (offset, header) = batches(&copied, storage)[0];
            flip(&copied, offset + header.length - 1);
            whole.clear();
        }
        let engine = open(killed.path()).await;
        let found = engine.storages().status(storage).unwrap();
        assert_eq!(found.state, StorageState::Failed);
        assert!(found.failure.unwrap().contains(".repairs"));
        let repaired = repair(&engine, storage, true).await;
        assert!(repaired.missing_packets >= 1, "{repaired:?}");
        if is_damaged_again {
            whole = sequences(&engine, storage).await;
            assert!(whole.len() as u64 >= PACKETS, "{whole:?}");
        }
        check_storage(&engine, storage, &whole, &[damaged]).await;
        push_all(&engine, storage, "array", PACKETS + 3..PACKETS + 5).await;
        whole.extend(PACKETS + 3..PACKETS + 5);
        engine.shutdown().await.unwrap();
        let engine = open(killed.path()).await;
        check_storage(&engine, storage, &whole, &[damaged]).await;
        engine.storages().finalize(storage).await.unwrap();
        check_storage(&engine, storage, &whole, &[damaged]).await;
        engine.shutdown().await.unwrap();
    }
}

/// The repair file of a finalized storage is damaged or lost: what is missing is not known, and no
/// answer says that it is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_unknown_without_the_repair_file() {
    let (folder, storage) = two_files(false).await;
    let files = data_files(folder.path(), storage);
    flip(&files[0], batches(&files[0], storage)[1].0 + 200);
    let engine = open(folder.path()).await;
    repair(&engine, storage, true).await;
    engine.storages().finalize(storage).await.unwrap();
    engine.shutdown().await.unwrap();
    let path = folder.path().join(STORAGES_FOLDER);
    let path = path.join(storage.to_string());
    let path = path.join(FileName::Repairs(storage).to_string());
    let intact = std::fs::read(&path).unwrap();
    let damages: [&dyn Fn(); 2] = [&|| flip(&path, 40), &|| {
        std::fs::remove_file(&path).unwrap()
    }];
    for damage in damages {
        damage();
        let engine = open(folder.path()).await;
        let status = engine.storages().status(storage).unwrap();
        let reason = status.missing_unknown.unwrap();
        assert!(reason.contains(".repairs"), "{reason}");
        assert!(engine.storages().unknown(storage).unwrap().is_some());
        let found = engine.reading().packet(storage, 1).await;
        assert_eq!(found.unwrap_err().code(), "storage_incomplete");
        let selection = CopySelection::default();
        let new = NewStorage {
            name: "copy".into(),
            ..NewStorage::default()
        };
        let (target, _) = engine.storages().create(new).await.unwrap();
        engine.storages().open(target.id).await.unwrap();
        let (transfer, progress) = (engine.transfer(), Arc::default());
        let copied = transfer.copy(storage, target.id, &selection, &progress, None);
        let copied = copied.await;
        assert_eq!(copied.unwrap_err().code(), "storage_incomplete");
        let verify = || engine.reading().verify(storage, Arc::default());
        assert_eq!(verify().await.unwrap().missing_unknown, Some(reason));
        // The file is restored while the server runs.
        std::fs::write(&path, &intact).unwrap();
        let verified = verify().await.unwrap();
        assert_eq!(
            (verified.missing_unknown, verified.missing_packets),
            (None, 1)
        );
        let found = engine.reading().packet(storage, 1).await;
        assert_eq!(found.unwrap_err().code(), "packet_missing");
        assert_eq!(engine.storages().unknown(storage).unwrap(), None);
        engine.shutdown().await.unwrap();
    }
}

/// A leaf of which the index has no packets is searched frame by frame: the numbers that it may
/// lack are those that no other leaf has.
async fn check_plain_leaf(is_header: bool, is_restarted: bool) {
    let context = &format!("header {is_header}, restarted {is_restarted}");
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(folder.path()).await;
    let leaves = [("array", LeafType::Array), ("plain", LeafType::Plain)];
    let storage = prepare(&engine, &leaves).await;
    for sequence in 0..6 {
        push_all(&engine, storage, "array", sequence..sequence + 1).await;
        push_all(&engine, storage, "plain", sequence..sequence + 1).await;
    }
    if is_restarted {
        engine.shutdown().await.unwrap();
        engine = open(folder.path()).await;
        engine.storages().recovered(storage).await.unwrap();
    }
    // The third packet of the plain leaf.
    let lost = 5;
    let found = engine.reading().packet(storage, lost).await.unwrap();
    assert_eq!(found.stream, stream("plain"));
    let before = found.descriptor.offset() - if is_header { 80 } else { 0 };
    flip(&data_files(folder.path(), storage)[0], before);
    let plan = repair(&engine, storage, false).await;
    let missing: Vec<_> = plan.missing.iter().map(|m| (m.first, m.last)).collect();
    assert_eq!(missing, [(lost, lost)], "{context}: {plan:?}");
    assert_eq!((plan.packets, plan.is_needed), (11, true), "{context}");
    let refused = engine.storages().finalize(storage).await.unwrap_err();
    assert_eq!(refused.code(), "storage_damaged", "{context}: {refused}");
    assert!(
        repair(&engine, storage, true).await.is_repaired,
        "{context}"
    );
    let whole = [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5];
    check_storage(&engine, storage, &whole, &[lost]).await;
    push_all(&engine, storage, "plain", 6..8).await;
    engine.storages().finalize(storage).await.unwrap();
    engine.shutdown().await.unwrap();
    let engine = open(folder.path()).await;
    check_storage(&engine, storage, &[&whole[..], &[6, 7]].concat(), &[lost]).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaf_without_packets_in_the_index_is_searched() {
    for is_header in [false, true] {
        for is_restarted in [false, true] {
            check_plain_leaf(is_header, is_restarted).await;
        }
    }
}
