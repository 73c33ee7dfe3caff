//! Repairs of storages that failed because of their disk, and on a disk that fails.

use std::{path::PathBuf, sync::Arc};

use rustix::io::Errno;
use storage_format::{
    DataFileId,
    log::{BatchHeader, BatchLocation, FILE_HEADER_BYTES},
    paths::{FileName, UNPUBLISHED_ENDING},
    repair_file::RepairFile,
    storage_file::{StorageFile, StorageState},
};

use super::{STREAMS, World, agent, config, copy_of};
use crate::{
    Engine, Progress, RepairReport, Selection, StorageError,
    io::faulty::{Fault, FaultPlan, Operation, refusals::refuse},
    leaf_bytes::{LeafMap, LeafReader},
};

pub(super) async fn repair(
    world: &World,
    is_confirmed: bool,
) -> Result<RepairReport, StorageError> {
    let progress = Arc::new(Progress::default());
    let storages = world.engine.storages();
    storages.repair(world.storage, is_confirmed, progress).await
}

/// A storage that failed while it was written, on a disk that works again.
pub(super) async fn failed(operation: Operation) -> World {
    let mut world = World::with_tree_of(1000).await;
    world.push_some(4).await;
    world.plan.inject(operation, 0..1, Fault::Fail(Errno::IO));
    while world.state() == StorageState::Open {
        world.push_some(1).await;
    }
    world.plan.heal();
    assert_eq!(world.state(), StorageState::Failed);
    world
}

async fn check_writable(world: &mut World) {
    assert_eq!(world.state(), StorageState::Open);
    world.check(&world.engine).await;
    assert_eq!(world.push_together(3).await.len(), 0);
    world.check(&world.engine).await;
    assert_eq!(world.check_killed().await, StorageState::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_whose_bytes_are_whole_is_opened_again() {
    for operation in [Operation::Write, Operation::Sync] {
        let mut world = failed(operation).await;
        let plan = repair(&world, false).await.unwrap();
        assert_eq!((plan.missing_packets, plan.copied_packets), (0, 0));
        assert_eq!(world.state(), StorageState::Failed);
        let repaired = repair(&world, true).await.unwrap();
        assert!(repaired.is_repaired && repaired.missing.is_empty());
        check_writable(&mut world).await;
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
        world.check(&world.engine).await;
        world.engine.shutdown().await.unwrap();
    }
}

fn first_file(world: &World) -> PathBuf {
    let name = FileName::Data(DataFileId(0)).to_string();
    world.folder_of(&world.engine).join(name)
}

/// Where the last batch of the first data file begins.
fn last_batch(world: &World) -> u64 {
    let bytes = std::fs::read(first_file(world)).unwrap();
    let (mut last, mut offset) = (0, FILE_HEADER_BYTES as u64);
    loop {
        let location = BatchLocation {
            storage: world.storage,
            file: DataFileId(0),
            offset,
        };
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let Ok(header) = BatchHeader::decode(rest, location) else {
            return last;
        };
        last = offset;
        offset += header.padded_length();
    }
}

/// Damages the first packet of a storage; a second call restores it.
pub(super) fn damage(world: &World) {
    let path = first_file(world);
    let mut bytes = std::fs::read(&path).unwrap();
    // After the headers of file, batch, segment, leaf and frame.
    bytes[4096 + 64 + 40 + 512 + 88] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

impl World {
    /// Damages the last packet of a storage whose packets are all in the first file.
    pub(super) fn damage_last_packet(&self) {
        let path = first_file(self);
        let mut bytes = std::fs::read(&path).unwrap();
        let header = BatchHeader::decode(
            &bytes[last_batch(self) as usize..],
            BatchLocation {
                storage: self.storage,
                file: DataFileId(0),
                offset: last_batch(self),
            },
        );
        let end = last_batch(self) + header.unwrap().length - 16;
        bytes[end as usize] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
}

/// How many repairs the repair file has.
fn recorded(world: &World) -> usize {
    let name = FileName::Repairs(world.storage).to_string();
    let bytes = std::fs::read(world.folder_of(&world.engine).join(name)).unwrap();
    RepairFile::decode(&bytes).unwrap().repairs.len()
}

/// Whether the file that a repair writes is there under its temporary name.
fn has_staged_data(world: &World) -> bool {
    let names = std::fs::read_dir(world.folder_of(&world.engine)).unwrap();
    let mut names = names.map(|name| name.unwrap().file_name());
    names.any(|name| {
        let name = name.to_string_lossy();
        name.ends_with(UNPUBLISHED_ENDING) && name.contains(".itdata")
    })
}

pub(super) async fn numbers(world: &World) -> Vec<u64> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = world.engine.reading().descriptors(world.storage, selection);
    let items = page.await.unwrap().items.into_iter();
    items.map(|packet| packet.entry.number).collect()
}

/// Each operation of a repair fails once: the storage is FAILED, and a repeat repairs it.
async fn check_repeated(operation: Operation, nth: usize, errno: Errno) -> bool {
    let context = format!("{operation:?} {nth} {errno}");
    let mut world = failed(Operation::Write).await;
    let mut before = numbers(&world).await;
    damage(&world);
    let hits = world.plan.hits();
    let fault = Fault::Fail(errno);
    world.plan.inject(operation, nth..nth + 1, fault);
    let repaired = repair(&world, true).await;
    let is_hit = world.plan.hits() > hits;
    world.plan.heal();
    if repaired.is_err() {
        assert!(is_hit, "{context}: {repaired:?}");
        assert_eq!(world.state(), StorageState::Failed, "{context}");
        assert_eq!(numbers(&world).await, before, "{context}");
        assert!(!has_staged_data(&world), "{context}: it takes room");
        repair(&world, true).await.unwrap();
    }
    assert_eq!(world.state(), StorageState::Open, "{context}");
    let status = world.engine.storages().status(world.storage).unwrap();
    assert_eq!(status.missing_packets, 1, "{context}");
    before.remove(0);
    let after = numbers(&world).await;
    assert!(after.starts_with(&before), "{context}: {after:?}");
    assert_eq!(world.push_together(3).await.len(), 0, "{context}");
    world.engine.shutdown().await.unwrap();
    is_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_fails_is_repeated() {
    for errno in [Errno::IO, Errno::NOSPC] {
        for operation in [
            Operation::Open,
            Operation::Write,
            Operation::Sync,
            Operation::SyncFolder,
            Operation::Rename,
        ] {
            let mut nth = 0;
            while check_repeated(operation, nth, errno).await {
                nth += 1;
            }
            assert!(nth > 0, "{operation:?}: no fault was met");
        }
    }
}

/// A repair was recorded, and then the data file got no name. Later the damage is gone: what was
/// recorded must not take effect with another data file.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_was_only_recorded_takes_no_effect() {
    let mut world = failed(Operation::Write).await;
    let name = FileName::Storage(world.storage).to_string();
    let path = world.folder_of(&world.engine).join(&name);
    let on_disk = || StorageFile::decode(&std::fs::read(&path).unwrap()).unwrap();
    while on_disk().state != StorageState::Failed {
        tokio::task::yield_now().await;
    }
    damage(&world);
    // The repair file is renamed, the data file is not.
    let fault = Fault::Fail(Errno::IO);
    world.plan.inject(Operation::Rename, 1..2, fault);
    let repaired = repair(&world, true).await;
    assert!(repaired.is_err(), "{repaired:?}");
    world.plan.heal();
    assert_eq!(recorded(&world), 1);
    damage(&world);

    // The server starts, and the storage file does not say that the storage has failed.
    let copy = copy_of(world.folder.path());
    let path = copy.path().join("storages").join(world.storage.to_string());
    let path = path.join(name);
    let mut file = StorageFile::decode(&std::fs::read(&path).unwrap()).unwrap();
    (file.state, file.failure) = (StorageState::Open, None);
    std::fs::write(path, file.encode().unwrap()).unwrap();
    // While the disk is full, it waits.
    let plan = Arc::<FaultPlan>::default();
    let full = Fault::Fail(Errno::NOSPC);
    plan.inject(Operation::Open, 0..usize::MAX, full);
    let mut full = config(copy.path());
    full.faults = Some(Arc::clone(&plan));
    let engine = Engine::start(full, Arc::default()).await.unwrap();
    while plan.hits() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let refused = engine.storages().status(world.storage).unwrap_err();
    assert_eq!(refused.code(), "storage_recovering");
    plan.heal();
    engine.storages().recovered(world.storage).await.unwrap();
    let next = world.acknowledged["one"];
    let pushed = world.push_to(&engine, "one", next..next + 3).await;
    assert!(pushed.unwrap().await.refused.is_none());
    engine.shutdown().await.unwrap();
    let engine = Engine::open(config(copy.path())).await.unwrap();
    assert_eq!(world.check_recovered(&engine).await, StorageState::Open);
    engine.shutdown().await.unwrap();

    // The repair is repeated, and finds no damage.
    repair(&world, true).await.unwrap();
    assert_eq!(recorded(&world), 0);
    check_writable(&mut world).await;
    world.engine.shutdown().await.unwrap();
}

/// Readers of a failed storage keep its index parts while it is repaired.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_leaves_readers_what_they_read() {
    let mut world = World::with_tree_of(8).await;
    while world.engine.counters().index_parts.get() == 0 {
        world.push_some(4).await;
    }
    world
        .plan
        .inject(Operation::Write, 0..usize::MAX, Fault::Fail(Errno::IO));
    while world.state() == StorageState::Open {
        world.push_some(1).await;
    }
    world.plan.heal();
    damage(&world);
    let readers: Vec<_> = {
        let storage = world.engine.inner.storages.registry.find(world.storage);
        let storage = storage.unwrap();
        let tree = storage.tree.read();
        let tree = tree.as_ref().unwrap();
        assert!(!tree.parts().is_empty());
        let leaves = tree.leaves().map(|leaf| (leaf.id, leaf.tail.length));
        let reader = |(leaf, length): (_, u64)| {
            let leaf = tree.leaf(leaf).unwrap();
            let range = 0..length;
            let map = LeafMap::new(&storage.folder, &storage.cache, tree.pin(), leaf, &range);
            (LeafReader::new(map), usize::try_from(length).unwrap())
        };
        leaves.map(reader).collect()
    };
    assert!(repair(&world, true).await.unwrap().is_repaired);
    for (reader, length) in &readers {
        let read = reader.read(0, *length);
        assert!(read.is_ok(), "{read:?}");
    }
    drop(readers);
    world.engine.shutdown().await.unwrap();
}

/// Labels are set all the time while a storage is repaired: none that was answered is undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_is_set_during_a_repair_stays() {
    for _ in 0..4 {
        let world = failed(Operation::Write).await;
        let setting = async {
            let (mut round, mut last) = (0_u64, None);
            while world.state() == StorageState::Failed {
                round += 1;
                let value = [round.to_string()];
                let labels = world.engine.labels();
                match labels.set(world.storage, "round", &value, false).await {
                    Ok(_) => last = Some(round.to_string()),
                    Err(error) => assert_eq!(error.code(), "storage_recovering"),
                }
            }
            last
        };
        let (repaired, last) = tokio::join!(repair(&world, true), setting);
        repaired.unwrap();
        assert!(last.is_some());
        let info = world.engine.storages().get(world.storage).unwrap();
        assert_eq!(info.labels.get("round"), last.as_ref());
        let (world, state) = world.restart_without_faults().await;
        assert_eq!(state, StorageState::Open);
        let info = world.engine.storages().get(world.storage).unwrap();
        assert_eq!(info.labels.get("round"), last.as_ref());
        world.engine.shutdown().await.unwrap();
    }
}

/// A storage is deleted at some moment of its repair: nothing of it remains, and nothing writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_deleted_during_a_repair_is_gone() {
    for turns in 0..24 {
        let world = failed(Operation::Write).await;
        let before = world.engine.inner.storages.registry.find(world.storage);
        let deleting = async {
            for _ in 0..turns * 16 {
                tokio::task::yield_now().await;
            }
            world.engine.storages().delete(world.storage).await
        };
        let (repaired, deleted) = tokio::join!(repair(&world, true), deleting);
        assert!(deleted.is_ok(), "{turns}: {deleted:?}, repair {repaired:?}");
        let found = world.engine.storages().get(world.storage);
        assert_eq!(found.unwrap_err().code(), "storage_not_found", "{turns}");
        assert!(!world.folder_of(&world.engine).exists(), "{turns}");
        let services = &world.engine.inner.services;
        let before = before.unwrap();
        let changed = before.change(&services.io_thread, &services.catalog, |_| Ok(()));
        assert!(
            changed.await.is_err(),
            "{turns}: what it was before is not changed"
        );
        world.engine.shutdown().await.unwrap();
    }
}

/// The disk refuses to read the batches that were acknowledged last: nothing behind them proves
/// that they were durable, and they are missing all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_packets_are_missing_if_the_disk_refuses_them() {
    let world = failed(Operation::Write).await;
    let before = numbers(&world).await;
    let last = *before.last().unwrap();
    let from = last_batch(&world);
    let refusal = refuse(&first_file(&world), from..from + 4096, Errno::IO);
    let plan = repair(&world, false).await.unwrap();
    let is_told = |range: &crate::MissingPackets| (range.first..=range.last).contains(&last);
    assert!(plan.missing.iter().any(is_told), "{plan:?}");
    repair(&world, true).await.unwrap();
    assert_eq!(world.state(), StorageState::Open);
    let whole = numbers(&world).await;
    assert!(before.starts_with(&whole) && !whole.contains(&last));
    let reading = world.engine.reading();
    let found = reading.packet(world.storage, last).await;
    assert_eq!(found.unwrap_err().code(), "packet_missing");
    // No packet gets one of these numbers again.
    for stream in STREAMS {
        let ingest = world.engine.ingest();
        let (agent, id) = (agent(), stream.parse().unwrap());
        let next = ingest.next_position(world.storage, &agent, &id).await;
        let next = next.unwrap().sequence;
        let pushed = world.push_to(&world.engine, stream, next..next + 1).await;
        assert!(pushed.unwrap().await.refused.is_none());
    }
    let after = numbers(&world).await;
    assert!(after[whole.len()] > last, "{after:?}");
    drop(refusal);
    world.engine.shutdown().await.unwrap();
}

/// The disk refuses to read the header of a data file: its packets are copied. Without resources
/// to read it, nothing is decided.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_cannot_be_read_is_a_damaged_one() {
    let mut world = failed(Operation::Write).await;
    let before = numbers(&world).await;
    let file = first_file(&world);
    let refusal = refuse(&file, 0..4096, Errno::NOMEM);
    let error = repair(&world, true).await.unwrap_err();
    assert_eq!(error.code(), "resources_exhausted", "{error}");
    drop(refusal);
    let refusal = refuse(&file, 0..4096, Errno::IO);
    let repaired = repair(&world, true).await.unwrap();
    let packets = before.len() as u64;
    assert_eq!(
        (repaired.missing_packets, repaired.copied_packets),
        (0, packets)
    );
    assert_eq!(numbers(&world).await, before);
    // What the repair cut off is not needed any more.
    check_writable(&mut world).await;
    drop(refusal);
    world.engine.shutdown().await.unwrap();
}
