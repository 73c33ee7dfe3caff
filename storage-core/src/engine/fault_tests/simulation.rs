//! Random sequences of pushes, imports, deletions, faults, crashes and power failures; each seed
//! gives one.

use std::sync::Arc;

use rustix::io::Errno;
use storage_format::storage_file::StorageState;

use super::{
    STREAMS, World, arranged_files,
    changes::{Archive, archive},
    check_packets, config, copy_of, small_files,
};
use crate::{
    Engine,
    io::faulty::{Fault, FaultPlan, Operation},
};

const SEED_COUNT: u64 = if cfg!(debug_assertions) { 50 } else { 500 };
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

async fn simulate(seed: u64, archive: &Archive) {
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let files = [small_files, arranged_files][usize::from(seed % 2 == 1)];
    let mut world = World::with(files).await;
    world.plan.forget_unsynced();
    let (mut is_finalized, mut is_imported) = (false, false);
    let context = format!("seed {seed}");
    for _ in 0..STEP_COUNT {
        match random.below(18) {
            0..=4 => drop(world.push(random.of(&STREAMS), 1 + random.below(4)).await),
            5..=8 => drop(world.push_together(1 + random.below(3)).await),
            // The client goes away.
            9 => drop(world.submit(random.of(&STREAMS), 3).await),
            10 | 11 => {
                let operation = random.of(&[
                    Operation::Open,
                    Operation::Write,
                    Operation::SetLength,
                    Operation::Rename,
                    Operation::Remove,
                ]);
                let fault = Fault::Fail(random.of(&[Errno::NOSPC, Errno::MFILE]));
                let first = random.below(3) as usize;
                let last = first + 1 + random.below(4) as usize;
                world.plan.inject(operation, first..last, fault);
            }
            12 | 13 => world.plan.heal(),
            14 => {
                drop(world.submit(random.of(&STREAMS), 3).await);
                let seed = random.below(1 << 32);
                let torn = seed.is_multiple_of(2).then_some(seed);
                world = world.crashed(torn).await;
                check_imported(&world.engine, archive, is_imported, &context).await;
            }
            15 | 16 => {
                is_imported = import_or_delete(&world.engine, archive, is_imported).await;
                check_imported(&world.engine, archive, is_imported, &context).await;
            }
            _ if random.below(4) == 0 => {
                let finalized = world.engine.storages().finalize(world.storage).await;
                is_finalized |= finalized.is_ok();
            }
            _ => world.check(&world.engine).await,
        }
        let state = world.state();
        assert_ne!(state, StorageState::Failed, "seed {seed}");
        assert!(!is_finalized || state == StorageState::Finalized);
    }
    let mut world = world.crashed(None).await;
    check_imported(&world.engine, archive, is_imported, &context).await;
    if world.state() != StorageState::Finalized {
        assert_eq!(world.push_together(1).await.len(), 0, "seed {seed}");
    }
    world.check_recovered(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_of_faults_loses_what_was_acknowledged() {
    let archive = archive().await;
    for seed in 0..SEED_COUNT {
        simulate(seed, &archive).await;
    }
}
