//! Random sequences of pushes, imports, deletions, changes of labels, faults, jumps of the clock,
//! crashes and power failures; each seed gives one.
//!
//! On the disk of every third seed, writes and syncs fail. Such a storage may be FAILED, and is
//! repaired; what was acknowledged must be there all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use rustix::io::Errno;
use storage_format::storage_file::StorageState;

use super::{
    STREAMS, World, arranged_files,
    changes::{Archive, archive},
    check_packets, config, copy_of, dropping, small_files,
};
use crate::{
    Engine, Selection, StoragePatch,
    clock::JUMPED_NS,
    io::faulty::{Fault, FaultPlan, Operation, refusals::refuse},
};

/// Seeds, unless the variable [`SEEDS`] says how many.
const SEED_COUNT: u64 = if cfg!(debug_assertions) { 50 } else { 500 };
/// Number of seeds, and the first one: `SIMULATION_SEEDS=1 SIMULATION_FIRST=17` repeats one.
const SEEDS: &str = "SIMULATION_SEEDS";
const FIRST: &str = "SIMULATION_FIRST";
const STEP_COUNT: usize = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

impl World {
    /// The storage after a restart on what a killed process leaves or, with a seed, a power
    /// failure.
    async fn crashed(self, torn: Option<u64>) -> Self {
        let folder = {
            let _disk = self.plan.freeze().await;
            let copy = copy_of(self.folder.path());
            match torn {
                Some(seed) => self.plan.tear(self.folder.path(), copy.path(), seed),
                None => self.plan.complete(self.folder.path(), copy.path()),
            }
            copy
        };
        self.plan.heal();
        self.engine.shutdown().await.unwrap();
        let plan = Arc::<FaultPlan>::default();
        plan.forget_unsynced();
        let mut config = config(folder.path());
        self.small_files(&mut config);
        config.faults = Some(Arc::clone(&plan));
        let engine = Engine::open(config).await.unwrap();
        plan.cover(folder.path());
        self.check(&engine).await;
        // As the server does.
        for storage in engine.storages().interrupted_finalizations() {
            engine.storages().finalize(storage).await.unwrap();
        }
        Self {
            engine,
            plan,
            folder,
            ..self
        }
    }
}

/// Imports the storage of the archive if it is not there, and deletes it otherwise. Returns whether
/// it is there.
async fn import_or_delete(engine: &Engine, archive: &Archive, is_there: bool) -> bool {
    let changed = if is_there {
        engine.storages().delete(archive.id).await
    } else {
        let source = std::io::Cursor::new(archive.bytes.clone());
        let imported = engine.transfer().import(source, None, Arc::default());
        imported.await.map(drop)
    };
    is_there ^ changed.is_ok()
}

/// The imported storage is there as a whole, or nothing of it.
async fn check_imported(engine: &Engine, archive: &Archive, is_there: bool, context: &str) {
    let found = engine.storages().get(archive.id).map(|info| info.state);
    let expected = is_there.then_some(StorageState::Finalized);
    assert_eq!(found.ok(), expected, "{context}");
    if is_there {
        check_packets(engine, archive.id, &archive.acknowledged).await;
    }
}

/// What a simulation knows besides what was acknowledged.
struct Model {
    random: Random,
    context: String,
    /// Whether the disk may fail, so that the storage may be FAILED.
    may_fail: bool,
    is_finalized: bool,
    is_imported: bool,
    /// Whether a deletion or an import of it failed on a disk that fails: the folder was not
    /// synced, and the next crash shows what became of it.
    is_import_unknown: bool,
    /// The next packet for which nobody waits.
    offered: u64,
    /// Changes of the label, the value that was acknowledged last, and those that were refused
    /// since: a client that gets an error does not know whether its change happened.
    changes: u64,
    label: Option<String>,
    refused: BTreeSet<String>,
    repairs: u64,
}

impl Model {
    /// A fault of the disk: of some operations, beginning soon.
    fn fault(&mut self, world: &World) {
        let random = &mut self.random;
        let lacks = [
            Operation::Open,
            Operation::Write,
            Operation::SetLength,
            Operation::Rename,
            Operation::Remove,
        ];
        let fails = [Operation::Write, Operation::Sync, Operation::SyncFolder];
        let (operation, errno) = if self.may_fail && random.below(2) == 0 {
            (random.of(&fails), Errno::IO)
        } else {
            (random.of(&lacks), random.of(&[Errno::NOSPC, Errno::MFILE]))
        };
        let first = random.below(3) as usize;
        let last = first + 1 + random.below(4) as usize;
        let fault = Fault::Fail(errno);
        world.plan.inject(operation, first..last, fault);
    }

    fn offer(&mut self, world: &World) {
        let first = self.offered;
        self.offered += 1 + self.random.below(3);
        let offered = world.offer_of(dropping().as_str(), first..self.offered);
        if let Ok(accepted) = offered {
            assert!(accepted.refused.is_none(), "{}: {accepted:?}", self.context);
        }
    }

    async fn change_label(&mut self, world: &World) {
        self.changes += 1;
        let value = self.changes.to_string();
        let patch = StoragePatch {
            labels: Some(BTreeMap::from([("key".to_owned(), value.clone())])),
            ..StoragePatch::default()
        };
        if world
            .engine
            .storages()
            .update(world.storage, patch)
            .await
            .is_ok()
        {
            self.label = Some(value);
            self.refused.clear();
        } else {
            self.refused.insert(value);
        }
        self.check_label(world, false);
    }

    /// The label is that of the last change, or after a start of one that was refused since.
    fn check_label(&mut self, world: &World, is_started: bool) {
        let info = world.engine.storages().get(world.storage).unwrap();
        let found = info.labels.get("key").cloned();
        let was_refused = found.as_ref().is_some_and(|it| self.refused.contains(it));
        let is_right = found == self.label || (is_started && was_refused);
        assert!(
            is_right,
            "{}: {found:?}, not {:?}",
            self.context, self.label
        );
        if is_started {
            self.label = found;
            self.refused.clear();
        }
    }

    /// Some bytes cannot be read for a while: what is read is right all the same, or an error.
    async fn read_badly(&mut self, world: &World) {
        let folder = world.folder_of(&world.engine);
        let names = std::fs::read_dir(folder).unwrap().flatten();
        let mut paths: Vec<_> = names.map(|name| name.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "itdata"));
        paths.sort();
        if paths.is_empty() {
            return;
        }
        let path = self.random.of(&(0..paths.len()).collect::<Vec<_>>());
        let first = self.random.below(8) * 4096;
        let errno = self.random.of(&[Errno::IO, Errno::MFILE, Errno::NOMEM]);
        // It may have been replaced since.
        let Some(path) = Some(&paths[path]).filter(|path| path.exists()) else {
            return;
        };
        let refused = refuse(path, first..first + 4096, errno);
        let reading = world.engine.reading();
        let selection = Selection {
            limit: 10_000,
            ..Selection::default()
        };
        if let Ok(page) = reading.descriptors(world.storage, selection).await {
            for packet in page.items {
                let (number, at) = (packet.entry.number, packet.entry.position.sequence);
                if let Ok(bytes) = reading.read_packet(world.storage, number).await {
                    let right = super::payload(packet.stream.as_str(), at);
                    assert_eq!(bytes, right, "{}: {number}", self.context);
                }
            }
        }
        drop(refused);
        world.check(&world.engine).await;
    }

    /// The wall clock is set to another time, up to ten years away.
    fn jump(&mut self) {
        let seconds = i64::try_from(self.random.below(630_000_000)).unwrap() - 315_000_000;
        JUMPED_NS.store(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    async fn crash(&mut self, world: World, archive: &Archive) -> World {
        drop(world.submit(self.random.of(&STREAMS), 3).await);
        let seed = self.random.below(1 << 32);
        let torn = seed.is_multiple_of(2).then_some(seed);
        let world = world.crashed(torn).await;
        if std::mem::take(&mut self.is_import_unknown) {
            self.is_imported = world.engine.storages().get(archive.id).is_ok();
        }
        check_imported(&world.engine, archive, self.is_imported, &self.context).await;
        self.check_label(&world, true);
        // It may have been published when the disk failed.
        self.is_finalized |= self.may_fail && world.state() == StorageState::Finalized;
        world
    }

    /// One step; a storage that failed is repaired now and then.
    async fn step(&mut self, mut world: World, archive: &Archive) -> World {
        let random = &mut self.random;
        match random.below(24) {
            0..=4 => drop(world.push(random.of(&STREAMS), 1 + random.below(4)).await),
            5..=8 => drop(world.push_together(1 + random.below(3)).await),
            // The client goes away.
            9 => drop(world.submit(random.of(&STREAMS), 3).await),
            10 | 11 => self.fault(&world),
            12 | 13 => world.plan.heal(),
            14 => world = self.crash(world, archive).await,
            15 | 16 => {
                let (engine, before) = (&world.engine, self.is_imported);
                self.is_imported = import_or_delete(engine, archive, before).await;
                if self.may_fail && self.is_imported == before {
                    self.is_import_unknown = true;
                    self.is_imported = engine.storages().get(archive.id).is_ok();
                }
                check_imported(engine, archive, self.is_imported, &self.context).await;
            }
            17 | 18 => self.offer(&world),
            19 => self.change_label(&world).await,
            20 => self.read_badly(&world).await,
            21 => self.jump(),
            22 if world.state() == StorageState::Failed => {
                world.plan.heal();
                let storages = world.engine.storages();
                let repaired = storages.repair(world.storage, true, Arc::default()).await;
                let repaired = repaired.unwrap();
                assert!(repaired.is_repaired, "{}: {repaired:?}", self.context);
                self.repairs += 1;
                world.check(&world.engine).await;
            }
            _ if random.below(4) == 0 => {
                let finalized = world.engine.storages().finalize(world.storage).await;
                self.is_finalized |= finalized.is_ok();
            }
            _ => world.check(&world.engine).await,
        }
        let state = world.state();
        let context = &self.context;
        assert!(self.may_fail || state != StorageState::Failed, "{context}");
        assert!(
            !self.is_finalized || state == StorageState::Finalized,
            "{context}: {state}"
        );
        world
    }
}

/// How many sequences ended in each state, and how many repairs there were.
type Figures = (BTreeMap<String, u64>, u64);

async fn simulate(seed: u64, archive: &Archive, figures: &mut Figures) {
    eprintln!("seed {seed}");
    let files = [small_files, arranged_files][usize::from(seed % 2 == 1)];
    let mut world = World::with(files).await;
    world.plan.forget_unsynced();
    let mut model = Model {
        random: Random(seed),
        context: format!("seed {seed}"),
        may_fail: seed % 3 == 2,
        is_finalized: false,
        is_imported: false,
        is_import_unknown: false,
        offered: 0,
        changes: 0,
        label: None,
        refused: BTreeSet::new(),
        repairs: 0,
    };
    for _ in 0..STEP_COUNT {
        world = model.step(world, archive).await;
    }
    let mut world = world.crashed(None).await;
    let context = &model.context;
    if model.is_import_unknown {
        model.is_imported = world.engine.storages().get(archive.id).is_ok();
    }
    check_imported(&world.engine, archive, model.is_imported, context).await;
    *figures.0.entry(world.state().to_string()).or_default() += 1;
    figures.1 += model.repairs;
    match world.state() {
        StorageState::Finalized => {}
        StorageState::Failed => assert!(model.may_fail, "{context}"),
        _ => assert_eq!(world.push_together(1).await.len(), 0, "{context}"),
    }
    world.check_recovered(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_of_faults_loses_what_was_acknowledged() {
    let archive = archive().await;
    let mut figures = Figures::default();
    let first = number(FIRST, 0);
    for seed in first..first + number(SEEDS, SEED_COUNT) {
        simulate(seed, &archive, &mut figures).await;
    }
    eprintln!("the states at the end, and repairs: {figures:?}");
    JUMPED_NS.store(0, Ordering::Relaxed);
}
