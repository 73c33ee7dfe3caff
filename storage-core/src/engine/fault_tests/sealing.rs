//! Seals that finalization writes.

use std::sync::Arc;

use rustix::io::Errno;
use storage_format::{
    paths::{FileName, FileRole},
    seal::{Seal, SealedFile, SigningKey},
    storage_file::StorageState,
};

use super::World;
use crate::{
    EngineConfig, SealConfig, SealState, StorageError, StoragePatch, io::faulty::refusals::refuse,
};

fn sealing(config: &mut EngineConfig) {
    let key = SigningKey::from_pem(&SigningKey::pem_of(&[5; 32])).unwrap();
    let key = Some(Arc::new(key));
    config.seal = Some(SealConfig { key });
    // Its checksums are not left for later.
    config.checksums_at_once_bytes_max = 0;
}

impl World {
    fn seal(&self) -> Seal {
        let name = FileName::Seal(self.storage).to_string();
        let path = self.folder_of(&self.engine).join(name);
        Seal::decode(&std::fs::read(path).unwrap()).unwrap()
    }

    async fn seal_state(&self) -> SealState {
        let state = self.engine.storages().seal_state(self.storage).await;
        state.unwrap()
    }

    /// The damage that a verification finds.
    async fn verified(&self) -> Vec<crate::Damage> {
        let reading = self.engine.reading();
        let verified = reading.verify(self.storage, Arc::default()).await;
        verified.unwrap().damage
    }

    /// The seal lists what the storage file lists, and the packets that were acknowledged.
    async fn check_seal(&self) -> Seal {
        let info = self.engine.storages().get(self.storage).unwrap();
        assert_eq!(info.state, StorageState::Finalized);
        let seal = self.seal();
        assert!(seal.is_signed() && seal.storage == self.storage);
        assert_eq!(seal.totals, info.totals);
        assert!(info.lists(FileRole::Checksums) && info.lists(FileRole::Seal));
        let others = info.files.iter().filter(|file| file.role != FileRole::Seal);
        let others: Vec<_> = others.map(|file| file.name.as_str()).collect();
        let sealed: Vec<_> = seal.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(sealed, others);
        assert_eq!(self.seal_state().await, SealState::Sealed);
        seal
    }
}

/// The root over packets depends on the packets only, and not on whether they were arranged.
#[tokio::test(flavor = "multi_thread")]
async fn finalization_seals_arranged_and_other_storages() {
    let mut world = World::with(|config| {
        sealing(config);
        super::small_files(config);
    })
    .await;
    world.push_some(30).await;
    assert_eq!(world.seal_state().await, SealState::None);
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let seal = world.check_seal().await;
    assert!(seal.totals.packets >= 30);
    // What may change is not sealed.
    let patch = StoragePatch {
        name: Some("another".into()),
        ..StoragePatch::default()
    };
    world
        .engine
        .storages()
        .update(world.storage, patch)
        .await
        .unwrap();
    assert_eq!(world.check_seal().await, seal);
    world.check_files(&world.engine).await;
    world.engine.shutdown().await.unwrap();

    let mut world = World::with(sealing).await;
    world.push_some(3).await;
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    world.check_seal().await;
    world.engine.shutdown().await.unwrap();
}

/// A damaged index part is restored as it was sealed. One that is rebuilt, because nothing else
/// says when it was written, is another file: the status says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_index_keeps_the_seal_and_a_rebuilt_one_breaks_it_and_is_told() {
    let last = |bytes: &[u8]| bytes.len() - 1;
    let time = |_: &[u8]| 40;
    type Place = fn(&[u8]) -> usize;
    let cases: [(Place, SealState); 2] = [(last, SealState::Sealed), (time, SealState::Broken)];
    for (place, expected) in cases {
        let mut world = World::with(sealing).await;
        world.push_some(3).await;
        let finalized = world.engine.storages().finalize(world.storage).await;
        finalized.unwrap();
        world.check_seal().await;
        world.engine.shutdown().await.unwrap();
        let folder = world.folder_of(&world.engine);
        let names = std::fs::read_dir(&folder).unwrap();
        for path in names.map(|name| name.unwrap().path()) {
            if path.extension().is_some_and(|ending| ending == "index") {
                let mut bytes = std::fs::read(&path).unwrap();
                let at = place(&bytes);
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
        }
        let config = super::config(world.folder.path());
        let engine = crate::Engine::open(config).await.unwrap();
        let world = World { engine, ..world };
        let state = world.seal_state().await;
        assert_eq!(state, SealState::Sealed, "nobody has read it");
        super::check_packets(&world.engine, world.storage, &world.acknowledged).await;
        assert_eq!(world.seal_state().await, expected);
        let damage = world.verified().await;
        let own = FileName::Seal(world.storage).to_string();
        let is_of_seal = |found: &crate::Damage| found.file == own && found.what.contains("broken");
        assert!(damage.iter().all(is_of_seal), "{damage:?}");
        // The part that was sealed is gone, and the new one is not sealed.
        let places = if expected == SealState::Broken { 2 } else { 0 };
        assert_eq!(damage.len(), places, "{damage:?}");
        world.engine.shutdown().await.unwrap();
    }
}

/// Whoever can write files can make all checksums fit, but not the seal.
#[tokio::test(flavor = "multi_thread")]
async fn a_verification_compares_files_with_the_seal() {
    let mut world = World::with(sealing).await;
    world.push_some(3).await;
    let finalized = world.engine.storages().finalize(world.storage).await;
    finalized.unwrap();
    assert_eq!(world.verified().await, []);
    let name = FileName::Seal(world.storage).to_string();
    let path = world.folder_of(&world.engine).join(&name);
    let intact = std::fs::read(&path).unwrap();
    let check = async |change: &dyn Fn(&mut Seal), expected: &[(&str, &str)]| {
        let mut seal = Seal::decode(&intact).unwrap();
        change(&mut seal);
        std::fs::write(&path, seal.encode()).unwrap();
        let damage = world.verified().await;
        for (file, what) in expected {
            let is_found = damage
                .iter()
                .any(|found| found.file == *file && found.what.contains(what));
            assert!(is_found, "{file}: {what}: {damage:?}");
        }
    };
    let is_data = |file: &SealedFile| file.name.ends_with(".itdata");
    let of = |seal: &Seal| seal.files.iter().position(is_data).unwrap();
    let sealed = Seal::decode(&intact).unwrap();
    let data = sealed.files[of(&sealed)].name.clone();
    check(
        &|seal| {
            let at = of(seal);
            seal.files[at].hashes.hash.0[7] ^= 1;
        },
        &[(&data, "not those that were sealed"), (&name, "signature")],
    )
    .await;
    check(
        &|seal| {
            let at = of(seal);
            seal.files.remove(at);
        },
        &[(&name, "is not sealed")],
    )
    .await;
    check(
        &|seal| {
            let at = of(seal);
            let name = &mut seal.files[at].name;
            let other = if name.as_bytes()[15] == b'f' {
                "e"
            } else {
                "f"
            };
            name.replace_range(15..16, other);
        },
        &[(&name, "does not have"), (&name, "is not sealed")],
    )
    .await;
    std::fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    let damage = world.verified().await;
    assert!(damage.iter().any(|found| found.file == name), "{damage:?}");
    std::fs::write(&path, &intact).unwrap();
    assert_eq!(world.verified().await, []);
    world.engine.shutdown().await.unwrap();
}

/// Damaged bytes are never sealed: the storage is open again.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_not_sealed() {
    let mut world = World::with(sealing).await;
    world.push_some(6).await;
    let folder = world.folder_of(&world.engine);
    let name = FileName::Data(storage_format::DataFileId(0)).to_string();
    let path = folder.join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let packet = &super::payload("one", 9)[100..164];
    let at = bytes.windows(64).position(|window| window == packet);
    bytes[at.unwrap() + 9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = world.engine.storages().finalize(world.storage).await;
    assert!(refused.is_err());
    let state = world.engine.storages().get(world.storage).unwrap().state;
    assert_ne!(state, StorageState::Finalized);
    assert_eq!(world.seal_state().await, SealState::None);
    world.engine.shutdown().await.unwrap();
}

/// A seal that the disk or the system refuses for a moment is not called broken for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_seal_that_cannot_be_read_for_a_moment_is_read_again() {
    let mut world = World::with(sealing).await;
    world.push_some(3).await;
    let (storages, id) = (world.engine.storages(), world.storage);
    storages.finalize(id).await.unwrap();
    let name = FileName::Seal(id).to_string();
    let path = world.folder_of(&world.engine).join(name);
    for errno in [Errno::MFILE, Errno::NOMEM, Errno::IO, Errno::ACCESS] {
        let refused = refuse(&path, 0..1, errno);
        match (errno, storages.seal_state(id).await) {
            (Errno::MFILE | Errno::NOMEM, found) => {
                assert!(matches!(found, Err(StorageError::Exhausted { .. })));
            }
            (_, found) => assert_eq!(found.unwrap(), SealState::Broken, "{errno}"),
        }
        drop(refused);
    }
    assert_eq!(world.seal_state().await, SealState::Sealed);
    world.engine.shutdown().await.unwrap();
}
