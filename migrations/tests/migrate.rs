//! Data folders of every version are migrated to the current one and retain their content.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, ops::Range, path::Path, process::Command, sync::Arc};

use migrations::{CURRENT_VERSION, DataVersion, MigrationError, migrate};
use storage_core::{
    AgentSpec, Engine, EngineConfig, NewPacket, NewStorage, Push, Selection, StorageFilter,
};
use storage_format::{
    AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition,
    agent_file::StreamSpec,
    frame::Facts,
    log::{FILE_HEADER_BYTES, LogFileHeader},
    storage_file::StorageState,
};

const AGENT: &str = "node-1";
const STREAMS: [(&str, LeafType); 2] = [("array", LeafType::Array), ("plain", LeafType::Plain)];
const LINE: &str = "{\"name\":\"read\",\"ts\":1,\"dur\":2}\n";

fn config(folder: &Path) -> EngineConfig {
    let mut config = EngineConfig::new(folder);
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    config
}

fn payload(sequence: u64) -> bytes::Bytes {
    LINE.repeat(1 + sequence as usize).into()
}

/// Pushes packets with these sequences.
async fn push(engine: &Engine, storage: StorageId, stream: &str, sequences: Range<u64>) {
    let packets = sequences.map(|sequence| {
        let facts = Facts {
            events: Some(sequence as u32 + 1),
            ..Facts::default()
        };
        NewPacket::new(StreamPosition::new(1, sequence), payload(sequence), facts)
    });
    let push = Push {
        agent: AGENT.parse().unwrap(),
        stream: stream.parse().unwrap(),
        packets: packets.collect(),
        permit: engine.budget().try_acquire(1).unwrap(),
    };
    let outcome = engine.ingest().submit(storage, push).await.unwrap().await;
    assert!(outcome.refused.is_none(), "{outcome:?}");
}

/// Fills a data folder: a finalized storage of two streams, and one that is still open.
async fn fill(folder: &Path) {
    migrate(folder).unwrap();
    let engine = Engine::open(config(folder)).await.unwrap();
    let agent: AgentId = AGENT.parse().unwrap();
    let spec = AgentSpec {
        id: agent.clone(),
        name: "Node 1".into(),
        host: "node-1".into(),
        attributes: BTreeMap::from([("arch".into(), "x86_64".into())]),
    };
    engine.agents().register(spec).await.unwrap();
    for (is_finalized, name) in [(true, "finalized"), (false, "open")] {
        let new = NewStorage {
            name: name.into(),
            ..NewStorage::default()
        };
        let storage = engine.storages().create(new).await.unwrap().0.id;
        engine.storages().open(storage).await.unwrap();
        for (stream, leaf_type) in STREAMS {
            let id: StreamId = stream.parse().unwrap();
            let (kind, codec) = (Kind::Dft, Codec::Zstd);
            let spec = StreamSpec {
                id: id.clone(),
                kind,
                leaf_type,
                codec,
            };
            engine.agents().declare_stream(&agent, spec).await.unwrap();
            push(&engine, storage, stream, 0..6).await;
        }
        if is_finalized {
            engine.storages().finalize(storage).await.unwrap();
        }
    }
    engine.shutdown().await.unwrap();
    for derived in ["catalog", "lock"] {
        let path = folder.join(derived);
        let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
    }
}

async fn check(folder: &Path) {
    let engine = Engine::open(config(folder)).await.unwrap();
    let storages = engine.storages().list(&StorageFilter::default());
    let names: Vec<_> = storages
        .iter()
        .map(|storage| storage.name.as_str())
        .collect();
    assert_eq!(names, ["finalized", "open"]);
    for storage in storages {
        check_packets(&engine, storage.id, 12).await;
    }
    engine.shutdown().await.unwrap();
}

/// Reads all packets of a storage back and verifies it.
async fn check_packets(engine: &Engine, storage: StorageId, count: usize) {
    let selection = Selection {
        limit: 100,
        ..Selection::default()
    };
    let reading = engine.reading();
    let page = reading.descriptors(storage, selection).await.unwrap();
    assert_eq!(page.items.len(), count);
    for packet in page.items {
        let number = packet.entry.number;
        let bytes = reading.read_packet(storage, number).await.unwrap();
        assert_eq!(bytes, payload(packet.entry.position.sequence));
    }
    let report = reading.verify(storage, Arc::default()).await.unwrap();
    assert_eq!(report.damage, []);
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let status = Command::new("cp")
        .arg("-r")
        .arg(from.join("."))
        .arg(to.path())
        .status();
    assert!(status.unwrap().success());
    to
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fixture_is_migrated_and_keeps_its_content() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let current = fixtures.join(format!("v{CURRENT_VERSION}"));
    if !current.exists() {
        fill(&current).await;
    }
    for version in 1..=CURRENT_VERSION.0 {
        let folder = copy(&fixtures.join(format!("v{version}")));
        assert_eq!(migrate(folder.path()).unwrap(), DataVersion(version));
        assert_eq!(
            migrate(folder.path()).unwrap(),
            CURRENT_VERSION,
            "a second migration does nothing"
        );
        check(folder.path()).await;
    }
}

/// The data files in the folder of a storage, by name.
fn data_files(folder: &Path, storage: StorageId) -> BTreeMap<String, Vec<u8>> {
    let folder = folder.join("storages").join(storage.to_string());
    let paths = std::fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let data = paths.filter(|path| path.extension().is_some_and(|end| end == "itdata"));
    data.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_storage_of_version_1_continues_in_a_log() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = copy(&fixtures.join("v1"));
    let folder = folder.path();
    migrate(folder).unwrap();
    let engine = Engine::open(config(folder)).await.unwrap();
    let storages = engine.storages().list(&StorageFilter::default());
    let storage = storages.iter().find(|storage| storage.name == "open");
    let storage = storage.unwrap().id;
    let before = data_files(folder, storage);
    assert_eq!(before.len(), 2);
    for (stream, _) in STREAMS {
        // A repeat is not stored again.
        push(&engine, storage, stream, 4..9).await;
    }
    check_packets(&engine, storage, 18).await;
    engine.shutdown().await.unwrap();

    let engine = Engine::open(config(folder)).await.unwrap();
    check_packets(&engine, storage, 18).await;
    push(&engine, storage, "array", 9..10).await;
    let open = data_files(folder, storage);
    for (name, bytes) in before {
        assert_eq!(open.get(&name), Some(&bytes), "{name} did not change");
    }
    engine.storages().finalize(storage).await.unwrap();
    check_packets(&engine, storage, 19).await;
    engine.shutdown().await.unwrap();

    // The leaves were in several files, so finalization arranged them in a new one.
    let after = data_files(folder, storage);
    assert_eq!(after.len(), 1);
    for (name, bytes) in after {
        let file = name.strip_suffix(".itdata").unwrap().parse().unwrap();
        LogFileHeader::decode(&bytes[..FILE_HEADER_BYTES], storage, file).unwrap();
    }
    let engine = Engine::open(config(folder)).await.unwrap();
    let found = engine.storages().get(storage).unwrap();
    assert_eq!(found.state, StorageState::Finalized);
    check_packets(&engine, storage, 19).await;
    engine.shutdown().await.unwrap();
}

#[test]
fn an_empty_folder_becomes_a_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("not/yet/there");
    assert_eq!(migrate(&inner).unwrap(), DataVersion(0));
    assert_eq!(migrate(&inner).unwrap(), CURRENT_VERSION);
    assert!(inner.join("storages").is_dir() && inner.join("agents").is_dir());
}

#[test]
fn a_newer_an_unknown_and_an_unreadable_folder_are_refused_and_unchanged() {
    for (name, content) in [
        ("VERSION", "tracehold data folder, version 999\n"),
        ("VERSION", "tracehold data folder, version 0\n"),
        ("VERSION", "something else"),
        ("thesis.tex", "years of work"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), content).unwrap();
        let error = migrate(folder.path()).unwrap_err();
        let is_right = match name {
            "VERSION" if content.contains("999") => matches!(error, MigrationError::Newer { .. }),
            "VERSION" => matches!(error, MigrationError::Unreadable { .. }),
            _ => matches!(error, MigrationError::Foreign { .. }),
        };
        assert!(is_right, "{content:?}: {error}");
        assert_eq!(
            std::fs::read_to_string(folder.path().join(name)).unwrap(),
            content
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
