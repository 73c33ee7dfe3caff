//! The second copy of the storage file of an open storage, on a failing disk.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use rustix::io::Errno;
use storage_format::{
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};

use super::{World, config};
use crate::{
    Engine, StorageError, StoragePatch,
    io::faulty::{Fault, Operation},
};

impl World {
    fn own_and_copy(&self) -> [PathBuf; 2] {
        let names = [
            FileName::Storage(self.storage),
            FileName::StorageCopy(self.storage),
        ];
        names.map(|name| self.folder_of(&self.engine).join(name.to_string()))
    }

    async fn set_label(&self, value: &str) -> Result<(), StorageError> {
        let patch = StoragePatch {
            labels: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
            ..StoragePatch::default()
        };
        let updated = self.engine.storages().update(self.storage, patch).await;
        updated.map(drop)
    }
}

fn label_in(path: &PathBuf) -> String {
    let file = StorageFile::decode(&std::fs::read(path).unwrap()).unwrap();
    file.labels["key"].clone()
}

/// A change that was refused, because the storage file could not be written after its copy, does
/// not come back from the copy when the storage file is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_does_not_come_back_from_the_copy() {
    let operations = [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncFolder,
    ];
    for operation in operations {
        let world = World::new().await;
        world.set_label("first").await.unwrap();
        let [own, copy] = world.own_and_copy();
        // The first one is of the copy.
        let full = Fault::Fail(Errno::NOSPC);
        world.plan.inject(operation, 1..2, full);
        let refused = world.set_label("refused").await.unwrap_err();
        assert!(
            matches!(refused, StorageError::DiskFull { .. }),
            "{refused}"
        );
        assert_eq!(label_in(&copy), "first", "{operation:?}");
        // A rename that was not synced may have happened, or may not.
        if operation != Operation::SyncFolder {
            assert_eq!(label_in(&own), "first", "{operation:?}");
        }
        world.engine.shutdown().await.unwrap();
        std::fs::remove_file(&own).unwrap();
        let engine = Engine::open(config(world.folder.path())).await.unwrap();
        let info = engine.storages().get(world.storage).unwrap();
        assert_eq!(info.labels["key"], "first", "{operation:?}");
        assert_eq!(info.state, StorageState::Open);
        engine.shutdown().await.unwrap();
    }
}

/// Where nothing can be written any more, the next change that can writes both.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_ahead_is_written_by_the_next_change() {
    let world = World::new().await;
    world.set_label("first").await.unwrap();
    let full = Fault::Fail(Errno::NOSPC);
    world.plan.inject(Operation::Write, 1..usize::MAX, full);
    world.set_label("refused").await.unwrap_err();
    world.plan.heal();
    let files = world.own_and_copy();
    assert_eq!(label_in(&files[1]), "refused");
    // Refused again, it is taken back to what was acknowledged, and not to what it was.
    world.plan.inject(Operation::Write, 1..2, full);
    world.set_label("second").await.unwrap_err();
    assert_eq!(files.each_ref().map(label_in), ["first", "first"]);
    world.plan.heal();
    world.set_label("third").await.unwrap();
    assert_eq!(files.each_ref().map(label_in), ["third", "third"]);
    world.engine.shutdown().await.unwrap();
}

/// A storage is written in this order: its copy, and then itself. A power failure between the two
/// never leaves a copy that is older.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_never_older_than_the_storage_file() {
    for halted_at in 0.. {
        let world = Arc::new(World::new().await);
        world.set_label("first").await.unwrap();
        world.plan.halt_after(halted_at);
        let own = Arc::clone(&world);
        let mut changing = tokio::spawn(async move { own.set_label("second").await });
        let is_halted = tokio::select! {
            () = world.plan.halted() => true,
            changed = &mut changing => {
                changed.unwrap().unwrap();
                false
            }
        };
        let [own, copy] = world.own_and_copy().map(|path| label_in(&path));
        let ahead = [
            ("first", "first"),
            ("first", "second"),
            ("second", "second"),
        ];
        assert!(
            ahead.contains(&(&*own, &*copy)),
            "{halted_at}: {own} {copy}"
        );
        world.plan.resume();
        if is_halted {
            changing.await.unwrap().unwrap();
        }
        world.engine.shutdown().await.unwrap();
        if !is_halted {
            assert!(
                halted_at > 8,
                "a change is more than {halted_at} operations"
            );
            return;
        }
    }
}
