//! Packets that have to be in a second place before they are acknowledged.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use storage_core::{Engine, IoChoice, NewStorage, Replica, Replicated, StorageError, expand};
use storage_format::{
    AgentId, LeafId, LeafType, StorageId, StreamId, StreamPosition, data_file::LeafPath,
    storage_file::StorageState,
};
use support::{agent, check_packets, config, packet, payload, prepare, push, push_all, stream};
use tokio::sync::watch;

const BRIEF: Duration = Duration::from_millis(100);

/// What the replica does with those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Takes,
    IsSlow,
    Refuses,
}

/// A replica that a test controls.
#[derive(Debug)]
struct Second {
    mood: watch::Sender<Mood>,
    grown: Mutex<BTreeSet<(String, LeafId)>>,
    waited: Mutex<Vec<u64>>,
}

impl Second {
    fn of(engine: &Engine) -> Arc<Self> {
        let second = Arc::new(Self {
            mood: watch::Sender::new(Mood::Takes),
            grown: Mutex::default(),
            waited: Mutex::default(),
        });
        engine.set_replica(Arc::<Self>::clone(&second));
        second
    }

    fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    fn answer(&self, storage: StorageId) -> Replicated {
        let mut mood = self.mood.subscribe();
        Replicated::by(async move {
            let settled = *mood.wait_for(|mood| *mood != Mood::IsSlow).await.unwrap();
            if settled == Mood::Takes {
                return Ok(());
            }
            let reason = "as the test wants".to_owned();
            Err(StorageError::NotReplicated { storage, reason })
        })
    }
}

impl Replica for Second {
    fn written(&self, _: StorageId, leaf: LeafId, path: &LeafPath) {
        let stream = path.stream.to_string();
        self.grown.lock().unwrap().insert((stream, leaf));
    }

    fn wait(&self, storage: StorageId, _: &AgentId, _: &StreamId, number: u64) -> Replicated {
        self.waited.lock().unwrap().push(number);
        self.answer(storage)
    }

    fn close(&self, storage: StorageId) -> Replicated {
        self.answer(storage)
    }
}

async fn start() -> (tempfile::TempDir, Engine, Arc<Second>, StorageId) {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(folder.path(), IoChoice::Uring))
        .await
        .unwrap();
    let second = Second::of(&engine);
    let streams = [("a", LeafType::Plain), ("b", LeafType::Array)];
    let storage = prepare(&engine, &streams).await;
    (folder, engine, second, storage)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_acknowledged_when_the_replica_has_it() {
    let (_folder, engine, second, storage) = start().await;
    push_all(&engine, storage, "a", 0..3).await;
    second.set(Mood::IsSlow);
    let waiting = push(&engine, storage, "a", vec![packet(0, 3), packet(0, 4)]);
    let mut waiting = Box::pin(waiting);
    assert!(tokio::time::timeout(BRIEF, &mut waiting).await.is_err());
    second.set(Mood::Takes);
    let outcome = waiting.await;
    assert_eq!(outcome.receipts.len(), 2);
    // Each push waits for its last packet.
    assert_eq!(*second.waited.lock().unwrap(), [0, 1, 2, 4]);

    second.set(Mood::Refuses);
    let refused = push(&engine, storage, "a", vec![packet(0, 5)]).await;
    assert_eq!(refused.receipts, []);
    assert_eq!(refused.refused.unwrap().code(), "object_store_unavailable");
    // It is on the disk: a repeat waits for the replica, and is a duplicate then.
    second.set(Mood::Takes);
    let repeated = push(&engine, storage, "a", vec![packet(0, 5)]).await;
    assert!(repeated.receipts[0].is_duplicate);
    check_packets(&engine, storage, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_finds_what_was_written_and_nothing_else() {
    let (_folder, engine, second, storage) = start().await;
    push_all(&engine, storage, "a", 0..60).await;
    push_all(&engine, storage, "b", 0..5).await;
    let grown = second.grown.lock().unwrap().clone();
    let leaves: Vec<_> = grown.iter().map(|(_, leaf)| *leaf).collect();
    let names: Vec<_> = grown.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let reading = engine.reading();
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = reading.stream_packets(storage, vec![leaves[0]], after, 7);
        let page = page.await.unwrap();
        let stored = reading.read_stored(storage, page.clone()).await.unwrap();
        for (packet, stored) in page.iter().zip(stored) {
            let entry = packet.entry;
            let raw = expand(stored, entry.codec, entry.raw_size).unwrap();
            assert_eq!(raw, payload(entry.position.sequence));
            found.push(entry.position.sequence);
        }
        match page.last() {
            Some(last) => after = Some(last.entry.number),
            None => break,
        }
    }
    assert_eq!(found, (0..60).collect::<Vec<_>>());

    let at = async |name: &str, sequence| {
        let key = (agent(), stream(name));
        let position = StreamPosition::new(0, sequence);
        let found = reading.packet_at(storage, key, position).await.unwrap();
        found.map(|packet| (packet.stream.to_string(), packet.entry.position.sequence))
    };
    assert_eq!(at("b", 4).await, Some(("b".to_owned(), 4)));
    assert_eq!(at("b", 5).await, None);
    assert_eq!(at("a", 59).await, Some(("a".to_owned(), 59)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_is_finalized_when_the_replica_is_complete() {
    let (_folder, engine, second, storage) = start().await;
    push_all(&engine, storage, "a", 0..3).await;
    second.set(Mood::Refuses);
    let refused = engine.storages().finalize(storage).await.unwrap_err();
    assert_eq!(refused.code(), "object_store_unavailable");
    // It accepts packets again.
    let state = || engine.storages().get(storage).unwrap().state;
    assert_eq!(state(), StorageState::Open);
    second.set(Mood::IsSlow);
    let mut finalizing = Box::pin(engine.storages().finalize(storage));
    assert!(tokio::time::timeout(BRIEF, &mut finalizing).await.is_err());
    assert_eq!(state(), StorageState::Finalizing);
    second.set(Mood::Takes);
    finalizing.await.unwrap();
    check_packets(&engine, storage, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_set_aside_makes_room_for_another_with_its_id() {
    let (folder, engine, second, storage) = start().await;
    push_all(&engine, storage, "a", 0..9).await;
    // Somebody waits, and is refused.
    second.set(Mood::IsSlow);
    let mut waiting = Box::pin(push(&engine, storage, "a", vec![packet(0, 9)]));
    assert!(tokio::time::timeout(BRIEF, &mut waiting).await.is_err());
    let place = engine.storages().set_aside(storage).await.unwrap();
    second.set(Mood::Refuses);
    assert!(waiting.await.refused.is_some());
    assert!(
        place.starts_with(folder.path().join("superseded")),
        "{}",
        place.display()
    );
    assert!(std::fs::read_dir(&place).unwrap().count() > 1);
    let gone = engine.storages().get(storage).unwrap_err();
    assert!(matches!(gone, StorageError::StorageNotFound(_)));

    second.set(Mood::Takes);
    let new = || NewStorage {
        id: Some(storage),
        name: "again".to_owned(),
        created: Some(7),
        is_open: true,
        ..NewStorage::default()
    };
    let (made, _) = engine.storages().create(new()).await.unwrap();
    assert_eq!((made.id, made.created), (storage, 7));
    let twice = engine.storages().create(new()).await.unwrap_err();
    assert!(matches!(twice, StorageError::StorageExists(_)));
    push_all(&engine, storage, "a", 0..2).await;
    check_packets(&engine, storage, 2).await;
    engine.shutdown().await.unwrap();
    drop(engine);

    // After a restart as well.
    let engine = Engine::open(config(folder.path(), IoChoice::Uring))
        .await
        .unwrap();
    assert_eq!(engine.storages().get(storage).unwrap().name, "again");
    check_packets(&engine, storage, 2).await;
    assert!(place.exists());
}
