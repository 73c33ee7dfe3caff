//! Data folders of every version are migrated to the current one and keep their content.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::Path, process::Command, sync::Arc};

use migrations::{CURRENT_VERSION, DataVersion, MigrationError, migrate};
use storage_core::{
    AgentSpec, Engine, EngineConfig, NewPacket, NewStorage, Push, Selection, StorageFilter,
};
use storage_format::{Codec, Kind, LeafType, StreamPosition, agent_file::StreamSpec, frame::Facts};

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

/// Fills a data folder: a finalized storage of two streams, and one that is still open.
async fn fill(folder: &Path) {
    migrate(folder).unwrap();
    let engine = Engine::open(config(folder)).await.unwrap();
    let agent: storage_format::AgentId = "node-1".parse().unwrap();
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
        for (stream, leaf_type) in [("array", LeafType::Array), ("plain", LeafType::Plain)] {
            let id: storage_format::StreamId = stream.parse().unwrap();
            let (kind, codec) = (Kind::Dft, Codec::Zstd);
            let spec = StreamSpec {
                id: id.clone(),
                kind,
                leaf_type,
                codec,
            };
            engine.agents().declare_stream(&agent, spec).await.unwrap();
            let packets = (0..6).map(|sequence| {
                let facts = Facts {
                    events: Some(sequence as u32 + 1),
                    ..Facts::default()
                };
                NewPacket::new(StreamPosition::new(1, sequence), payload(sequence), facts)
            });
            let permit = engine.budget().try_acquire(1).unwrap();
            let (agent, packets) = (agent.clone(), packets.collect());
            let push = Push {
                agent,
                stream: id,
                packets,
                permit,
            };
            let outcome = engine.ingest().submit(storage, push).await.unwrap().await;
            assert!(outcome.refused.is_none(), "{outcome:?}");
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
        let selection = Selection {
            limit: 100,
            ..Selection::default()
        };
        let page = engine
            .reading()
            .descriptors(storage.id, selection)
            .await
            .unwrap();
        assert_eq!(page.items.len(), 12);
        for packet in page.items {
            let bytes = engine
                .reading()
                .read_packet(storage.id, packet.entry.number)
                .await
                .unwrap();
            assert_eq!(bytes, payload(packet.entry.position.sequence));
        }
        let report = engine
            .reading()
            .verify(storage.id, Arc::default())
            .await
            .unwrap();
        assert_eq!(report.damage, []);
    }
    engine.shutdown().await.unwrap();
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
