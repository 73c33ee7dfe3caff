//! The engine as its users see it: packets in, packets out, also after a crash.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use storage_core::{
    Engine, IoChoice, NewPacket, NewStorage, Progress, PushOutcome, Selection, StorageError,
    StorageFilter, StoragePatch, UnknownLabels,
};
use storage_format::{
    LeafType, StorageId, StreamPosition,
    frame::Facts,
    paths::{AGENTS_FOLDER, FileName},
    storage_file::StorageState,
};
use support::{
    agent, check_intact, check_packets, config, copy_of_running, data_file, packet, payload,
    prepare, push, push_all, stream,
};

/// An engine on a folder, which was closed well or never used.
async fn open(folder: &Path, io: IoChoice) -> Engine {
    Engine::open(config(folder, io)).await.unwrap()
}

const BOTH: [(&str, LeafType); 2] = [("array", LeafType::Array), ("plain", LeafType::Plain)];

/// A new folder, an engine on it, and an open storage with both streams.
async fn prepared() -> (tempfile::TempDir, Engine, StorageId) {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    let storage = prepare(&engine, &BOTH).await;
    (folder, engine, storage)
}

async fn life_cycle(io: IoChoice) {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), io).await;
    let storage = prepare(&engine, &BOTH).await;
    push_all(&engine, storage, "array", 0..60).await;
    push_all(&engine, storage, "plain", 0..60).await;
    check_packets(&engine, storage, 60).await;
    let info = engine.storages().finalize(storage).await.unwrap();
    assert_eq!(info.state, StorageState::Finalized);
    assert_eq!(info.totals.packets, 120);
    check_packets(&engine, storage, 60).await;
    check_intact(&engine, storage, 120).await;
    let refused = push(&engine, storage, "array", vec![packet(0, 60)])
        .await
        .refused
        .unwrap();
    assert_eq!(refused.code(), "storage_state_conflict");
    engine.shutdown().await.unwrap();

    let engine = open(folder.path(), io).await;
    check_packets(&engine, storage, 60).await;
    check_intact(&engine, storage, 120).await;
    for file in engine.reading().files(storage).await.unwrap() {
        let served = engine
            .reading()
            .open_file(storage, &file.name)
            .await
            .unwrap();
        assert_eq!(served.length, file.length, "{}", file.name);
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_lives_from_creation_to_finalization_over_io_uring() {
    life_cycle(IoChoice::Auto).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_lives_from_creation_to_finalization_over_blocking_calls() {
    life_cycle(IoChoice::Blocking).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_packets_survive_a_crash() {
    let (folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..80).await;
    push_all(&engine, storage, "plain", 0..80).await;
    let copy = copy_of_running(folder.path());
    engine.shutdown().await.unwrap();

    let engine = Engine::open(config(copy.path(), IoChoice::Auto))
        .await
        .unwrap();
    assert_eq!(
        engine.storages().get(storage).unwrap().state,
        StorageState::Open
    );
    check_packets(&engine, storage, 80).await;
    for (name, _) in BOTH {
        let next = engine
            .ingest()
            .next_position(storage, &agent(), &stream(name))
            .await
            .unwrap();
        assert_eq!((next.epoch, next.sequence), (0, 80));
        let repeated = push(&engine, storage, name, vec![packet(0, 41)]).await;
        assert!(repeated.receipts[0].is_duplicate, "{repeated:?}");
        push_all(&engine, storage, name, 80..90).await;
    }
    check_packets(&engine, storage, 90).await;
    engine.storages().finalize(storage).await.unwrap();
    check_intact(&engine, storage, 180).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_gets_the_first_receipt_and_a_gap_the_expected_sequence() {
    let (_folder, engine, storage) = prepared().await;
    for (name, _) in BOTH {
        let first = push(
            &engine,
            storage,
            name,
            (0..4).map(|at| packet(3, at)).collect(),
        )
        .await;
        assert_eq!(first.receipts.len(), 4, "{first:?}");
        let again = push(&engine, storage, name, vec![packet(3, 2), packet(3, 4)]).await;
        assert_eq!(again.receipts[0].number, first.receipts[2].number);
        assert_eq!(again.receipts[0].descriptor, first.receipts[2].descriptor);
        assert!(again.receipts[0].is_duplicate && !again.receipts[1].is_duplicate);
        let gap = push(&engine, storage, name, vec![packet(3, 6)])
            .await
            .refused;
        assert!(
            matches!(gap, Some(StorageError::SequenceGap { expected: 5, .. })),
            "{gap:?}"
        );
        let stale = push(&engine, storage, name, vec![packet(2, 0)])
            .await
            .refused;
        assert!(
            matches!(stale, Some(StorageError::EpochStale { current: 3, .. })),
            "{stale:?}"
        );
        let newer = push(&engine, storage, name, vec![packet(4, 0)]).await;
        assert_eq!(newer.receipts.len(), 1);
        let old = push(&engine, storage, name, vec![packet(3, 1)]).await;
        assert_eq!(
            old.receipts[0].number, first.receipts[1].number,
            "of an older epoch"
        );
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_position_without_a_next_one_is_refused() {
    let (_folder, engine, storage) = prepared().await;
    for (epoch, sequence) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        let mut last = packet(0, 0);
        last.position = StreamPosition::new(epoch, sequence);
        let refused = push(&engine, storage, BOTH[0].0, vec![last]).await;
        assert!(
            matches!(refused.refused, Some(StorageError::PositionInvalid { .. })),
            "{refused:?}"
        );
    }
    let taken = push(&engine, storage, BOTH[0].0, vec![packet(u64::MAX - 1, 0)]).await;
    assert_eq!(taken.receipts.len(), 1, "{taken:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_at_a_known_position_are_refused() {
    let (_folder, engine, storage) = prepared().await;
    let other = |sequence| {
        let mut other = packet(0, sequence);
        other.payload = Bytes::from_static(b"other bytes");
        NewPacket::new(other.position, other.payload, other.facts)
    };
    let check = |outcome: PushOutcome, receipts: usize| {
        assert_eq!(outcome.receipts.len(), receipts, "{outcome:?}");
        let refused = outcome.refused.expect("other bytes are refused");
        assert_eq!(refused.code(), "packet_conflict", "{refused}");
    };
    for (stream, _) in BOTH {
        // The first packets are in flight, and later durable.
        let pushed = vec![packet(0, 0), packet(0, 1), other(0)];
        check(push(&engine, storage, stream, pushed).await, 2);
        check(push(&engine, storage, stream, vec![other(1)]).await, 0);
        let pushed = vec![packet(0, 1), other(0), packet(0, 2)];
        check(push(&engine, storage, stream, pushed).await, 1);
        let repeats = (0..2).map(|sequence| packet(0, sequence)).collect();
        let repeated = push(&engine, storage, stream, repeats).await;
        assert!(repeated.refused.is_none(), "{repeated:?}");
        assert!(repeated.receipts.iter().all(|receipt| receipt.is_duplicate));
    }
    engine.shutdown().await.unwrap();
}

/// A FAILED storage with an empty description remains of one whose storage file is damaged.
async fn check_unreadable(engine: &Engine, storage: StorageId, reason: &str) {
    let listed = engine.storages().list(&StorageFilter::default());
    let listed = listed.iter().find(|info| info.id == storage).unwrap();
    assert_eq!((listed.state, &*listed.name), (StorageState::Failed, ""));
    let failure = listed.failure.clone().unwrap();
    assert!(failure.contains(reason), "{failure}");
    let age = storage_core::clock::now_ns() - listed.created;
    assert!((0..600_000_000_000).contains(&age), "the id has the time");
    assert_eq!(engine.failures(9).storages, [(storage, failure)]);
    let patch = StoragePatch {
        name: Some("another".into()),
        ..StoragePatch::default()
    };
    let storages = engine.storages();
    let reading = engine.reading();
    let refusals = [
        storages.update(storage, patch).await.map(drop),
        storages.open(storage).await.map(drop),
        storages.finalize(storage).await.map(drop),
        reading.read_packet(storage, 0).await.map(drop),
        reading.leaves(storage).await.map(drop),
    ];
    for refused in refusals {
        assert_eq!(refused.unwrap_err().code(), "storage_failed");
    }
    let verified = reading.verify(storage, Arc::default()).await.unwrap();
    assert_eq!(verified.damage.len(), 1, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_with_a_damaged_storage_file_is_listed_replaced_and_deleted() {
    let (folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..60).await;
    let info = engine.storages().finalize(storage).await.unwrap();
    let new = NewStorage {
        name: "other".into(),
        ..NewStorage::default()
    };
    let other = engine.storages().create(new).await;
    let (other, _) = other.unwrap();
    let mut archive = Vec::new();
    let export = engine.transfer().export(storage, Arc::default()).await;
    let mut export = export.unwrap();
    while let Some(part) = export.next().await {
        archive.extend_from_slice(&part.unwrap());
    }
    engine.shutdown().await.unwrap();

    let path = |id: StorageId| {
        let folder = folder.path().join("storages").join(id.to_string());
        folder.join(FileName::Storage(id).to_string())
    };
    let remove_copy = || {
        let copy = FileName::StorageCopy(storage).to_string();
        std::fs::remove_file(path(storage).with_file_name(copy)).unwrap();
    };
    remove_copy();
    let intact = std::fs::read(path(storage)).unwrap();
    let mut flipped = intact.clone();
    flipped[intact.len() / 2] ^= 1;
    let of_another = std::fs::read(path(other.id)).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (&flipped, "checksum"),
        (&intact[..20], "bytes are needed"),
        (b"", "bytes are needed"),
        (&of_another, "another storage"),
    ];
    for (bytes, reason) in cases {
        std::fs::write(path(storage), bytes).unwrap();
        let engine = open(folder.path(), IoChoice::Auto).await;
        check_unreadable(&engine, storage, reason).await;
        assert_eq!(engine.storages().get(other.id).unwrap(), other);
        engine.shutdown().await.unwrap();
        assert_eq!(std::fs::read(path(storage)).unwrap(), bytes, "not touched");
    }

    let engine = open(folder.path(), IoChoice::Auto).await;
    let import = |archive: Vec<u8>| {
        let source = std::io::Cursor::new(archive);
        engine.transfer().import(source, None, Arc::default())
    };
    let cut = archive[..archive.len() / 2].to_vec();
    import(cut).await.unwrap_err();
    check_unreadable(&engine, storage, "another storage").await;
    assert_eq!(import(archive.clone()).await.unwrap(), info);
    let exists = import(archive).await.unwrap_err();
    assert_eq!(exists.code(), "storage_exists");
    check_packets(&engine, storage, 60).await;
    engine.shutdown().await.unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    assert_eq!(engine.storages().get(storage).unwrap(), info);
    engine.shutdown().await.unwrap();

    std::fs::remove_file(path(storage)).unwrap();
    remove_copy();
    let engine = open(folder.path(), IoChoice::Auto).await;
    check_unreadable(&engine, storage, "No such file").await;
    let refused = engine.storages().delete(storage).await.unwrap_err();
    assert_eq!(refused.code(), "labels_unknown");
    let accepted = UnknownLabels::Accepted;
    let deleted = engine.storages().delete_with(storage, accepted).await;
    deleted.unwrap();
    engine.shutdown().await.unwrap();
    assert!(!path(storage).parent().unwrap().exists());
    let engine = open(folder.path(), IoChoice::Auto).await;
    assert!(engine.storages().get(storage).is_err());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizing_is_repeatable() {
    let (_folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..60).await;
    let storages = engine.storages();
    let (first, second, third) = tokio::join!(
        storages.finalize(storage),
        storages.finalize(storage),
        storages.finalize(storage)
    );
    let first = first.unwrap();
    assert_eq!(first.state, StorageState::Finalized);
    for repeated in [second, third, storages.finalize(storage).await] {
        assert_eq!(repeated.unwrap(), first);
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_the_index_are_combined_with_the_live_tree() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), IoChoice::Auto);
    config.tree_packet_count_max = 10;
    config.channel_idle = Duration::from_millis(20);
    config.open_channel_count_max = 1;
    config.time_bucket = Duration::from_millis(20);
    let engine = Engine::open(config.clone()).await.unwrap();
    let storage = prepare(&engine, &BOTH).await;
    for at in 0..60 {
        push_all(&engine, storage, "array", at..at + 1).await;
        push_all(&engine, storage, "plain", at..at + 1).await;
    }
    assert!(
        engine.counters().index_parts.get() > 0,
        "the tree was written out"
    );
    check_packets(&engine, storage, 60).await;
    let time = Selection {
        stream: Some(stream("array")),
        from: Some(20_000_000),
        to: Some(30_000_000),
        limit: 100,
        ..Selection::default()
    };
    let found = engine.reading().descriptors(storage, time).await.unwrap();
    let found: Vec<_> = found
        .items
        .iter()
        .map(|packet| packet.entry.position.sequence)
        .collect();
    assert_eq!(found, (20..30).collect::<Vec<_>>());
    let copy = copy_of_running(folder.path());
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, 60).await;
    check_intact(&engine, storage, 120).await;
    engine.shutdown().await.unwrap();

    config.data_dir = copy.path().to_owned();
    let engine = Engine::open(config).await.unwrap();
    check_packets(&engine, storage, 60).await;
    engine.storages().finalize(storage).await.unwrap();
    check_intact(&engine, storage, 120).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_index_is_rebuilt_from_the_frames() {
    let (folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..20).await;
    push_all(&engine, storage, "plain", 0..20).await;
    engine.storages().finalize(storage).await.unwrap();
    engine.shutdown().await.unwrap();
    let files = folder.path().join("storages").join(storage.to_string());
    for name in std::fs::read_dir(&files).unwrap() {
        let path = name.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "index") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let engine = open(folder.path(), IoChoice::Auto).await;
    check_packets(&engine, storage, 20).await;
    check_intact(&engine, storage, 40).await;
    engine.shutdown().await.unwrap();
}

/// Ordinals, time and checksum of an index part, which nothing else has: it is rebuilt as another.
const INDEX_HEADER_FACTS: [std::ops::Range<usize>; 2] = [32..56, 60..64];

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_byte_of_a_finalized_storage_is_noticed_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    let storage = prepare(&engine, &BOTH[..1]).await;
    let small: Vec<_> = (0..3)
        .map(|sequence| {
            NewPacket::new(
                StreamPosition::new(0, sequence),
                Bytes::from(vec![b'x'; 40]),
                Facts::default(),
            )
        })
        .collect();
    assert!(
        push(&engine, storage, "array", small)
            .await
            .refused
            .is_none()
    );
    engine.storages().finalize(storage).await.unwrap();
    engine.shutdown().await.unwrap();
    let files = folder.path().join("storages").join(storage.to_string());
    for name in std::fs::read_dir(&files).unwrap() {
        let path = name.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_storage_file = name.ends_with(".storage");
        let bytes = std::fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(if bytes.len() > 2000 { 13 } else { 5 }) {
            let is_fact = INDEX_HEADER_FACTS.iter().any(|range| range.contains(&at));
            if is_fact && name.ends_with(".index") {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, damaged).unwrap();
            if is_storage_file {
                let damaged = std::fs::read(&path).unwrap();
                assert!(storage_format::storage_file::StorageFile::decode(&damaged).is_err());
                continue;
            }
            let engine = open(folder.path(), IoChoice::Blocking).await;
            let report = engine
                .reading()
                .verify(storage, Arc::new(Progress::default()))
                .await;
            // A damaged index is restored or rebuilt from the frames; that is its being noticed.
            let is_rebuilt = name.ends_with(".index") && !path.exists();
            let is_restored =
                !is_rebuilt && name.ends_with(".index") && std::fs::read(&path).unwrap() == bytes;
            let is_named = report
                .as_ref()
                .is_ok_and(|report| report.damage.iter().any(|damage| damage.file == name));
            let is_healed = is_rebuilt || is_restored;
            assert!(is_named || is_healed, "{name} at {at}: {report:?}");
            engine.shutdown().await.unwrap();
            if is_rebuilt {
                // Another part has its place now.
                break;
            }
        }
        if path.exists() {
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

fn storages_left(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("storages")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_storage_leaves_nothing_and_its_writer_stops() {
    let (folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..5).await;
    engine.storages().delete(storage).await.unwrap();
    assert_eq!(
        engine.storages().get(storage).unwrap_err().code(),
        "storage_not_found"
    );
    assert_eq!(storages_left(folder.path()), 0);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_engine_cannot_use_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Blocking).await;
    let second = Engine::open(config(folder.path(), IoChoice::Blocking)).await;
    assert_eq!(second.unwrap_err().code(), "data_dir_in_use");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_report_progress_and_can_be_cancelled() {
    let (_folder, engine, storage) = prepared().await;
    push_all(&engine, storage, "array", 0..20).await;
    engine.storages().finalize(storage).await.unwrap();
    let new = NewStorage {
        name: "target".to_owned(),
        ..NewStorage::default()
    };
    let target = engine.storages().create(new).await.unwrap().0.id;
    engine.storages().open(target).await.unwrap();
    let cancelled = || {
        let progress = Arc::new(Progress::default());
        progress.cancel();
        progress
    };
    let far = |progress: &Progress| {
        let done = progress
            .bytes_done
            .load(std::sync::atomic::Ordering::Relaxed);
        let total = progress
            .bytes_total
            .load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(done, total);
        assert!(done > 0);
    };
    let is_cancelled =
        |error: storage_core::StorageError| assert_eq!(error.code(), "job_cancelled");

    let stopped = engine.reading().verify(storage, cancelled()).await.unwrap();
    assert!(stopped.is_cancelled && stopped.packets < 20);
    let progress = Arc::new(Progress::default());
    engine
        .reading()
        .verify(storage, Arc::clone(&progress))
        .await
        .unwrap();
    far(&progress);

    let all = storage_core::CopySelection::default();
    let cancelling = cancelled();
    let stopped = engine
        .transfer()
        .copy(storage, target, &all, &cancelling, None);
    is_cancelled(stopped.await.unwrap_err());
    assert_eq!(engine.storages().get(target).unwrap().totals.packets, 0);
    let progress = Arc::new(Progress::default());
    let copied = engine
        .transfer()
        .copy(storage, target, &all, &progress, None)
        .await;
    assert_eq!(copied.unwrap().packets, 20);
    far(&progress);
    engine.shutdown().await.unwrap();
}

/// Readers take a run as one piece of work, so what matters of it is what it expands to.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_packets_are_bounded_by_their_raw_size() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    let storage = prepare(&engine, &[("zeros", LeafType::Array)]).await;
    for sequence in 0..12 {
        let zeros = Bytes::from(vec![0; 1 << 20]);
        let packet = NewPacket::new(StreamPosition::new(0, sequence), zeros, Facts::default());
        let outcome = push(&engine, storage, "zeros", vec![packet]).await;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
    }
    let leaves = engine.reading().leaves(storage).await.unwrap().leaves;
    let [leaf] = &leaves[..] else {
        panic!("one stream has one leaf: {leaves:?}");
    };
    assert!(leaf.length < 1 << 20, "{} bytes stored", leaf.length);
    assert_eq!(leaf.runs.len(), 3, "{:?}", leaf.runs);
    assert!(
        leaf.runs.is_sorted_by(|one, next| one.end == next.start),
        "{:?}",
        leaf.runs
    );
    assert_eq!(leaf.runs.last().unwrap().end, leaf.length);
    engine.shutdown().await.unwrap();
}

/// A push whose storage is deleted meanwhile is refused, whatever part of it was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_pushes_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), IoChoice::Auto);
    config.commit_window = std::time::Duration::from_millis(200);
    let engine = Engine::open(config).await.unwrap();
    let storage = prepare(&engine, &BOTH).await;
    push_all(&engine, storage, "array", 0..1).await;
    let pushing: Vec<_> = (0..8)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for sequence in 1.. {
                    let outcome = push(&engine, storage, "array", vec![packet(0, sequence)]).await;
                    if let Some(error) = outcome.refused {
                        return error;
                    }
                }
                unreachable!("it never ends by itself")
            })
        })
        .collect();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    engine.storages().delete(storage).await.unwrap();
    for pushing in pushing {
        assert_eq!(pushing.await.unwrap().code(), "storage_not_found");
    }
    assert_eq!(storages_left(folder.path()), 0);
    assert_eq!(engine.counters().in_flight_bytes.get(), 0);
    // Later pushes are not delayed.
    let next = prepare(&engine, &BOTH).await;
    push_all(&engine, next, "array", 0..5).await;
    engine.shutdown().await.unwrap();
}

/// The index parts cover more than the data file contains: acknowledged bytes are lost, and nothing
/// may be written after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_file_shorter_than_its_index_fails_its_storage() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Blocking).await;
    let storage = prepare(&engine, &[("array", LeafType::Array)]).await;
    push_all(&engine, storage, "array", 0..5).await;
    let data = data_file(&engine, storage).await;
    engine.shutdown().await.unwrap();
    let length = std::fs::metadata(&data).unwrap().len();
    let file = std::fs::File::options().write(true).open(&data);
    file.unwrap().set_len(length - 4096).unwrap();

    let engine = open(folder.path(), IoChoice::Blocking).await;
    let status = engine.storages().status(storage).unwrap();
    assert_eq!(status.state, StorageState::Failed);
    let failure = status.failure.unwrap();
    let byte = format!("byte {}", length - 4096);
    assert!(failure.contains(&byte), "{failure}");
    let first = engine.reading().read_packet(storage, 0).await.unwrap();
    assert_eq!(first, payload(0), "the other packets are still served");
    engine.shutdown().await.unwrap();
}

/// Waits until the live trees have at most `bytes`.
async fn wait_for_live_bytes(engine: &Engine, bytes: u64) {
    let begin = Instant::now();
    while engine.counters().live_index_bytes.get() > bytes {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{} bytes remain live",
            engine.counters().live_index_bytes.get()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_trees_of_all_storages_share_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), IoChoice::Auto);
    // About a hundred packets, and those of a few that are written meanwhile.
    config.live_index_bytes_max = 16 << 10;
    config.live_index_age_max = Duration::ZERO;
    let engine = Engine::open(config).await.unwrap();
    let mut storages = Vec::new();
    for _ in 0..8 {
        storages.push(prepare(&engine, &BOTH).await);
    }
    for at in 0..40 {
        for &storage in &storages {
            push_all(&engine, storage, "array", at..at + 1).await;
            push_all(&engine, storage, "plain", at..at + 1).await;
        }
        // Parts are written in the background.
        wait_for_live_bytes(&engine, 20 << 10).await;
    }
    let parts = engine.counters().index_parts.get();
    assert!((8..100).contains(&parts), "{parts} parts");
    for storage in storages {
        check_packets(&engine, storage, 40).await;
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_storage_has_no_live_tree_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), IoChoice::Auto);
    config.live_index_age_max = Duration::from_millis(20);
    let engine = Engine::open(config).await.unwrap();
    let storage = prepare(&engine, &BOTH).await;
    for round in 0..3 {
        push_all(&engine, storage, "array", round * 2..round * 2 + 2).await;
        wait_for_live_bytes(&engine, 0).await;
    }
    assert!(engine.counters().index_parts.get() >= 3);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_file_under_the_name_of_another_agent_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    prepare(&engine, &BOTH).await;
    engine.shutdown().await.unwrap();
    let path = |name| folder.path().join(AGENTS_FOLDER).join(name);
    std::fs::copy(path("agent-1.agent"), path("agent-2.agent")).unwrap();
    let engine = open(folder.path(), IoChoice::Auto).await;
    assert!(engine.agents().get(&agent()).is_ok());
    assert!(engine.agents().get(&"agent-2".parse().unwrap()).is_err());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_file_of_another_storage_is_not_taken() {
    let (folder, engine, first) = prepared().await;
    push_all(&engine, first, "array", 0..3).await;
    engine.storages().finalize(first).await.unwrap();
    let metadata = Bytes::from_static(b"/* CTF 1.8 */");
    engine
        .agents()
        .set_metadata(&agent(), metadata)
        .await
        .unwrap();
    let second = prepare(&engine, &BOTH).await;
    push_all(&engine, second, "array", 0..3).await;
    engine.storages().finalize(second).await.unwrap();
    let reading = engine.reading();
    assert_eq!(reading.metadata(first, &agent()).await.unwrap(), None);
    let path = |storage: StorageId| {
        let folder = folder.path().join("storages").join(storage.to_string());
        folder.join(FileName::Agent(agent()).to_string())
    };
    std::fs::copy(path(second), path(first)).unwrap();
    let refused = reading.metadata(first, &agent()).await.unwrap_err();
    assert_eq!(refused.code(), "damaged", "{refused}");
    assert!(reading.metadata(second, &agent()).await.unwrap().is_some());
    engine.shutdown().await.unwrap();
}
