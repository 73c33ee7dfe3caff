//! Finalizations that are interrupted or cancelled while they arrange a storage.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use storage_format::{
    index_part::{Footer, IndexPartHeader, TRAILER_BYTES, Trailer},
    paths::{FileName, FileRole},
    storage_file::{StorageFile, StorageState},
};

use super::World;
use crate::{Engine, EngineConfig, Progress, StorageError};

/// The files of a storage by name.
type Files = BTreeMap<String, Vec<u8>>;

fn files_in(folder: &Path) -> Files {
    let names = std::fs::read_dir(folder).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    paths
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

fn role(name: &str) -> Option<FileRole> {
    name.parse::<FileName>().ok().map(|name| name.role())
}

fn of_role(files: &Files, wanted: FileRole) -> Vec<String> {
    let names = files.keys().filter(|name| role(name) == Some(wanted));
    names.cloned().collect()
}

/// The ordinal of an index part, and the length of each data file that it describes.
fn part(bytes: &[u8], world: &World) -> (u64, Vec<(String, u64)>) {
    let header = IndexPartHeader::decode(bytes).unwrap();
    let tail = &bytes[bytes.len() - TRAILER_BYTES..];
    let trailer = Trailer::decode(tail, bytes.len() as u64, world.storage).unwrap();
    let at = usize::try_from(trailer.footer_offset).unwrap();
    let footer = &bytes[at..at + usize::try_from(trailer.footer_length).unwrap()];
    let footer = Footer::decode(footer, &trailer).unwrap();
    let files = footer.files.iter();
    let files = files.map(|file| (FileName::Data(file.file).to_string(), file.length));
    (header.ordinal, files.collect())
}

/// The length of each data file that an index part or one before it describes.
fn described(left: &Written, last: usize, world: &World) -> Vec<(String, u64)> {
    let parts = left.parts[..=last].iter();
    let files = parts.flat_map(|name| part(&left.files[name], world).1);
    let mut longest = BTreeMap::new();
    for (name, length) in files {
        let known: &mut u64 = longest.entry(name).or_default();
        *known = length.max(*known);
    }
    longest.into_iter().collect()
}

/// What an interrupted finalization had written.
struct Written {
    /// Data files and index parts, in the order in which they were written.
    data: Vec<String>,
    parts: Vec<String>,
    files: Files,
}

/// An open storage, and the same storage after its finalization.
async fn written(world: &World) -> (tempfile::TempDir, Written) {
    let before = super::copy_of(world.folder.path());
    let open = files_in(&world.folder_of(&world.engine));
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let mut files = files_in(&world.folder_of(&world.engine));
    files.retain(|name, _| {
        matches!(role(name), Some(FileRole::Data | FileRole::Index)) && !open.contains_key(name)
    });
    let data = of_role(&files, FileRole::Data);
    let mut parts = of_role(&files, FileRole::Index);
    parts.sort_by_key(|name| part(&files[name], world).0);
    assert!(data.len() > 3, "{data:?}");
    assert!(parts.len() > 3, "{parts:?}");
    (before, Written { data, parts, files })
}

/// The storage continues as FINALIZING with what `change` leaves of the files of its finalization;
/// `kept` says which of the data files are not written again.
async fn check_continued(change: impl Fn(&mut Written, &World) -> usize) {
    let mut world = World::of_small_files().await;
    world.push_some(24).await;
    let (folder, mut left) = written(&world).await;
    let kept = change(&mut left, &world);
    let name = FileName::Storage(world.storage).to_string();
    let own = folder
        .path()
        .join("storages")
        .join(world.storage.to_string());
    let mut file = StorageFile::decode(&std::fs::read(own.join(&name)).unwrap()).unwrap();
    file.state = StorageState::Finalizing;
    std::fs::write(own.join(&name), file.encode().unwrap()).unwrap();
    for (name, bytes) in &left.files {
        std::fs::write(own.join(name), bytes).unwrap();
    }
    let mut config = super::config(folder.path());
    super::small_files(&mut config);
    let engine = Engine::open(config).await.unwrap();
    let interrupted = engine.storages().interrupted_finalizations();
    assert_eq!(interrupted, [world.storage]);
    world.check(&engine).await;
    let finalized = engine.storages().finalize(world.storage).await.unwrap();
    assert_eq!(finalized.state, StorageState::Finalized);
    world.check(&engine).await;
    world.check_files(&engine).await;
    let after = files_in(&own);
    let is_kept = |name: &&String| after.get(*name) == left.files.get(*name);
    let names: Vec<_> = left.data.iter().filter(is_kept).collect();
    assert_eq!(names, left.data[..kept].iter().collect::<Vec<_>>());
    let mut listed: Vec<_> = finalized.files.into_iter().map(|file| file.name).collect();
    listed.extend([name, FileName::StorageCopy(world.storage).to_string()]);
    listed.sort();
    assert_eq!(after.keys().cloned().collect::<Vec<_>>(), listed);
    engine.shutdown().await.unwrap();
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_finalization_is_continued() {
    // Nothing was written, or everything.
    check_continued(|left, _| {
        left.files.clear();
        left.data.clear();
        0
    })
    .await;
    check_continued(|left, _| left.data.len()).await;
    // The last data files are not in an index part yet, and one has a part of its bytes.
    check_continued(|left, world| {
        let described = described(left, 1, world);
        for name in &left.parts[2..] {
            left.files.remove(name);
        }
        for (name, length) in &described {
            let bytes = left.files.get_mut(name).unwrap();
            bytes.truncate(usize::try_from(*length).unwrap());
        }
        let last = &left.data[described.len()];
        left.files.get_mut(last).unwrap().truncate(5000);
        described.len()
    })
    .await;
    // Bytes after those that an index part describes are cut.
    check_continued(|left, world| {
        let described = described(left, 1, world);
        for name in &left.parts[2..] {
            left.files.remove(name);
        }
        for (name, length) in &described {
            let bytes = left.files.get_mut(name).unwrap();
            bytes.truncate(usize::try_from(*length).unwrap());
        }
        let (last, _) = described.last().unwrap();
        let intact = left.files[last].clone();
        left.files.get_mut(last).unwrap().extend([7; 3000]);
        let kept = described.len() - 1;
        // It has the bytes without the end, so it is compared with those.
        assert!(intact.len() > 4096);
        kept
    })
    .await;
    // A part in the middle is missing.
    check_continued(|left, world| {
        let described = described(left, 0, world);
        let missing = left.parts[1].clone();
        left.files.remove(&missing);
        for (name, length) in &described {
            let bytes = left.files.get_mut(name).unwrap();
            bytes.truncate(usize::try_from(*length).unwrap());
        }
        described.len()
    })
    .await;
    // A byte of a finished file is damaged: nothing of it is trusted.
    check_continued(|left, _| {
        let name = left.data[0].clone();
        left.files.get_mut(&name).unwrap()[4500] ^= 1;
        0
    })
    .await;
}

/// An engine that arranges so slowly that it does not end.
async fn slow_world() -> World {
    let mut world = World::with(|config| {
        super::small_files(config);
        config.arranging_bytes_per_second_max = 1;
    })
    .await;
    world.push_some(12).await;
    world
}

/// Starts the finalization, and waits until it is arranging.
async fn arranging(
    world: &World,
    progress: &Arc<Progress>,
) -> tokio::task::JoinHandle<Result<crate::StorageInfo, StorageError>> {
    let (engine, storage) = (world.engine.clone(), world.storage);
    let progress = Arc::clone(progress);
    let finalize = async move { engine.storages().finalize_with(storage, progress).await };
    let finalizing = tokio::spawn(finalize);
    let status = || world.engine.storages().status(world.storage).unwrap();
    while status().arranged_bytes == 0 {
        tokio::task::yield_now().await;
    }
    assert!(status().arranging_bytes > status().arranged_bytes);
    assert_eq!(world.state(), StorageState::Finalizing);
    finalizing
}

fn fast(world: &World) -> EngineConfig {
    let mut config = super::config(world.folder.path());
    super::small_files(&mut config);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_finalization_changes_nothing() {
    let mut world = slow_world().await;
    let before = files_in(&world.folder_of(&world.engine));
    let progress = Arc::<Progress>::default();
    let finalizing = arranging(&world, &progress).await;
    progress.cancel();
    let cancelled = finalizing.await.unwrap().unwrap_err();
    assert_eq!(cancelled.code(), "job_cancelled");
    assert_eq!(world.state(), StorageState::Open);
    let after = files_in(&world.folder_of(&world.engine));
    assert_eq!(
        of_role(&after, FileRole::Data),
        of_role(&before, FileRole::Data)
    );
    assert_eq!(world.push_together(3).await.len(), 0);
    world.check(&world.engine).await;
    let config = fast(&world);
    world.engine.shutdown().await.unwrap();
    let engine = Engine::open(config).await.unwrap();
    assert_eq!(world.check_recovered(&engine).await, StorageState::Open);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_interrupts_a_finalization_and_the_next_start_continues_it() {
    let world = slow_world().await;
    let progress = Arc::<Progress>::default();
    let finalizing = arranging(&world, &progress).await;
    let config = fast(&world);
    world.engine.shutdown().await.unwrap();
    let stopped = finalizing.await.unwrap().unwrap_err();
    assert!(matches!(stopped, StorageError::Stopping), "{stopped}");
    let engine = Engine::open(config).await.unwrap();
    let interrupted = engine.storages().interrupted_finalizations();
    assert_eq!(interrupted, [world.storage]);
    let refused = world.push_to(&engine, "one", 0..1).await.err().unwrap();
    assert_eq!(refused.code(), "storage_state_conflict");
    let state = world.check_recovered(&engine).await;
    assert_eq!(state, StorageState::Finalized);
    engine.shutdown().await.unwrap();
}

/// A storage whose finalization arranges can be deleted, and the finalization ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_a_finalization() {
    let world = slow_world().await;
    let finalizing = arranging(&world, &Arc::default()).await;
    world.engine.storages().delete(world.storage).await.unwrap();
    finalizing.await.unwrap().unwrap_err();
    world.engine.shutdown().await.unwrap();
}
