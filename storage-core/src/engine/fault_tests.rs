//! The engine on a failing disk: acknowledged packets remain, all others are refused, and no reply
//! says otherwise.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rustix::io::Errno;
use storage_format::{
    AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition, agent_file::StreamSpec,
    frame::Facts, storage_file::StorageState,
};

use crate::{
    AgentSpec, Engine, EngineConfig, IoChoice, NewPacket, NewStorage, Push, PushOutcome, Selection,
    io::faulty::{Fault, FaultPlan, Operation, PANIC_MESSAGE},
};

struct World {
    engine: Engine,
    plan: Arc<FaultPlan>,
    storage: StorageId,
    folder: tempfile::TempDir,
    /// Sequences that were acknowledged, by stream.
    acknowledged: BTreeMap<&'static str, u64>,
}

const STREAMS: [&str; 2] = ["one", "two"];

fn agent() -> AgentId {
    "agent".parse().unwrap()
}

fn config(folder: &std::path::Path) -> EngineConfig {
    let mut config = EngineConfig::new(folder);
    config.io = IoChoice::Blocking;
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    config
}

fn payload(stream: &str, sequence: u64) -> Bytes {
    let length = 1 + (sequence as usize * 613) % 9000;
    let seed = stream.len() as u64 ^ sequence;
    (0..length as u64)
        .map(|at| (at.wrapping_mul(seed + 1) >> 3) as u8)
        .collect()
}

impl World {
    async fn new() -> Self {
        Self::with_tree_of(16).await
    }

    async fn with_tree_of(packets: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plan = Arc::<FaultPlan>::default();
        let mut config = config(folder.path());
        config.faults = Some(Arc::clone(&plan));
        config.tree_packet_count_max = packets;
        let engine = Engine::open(config).await.unwrap();
        let spec = AgentSpec {
            id: agent(),
            name: String::new(),
            host: String::new(),
            attributes: BTreeMap::new(),
        };
        engine.agents().register(spec).await.unwrap();
        for id in STREAMS {
            let id: StreamId = id.parse().unwrap();
            let (kind, codec) = (Kind::Raw, Codec::None);
            let spec = StreamSpec {
                id,
                kind,
                leaf_type: LeafType::Array,
                codec,
            };
            engine
                .agents()
                .declare_stream(&agent(), spec)
                .await
                .unwrap();
        }
        let new = NewStorage {
            name: "faulty".into(),
            ..NewStorage::default()
        };
        let storage = engine.storages().create(new).await.unwrap().0.id;
        engine.storages().open(storage).await.unwrap();
        Self {
            engine,
            plan,
            storage,
            folder,
            acknowledged: BTreeMap::new(),
        }
    }

    async fn push(&mut self, stream: &'static str, count: u64) -> PushOutcome {
        let outcome = match self.submit(stream, count).await {
            Ok(pending) => pending.await,
            Err(error) => PushOutcome {
                receipts: Vec::new(),
                refused: Some(error),
            },
        };
        *self.acknowledged.entry(stream).or_default() += outcome.receipts.len() as u64;
        outcome
    }

    async fn submit(
        &self,
        stream: &'static str,
        count: u64,
    ) -> Result<crate::PendingPush, crate::StorageError> {
        let first = self.acknowledged.get(stream).copied().unwrap_or(0);
        let packets = (first..first + count).map(|sequence| {
            NewPacket::new(
                StreamPosition::new(0, sequence),
                payload(stream, sequence),
                Facts::default(),
            )
        });
        let push = Push {
            agent: agent(),
            stream: stream.parse().unwrap(),
            packets: packets.collect(),
            permit: self.engine.budget().try_acquire(1).unwrap(),
        };
        self.engine.ingest().submit(self.storage, push).await
    }

    async fn push_some(&mut self, rounds: u64) {
        for round in 0..rounds {
            for stream in STREAMS {
                self.push(stream, 1 + round % 3).await;
            }
        }
    }

    /// Every acknowledged packet is there, bit for bit; of each stream a prefix and nothing else.
    async fn check(&self, engine: &Engine) {
        let selection = Selection {
            limit: 10_000,
            ..Selection::default()
        };
        let page = engine
            .reading()
            .descriptors(self.storage, selection)
            .await
            .unwrap();
        let mut found = BTreeMap::<String, u64>::new();
        for packet in page.items {
            let next = found.entry(packet.stream.to_string()).or_default();
            assert_eq!(
                packet.entry.position.sequence, *next,
                "stream {} has no gap",
                packet.stream
            );
            *next += 1;
            let bytes = engine
                .reading()
                .read_packet(self.storage, packet.entry.number)
                .await
                .unwrap();
            assert_eq!(
                bytes,
                payload(packet.stream.as_str(), packet.entry.position.sequence)
            );
        }
        for (&stream, &count) in &self.acknowledged {
            let found = found.get(stream).copied().unwrap_or(0);
            assert!(
                found >= count,
                "{count} packets of {stream} acknowledged, {found} there"
            );
        }
    }

    async fn restart_without_faults(self) -> (Self, StorageState) {
        self.engine.shutdown().await.unwrap();
        let engine = Engine::open(config(self.folder.path())).await.unwrap();
        self.check(&engine).await;
        let state = engine.storages().get(self.storage).unwrap().state;
        (Self { engine, ..self }, state)
    }

    fn state(&self) -> StorageState {
        self.engine.storages().get(self.storage).unwrap().state
    }
}

async fn a_disk_error_is_final(operation: Operation, nth: usize) {
    let mut world = World::new().await;
    world.push_some(4).await;
    world
        .plan
        .inject(operation, nth..nth + 1, Fault::Fail(Errno::IO));
    world.push_some(8).await;
    assert_eq!(world.state(), StorageState::Failed, "{operation:?} {nth}");
    assert_eq!(
        world.plan.syncs_after_failed_sync(),
        0,
        "a failed sync is never tried again"
    );
    let refused = world.push("one", 1).await.refused.unwrap();
    assert_eq!(refused.code(), "storage_failed");
    world.check(&world.engine).await;
    let (world, state) = world.restart_without_faults().await;
    assert_eq!(state, StorageState::Failed, "it stays read-only");
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_makes_the_storage_read_only() {
    for nth in 0..6 {
        a_disk_error_is_final(Operation::Write, nth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_makes_the_storage_read_only() {
    for nth in 0..6 {
        a_disk_error_is_final(Operation::Sync, nth).await;
    }
}

/// Two pushes while a task panics: what has no receipt is refused with the message of the panic.
async fn a_panic_fails_the_storage(operation: Operation, nth: usize) {
    let mut world = World::new().await;
    world.push_some(2).await;
    world.plan.inject(operation, nth..nth + 1, Fault::Panic);
    let mut refused = 0;
    for _ in 0..4 {
        let pending = [world.submit("one", 2).await, world.submit("two", 1).await];
        for (pending, stream) in pending.into_iter().zip(STREAMS) {
            let error = match pending {
                Ok(pending) => {
                    let outcome = pending.await;
                    *world.acknowledged.entry(stream).or_default() += outcome.receipts.len() as u64;
                    outcome.refused
                }
                Err(error) => Some(error),
            };
            let Some(error) = error else { continue };
            let codes: &[_] = match refused {
                0 => &["write_failed"],
                _ => &["write_failed", "storage_failed"],
            };
            refused += 1;
            assert!(codes.contains(&error.code()), "{operation:?}: {error}");
            assert!(error.to_string().contains(PANIC_MESSAGE), "{error}");
            // At once: the reply is not earlier than the state.
            assert_eq!(world.state(), StorageState::Failed, "{operation:?}");
        }
    }
    assert!(refused > 0, "{operation:?} panicked");
    let status = world.engine.storages().status(world.storage).unwrap();
    assert!(status.failure.unwrap().contains(PANIC_MESSAGE));
    assert_eq!((status.queued_packets, status.queued_bytes), (0, 0));
    let failures = world.engine.failures(1);
    assert_eq!(failures.storage_count, 1);
    assert_eq!(failures.storages[0].0, world.storage);
    assert_eq!(world.engine.counters().failed_storages.get(), 1);
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap_err().code(), "storage_failed");
    world.check(&world.engine).await;
    let is_dead = operation == Operation::Dispatch;
    assert_eq!(failures.io_thread.is_some(), is_dead, "{failures:?}");
    world.plan.heal();
    assert_eq!(world.engine.shutdown().await.is_err(), is_dead);
    let engine = Engine::open(config(world.folder.path())).await.unwrap();
    world.check(&engine).await;
    // A dead I/O thread cannot write the storage file; the disk is as good as before.
    let after = engine.storages().get(world.storage).unwrap().state;
    let expected = if is_dead {
        StorageState::Open
    } else {
        StorageState::Failed
    };
    assert_eq!(after, expected, "{operation:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_writer_fails_the_storage() {
    for nth in 0..3 {
        a_panic_fails_the_storage(Operation::Submit, nth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_task_of_a_data_file_fails_the_storage() {
    for operation in [Operation::Write, Operation::Sync] {
        a_panic_fails_the_storage(operation, 0).await;
        a_panic_fails_the_storage(operation, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_io_thread_fails_the_storage() {
    for nth in 0..3 {
        a_panic_fails_the_storage(Operation::Dispatch, nth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_writer_fails_the_storage() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let pending = world.submit("one", 1).await.unwrap();
    world.engine.abort_tasks().await;
    if let Some(error) = pending.await.refused {
        assert_eq!(error.code(), "write_failed", "{error}");
    }
    assert_eq!(world.state(), StorageState::Failed);
    let refused = world.push("one", 1).await.refused.unwrap();
    assert_eq!(refused.code(), "storage_failed", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_then_resumes_without_a_gap() {
    for operation in [Operation::Write, Operation::Open] {
        for nth in 0..5 {
            let mut world = World::new().await;
            if operation == Operation::Write {
                world.push_some(3).await;
            }
            world
                .plan
                .inject(operation, nth..nth + 3, Fault::Fail(Errno::NOSPC));
            let mut refusals = 0;
            for round in 0..12 {
                for stream in STREAMS {
                    let outcome = world.push(stream, 1 + round % 3).await;
                    if let Some(error) = outcome.refused {
                        refusals += 1;
                        let is_expected =
                            ["disk_full", "earlier_packet_refused"].contains(&error.code());
                        assert!(is_expected, "{error}");
                    }
                }
            }
            assert!(
                refusals > 0 || operation == Operation::Open,
                "the fault was met"
            );
            world.plan.heal();
            assert!(
                world.push("one", 3).await.refused.is_none(),
                "it goes on by itself"
            );
            assert_eq!(world.state(), StorageState::Open);
            world.check(&world.engine).await;
            world
                .engine
                .storages()
                .finalize(world.storage)
                .await
                .unwrap();
            world.check(&world.engine).await;
            let (world, state) = world.restart_without_faults().await;
            assert_eq!(state, StorageState::Finalized);
            world.engine.shutdown().await.unwrap();
        }
    }
}

/// A lack of file descriptors or memory refuses pushes for as long as it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_transient_error_refuses_and_does_not_fail_the_storage() {
    let cases = [
        (Operation::Open, Errno::MFILE),
        (Operation::Open, Errno::NFILE),
        (Operation::SyncFolder, Errno::MFILE),
        (Operation::Write, Errno::NOMEM),
        (Operation::Write, Errno::AGAIN),
    ];
    for (operation, errno) in cases {
        let mut world = World::new().await;
        let fault = Fault::Fail(errno);
        world.plan.inject(operation, 0..usize::MAX, fault);
        for stream in STREAMS {
            let refused = world.push(stream, 2).await.refused.unwrap();
            assert_eq!(refused.code(), "resources_exhausted", "{refused}");
        }
        assert_eq!(world.state(), StorageState::Open, "{operation:?} {errno}");
        world.plan.heal();
        world.push_some(3).await;
        world.plan.inject(operation, 0..usize::MAX, fault);
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap_err().code(), "resources_exhausted");
        assert_ne!(world.state(), StorageState::Failed, "{operation:?} {errno}");
        world.plan.heal();
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
        world.check(&world.engine).await;
        let (world, state) = world.restart_without_faults().await;
        assert_eq!(state, StorageState::Finalized);
        world.engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_runs_out_of_memory_is_a_failed_sync() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let fault = Fault::Fail(Errno::NOMEM);
    world.plan.inject(Operation::Sync, 0..1, fault);
    world.push_some(2).await;
    assert_eq!(world.state(), StorageState::Failed);
    assert_eq!(world.plan.syncs_after_failed_sync(), 0);
    world.engine.shutdown().await.unwrap();
}

/// A data file that another program truncated is damage, and is not blamed on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_truncated_file_is_its_length() {
    let mut world = World::new().await;
    world.push_some(4).await;
    let (mut world, _) = world.restart_without_faults().await;
    let folder = world.folder.path().join("storages");
    let folder = folder.join(world.storage.to_string());
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "itdata") {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.unwrap().set_len(5000).unwrap();
        }
    }
    let mut damage = Vec::new();
    for number in 0..world.acknowledged.values().sum() {
        let read = world.engine.reading().read_packet(world.storage, number);
        damage.extend(read.await.err());
    }
    assert!(!damage.is_empty());
    assert!(
        damage.iter().all(|error| error.code() == "damaged"),
        "{damage:?}"
    );
    let verified = world.engine.reading().verify(world.storage, Arc::default());
    let verified = verified.await.map(|report| format!("{:?}", report.damage));
    let text = format!("{damage:?} {verified:?}");
    assert!(text.contains("byte 5000"), "{text}");
    assert!(!text.contains("whole buffer"), "{text}");
    // New packets go to a new file.
    let next = world.acknowledged["one"];
    assert!(world.push("one", next).await.refused.is_none());
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn short_writes_are_completed() {
    let mut world = World::new().await;
    for short in [0..4, 7..8, 11..14] {
        world
            .plan
            .inject(Operation::Write, short, Fault::Short(4096 + 512));
        world.push_some(6).await;
    }
    let outcome = world.push("one", 40).await;
    assert!(outcome.refused.is_none(), "{outcome:?}");
    world.check(&world.engine).await;
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let (world, state) = world.restart_without_faults().await;
    assert_eq!(state, StorageState::Finalized);
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalization_without_space_can_be_done_again() {
    for operation in [Operation::Rename, Operation::Open, Operation::SetLength] {
        for nth in 0..4 {
            let mut world = World::new().await;
            world.push_some(5).await;
            world
                .plan
                .inject(operation, nth..nth + 1, Fault::Fail(Errno::NOSPC));
            let first = world.engine.storages().finalize(world.storage).await;
            world.plan.heal();
            if let Err(error) = first {
                assert_eq!(error.code(), "disk_full", "{operation:?} {nth}: {error}");
                assert_eq!(world.state(), StorageState::Open, "{operation:?} {nth}");
                world.push_some(2).await;
                world
                    .engine
                    .storages()
                    .finalize(world.storage)
                    .await
                    .unwrap();
            }
            world.check(&world.engine).await;
            let (world, state) = world.restart_without_faults().await;
            assert_eq!(state, StorageState::Finalized);
            world.engine.shutdown().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    for seed in 0..40 {
        // No index part is written, so that the folder can be copied file by file.
        let mut world = World::with_tree_of(usize::MAX).await;
        world.plan.forget_unsynced();
        world.push_some(1 + seed % 5).await;
        // One push is under way while the power fails.
        let pending = {
            let push = Push {
                agent: agent(),
                stream: "one".parse().unwrap(),
                packets: (0..20)
                    .map(|at| {
                        let sequence = world.acknowledged["one"] + at;
                        let payload = payload("one", sequence);
                        NewPacket::new(StreamPosition::new(0, sequence), payload, Facts::default())
                    })
                    .collect(),
                permit: world.engine.budget().try_acquire(1).unwrap(),
            };
            world
                .engine
                .ingest()
                .submit(world.storage, push)
                .await
                .unwrap()
        };
        if seed % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let copy = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("cp")
            .arg("-r")
            .arg(world.folder.path().join("storages"))
            .arg(world.folder.path().join("agents"))
            .arg(copy.path())
            .status();
        assert!(status.unwrap().success());
        world.plan.tear(world.folder.path(), copy.path(), seed);
        drop(pending);
        world.engine.shutdown().await.unwrap();
        let engine = Engine::open(config(copy.path())).await.unwrap();
        assert_eq!(
            engine.storages().get(world.storage).unwrap().state,
            StorageState::Open
        );
        world.check(&engine).await;
        engine.storages().finalize(world.storage).await.unwrap();
        world.check(&engine).await;
        let report = engine
            .reading()
            .verify(world.storage, Arc::default())
            .await
            .unwrap();
        assert_eq!(report.damage, [], "a torn tail is cut");
        engine.shutdown().await.unwrap();
    }
}
