//! The ids of the data files of a log: none is used up without a file, none is that of an arranged
//! file, and no file takes the name of another.

use std::{collections::BTreeSet, path::Path};

use rustix::io::Errno;
use storage_format::{
    DataFileId, limits::DATA_FILE_COUNT_MAX, paths::FileName, storage_file::StorageState,
};

use super::{World, arranged_files, config, copy_of, full_files::data_files, small_files};
use crate::{
    Engine,
    io::faulty::{Fault, Operation},
};

fn ids(folder: &Path) -> Vec<u64> {
    data_files(folder).keys().map(|id| id.0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_files_use_up_no_ids() {
    let faults = [
        (Operation::Open, Errno::DQUOT),
        (Operation::Open, Errno::MFILE),
        (Operation::Write, Errno::DQUOT),
        (Operation::SyncFolder, Errno::MFILE),
    ];
    for (operation, errno) in faults {
        let mut world = World::of_small_files().await;
        world
            .plan
            .inject(operation, 0..usize::MAX, Fault::Fail(errno));
        for _ in 0..20 {
            let outcome = world.push("one", 1).await;
            assert!(outcome.refused.is_some(), "{operation:?} {errno}");
        }
        world.plan.heal();
        world.push_some(8).await;
        let ids = ids(&world.folder_of(&world.engine));
        assert!(ids.len() > 2, "{operation:?} {errno}: {ids:?}");
        let expected: Vec<_> = (0..ids.len() as u64).collect();
        assert_eq!(ids, expected, "{operation:?} {errno}");
        assert_eq!(world.check_killed().await, StorageState::Open);
        world.engine.shutdown().await.unwrap();
    }
}

/// Behind the last id of a log are the arranged files of its first files.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_ids_is_refused_and_finalized() {
    let last = u64::from(DATA_FILE_COUNT_MAX) - 1;
    for arranges in [false, true] {
        let mut base = World::of_small_files().await;
        base.push_some(12).await;
        base.engine.shutdown().await.unwrap();
        let folder = copy_of(base.folder.path());
        let storage = folder
            .path()
            .join("storages")
            .join(base.storage.to_string());
        // A file that was created, and in which nothing was acknowledged.
        let newest = FileName::Data(DataFileId(last - 2)).to_string();
        std::fs::write(storage.join(newest), vec![0; 4096]).unwrap();
        let mut config = config(folder.path());
        if arranges {
            arranged_files(&mut config);
        } else {
            small_files(&mut config);
        }
        let engine = Engine::open(config).await.unwrap();
        let mut world = World {
            engine,
            folder,
            arranges,
            ..base
        };
        let mut refused = None;
        for _ in 0..100 {
            refused = world.push("one", 1).await.refused;
            if refused.is_some() {
                break;
            }
        }
        let refused = refused.unwrap();
        assert_eq!(refused.code(), "data_files_used_up", "{refused}");
        assert_eq!(world.state(), StorageState::Open);
        let of_log = ids(&storage).into_iter().map(|id| {
            let replaced = DataFileId(id).replaced();
            replaced.map_or(id, |file| file.0)
        });
        let of_log: BTreeSet<_> = of_log.collect();
        assert!(of_log.contains(&(last - 1)), "{of_log:?}");
        assert_eq!(of_log.last(), Some(&last));
        world.check(&world.engine).await;
        let killed = copy_of(world.folder.path());
        let engine = Engine::open(super::config(killed.path())).await.unwrap();
        world.check(&engine).await;
        engine.shutdown().await.unwrap();
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
        world.check(&world.engine).await;
        world.check_files(&world.engine).await;
        world.engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arranged_file_takes_the_name_of_no_other() {
    let mut world = World::with(arranged_files).await;
    let folder = world.folder_of(&world.engine);
    let replacements = (0..100).filter_map(|id| DataFileId(id).replacement());
    let paths = replacements.map(|id| folder.join(FileName::Data(id).to_string()));
    let paths: Vec<_> = paths.collect();
    for path in &paths {
        std::fs::write(path, b"packets").unwrap();
    }
    for _ in 0..50 {
        if world.engine.counters().file_arranging_failures.get() > 0 {
            break;
        }
        world.push_some(3).await;
    }
    assert!(world.engine.counters().file_arranging_failures.get() > 0);
    for path in &paths {
        assert_eq!(std::fs::read(path).unwrap(), b"packets");
        std::fs::remove_file(path).unwrap();
    }
    for _ in 0..100 {
        if world.files_arranged() >= 3 {
            break;
        }
        world.push_some(3).await;
    }
    world.some_arranged().await;
    world.check(&world.engine).await;
    world.engine.shutdown().await.unwrap();
}
