//! What the I/O thread and the caches record in the I/O trace over the life of a storage.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, sync::Arc};

use io_trace::{Cause, FileClass, Operation, Record, Records, Scope, Settings};
use storage_core::{
    AgentSpec, Engine, EngineConfig, IoChoice, NewPacket, NewStorage, Progress, Push, Selection,
};
use storage_format::{
    AgentId, Codec, Kind, LeafType, StorageId, StreamPosition, agent_file::StreamSpec, frame::Facts,
};

async fn engine(folder: &std::path::Path, io: IoChoice) -> Engine {
    let mut config = EngineConfig::new(folder);
    config.io = io;
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    Engine::open(config).await.unwrap()
}

fn agent() -> AgentId {
    "agent-1".parse().unwrap()
}

async fn storage(engine: &Engine) -> StorageId {
    let spec = AgentSpec {
        id: agent(),
        name: "first".into(),
        host: "here".into(),
        attributes: BTreeMap::new(),
    };
    engine.agents().register(spec).await.unwrap();
    let spec = StreamSpec {
        id: "s".parse().unwrap(),
        kind: Kind::Raw,
        leaf_type: LeafType::Array,
        codec: Codec::None,
    };
    engine
        .agents()
        .declare_stream(&agent(), spec)
        .await
        .unwrap();
    let new = NewStorage {
        name: "s".into(),
        ..NewStorage::default()
    };
    let (info, _) = engine.storages().create(new).await.unwrap();
    engine.storages().open(info.id).await.unwrap();
    info.id
}

async fn push(engine: &Engine, storage: StorageId, count: u64) {
    for sequence in 0..count {
        let payload = vec![sequence as u8; 10_000];
        let permit = engine.budget().try_acquire(10_000).unwrap();
        let push = Push {
            agent: agent(),
            stream: "s".parse().unwrap(),
            packets: vec![NewPacket::new(
                StreamPosition::new(1, sequence),
                payload.into(),
                Facts::default(),
            )],
            permit,
        };
        let outcome = engine.ingest().submit(storage, push).await.unwrap().await;
        assert!(outcome.refused.is_none());
    }
}

fn records(engine: &Engine) -> Records {
    let mut records = Records::default();
    let drained = engine.tracer().drain(&mut records);
    assert_eq!(drained.dropped_total(), 0);
    records
}

fn having(
    records: &Records,
    operation: Operation,
    class: FileClass,
    cause: Cause,
) -> Vec<Record<'_>> {
    let found = records.iter().filter(|record| {
        (record.operation, record.file.class(), record.cause) == (operation, class, cause)
    });
    found.collect()
}

async fn life(io: IoChoice) {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), io).await;
    engine.tracer().start(Settings::default()).unwrap();
    let id = storage(&engine).await;
    push(&engine, id, 5).await;
    let ingest = records(&engine);
    let of = |operation| having(&ingest, operation, FileClass::Data, Cause::Ingest);
    let written: u64 = of(Operation::Write).iter().map(|r| r.access.done).sum();
    assert!(written >= 50_000, "{written} bytes in {ingest:?}");
    assert!(!of(Operation::Sync).is_empty() && !of(Operation::Open).is_empty());
    assert!(
        of(Operation::Write)
            .iter()
            .all(|r| r.access.errno == 0 && r.access.offset.is_some())
    );
    let folders = having(
        &ingest,
        Operation::SyncFolder,
        FileClass::Folder,
        Cause::Ingest,
    );
    assert!(
        !folders.is_empty(),
        "the name of the data file was made durable"
    );
    let made = having(
        &ingest,
        Operation::Rename,
        FileClass::Storage,
        Cause::Unknown,
    );
    let copies = made
        .iter()
        .filter(|r| r.file.path().ends_with(".storage-copy"));
    assert_eq!(copies.count(), 2, "{ingest:?}");
    assert_eq!(made.len(), 4, "created and opened, with copies: {ingest:?}");
    assert!(
        ingest
            .iter()
            .filter(|r| r.file.class() == FileClass::Data)
            .all(|r| {
                r.file.storage() == Some(*id.as_bytes())
                    && r.file.path().starts_with(&id.to_string())
            })
    );

    engine.storages().finalize(id).await.unwrap();
    let finalize = records(&engine);
    for (operation, class) in [
        (Operation::SetLength, FileClass::Data),
        (Operation::Sync, FileClass::Data),
        (Operation::Close, FileClass::Data),
        (Operation::Read, FileClass::Data),
        (Operation::Write, FileClass::Data),
        (Operation::Write, FileClass::Index),
        (Operation::Rename, FileClass::Agent),
        (Operation::Rename, FileClass::Storage),
        (Operation::SyncFolder, FileClass::Folder),
    ] {
        let found = having(&finalize, operation, class, Cause::Finalize);
        assert!(
            !found.is_empty(),
            "{operation:?} of {class:?} in {finalize:?}"
        );
    }

    for hit in [false, true] {
        engine.reading().read_packet(id, 3).await.unwrap();
        let query = records(&engine);
        let look_ups = having(&query, Operation::Lookup, FileClass::Index, Cause::Query);
        let [look_up] = look_ups[..] else {
            panic!("one look-up in {query:?}")
        };
        assert_eq!(look_up.access.cache_hit, Some(hit));
        let block = look_up.access.block.unwrap();
        assert_eq!(
            (block.entries, block.found, block.not_inserted),
            (5, Some(true), false)
        );
        let payload = having(&query, Operation::Read, FileClass::Data, Cause::Query);
        assert_eq!(payload.len(), 1);
        assert_eq!(payload[0].access.done, 10_000);
        let index = having(&query, Operation::Read, FileClass::Index, Cause::Query);
        assert_eq!(index.is_empty(), hit, "{query:?}");
    }

    let selection = Selection {
        limit: 10,
        ..Selection::default()
    };
    engine.reading().descriptors(id, selection).await.unwrap();
    let listed = records(&engine);
    let look_ups = having(&listed, Operation::Lookup, FileClass::Index, Cause::Query);
    assert_eq!(look_ups[0].access.block.unwrap().found, None);

    let progress = Arc::new(Progress::default());
    assert!(
        engine
            .reading()
            .verify(id, progress)
            .await
            .unwrap()
            .damage
            .is_empty()
    );
    let verify = records(&engine);
    assert!(!having(&verify, Operation::Read, FileClass::Data, Cause::Verify).is_empty());

    engine.storages().delete(id).await.unwrap();
    let deleted = records(&engine);
    for operation in [Operation::Rename, Operation::Unlink] {
        assert!(
            deleted.iter().any(|record| record.operation == operation),
            "{deleted:?}"
        );
    }
    engine.tracer().stop();
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_storages_life_is_traced_over_io_uring() {
    life(IoChoice::Auto).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_storages_life_is_traced_over_blocking_calls() {
    life(IoChoice::Blocking).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilding_an_index_is_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), IoChoice::Blocking).await;
    let id = storage(&engine).await;
    push(&engine, id, 3).await;
    let info = engine.storages().finalize(id).await.unwrap();
    engine.shutdown().await.unwrap();
    let index = info.files.iter().find(|file| file.name.ends_with(".index"));
    let path = folder.path().join("storages").join(id.to_string());
    std::fs::remove_file(path.join(&index.unwrap().name)).unwrap();
    let engine = self::engine(folder.path(), IoChoice::Blocking).await;
    engine.tracer().start(Settings::default()).unwrap();
    assert_eq!(
        engine.reading().read_packet(id, 0).await.unwrap().len(),
        10_000
    );
    let rebuilt = records(&engine);
    assert!(!having(&rebuilt, Operation::Read, FileClass::Data, Cause::Recovery).is_empty());
    let renamed = having(
        &rebuilt,
        Operation::Rename,
        FileClass::Index,
        Cause::Recovery,
    );
    assert_eq!(renamed.len(), 1, "{rebuilt:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_of_the_storage_that_holds_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), IoChoice::Auto).await;
    let id = storage(&engine).await;
    let settings = Settings {
        own_storage: Some(*id.as_bytes()),
        ..Settings::default()
    };
    engine.tracer().start(settings).unwrap();
    push(&engine, id, 3).await;
    engine.storages().finalize(id).await.unwrap();
    engine.shutdown().await.unwrap();
    let records = records(&engine);
    assert!(
        records
            .iter()
            .all(|r| r.file.storage() != Some(*id.as_bytes())),
        "{records:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_syncs_count_the_requests_they_serve() {
    const PUSHES: u64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), IoChoice::Auto).await;
    let id = storage(&engine).await;
    engine.tracer().start(Settings::default()).unwrap();
    let mut pending = Vec::new();
    for sequence in 0..PUSHES {
        let request = format!("push-{sequence}").into();
        let scope = Scope::new(engine.tracer(), Cause::Manage, Some(request), 1);
        let payload = vec![sequence as u8; 10_000];
        let push = Push {
            agent: agent(),
            stream: "s".parse().unwrap(),
            packets: vec![NewPacket::new(
                StreamPosition::new(1, sequence),
                payload.into(),
                Facts::default(),
            )],
            permit: engine.budget().try_acquire(10_000).unwrap(),
        };
        pending.push(
            scope
                .around(engine.ingest().submit(id, push))
                .await
                .unwrap(),
        );
    }
    for pending in pending {
        assert!(pending.await.refused.is_none());
    }
    let records = records(&engine);
    let served = |operation| {
        let found = having(&records, operation, FileClass::Data, Cause::Ingest);
        assert!(
            found.iter().all(|record| {
                let request = record.request.unwrap_or_default();
                record.requests > 0 && request.starts_with("push-")
            }),
            "{found:?}"
        );
        found
            .iter()
            .map(|record| u64::from(record.requests))
            .sum::<u64>()
    };
    // What was pushed is synced once, and every buffer that has bytes of it is written once.
    assert_eq!(served(Operation::Sync), PUSHES);
    assert!(served(Operation::Write) >= PUSHES);
    engine.shutdown().await.unwrap();
}
