//! The engine on a failing disk: acknowledged packets remain, all others are refused, and no reply
//! says otherwise.

mod agents;
mod arranging;
mod changes;
mod copies;
mod derived;
mod errors;
mod every_operation;
mod file_ids;
mod finalized;
mod full_file_turns;
mod full_files;
mod index_memory;
mod merging;
mod positions;
mod power;
mod recovering;
mod repairing;
mod repairing_droppable;
mod repairing_lost_files;
mod repairing_meanwhile;
mod repairing_open;
mod sealing;
mod simulation;
mod start;
mod usage;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use storage_format::{
    AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition,
    agent_file::StreamSpec,
    frame::Facts,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};

use crate::{
    AgentSpec, Engine, EngineConfig, IoChoice, NewPacket, NewStorage, Push, PushOutcome, Selection,
    StorageError, io::faulty::FaultPlan,
};

struct World {
    engine: Engine,
    plan: Arc<FaultPlan>,
    storage: StorageId,
    folder: tempfile::TempDir,
    /// Sequences that were acknowledged, by stream.
    acknowledged: BTreeMap<&'static str, u64>,
    /// Whether full files are arranged in the background.
    arranges: bool,
}

const STREAMS: [&str; 2] = ["one", "two"];

/// The stream of packets for which nobody waits.
fn dropping() -> StreamId {
    "dropping".parse().unwrap()
}

fn agent() -> AgentId {
    "agent".parse().unwrap()
}

fn config(folder: &std::path::Path) -> EngineConfig {
    let mut config = EngineConfig::new(folder);
    config.io = IoChoice::Blocking;
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    config.full_file_arranging_bytes_per_second_max = 0;
    config
}

fn small_files(config: &mut EngineConfig) {
    config.data_file_bytes_max = 24 << 10;
    config.tree_packet_count_max = 8;
    config.index_merge_count = 3;
}

/// As [`small_files`]; full files are arranged in the background.
fn arranged_files(config: &mut EngineConfig) {
    small_files(config);
    config.full_file_arranging_bytes_per_second_max = 1 << 40;
}

/// A folder in memory if there is one: a test that injects every fault syncs thousands of times.
fn folder_in_memory() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm");
    folder.or_else(|_| tempfile::tempdir()).unwrap()
}

/// The second copy of a storage file is intact, and says FINALIZED only if the storage file does.
fn check_copies(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder.join("storages")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy();
        let Ok(id) = name.parse::<StorageId>() else {
            continue;
        };
        let decode = |name: FileName| {
            let bytes = std::fs::read(folder.join(name.to_string())).ok()?;
            Some(StorageFile::decode(&bytes).unwrap())
        };
        if let Some(copy) = decode(FileName::StorageCopy(id)) {
            let own = decode(FileName::Storage(id)).unwrap();
            let states = (own.state, copy.state);
            let finalized = StorageState::Finalized;
            let is_same = (states.0 == finalized) == (states.1 == finalized);
            assert!(is_same, "{}: {states:?}", folder.display());
        }
    }
}

/// A copy of the storages and agents in `folder`.
fn copy_of(folder: &std::path::Path) -> tempfile::TempDir {
    for _ in 0..20 {
        let copy = folder_in_memory();
        let status = std::process::Command::new("cp")
            .args(["-r", "--sparse=always"])
            .arg(folder.join("storages"))
            .arg(folder.join("agents"))
            .arg(copy.path())
            .status();
        // Index parts that were merged are removed by their last reader, at any time.
        if status.unwrap().success() {
            return copy;
        }
    }
    panic!("the files in {} cannot be copied", folder.display());
}

fn payload(stream: &str, sequence: u64) -> Bytes {
    let length = 1 + (sequence as usize * 613) % 9000;
    let seed = stream.len() as u64 ^ sequence;
    (0..length as u64)
        .map(|at| (at.wrapping_mul(seed + 1) >> 3) as u8)
        .collect()
}

/// Every acknowledged packet of a storage is there, bit for bit; of each stream a prefix and
/// nothing else.
async fn check_packets(
    engine: &Engine,
    storage: StorageId,
    acknowledged: &BTreeMap<&'static str, u64>,
) {
    let selection = Selection {
        limit: 10_000,
        ..Selection::default()
    };
    let page = engine
        .reading()
        .descriptors(storage, selection)
        .await
        .unwrap();
    let mut found = BTreeMap::<String, u64>::new();
    let mut last = None;
    for packet in page.items {
        let number = Some(packet.entry.number);
        assert!(number > last.replace(packet.entry.number), "numbers grow");
        let next = found.entry(packet.stream.to_string()).or_default();
        let sequence = packet.entry.position.sequence;
        // Packets for which nobody waits may be dropped.
        let is_next = sequence == *next || (packet.stream == dropping() && sequence > *next);
        assert!(
            is_next,
            "stream {} has no gap: {sequence}, {next} expected",
            packet.stream
        );
        *next = sequence + 1;
        let bytes = engine
            .reading()
            .read_packet(storage, packet.entry.number)
            .await
            .unwrap();
        assert_eq!(
            bytes,
            payload(packet.stream.as_str(), packet.entry.position.sequence)
        );
    }
    for (&stream, &count) in acknowledged {
        let found = found.get(stream).copied().unwrap_or(0);
        assert!(
            found >= count,
            "{count} packets of {stream} acknowledged, {found} there"
        );
    }
}

impl World {
    /// What a power failure leaves of the files.
    async fn torn_copy(&self, seed: u64) -> tempfile::TempDir {
        let _disk = self.plan.freeze().await;
        let copy = copy_of(self.folder.path());
        self.plan.tear(self.folder.path(), copy.path(), seed);
        copy
    }

    async fn new() -> Self {
        Self::with_tree_of(16).await
    }

    async fn with_tree_of(packets: usize) -> Self {
        Self::with(|config| config.tree_packet_count_max = packets).await
    }

    /// A storage whose log and index have many small files.
    async fn of_small_files() -> Self {
        Self::with(small_files).await
    }

    async fn with(change: impl FnOnce(&mut EngineConfig)) -> Self {
        let folder = folder_in_memory();
        let plan = Arc::<FaultPlan>::default();
        let mut config = config(folder.path());
        config.faults = Some(Arc::clone(&plan));
        change(&mut config);
        let arranges = config.full_file_arranging_bytes_per_second_max > 0;
        let engine = Engine::open(config).await.unwrap();
        plan.cover(folder.path());
        let spec = AgentSpec {
            id: agent(),
            name: String::new(),
            host: String::new(),
            attributes: BTreeMap::new(),
        };
        engine.agents().register(spec).await.unwrap();
        let streams = STREAMS.map(|id| id.parse().unwrap());
        for id in streams.into_iter().chain([dropping()]) {
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
            arranges,
        }
    }

    /// Changes a configuration to the one of the storage.
    fn small_files(&self, config: &mut EngineConfig) {
        if self.arranges {
            arranged_files(config);
        } else {
            small_files(config);
        }
    }

    async fn push(&mut self, stream: &'static str, count: u64) -> PushOutcome {
        let outcome = match self.submit(stream, count).await {
            Ok(pending) => pending.await,
            Err(error) => PushOutcome {
                receipts: Vec::new(),
                refused: Some(error),
                permit: None,
            },
        };
        *self.acknowledged.entry(stream).or_default() += outcome.receipts.len() as u64;
        outcome
    }

    async fn submit(
        &self,
        stream: &'static str,
        count: u64,
    ) -> Result<crate::PendingPush, StorageError> {
        let first = self.acknowledged.get(stream).copied().unwrap_or(0);
        self.push_to(&self.engine, stream, first..first + count)
            .await
    }

    async fn push_to(
        &self,
        engine: &Engine,
        stream: &'static str,
        sequences: std::ops::Range<u64>,
    ) -> Result<crate::PendingPush, StorageError> {
        self.push_into(engine, self.storage, stream, sequences)
            .await
    }

    async fn push_into(
        &self,
        engine: &Engine,
        storage: StorageId,
        stream: &'static str,
        sequences: std::ops::Range<u64>,
    ) -> Result<crate::PendingPush, StorageError> {
        let packets = sequences.map(|sequence| {
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
            permit: engine.budget().try_acquire(1).unwrap(),
        };
        engine.ingest().submit(storage, push).await
    }

    /// Pushes to all streams at once.
    async fn push_together(&mut self, count: u64) -> Vec<StorageError> {
        let mut pending = Vec::new();
        for stream in STREAMS {
            pending.push((stream, self.submit(stream, count).await));
        }
        let mut refused = Vec::new();
        for (stream, pending) in pending {
            match pending {
                Ok(pending) => {
                    let outcome = pending.await;
                    *self.acknowledged.entry(stream).or_default() += outcome.receipts.len() as u64;
                    refused.extend(outcome.refused);
                }
                Err(error) => refused.push(error),
            }
        }
        refused
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
        self.check_count(engine, &self.acknowledged).await;
    }

    async fn check_count(&self, engine: &Engine, acknowledged: &BTreeMap<&'static str, u64>) {
        check_packets(engine, self.storage, acknowledged).await;
    }

    async fn restart_without_faults(self) -> (Self, StorageState) {
        self.engine.shutdown().await.unwrap();
        let engine = Engine::open(config(self.folder.path())).await.unwrap();
        self.check(&engine).await;
        let state = engine.storages().get(self.storage).unwrap().state;
        (Self { engine, ..self }, state)
    }

    /// Checks a copy of the folder as a killed server leaves it; the state after its restart.
    async fn check_killed(&self) -> StorageState {
        let copy = {
            let _disk = self.plan.freeze().await;
            copy_of(self.folder.path())
        };
        check_copies(copy.path());
        let mut config = config(copy.path());
        self.small_files(&mut config);
        let engine = Engine::open(config).await.unwrap();
        let state = self.check_recovered(&engine).await;
        engine.shutdown().await.unwrap();
        state
    }

    /// Checks a recovered storage: packets can be repeated and appended, and it can be finalized.
    async fn check_recovered(&self, engine: &Engine) -> StorageState {
        self.check(engine).await;
        let mut status = engine.storages().status(self.storage).unwrap();
        if status.state == StorageState::Finalizing {
            engine.storages().finalize(self.storage).await.unwrap();
            self.check(engine).await;
            status = engine.storages().status(self.storage).unwrap();
        }
        match status.state {
            StorageState::Failed => assert_ne!(status.failure, None),
            StorageState::Open => {
                let mut after = BTreeMap::new();
                for stream in STREAMS {
                    let first = self.acknowledged.get(stream).copied().unwrap_or(0);
                    let pushed = self.push_to(engine, stream, first.saturating_sub(1)..first + 3);
                    let outcome = pushed.await.unwrap().await;
                    assert!(outcome.refused.is_none(), "{stream}: {:?}", outcome.refused);
                    after.insert(stream, first + 3);
                }
                self.check_count(engine, &after).await;
                engine.storages().finalize(self.storage).await.unwrap();
                self.check_count(engine, &after).await;
                self.check_files(engine).await;
            }
            StorageState::Finalized => self.check_files(engine).await,
            state => panic!("a restart leaves no storage {state}"),
        }
        status.state
    }

    /// No file of a finalized storage is damaged.
    async fn check_files(&self, engine: &Engine) {
        let verified = engine.reading().verify(self.storage, Arc::default());
        assert_eq!(verified.await.unwrap().damage, []);
        let folder = self.folder_of(engine);
        for file in engine.reading().files(self.storage).await.unwrap() {
            let length = std::fs::metadata(folder.join(&file.name)).unwrap().len();
            assert_eq!(length, file.length, "{}", file.name);
        }
    }

    fn folder_of(&self, engine: &Engine) -> std::path::PathBuf {
        let folder = engine.inner.services.config.data_dir.join("storages");
        folder.join(self.storage.to_string())
    }

    fn state(&self) -> StorageState {
        self.engine.storages().get(self.storage).unwrap().state
    }
}
