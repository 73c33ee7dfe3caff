//! Storages are recovered in the background: until one is ready, it is refused, and the others are
//! served. A recovery that waits for the disk is a FIFO among the data files, whose opening blocks.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use storage_core::{
    CopySelection, Engine, IoChoice, Progress, Selection, StorageError, StorageFilter, StoragePatch,
};
use storage_format::{
    DataFileId, LeafType, StorageId,
    paths::{FileName, STORAGES_FOLDER},
    storage_file::StorageState,
};
use support::{
    agent, check_intact, check_packets, config, copy_of_running, data_file, packet, prepare, push,
    push_all, stream,
};

const ARRAY: [(&str, LeafType); 1] = [("array", LeafType::Array)];
const COUNT: u64 = 20;

/// A data folder of a killed server with two storages of [`COUNT`] packets each, of which the
/// second cannot be recovered until it is released.
struct Setting {
    folder: tempfile::TempDir,
    ready: StorageId,
    slow: StorageId,
}

impl Setting {
    async fn new() -> Self {
        let running = tempfile::tempdir().unwrap();
        let engine = open(running.path()).await;
        let ready = prepare(&engine, &ARRAY).await;
        let slow = prepare(&engine, &ARRAY).await;
        for storage in [ready, slow] {
            push_all(&engine, storage, "array", 0..COUNT).await;
        }
        let label = (slow, "use_case", &["slow".to_owned()]);
        (engine.labels().set(label.0, label.1, label.2, false).await).unwrap();
        (engine.labels().set(ready, label.1, label.2, false).await).unwrap();
        let folder = copy_of_running(running.path());
        engine.shutdown().await.unwrap();
        let setting = Self {
            folder,
            ready,
            slow,
        };
        let made = Command::new("mkfifo").arg(setting.fifo()).status();
        assert!(made.unwrap().success());
        setting
    }

    fn storage_folder(&self, storage: StorageId) -> PathBuf {
        let storages = self.folder.path().join(STORAGES_FOLDER);
        storages.join(storage.to_string())
    }

    fn fifo(&self) -> PathBuf {
        let name = FileName::Data(DataFileId(99)).to_string();
        self.storage_folder(self.slow).join(name)
    }

    /// Starts an engine that serves the first storage.
    async fn start(&self) -> Engine {
        let engine = start(self.folder.path()).await;
        engine.storages().recovered(self.ready).await.unwrap();
        wait_for_reader();
        engine
    }

    /// Lets the recovery go on. With `heals` it finds an empty file in the place of the FIFO.
    fn release(&self, heals: bool) -> File {
        let away = self.folder.path().join("fifo");
        std::fs::rename(self.fifo(), &away).unwrap();
        if heals {
            std::fs::write(self.fifo(), b"").unwrap();
        }
        release(&away)
    }
}

impl Drop for Setting {
    /// Lets a thread that waits go on: the runtime of a failed test waits for it.
    fn drop(&mut self) {
        for fifo in [self.fifo(), self.folder.path().join("fifo")] {
            if fifo.exists() {
                // Open until the end of the process.
                Box::leak(Box::new(release(&fifo)));
            }
        }
    }
}

/// Opens a FIFO for both directions, which lets a waiting reader go on. One that opens it later
/// does not wait while the returned file is open.
fn release(fifo: &Path) -> File {
    File::options().read(true).write(true).open(fifo).unwrap()
}

/// Waits until a thread of this process waits for a writer of a FIFO, or for as long as it takes
/// elsewhere if the kernel does not tell.
fn wait_for_reader() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let is_waiting = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.flatten().any(|thread| {
            let place = std::fs::read_to_string(thread.path().join("wchan"));
            place.is_ok_and(|place| place == "wait_for_partner")
        })
    };
    let begin = Instant::now();
    while !is_waiting() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn open(folder: &Path) -> Engine {
    let opened = Engine::open(config(folder, IoChoice::Blocking)).await;
    opened.unwrap()
}

async fn start(folder: &Path) -> Engine {
    let mut config = config(folder, IoChoice::Blocking);
    config.recovery_thread_count = 2;
    Engine::start(config, Arc::default()).await.unwrap()
}

fn check_refused<T>(what: &str, result: Result<T, StorageError>, of: StorageId) {
    match result {
        Err(StorageError::Recovering { storage, .. }) => assert_eq!(storage, of, "{what}"),
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what} was not refused"),
    }
}

async fn check_reads_refused(engine: &Engine, slow: StorageId) {
    let reading = engine.reading();
    let all = Selection::default();
    check_refused("a packet", reading.packet(slow, 0).await, slow);
    check_refused("a payload", reading.read_packet(slow, 0).await, slow);
    check_refused("descriptors", reading.descriptors(slow, all).await, slow);
    check_refused("files", reading.files(slow).await, slow);
    check_refused("leaves", reading.leaves(slow).await, slow);
    check_refused("a file", reading.open_file(slow, "x.itdata").await, slow);
    check_refused("metadata", reading.metadata(slow, &agent()).await, slow);
    let verified = reading.verify(slow, Arc::new(Progress::default())).await;
    check_refused("a verification", verified, slow);
    check_refused("the status", engine.storages().status(slow), slow);
    check_refused("an answer", engine.query_cache().get(slow, "x").await, slow);
    check_refused("a ring", engine.rings().segments(slow).await, slow);
    let exported = engine.transfer().export(slow, Arc::default()).await;
    check_refused("an export", exported, slow);
}

async fn check_changes_refused(engine: &Engine, setting: &Setting) {
    let slow = setting.slow;
    let (agent, stream) = (agent(), stream("array"));
    let next = engine.ingest().next_position(slow, &agent, &stream).await;
    check_refused("a position", next, slow);
    let outcome = push(engine, slow, "array", vec![packet(0, COUNT)]).await;
    check_refused("a push", outcome.refused.map_or(Ok(()), Err), slow);
    let storages = engine.storages();
    check_refused("a finalization", storages.finalize(slow).await, slow);
    check_refused("an opening", storages.open(slow).await, slow);
    check_refused("a recording", storages.begin_recording(slow).await, slow);
    let patch = StoragePatch::default();
    check_refused("an update", storages.update(slow, patch).await, slow);
    let labels = engine.labels();
    let value = ["other".to_owned()];
    let labelled = labels.set(slow, "use_case", &value, false).await;
    check_refused("a label", labelled, slow);
    let forgotten = labels.forget("use_case", Some("slow"), true).await;
    check_refused("a label of all", forgotten, slow);
    for (from, to) in [(slow, setting.ready), (setting.ready, slow)] {
        let (selection, progress) = (CopySelection::default(), Arc::default());
        let transfer = engine.transfer();
        let copied = transfer.copy(from, to, &selection, &progress, None).await;
        check_refused("a copy", copied, slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_not_recovered_is_refused_and_others_are_served() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    let (ready, slow) = (setting.ready, setting.slow);
    push_all(&engine, ready, "array", COUNT..COUNT + 5).await;
    check_packets(&engine, ready, COUNT + 5).await;

    check_reads_refused(&engine, slow).await;
    check_changes_refused(&engine, &setting).await;
    let recovery = engine.recovery().unwrap();
    assert_eq!(recovery.storages, 1);
    assert!(
        recovery.bytes_total > recovery.bytes_scanned,
        "{recovery:?}"
    );
    assert_eq!(engine.counters().recovering_storages.get(), 1);
    assert!(engine.storages().recovery(slow).is_some());
    assert_eq!(engine.storages().recovery(ready), None);
    let listed = |recovering| {
        let filter = StorageFilter {
            recovering,
            ..StorageFilter::default()
        };
        let listed = engine.storages().list(&filter);
        listed.into_iter().map(|info| info.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None), [ready, slow]);
    assert_eq!(listed(Some(true)), [slow]);
    assert_eq!(listed(Some(false)), [ready]);
    assert_eq!(engine.storages().get(slow).unwrap().id, slow);
    let labels = engine.labels().of_storage(ready).unwrap();
    let value = labels.iter().find(|label| label.name == "use_case");
    assert!(value.is_some(), "a refused change changes nothing");

    let _released = setting.release(true);
    engine.storages().recovered(slow).await.unwrap();
    assert_eq!(engine.recovery(), None);
    assert_eq!(engine.counters().recovering_storages.get(), 0);
    assert_eq!(
        engine.storages().get(slow).unwrap().state,
        StorageState::Open
    );
    let repeated = push(&engine, slow, "array", vec![packet(0, COUNT - 1)]).await;
    assert!(repeated.receipts[0].is_duplicate, "{repeated:?}");
    push_all(&engine, slow, "array", COUNT..COUNT + 2).await;
    check_packets(&engine, slow, COUNT + 2).await;
    check_intact(&engine, slow, COUNT + 2).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_cannot_be_recovered_does_not_concern_others() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    let _released = setting.release(false);
    engine.storages().recovered(setting.slow).await.unwrap();
    let failed = engine.storages().get(setting.slow).unwrap();
    assert_eq!(failed.state, StorageState::Failed);
    assert!(
        failed.failure.unwrap().contains("itdata"),
        "it says what failed"
    );
    check_packets(&engine, setting.ready, COUNT).await;
    engine.shutdown().await.unwrap();
    let engine = open(setting.folder.path()).await;
    check_packets(&engine, setting.slow, COUNT).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_recovery() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    engine.shutdown().await.unwrap();
    let _released = setting.release(true);
    let engine = open(setting.folder.path()).await;
    for storage in [setting.ready, setting.slow] {
        check_packets(&engine, storage, COUNT).await;
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_recovery_loses_nothing() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    push_all(&engine, setting.ready, "array", COUNT..COUNT + 5).await;
    let away = setting.folder.path().join("fifo");
    std::fs::rename(setting.fifo(), &away).unwrap();
    std::fs::write(setting.fifo(), b"").unwrap();
    let at_storages = |folder: &Path| folder.join(STORAGES_FOLDER);
    let killed = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-r", "--sparse=always"])
        .args([
            setting.folder.path().join("agents"),
            at_storages(setting.folder.path()),
        ])
        .arg(killed.path())
        .status();
    assert!(copied.unwrap().success());
    let _released = release(&away);
    engine.shutdown().await.unwrap();
    let engine = open(killed.path()).await;
    check_packets(&engine, setting.ready, COUNT + 5).await;
    check_packets(&engine, setting.slow, COUNT).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_is_deleted_while_it_is_recovered() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    let away = setting.folder.path().join("fifo");
    std::fs::rename(setting.fifo(), &away).unwrap();
    engine.storages().delete(setting.slow).await.unwrap();
    assert!(!setting.storage_folder(setting.slow).exists());
    // Its thread still hangs in the disk.
    assert_eq!(engine.recovery(), None);
    let _released = release(&away);
    engine.storages().recovered(setting.slow).await.unwrap_err();
    check_packets(&engine, setting.ready, COUNT).await;
    assert!(data_file(&engine, setting.ready).await.exists());
    let left: BTreeMap<_, _> = (engine
        .storages()
        .list(&StorageFilter::default())
        .into_iter())
    .map(|info| (info.id, info.state))
    .collect();
    assert_eq!(left, BTreeMap::from([(setting.ready, StorageState::Open)]));
    engine.shutdown().await.unwrap();
    assert!(!setting.storage_folder(setting.slow).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_whose_deletion_fails_is_recovered() {
    let setting = Setting::new().await;
    let engine = setting.start().await;
    // The folder cannot be renamed to a folder that is not empty.
    let storages = setting.folder.path().join(STORAGES_FOLDER);
    let target = storages.join(format!(".deleted-{}", setting.slow));
    std::fs::create_dir_all(target.join("content")).unwrap();
    engine.storages().delete(setting.slow).await.unwrap_err();
    let refused = engine.storages().status(setting.slow);
    check_refused("the status", refused, setting.slow);
    let _released = setting.release(true);
    engine.storages().recovered(setting.slow).await.unwrap();
    let state = engine.storages().get(setting.slow).unwrap().state;
    assert_eq!(state, StorageState::Open);
    push_all(&engine, setting.slow, "array", COUNT..COUNT + 2).await;
    check_packets(&engine, setting.slow, COUNT + 2).await;
    engine.shutdown().await.unwrap();
}
