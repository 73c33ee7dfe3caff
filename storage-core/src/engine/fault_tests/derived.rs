//! Derived files that are made while they are written.

use rustix::io::Errno;
use storage_format::{DataFileId, checksum::crc32c, paths::FileName};

use super::World;
use crate::{
    DerivedSink, StorageError,
    io::faulty::{Fault, Operation, refusals::refuse},
};

const NAME: FileName = FileName::ChunkIndexes(DataFileId(0));

/// Longer than what waits to be written.
fn content(seed: u8) -> Vec<u8> {
    (0..3_000_000_u32)
        .map(|at| (at >> 9) as u8 ^ seed)
        .collect()
}

async fn publish(
    world: &World,
    make: impl FnOnce(&mut DerivedSink) -> Result<(bool, u8), StorageError> + Send + 'static,
) -> Result<u8, StorageError> {
    let derived = world.engine.derived_files();
    derived.publish_made(world.storage, NAME, make).await
}

/// The names of derived files, published or not, and the content of the published one.
fn found(world: &World) -> (Vec<String>, Option<Vec<u8>>) {
    let folder = world.folder_of(&world.engine);
    let entries = std::fs::read_dir(&folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| name.contains(".idx")).collect();
    (names, std::fs::read(folder.join(NAME.to_string())).ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_there_as_a_whole_or_not_at_all() {
    let world = World::new().await;
    let whole = |seed| {
        move |sink: &mut DerivedSink| {
            content(seed)
                .chunks(70_000)
                .try_for_each(|part| sink.write(part))?;
            Ok((true, seed))
        }
    };
    assert_eq!(publish(&world, whole(1)).await.unwrap(), 1);
    let (names, bytes) = found(&world);
    assert_eq!(names, [NAME.to_string()]);
    assert!(bytes.unwrap() == content(1));
    // The maker decides against it, or fails.
    let unwanted = publish(&world, |sink: &mut DerivedSink| {
        sink.write(&content(2))?;
        Ok((false, 2))
    });
    assert_eq!(unwanted.await.unwrap(), 2);
    let failed = publish(&world, |sink: &mut DerivedSink| {
        sink.write(&content(3))?;
        Err(StorageError::Cancelled)
    });
    assert!(matches!(failed.await, Err(StorageError::Cancelled)));
    let (names, bytes) = found(&world);
    assert_eq!(names, [NAME.to_string()]);
    assert!(bytes.unwrap() == content(1));
    world.engine.shutdown().await.unwrap();
}

/// Two publications of a file do not write to one temporary file.
#[tokio::test(flavor = "multi_thread")]
async fn publications_of_a_file_take_turns() {
    let world = World::new().await;
    let make = |seed| {
        move |sink: &mut DerivedSink| {
            for part in content(seed).chunks(10_000) {
                sink.write(part)?;
                std::thread::yield_now();
            }
            Ok((true, seed))
        }
    };
    let published = tokio::join!(
        publish(&world, make(1)),
        publish(&world, make(2)),
        publish(&world, make(3)),
    );
    let published = [published.0, published.1, published.2].map(Result::unwrap);
    assert_eq!(published, [1, 2, 3]);
    let (names, bytes) = found(&world);
    assert_eq!(names, [NAME.to_string()]);
    let bytes = bytes.unwrap();
    assert!(
        (1..4).any(|seed| bytes == content(seed)),
        "the files are mixed"
    );
    world.engine.shutdown().await.unwrap();
}

/// Each operation fails once: the old file remains, or the new one is there, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_error_leaves_the_file_before() {
    for operation in [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncFolder,
    ] {
        for nth in 0..4 {
            let world = World::new().await;
            let make = |seed| {
                move |sink: &mut DerivedSink| {
                    sink.write(&content(seed))?;
                    Ok((true, seed))
                }
            };
            publish(&world, make(1)).await.unwrap();
            let before = world.plan.hits();
            let fault = Fault::Fail(Errno::IO);
            world.plan.inject(operation, nth..nth + 1, fault);
            let published = publish(&world, make(2)).await;
            let is_hit = world.plan.hits() > before;
            world.plan.heal();
            let context = format!("{operation:?} {nth}: {published:?}");
            assert_eq!(published.is_err(), is_hit, "{context}");
            if let Err(error) = &published {
                assert!(matches!(error, StorageError::Io { .. }), "{context}");
            }
            let (names, bytes) = found(&world);
            assert_eq!(names, [NAME.to_string()], "{context}");
            // The folder is synced after the name is there.
            let is_new = published.is_ok() || operation == Operation::SyncFolder;
            let expected = content(if is_new { 2 } else { 1 });
            assert!(bytes.unwrap() == expected, "{context}");
            world.engine.shutdown().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_reads_only_what_has_changed() {
    let mut world = World::new().await;
    world.push_some(1).await;
    let storages = world.engine.storages();
    storages.finalize(world.storage).await.unwrap();
    let path = world.folder_of(&world.engine).join(NAME.to_string());
    for seed in [1, 2] {
        let make = move |sink: &mut DerivedSink| {
            sink.write(&content(seed))?;
            Ok((true, seed))
        };
        publish(&world, make).await.unwrap();
        let listed = async || {
            let files = world.engine.reading().files(world.storage).await?;
            let found = files.into_iter().find(|file| file.name == NAME.to_string());
            Ok::<_, StorageError>(found.unwrap().checksum)
        };
        let expected = Some(crc32c(&content(seed)));
        assert_eq!(listed().await.unwrap(), expected);
        let _refused = refuse(&path, 0..u64::MAX, Errno::IO);
        assert_eq!(listed().await.unwrap(), expected);
    }
    world.engine.shutdown().await.unwrap();
}
