//! What the tests of the engine share: an engine on a folder, packets with known bytes, and a
//! folder as a killed server leaves it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bytes::Bytes;
use storage_core::{
    AgentSpec, Engine, EngineConfig, IoChoice, NewPacket, NewStorage, Progress, Push, PushOutcome,
    Selection,
};
use storage_format::{
    AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition, agent_file::StreamSpec,
    frame::Facts, paths::FileRole,
};

pub(crate) fn config(folder: &Path, io: IoChoice) -> EngineConfig {
    let mut config = EngineConfig::new(folder);
    config.io = io;
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    config
}

pub(crate) fn agent() -> AgentId {
    "agent-1".parse().unwrap()
}

pub(crate) fn stream(name: &str) -> StreamId {
    name.parse().unwrap()
}

pub(crate) async fn prepare(engine: &Engine, streams: &[(&str, LeafType)]) -> StorageId {
    let spec = AgentSpec {
        id: agent(),
        name: "first".into(),
        host: "here".into(),
        attributes: BTreeMap::new(),
    };
    engine.agents().register(spec).await.unwrap();
    for &(id, leaf_type) in streams {
        let spec = StreamSpec {
            id: stream(id),
            kind: Kind::Raw,
            leaf_type,
            codec: Codec::Zstd,
        };
        engine
            .agents()
            .declare_stream(&agent(), spec)
            .await
            .unwrap();
    }
    let new = NewStorage {
        name: "s".into(),
        ..NewStorage::default()
    };
    let (info, _) = engine.storages().create(new).await.unwrap();
    engine.storages().open(info.id).await.unwrap();
    info.id
}

/// Bytes of a packet: compressible, of a size that crosses buffers now and then.
pub(crate) fn payload(sequence: u64) -> Bytes {
    let length =
        1 + (sequence as usize * 7919) % 40_000 + if sequence % 50 == 7 { 600_000 } else { 0 };
    (0..length)
        .map(|at| ((at as u64 / 3) ^ sequence.wrapping_mul(31)) as u8)
        .collect()
}

pub(crate) fn packet(epoch: u64, sequence: u64) -> NewPacket {
    let begin = 1_000_000 * sequence as i64;
    let facts = Facts {
        time_span: Some((begin, begin + 999_999)),
        ..Facts::default()
    };
    NewPacket::new(
        StreamPosition::new(epoch, sequence),
        payload(sequence),
        facts,
    )
}

pub(crate) async fn push(
    engine: &Engine,
    storage: StorageId,
    to: &str,
    packets: Vec<NewPacket>,
) -> PushOutcome {
    let bytes = packets
        .iter()
        .map(|packet| packet.payload.len() as u64)
        .sum();
    let permit = engine.budget().try_acquire(bytes).unwrap();
    let push = Push {
        agent: agent(),
        stream: stream(to),
        packets,
        permit,
    };
    match engine.ingest().submit(storage, push).await {
        Ok(pending) => pending.await,
        Err(error) => PushOutcome {
            receipts: Vec::new(),
            refused: Some(error),
            permit: None,
        },
    }
}

pub(crate) async fn push_all(
    engine: &Engine,
    storage: StorageId,
    to: &str,
    sequences: std::ops::Range<u64>,
) {
    for sequence in sequences {
        let outcome = push(engine, storage, to, vec![packet(0, sequence)]).await;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
    }
}

pub(crate) async fn check_packets(engine: &Engine, storage: StorageId, count: u64) {
    let mut by_stream = BTreeMap::<String, Vec<u64>>::new();
    let mut after = None;
    loop {
        let selection = Selection {
            after,
            limit: 7,
            ..Selection::default()
        };
        let page = engine
            .reading()
            .descriptors(storage, selection)
            .await
            .unwrap();
        for packet in &page.items {
            let bytes = engine
                .reading()
                .read_packet(storage, packet.entry.number)
                .await
                .unwrap();
            assert_eq!(
                bytes,
                payload(packet.entry.position.sequence),
                "packet {}",
                packet.entry.number
            );
            by_stream
                .entry(packet.stream.to_string())
                .or_default()
                .push(packet.entry.position.sequence);
        }
        match page.next {
            None => break,
            next => after = next,
        }
    }
    for (stream, sequences) in by_stream {
        let expected: Vec<_> = (0..count).collect();
        assert_eq!(sequences, expected, "stream {stream}");
    }
}

/// What a killed server leaves: the folder as it is, without a shutdown.
pub(crate) fn copy_of_running(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .args(["-r", "--sparse=always"])
        .arg(folder.join("."))
        .arg(copy.path())
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::remove_dir_all(copy.path().join("catalog")).unwrap();
    copy
}

/// The only data file of a storage.
pub(crate) async fn data_file(engine: &Engine, storage: StorageId) -> std::path::PathBuf {
    let files = engine.reading().files(storage).await.unwrap();
    let mut data = files.iter().filter(|file| file.role == FileRole::Data);
    let name = &data.next().unwrap().name;
    assert_eq!(data.next(), None);
    let folder = engine.reading().leaves(storage).await.unwrap().leaves[0]
        .folder
        .clone();
    folder.join(name)
}

pub(crate) async fn check_intact(engine: &Engine, storage: StorageId, packets: u64) {
    let report = engine
        .reading()
        .verify(storage, Arc::new(Progress::default()))
        .await
        .unwrap();
    assert_eq!(report.damage, [], "no damage");
    assert_eq!(report.packets, packets);
}
