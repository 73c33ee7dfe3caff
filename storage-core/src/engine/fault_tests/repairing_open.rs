//! Repairs of open storages: bytes that were acknowledged are damaged on the disk, and the storage
//! goes on without them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
};

use rustix::io::Errno;
use storage_format::{
    DataFileId, StorageId,
    frame::{HEADER_BYTES, frame_bytes},
    log::{BATCH_HEADER_BYTES, BatchHeader, BatchLocation},
    paths::FileName,
    storage_file::StorageState,
};

use super::{
    STREAMS, World, agent, arranged_files, config, copy_of, payload,
    repairing::{numbers, repair},
};
use crate::{
    Engine, PacketInfo, RepairReport, Selection,
    io::faulty::{
        Fault, Operation,
        refusals::{Refusal, refuse},
    },
};

const BLOCK: u64 = 4096;

/// What happens to the bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Payload,
    FrameHeader,
    /// Bytes between the packet and the next one.
    FramePadding,
    BatchHeader,
    /// Bytes between its batch and the next one.
    BatchPadding,
    ZeroedBlock,
    UnreadableBlock,
}

const DAMAGES: [Damage; 7] = [
    Damage::Payload,
    Damage::FrameHeader,
    Damage::FramePadding,
    Damage::BatchHeader,
    Damage::BatchPadding,
    Damage::ZeroedBlock,
    Damage::UnreadableBlock,
];

impl Damage {
    /// Whether the bytes are of the batch, of which an arranged file has none.
    fn is_of_batch(self) -> bool {
        matches!(self, Self::BatchHeader | Self::BatchPadding)
    }

    /// Whether packets are lost.
    fn loses_packets(self) -> bool {
        !self.is_of_batch() && self != Self::FramePadding
    }
}

/// Which file of the log has the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Oldest,
    Newest,
}

/// What the storage has been through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Restart,
    /// Its full files were arranged.
    Arranging,
}

/// Where the frame of a packet is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    number: u64,
    file: DataFileId,
    bytes: Range<u64>,
    /// The last bytes, which are not of the packet.
    padding: u64,
}

async fn packets(engine: &Engine, storage: StorageId) -> Vec<PacketInfo> {
    let selection = Selection {
        limit: usize::MAX,
        ..Selection::default()
    };
    let page = engine.reading().descriptors(storage, selection).await;
    page.unwrap().items
}

/// A storage has these packets, bit for bit, and says that the others are missing.
async fn check_whole(
    engine: &Engine,
    storage: StorageId,
    whole: &[(String, u64, u64)],
    missing: &BTreeSet<u64>,
    context: &str,
) {
    let mut found = Vec::new();
    for packet in packets(engine, storage).await {
        let (number, sequence) = (packet.entry.number, packet.entry.position.sequence);
        let bytes = engine.reading().read_packet(storage, number).await;
        let stream = packet.stream.to_string();
        assert_eq!(bytes.unwrap(), payload(&stream, sequence), "{context}");
        found.push((stream, sequence, number));
    }
    assert_eq!(found, whole, "{context}");
    for &number in missing {
        let error = engine.reading().packet(storage, number).await;
        assert_eq!(error.unwrap_err().code(), "packet_missing", "{context}");
    }
    let status = engine.storages().status(storage).unwrap();
    assert_eq!(status.missing_packets, missing.len() as u64, "{context}");
    let verified = engine.reading().verify(storage, Arc::default()).await;
    let verified = verified.unwrap();
    assert_eq!(verified.damage, [], "{context}");
    assert_eq!(verified.packets, whole.len() as u64, "{context}");
    assert_eq!(verified.missing_packets, missing.len() as u64, "{context}");
}

/// Number of each packet, with its stream and sequence, without `missing`.
async fn listed(world: &World, missing: &BTreeSet<u64>) -> Vec<(String, u64, u64)> {
    let all = packets(&world.engine, world.storage).await.into_iter();
    let all = all.filter(|packet| !missing.contains(&packet.entry.number));
    all.map(|packet| {
        let sequence = packet.entry.position.sequence;
        (packet.stream.to_string(), sequence, packet.entry.number)
    })
    .collect()
}

fn numbers_of(report: &RepairReport) -> BTreeSet<u64> {
    let ranges = report.missing.iter();
    ranges.flat_map(|range| range.first..=range.last).collect()
}

impl World {
    fn path_of(&self, file: DataFileId) -> PathBuf {
        let folder = self.folder_of(&self.engine);
        folder.join(FileName::Data(file).to_string())
    }

    /// The frames of all packets, in the order of their numbers.
    async fn frames(&self) -> Vec<Frame> {
        let storage = self.engine.inner.storages.registry.find(self.storage);
        let storage = storage.unwrap();
        let frame = |packet: PacketInfo| {
            let entry = packet.entry;
            let start = entry.offset - HEADER_BYTES as u64;
            let range = start..start + frame_bytes(entry.stored_size);
            let map = storage.leaf_map(packet.leaf, &range).unwrap();
            let extents = map.extents(&range).unwrap();
            let [extent] = extents[..] else {
                panic!("a frame is in one place: {extents:?}");
            };
            Frame {
                number: entry.number,
                file: extent.file,
                bytes: extent.offset..extent.offset + extent.length,
                padding: extent.length - HEADER_BYTES as u64 - u64::from(entry.stored_size),
            }
        };
        let all = packets(&self.engine, self.storage).await.into_iter();
        all.map(frame).collect()
    }

    /// A storage whose log has several files.
    async fn of_log(before: Before) -> Self {
        if before == Before::Arranging {
            let mut world = Self::with(arranged_files).await;
            while world.engine.counters().files_arranged.get() < 3 {
                world.push_some(2).await;
            }
            // No file is replaced while a test looks at it.
            world.arranges = false;
            world.reopened().await;
            return world;
        }
        let mut world = Self::of_small_files().await;
        world.push_some(14).await;
        if before == Before::Restart {
            world.reopened().await;
        }
        world
    }

    /// Restarts the engine on the same files.
    async fn reopened(&mut self) {
        self.engine.shutdown().await.unwrap();
        let mut config = config(self.folder.path());
        self.small_files(&mut config);
        config.faults = Some(Arc::clone(&self.plan));
        self.engine = Engine::open(config).await.unwrap();
        let recovered = self.engine.storages().recovered(self.storage);
        recovered.await.unwrap();
    }

    /// The packet to damage.
    async fn victim(&self, place: Place) -> Frame {
        self.victim_of(place, |frame| frame.padding > 0).await
    }

    /// A packet in this place.
    async fn victim_of(&self, place: Place, is_wanted: impl Fn(&Frame) -> bool) -> Frame {
        let mut frames = self.frames().await;
        let of_log = |frame: &Frame| frame.file.replaced().unwrap_or(frame.file);
        let wanted = match place {
            Place::Oldest => frames.iter().map(of_log).min(),
            Place::Newest => frames.iter().map(of_log).max(),
        };
        frames.retain(|frame| Some(of_log(frame)) == wanted && is_wanted(frame));
        frames.swap_remove(frames.len() / 2)
    }
}

/// Damages a packet; the numbers of those that are not whole any more, and what keeps it so.
async fn damage(world: &World, victim: &Frame, damage: Damage) -> (BTreeSet<u64>, Option<Refusal>) {
    let path = world.path_of(victim.file);
    let before = std::fs::read(&path).unwrap();
    let mut bytes = before.clone();
    let start = victim.bytes.start;
    let block = start - start % BLOCK..start - start % BLOCK + BLOCK;
    let mut refused = None;
    let at = |place: u64| usize::try_from(place).unwrap();
    match damage {
        Damage::Payload => bytes[at(start) + HEADER_BYTES] ^= 1,
        Damage::FrameHeader => bytes[at(start) + 8] ^= 1,
        Damage::FramePadding => bytes[at(victim.bytes.end) - 1] ^= 1,
        Damage::BatchHeader | Damage::BatchPadding => {
            let batch = |offset: u64| {
                let location = BatchLocation {
                    storage: world.storage,
                    file: victim.file,
                    offset,
                };
                let header = BatchHeader::decode(&bytes[at(offset)..], location).ok()?;
                Some((offset, header))
            };
            let mut blocks = (0..=block.start).rev().filter(|offset| offset % BLOCK == 0);
            let (offset, header) = blocks.find_map(batch).unwrap();
            assert!(
                header.padded_length() > header.length,
                "its last block is not full"
            );
            let place = match damage {
                Damage::BatchHeader => at(offset) + BATCH_HEADER_BYTES / 2,
                _ => at(offset + header.padded_length()) - 1,
            };
            bytes[place] ^= 1;
        }
        Damage::ZeroedBlock => {
            let end = at(block.end).min(bytes.len());
            bytes[at(block.start)..end].fill(0);
        }
        Damage::UnreadableBlock => refused = Some(refuse(&path, block.clone(), Errno::IO)),
    }
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let is_hit = |frame: &&Frame| {
        let Range { start, end } = frame.bytes;
        let is_refused = refused.is_some() && start < block.end && block.start < end;
        let range = at(start)..at(end - frame.padding);
        frame.file == victim.file && (is_refused || before[range.clone()] != bytes[range])
    };
    let frames = world.frames().await;
    let hit = frames.iter().filter(is_hit).map(|frame| frame.number);
    (hit.collect(), refused)
}

/// Damage of an open storage, a plan, more packets, a finalization that is refused, the repair,
/// more packets, a kill, a restart, and the finalization.
async fn check(kind: Damage, place: Place, before: Before) {
    let context = &format!("{kind:?} {place:?} {before:?}");
    let mut world = World::of_log(before).await;
    let victim = world.victim(place).await;
    let is_arranged = victim.file.replaced().is_some();
    if is_arranged && kind.is_of_batch() {
        world.engine.shutdown().await.unwrap();
        return;
    }
    let (missing, _refused) = damage(&world, &victim, kind).await;
    assert_eq!(missing.is_empty(), !kind.loses_packets(), "{context}");
    let whole = listed(&world, &missing).await;
    let plan = repair(&world, false).await.unwrap();
    assert_eq!(numbers_of(&plan), missing, "{context}: {plan:?}");
    assert_eq!(plan.missing_packets, missing.len() as u64, "{context}");
    assert_eq!(plan.packets, whole.len() as u64, "{context}: {plan:?}");
    assert!(plan.files > 1, "{context}: {plan:?}");
    assert!(plan.is_needed && !plan.is_repaired, "{context}: {plan:?}");
    world.push_some(1).await;
    assert_eq!(world.state(), StorageState::Open, "{context}");

    // Arranging leaves out what is between packets and batches.
    if !kind.is_of_batch() {
        let finalized = world.engine.storages().finalize(world.storage).await;
        let error = finalized.expect_err(context);
        assert_eq!(error.code(), "storage_damaged", "{context}: {error}");
        assert_eq!(world.state(), StorageState::Open, "{context}");
        world.push_some(1).await;
        assert_eq!(world.state(), StorageState::Open, "{context}");
        let plan = repair(&world, false).await.unwrap();
        assert_eq!(numbers_of(&plan), missing, "{context}: {plan:?}");
    }

    let whole = listed(&world, &missing).await;
    let repaired = repair(&world, true).await.unwrap();
    assert!(repaired.is_repaired, "{context}: {repaired:?}");
    assert_eq!(numbers_of(&repaired), missing, "{context}: {repaired:?}");
    assert_eq!(repaired.packets, whole.len() as u64, "{context}");
    assert_eq!(world.state(), StorageState::Open, "{context}");
    let (engine, id) = (&world.engine, world.storage);
    check_whole(engine, id, &whole, &missing, context).await;
    let again = repair(&world, true).await.unwrap();
    assert!(
        !again.is_needed && !again.is_repaired,
        "{context}: {again:?}"
    );
    assert_eq!(again.missing_packets, missing.len() as u64, "{context}");

    check_goes_on(&mut world, &missing, context).await;
}

/// A repaired storage takes packets, and a kill, restarts and a finalization lose none.
async fn check_goes_on(world: &mut World, missing: &BTreeSet<u64>, context: &str) {
    for stream in STREAMS {
        let ingest = world.engine.ingest();
        let (agent, id) = (agent(), stream.parse().unwrap());
        let next = ingest.next_position(world.storage, &agent, &id).await;
        world.acknowledged.insert(stream, next.unwrap().sequence);
    }
    assert_eq!(world.push_together(3).await.len(), 0, "{context}");
    let whole = listed(world, &BTreeSet::new()).await;
    let killed = {
        let _disk = world.plan.freeze().await;
        copy_of(world.folder.path())
    };
    let mut config = config(killed.path());
    world.small_files(&mut config);
    let engine = Engine::open(config).await.unwrap();
    engine.storages().recovered(world.storage).await.unwrap();
    let state = engine.storages().get(world.storage).unwrap().state;
    assert_eq!(state, StorageState::Open, "{context}");
    check_whole(&engine, world.storage, &whole, missing, context).await;
    engine.shutdown().await.unwrap();

    world.reopened().await;
    let id = world.storage;
    check_whole(&world.engine, id, &whole, missing, context).await;
    let finalized = world.engine.storages().finalize(id).await;
    assert_eq!(finalized.unwrap().state, StorageState::Finalized);
    check_whole(&world.engine, id, &whole, missing, context).await;
    world.reopened().await;
    check_whole(&world.engine, id, &whole, missing, context).await;
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_storage_goes_on_without_what_is_damaged() {
    for before in [Before::Nothing, Before::Restart] {
        for place in [Place::Oldest, Place::Newest] {
            for kind in DAMAGES {
                check(kind, place, before).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arranged_file_of_an_open_storage_is_repaired() {
    for place in [Place::Oldest, Place::Newest] {
        for kind in DAMAGES {
            check(kind, place, Before::Arranging).await;
        }
    }
}

/// An open storage with a damaged packet, and its number.
async fn damaged_world(before: Before) -> (World, u64) {
    let world = World::of_log(before).await;
    let victim = world.victim(Place::Oldest).await;
    let (missing, _) = damage(&world, &victim, Damage::Payload).await;
    assert_eq!(missing, BTreeSet::from([victim.number]));
    (world, victim.number)
}

/// Each operation of a repair fails, once or for a while: no other packet is lost, and a repeat
/// repairs the storage.
async fn check_fault(operation: Operation, nth: Range<usize>, errno: Errno) -> bool {
    let context = &format!("{operation:?} {nth:?} {errno}");
    let (world, lost) = damaged_world(Before::Nothing).await;
    let before = numbers(&world).await;
    let missing = BTreeSet::from([lost]);
    let whole = listed(&world, &missing).await;
    let hits = world.plan.hits();
    world.plan.inject(operation, nth, Fault::Fail(errno));
    let repaired = repair(&world, true).await;
    let is_hit = world.plan.hits() > hits;
    let state = world.state();
    let killed = {
        let _disk = world.plan.freeze().await;
        copy_of(world.folder.path())
    };
    world.plan.heal();
    assert!(is_hit || repaired.is_ok(), "{context}: {repaired:?}");
    if repaired.is_err() {
        let is_there = [StorageState::Open, StorageState::Failed].contains(&state);
        assert!(is_there, "{context}: {state}");
        let now = numbers(&world).await;
        let is_cut = now == whole.iter().map(|packet| packet.2).collect::<Vec<_>>();
        assert!(now == before || is_cut, "{context}: {now:?}");
    }
    // A server that was killed then.
    let engine = Engine::open(config(killed.path())).await.unwrap();
    engine.storages().recovered(world.storage).await.unwrap();
    let killed_world = World {
        engine,
        plan: Arc::clone(&world.plan),
        storage: world.storage,
        folder: killed,
        acknowledged: BTreeMap::new(),
        arranges: false,
    };
    for world in [&killed_world, &world] {
        let is_repaired = repair(world, false).await.unwrap();
        if is_repaired.is_needed {
            repair(world, true).await.unwrap();
        }
        assert_eq!(world.state(), StorageState::Open, "{context}");
        let (engine, id) = (&world.engine, world.storage);
        check_whole(engine, id, &whole, &missing, context).await;
        for stream in STREAMS {
            let ingest = world.engine.ingest();
            let (agent, id) = (agent(), stream.parse().unwrap());
            let next = ingest.next_position(world.storage, &agent, &id).await;
            let next = next.unwrap().sequence;
            let pushed = world.push_to(&world.engine, stream, next..next + 2).await;
            assert!(pushed.unwrap().await.refused.is_none(), "{context}");
        }
        world.engine.shutdown().await.unwrap();
    }
    is_hit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_an_open_storage_that_fails_loses_nothing_and_is_repeated() {
    for errno in [Errno::IO, Errno::NOSPC] {
        for operation in [
            Operation::Open,
            Operation::Write,
            Operation::Sync,
            Operation::SyncFolder,
            Operation::Rename,
            Operation::Remove,
        ] {
            let mut nth = 0;
            while check_fault(operation, nth..nth + 1, errno).await {
                check_fault(operation, nth..usize::MAX, errno).await;
                nth += 1;
            }
            assert!(nth > 0, "{operation:?}: no fault was met");
        }
    }
}

/// A repair that finds no room changes nothing, neither what is on the disk nor the state, and
/// goes on when there is room. The index of the newest packets is in memory only.
async fn check_full(place: Place, before: Before, nth: usize) -> bool {
    let context = &format!("{place:?} {before:?} from write {nth} on");
    let mut world = World::of_log(before).await;
    world.push_some(1).await;
    let victim = world.victim_of(place, |_| true).await;
    let (missing, _) = damage(&world, &victim, Damage::Payload).await;
    let whole = listed(&world, &missing).await;
    let known = numbers(&world).await;
    let storage_file = {
        let name = FileName::Storage(world.storage).to_string();
        world.folder_of(&world.engine).join(name)
    };
    let version = || {
        use std::os::unix::fs::MetadataExt;
        let about = std::fs::metadata(&storage_file).unwrap();
        (about.ino(), about.mtime(), about.mtime_nsec())
    };
    let unchanged = version();
    world
        .plan
        .inject(Operation::Write, nth..usize::MAX, Fault::Fail(Errno::NOSPC));
    let refused = repair(&world, true).await;
    world.plan.heal();
    let is_refused = refused.is_err();
    if let Err(error) = refused {
        assert_eq!(error.code(), "disk_full", "{context}: {error}");
        assert_eq!(world.state(), StorageState::Open, "{context}");
        assert_eq!(numbers(&world).await, known, "{context}");
        assert_eq!(
            version(),
            unchanged,
            "{context}: the storage file was written"
        );
        assert_eq!(world.push_together(1).await.len(), 0, "{context}");
        let whole = listed(&world, &missing).await;
        repair(&world, true).await.unwrap();
        check_whole(&world.engine, world.storage, &whole, &missing, context).await;
    } else {
        check_whole(&world.engine, world.storage, &whole, &missing, context).await;
    }
    assert_eq!(world.state(), StorageState::Open, "{context}");
    world.engine.shutdown().await.unwrap();
    is_refused
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_without_room_changes_nothing() {
    for before in [Before::Nothing, Before::Restart] {
        for place in [Place::Oldest, Place::Newest] {
            let mut nth = 0;
            while check_full(place, before, nth).await {
                nth += 1;
            }
            assert!(nth > 1, "{place:?} {before:?}: {nth} writes");
        }
    }
}

/// The disk stops after some operations of a repair, and then the power fails.
async fn check_power_cut(before: Before, at: usize) -> bool {
    let context = &format!("{before:?}, cut at {at}");
    let (world, lost) = damaged_world(before).await;
    let missing = BTreeSet::from([lost]);
    let whole = listed(&world, &missing).await;
    world.plan.forget_unsynced();
    world.plan.halt_after(at);
    // A task of its own: dropping an index part waits for the disk, which stands still.
    let (engine, id) = (world.engine.clone(), world.storage);
    let repairing = async move { engine.storages().repair(id, true, Arc::default()).await };
    let has_ended = tokio::select! {
        repaired = tokio::spawn(repairing) => repaired.unwrap().unwrap().is_repaired,
        () = world.plan.halted() => false,
    };
    let copy = world.torn_copy(at as u64).await;
    world.plan.resume();
    let engine = Engine::open(config(copy.path())).await.unwrap();
    engine.storages().recovered(world.storage).await.unwrap();
    let (storages, id) = (engine.storages(), world.storage);
    let state = storages.get(id).unwrap().state;
    assert_eq!(state, StorageState::Open, "{context}");
    let plan = storages.repair(id, false, Arc::default()).await.unwrap();
    assert!(!(has_ended && plan.is_needed), "{context}: {plan:?}");
    assert_eq!(numbers_of(&plan), missing, "{context}: {plan:?}");
    storages.repair(id, true, Arc::default()).await.unwrap();
    check_whole(&engine, id, &whole, &missing, context).await;
    engine.shutdown().await.unwrap();
    let _ = world.engine.shutdown().await;
    has_ended
}

/// Cuts after each operation of a repair.
async fn check_power_cuts(before: Before) {
    let mut at = 0;
    while !check_power_cut(before, at).await {
        at += 1;
    }
    assert!(at > 2, "a repair has {at} operations");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_during_the_repair_of_an_open_storage_loses_nothing() {
    check_power_cuts(Before::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_during_the_repair_of_a_storage_with_arranged_files_loses_nothing() {
    check_power_cuts(Before::Arranging).await;
}

/// Packets that come while a storage is repaired are refused for now, and taken later.
#[tokio::test(flavor = "multi_thread")]
async fn packets_that_come_during_a_repair_are_taken_after_it() {
    let (mut world, lost) = damaged_world(Before::Nothing).await;
    let engine = world.engine.clone();
    for round in 0..3 {
        let (storages, id) = (engine.storages(), world.storage);
        let repairing = storages.repair(id, true, Arc::default());
        let mut repairing = std::pin::pin!(repairing);
        let mut refused = BTreeSet::new();
        let report = loop {
            tokio::select! {
                report = &mut repairing => break report.unwrap(),
                () = tokio::task::yield_now() => {}
            }
            for stream in STREAMS {
                let outcome = world.push(stream, 1).await;
                refused.extend(outcome.refused.map(|error| error.code()));
            }
        };
        assert_eq!(report.is_repaired, round == 0);
        let for_now = BTreeSet::from(["storage_recovering"]);
        assert!(refused.is_subset(&for_now), "{refused:?}");
        assert_eq!(world.push_together(2).await.len(), 0);
    }
    let missing = BTreeSet::from([lost]);
    let pushed: u64 = world.acknowledged.values().sum();
    let whole = listed(&world, &missing).await;
    assert_eq!(
        whole.len() as u64,
        pushed - 1,
        "each packet that has a receipt"
    );
    check_whole(&engine, world.storage, &whole, &missing, "after repairs").await;
    world.engine.shutdown().await.unwrap();
}

/// A repair that is cancelled, and one of a storage that is recorded into, change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_is_refused_changes_nothing() {
    let (mut world, lost) = damaged_world(Before::Nothing).await;
    let before = numbers(&world).await;
    let (storages, id) = (world.engine.storages(), world.storage);
    let cancelled = Arc::new(crate::Progress::default());
    cancelled.cancel();
    let error = storages.repair(id, true, cancelled).await.unwrap_err();
    assert_eq!(error.code(), "job_cancelled");
    storages.begin_recording(id).await.unwrap();
    let error = repair(&world, true).await.unwrap_err();
    assert_eq!(error.code(), "storage_state_conflict");
    storages.end_recording(id).await.unwrap();
    assert_eq!(numbers(&world).await, before);
    assert_eq!(world.push_together(1).await.len(), 0);
    repair(&world, true).await.unwrap();
    assert!(!numbers(&world).await.contains(&lost));
    world.engine.shutdown().await.unwrap();
}
