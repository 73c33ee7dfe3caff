//! Agents beside finalizations: what is known of an agent is not lost to a finalized storage.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use storage_format::{agent_file::AgentFile, paths::FileName, storage_file::StorageState};

use super::{World, agent, config};
use crate::{AgentSpec, Engine, StorageError, io::faulty::refusals::refuse};

const METADATA: &[u8] = b"/* CTF 1.8 */";

fn spec() -> AgentSpec {
    AgentSpec {
        id: agent(),
        name: "registered".into(),
        host: String::new(),
        attributes: std::collections::BTreeMap::new(),
    }
}

impl World {
    /// A storage with packets of an agent with trace metadata.
    async fn with_metadata() -> Self {
        let mut world = Self::new().await;
        let agents = world.engine.agents();
        let metadata = Bytes::from_static(METADATA);
        agents.set_metadata(&agent(), metadata).await.unwrap();
        world.push_some(2).await;
        world
    }

    fn agent_path(&self) -> PathBuf {
        let name = FileName::Agent(agent()).to_string();
        self.folder.path().join("agents").join(name)
    }

    /// What the finalized storage knows of the agent.
    fn finalized_agent(&self) -> AgentFile {
        let name = FileName::Agent(agent()).to_string();
        let bytes = std::fs::read(self.folder_of(&self.engine).join(name)).unwrap();
        AgentFile::decode(&bytes).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_waits_for_an_agent_of_which_the_file_is_damaged() {
    let mut world = World::with_metadata().await;
    world.engine.shutdown().await.unwrap();
    let intact = std::fs::read(world.agent_path()).unwrap();
    let mut damaged = intact.clone();
    damaged[intact.len() / 2] ^= 1;
    std::fs::write(world.agent_path(), damaged).unwrap();
    world.engine = Engine::open(config(world.folder.path())).await.unwrap();
    let (storages, id) = (world.engine.storages(), world.storage);
    storages.recovered(id).await.unwrap();
    let error = storages.finalize(id).await.unwrap_err();
    assert_eq!(error.code(), "agent_lost", "{error}");
    let words = error.to_string();
    assert!(words.contains("file of agent `agent` is lost"), "{words}");
    assert_eq!(world.state(), StorageState::Open);
    // Its metadata is still there, or was restored.
    std::fs::write(world.agent_path(), intact).unwrap();
    let registered = world.engine.agents().register(spec()).await.unwrap();
    assert_eq!(registered.streams.len(), super::STREAMS.len() + 1);
    assert!(registered.metadata_checksum.is_some());
    storages.finalize(id).await.unwrap();
    let known = world.finalized_agent();
    assert_eq!(known.name, "registered");
    assert_eq!(known.metadata.as_deref(), Some(METADATA));
    world.engine.shutdown().await.unwrap();
}

/// A start that lacks file descriptors waits for them; it neither ends nor forgets an agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_descriptors_waits_for_its_agents() {
    let world = World::with_metadata().await;
    world.engine.shutdown().await.unwrap();
    let refused = refuse(&world.agent_path(), 0..1, Errno::MFILE);
    let config = super::config(world.folder.path());
    let mut starting = tokio::spawn(crate::Engine::open(config));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut starting).await;
    assert!(early.is_err(), "the start waits: {early:?}");
    drop(refused);
    let engine = starting.await.unwrap().unwrap();
    let known = engine.agents().get(&agent()).unwrap();
    assert_eq!(known.streams.len(), super::STREAMS.len() + 1);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stays_known_while_its_deletion_is_refused() {
    let mut world = World::with_metadata().await;
    let agents = Arc::clone(&world.engine.inner.services.agents);
    let code = |error: StorageError| error.code();
    for refused_at in [0, 1] {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let (own, noted) = (Arc::clone(&agents), Arc::clone(&seen));
        let check = move || {
            let stream = own.stream(&agent(), &"one".parse().unwrap());
            let mut noted = noted.lock();
            noted.push((own.get(&agent()).is_ok(), stream.map(drop).map_err(code)));
            if noted.len() > refused_at {
                Err(StorageError::Stopping)
            } else {
                Ok(())
            }
        };
        let error = agents.remove(&agent(), check).await.unwrap_err();
        assert_eq!(error.code(), "stopping");
        // Nobody is told that it is gone.
        let all = [(true, Ok(())), (true, Err("agent_being_deleted"))];
        assert_eq!(*seen.lock(), all[..=refused_at]);
        assert!(world.push("one", 1).await.refused.is_none());
    }
    let error = world.engine.delete_agent(&agent()).await.unwrap_err();
    assert_eq!(error.code(), "agent_in_use");
    let (storages, id) = (world.engine.storages(), world.storage);
    storages.finalize(id).await.unwrap();
    assert_eq!(world.finalized_agent().metadata.as_deref(), Some(METADATA));
    world.engine.delete_agent(&agent()).await.unwrap();
    assert!(!world.agent_path().exists());
    world.engine.shutdown().await.unwrap();
}

/// A client hangs up while its agent is written, and the disk goes on with that. Who changes the
/// agent next waits, and so does who deletes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_waits_for_the_end_of_one_that_nobody_waits_for() {
    let world = World::new().await;
    let agents = Arc::clone(&world.engine.inner.services.agents);
    for is_deleted in [false, true] {
        // At each operation: the file is created, written, synced, renamed, and its folder synced.
        for at in 0..5 {
            let named = |name: &str| AgentSpec {
                id: format!("left-{is_deleted}-{at}").parse().unwrap(),
                name: name.into(),
                ..spec()
            };
            let id = named("").id;
            world.plan.halt_after(at);
            tokio::select! {
                registered = agents.register(named("first")) => panic!("{at}: {registered:?}"),
                () = world.plan.halted() => {}
            }
            let (own, next) = (Arc::clone(&agents), named("second"));
            let after = tokio::spawn(async move { own.register(next).await });
            tokio::task::yield_now().await;
            world.plan.resume();
            let registered = after.await.unwrap().unwrap();
            assert_eq!(registered.spec.name, "second", "{at}");
            let path = world
                .agent_path()
                .with_file_name(FileName::Agent(id.clone()).to_string());
            let file = AgentFile::decode(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!(file.name, "second", "{at}");
            if is_deleted {
                world.plan.halt_after(at);
                tokio::select! {
                    registered = agents.register(named("third")) => panic!("{at}: {registered:?}"),
                    () = world.plan.halted() => {}
                }
                let (own, gone) = (Arc::clone(&agents), id.clone());
                let deleted = tokio::spawn(async move { own.remove(&gone, || Ok(())).await });
                tokio::task::yield_now().await;
                world.plan.resume();
                deleted.await.unwrap().unwrap();
                assert!(!path.exists(), "{at}: the agent came back");
            }
        }
    }
    world.engine.shutdown().await.unwrap();
}

/// An agent that was deleted while its last packets came does not keep its storage open for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_says_that_an_agent_was_deleted_before_its_end() {
    let world = World::with_metadata().await;
    let agents = Arc::clone(&world.engine.inner.services.agents);
    agents.remove(&agent(), || Ok(())).await.unwrap();
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let known = world.finalized_agent();
    assert_eq!(known.metadata, None);
    let why = known.attributes.get("unknown").unwrap();
    assert!(why.contains("deleted before"), "{why}");
    world.engine.shutdown().await.unwrap();
}
