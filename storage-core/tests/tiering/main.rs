//! Storages whose bytes are in an object store: evicted here, or known only there.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

#[path = "../support/mod.rs"]
mod support;

mod restoring;
mod scans;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use storage_core::{
    Adoption, BlockSource, Engine, EngineConfig, Fetching, IoChoice, Progress, ServedBytes,
    StorageError,
};
use storage_format::{
    LeafType, StorageId,
    paths::FileName,
    tier_file::{GRANULE_BYTES, GranuleSums, TierFile, TieredFile},
};
use support::{check_intact, check_packets, config, copy_of_running, prepare, push_all};

const PACKETS: u64 = 150;
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// An object store in memory.
#[derive(Debug, Default)]
struct Store {
    objects: Mutex<HashMap<String, Vec<u8>>>,
    fetches: AtomicU64,
    bytes: AtomicU64,
    /// Requests at this moment, and the most at once.
    running: Arc<AtomicU64>,
    running_max: AtomicU64,
    is_down: AtomicBool,
    is_slow: AtomicBool,
}

/// A request, until it is answered or given up.
struct Running(Arc<AtomicU64>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BlockSource for Store {
    fn fetch(&self, key: &str, range: Range<u64>) -> Fetching {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.bytes
            .fetch_add(range.end - range.start, Ordering::SeqCst);
        let found = self.objects.lock().unwrap().get(key).map(|object| {
            Bytes::copy_from_slice(&object[range.start as usize..range.end as usize])
        });
        let is_down = self.is_down.load(Ordering::SeqCst);
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(now, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        let is_slow = self.is_slow.load(Ordering::SeqCst);
        let delay = std::time::Duration::from_millis(if is_slow { 300 } else { 2 });
        Box::pin(async move {
            let _running = running;
            tokio::time::sleep(delay).await;
            if is_down {
                return Err(io::Error::other("connection refused"));
            }
            let found = found.ok_or_else(|| io::Error::other("no such object"))?;
            // In slices that do not end where granules do.
            let step = 50_000;
            let begins = (0..found.len()).step_by(step);
            Ok(begins
                .map(|at| found.slice(at..found.len().min(at + step)))
                .collect())
        })
    }
}

struct World {
    _folder: tempfile::TempDir,
    engine: Engine,
    storage: StorageId,
    store: Arc<Store>,
    adoption: Adoption,
}

fn small_files(folder: &Path) -> EngineConfig {
    EngineConfig {
        data_file_bytes_max: 2 << 20,
        ..config(folder, IoChoice::Auto)
    }
}

async fn open(folder: &Path, store: &Arc<Store>) -> Engine {
    let engine = Engine::open(small_files(folder)).await.unwrap();
    engine
        .tiering()
        .set_source(Arc::clone(store) as _, AHEAD_BYTES_MAX);
    engine
}

/// A finalized storage of which all large files are in a store.
async fn uploaded() -> World {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let engine = open(folder.path(), &store).await;
    let storage = prepare(&engine, &[("a", LeafType::Plain), ("b", LeafType::Plain)]).await;
    push_all(&engine, storage, "a", 0..PACKETS).await;
    push_all(&engine, storage, "b", 0..PACKETS).await;
    engine.storages().finalize(storage).await.unwrap();
    let adoption = upload(&engine, storage, &store).await;
    assert!(!adoption.tier.files.is_empty(), "some files are large");
    World {
        _folder: folder,
        engine,
        storage,
        store,
        adoption,
    }
}

async fn upload(engine: &Engine, storage: StorageId, store: &Store) -> Adoption {
    let parts = engine.tiering().parts(storage).await.unwrap();
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for part in &parts.large {
        let bytes = std::fs::read(&part.path).unwrap();
        let mut sums = GranuleSums::default();
        sums.extend(&bytes);
        let sums = sums.finish();
        files.push(TieredFile {
            name: part.name.clone(),
            key: format!("s/{storage}/f/{}", part.name),
            length: part.length,
            checksum: part.checksum.unwrap(),
            sums_at: all.len() as u64,
            sums_checksum: storage_format::checksum::crc32c(&sums),
        });
        all.extend(sums);
        let key = files.last().unwrap().key.clone();
        store.objects.lock().unwrap().insert(key, bytes);
    }
    let tier = TierFile {
        storage,
        store: "memory://".into(),
        seal: "1".into(),
        sealed: 1,
        is_own: true,
        is_evicted: false,
        label_number: 0,
        labels_checksum: 0,
        files,
    };
    let sums = Bytes::from(all);
    engine
        .tiering()
        .uploaded(tier.clone(), sums.clone())
        .await
        .unwrap();
    let mut small: Vec<_> = parts
        .small
        .iter()
        .map(|part| (part.name.clone(), std::fs::read(&part.path).unwrap().into()))
        .collect();
    small.push((FileName::Storage(storage).to_string(), parts.storage_file));
    Adoption { tier, sums, small }
}

/// The path of a large file.
async fn large_file(world: &World) -> std::path::PathBuf {
    let leaves = world.engine.reading().leaves(world.storage).await.unwrap();
    leaves.leaves[0]
        .folder
        .join(&world.adoption.tier.files[0].name)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_storage_is_read_as_before() {
    let world = uploaded().await;
    let path = large_file(&world).await;
    let freed = world.engine.tiering().evict(world.storage).await.unwrap();
    assert!(freed >= world.adoption.tier.bytes() / 2, "{freed}");
    assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
    let info = world.engine.tiering().info(world.storage).unwrap().unwrap();
    assert!(info.file.is_evicted && info.here == 0, "{info:?}");

    check_packets(&world.engine, world.storage, PACKETS).await;
    let once = world.store.bytes.load(Ordering::SeqCst);
    // What is between two granules that are wanted may be fetched with one of them.
    assert!(
        once <= 2 * world.adoption.tier.bytes() + (2 << 20),
        "{once}"
    );
    check_intact(&world.engine, world.storage, 2 * PACKETS).await;

    // A whole eviction leaves nothing, and everything comes again.
    let freed = world.engine.tiering().reclaim(0).await.unwrap();
    assert!(freed > 0);
    assert_eq!(world.engine.tiering().cached().here, 0);
    check_packets(&world.engine, world.storage, PACKETS).await;
    let folder = path.parent().unwrap();
    world
        .engine
        .tiering()
        .fetch(world.storage, &Progress::default())
        .await
        .unwrap();
    world.store.is_down.store(true, Ordering::SeqCst);
    check_packets(&world.engine, world.storage, PACKETS).await;
    for file in &world.adoption.tier.files {
        let bytes = std::fs::read(folder.join(&file.name)).unwrap();
        assert_eq!(&bytes, &world.store.objects.lock().unwrap()[&file.key]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_here_is_fetched_once_and_believed_only_if_it_matches() {
    let world = uploaded().await;
    let path = large_file(&world).await;
    world.engine.tiering().evict(world.storage).await.unwrap();
    let name = world.adoption.tier.files[0].name.clone();
    let served = world
        .engine
        .reading()
        .open_file(world.storage, &name)
        .await
        .unwrap();
    let ServedBytes::InFile { file, checked, .. } = served.bytes else {
        panic!("a data file is a file");
    };
    let range = 3 * GRANULE_BYTES..3 * GRANULE_BYTES + 10;
    let before = world.store.fetches.load(Ordering::SeqCst);
    let all = (0..20).map(|_| checked.ensure(range.clone()));
    for waited in futures_util::future::join_all(all).await {
        waited.unwrap();
    }
    assert_eq!(world.store.fetches.load(Ordering::SeqCst), before + 1);
    let whole = world.store.objects.lock().unwrap()[&world.adoption.tier.files[0].key].clone();
    let mut read = [0; 10];
    file.read_exact_at(&mut read, range.start).unwrap();
    assert_eq!(read, whole[range.start as usize..range.end as usize]);
    assert!(checked.are_checked(std::iter::once(range.clone())).unwrap());
    assert!(!checked.are_checked(std::iter::once(0..1)).unwrap());

    // After a crash: what is here is compared, and a granule that is damaged is fetched again.
    let copy = copy_of_running(world._folder.path());
    let place = path.strip_prefix(world._folder.path()).unwrap();
    let here = std::fs::File::options()
        .write(true)
        .open(copy.path().join(place))
        .unwrap();
    here.write_all_at(b"x", range.start + 1).unwrap();
    let again = open(copy.path(), &world.store).await;
    let served = again
        .reading()
        .open_file(world.storage, &name)
        .await
        .unwrap();
    let ServedBytes::InFile { file, checked, .. } = served.bytes else {
        panic!("a data file is a file");
    };
    assert!(!checked.are_checked(std::iter::once(range.clone())).unwrap());
    checked.ensure(range.clone()).await.unwrap();
    file.read_exact_at(&mut read, range.start).unwrap();
    assert_eq!(read, whole[range.start as usize..range.end as usize]);
    check_packets(&again, world.storage, PACKETS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_or_lies_is_an_error_and_never_an_answer() {
    let world = uploaded().await;
    world.engine.tiering().evict(world.storage).await.unwrap();
    let key = world.adoption.tier.files[0].key.clone();
    let flip = |at: usize| {
        let mut objects = world.store.objects.lock().unwrap();
        objects.get_mut(&key).unwrap()[at] ^= 1;
    };
    let name = world.adoption.tier.files[0].name.clone();
    let open_file = || world.engine.reading().open_file(world.storage, &name);
    let ServedBytes::InFile { checked, .. } = open_file().await.unwrap().bytes else {
        panic!("a data file is a file");
    };
    world.store.is_down.store(true, Ordering::SeqCst);
    let refused = checked.ensure(0..1).await.unwrap_err();
    assert_eq!(refused.code(), "object_store_unavailable", "{refused}");
    let packet = world.engine.reading().read_packet(world.storage, 0).await;
    assert!(packet.is_err(), "a packet without its bytes");
    world.store.is_down.store(false, Ordering::SeqCst);

    flip(5000);
    assert!(checked.ensure(0..1).await.is_err());
    assert!(!checked.are_checked(std::iter::once(0..1)).unwrap());
    flip(5000);
    checked.ensure(0..1).await.unwrap();
    check_packets(&world.engine, world.storage, PACKETS).await;

    // Another server that finds other bytes than the seal says serves nothing.
    flip(70_000);
    world.engine.tiering().reclaim(0).await.unwrap();
    let report = world
        .engine
        .reading()
        .verify(world.storage, Arc::new(Progress::default()))
        .await
        .unwrap();
    assert_ne!(report.damage, [], "damage in the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_reads_on_while_its_file_is_evicted() {
    let world = uploaded().await;
    let name = world.adoption.tier.files[0].name.clone();
    let whole = world.store.objects.lock().unwrap()[&world.adoption.tier.files[0].key].clone();
    let open_file = || world.engine.reading().open_file(world.storage, &name);
    let read = |file: &std::fs::File| {
        let mut bytes = vec![0; whole.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let ServedBytes::InFile { file: before, .. } = open_file().await.unwrap().bytes else {
        panic!("a data file is a file");
    };
    world.engine.tiering().evict(world.storage).await.unwrap();
    assert_eq!(read(&before), whole);
    let ServedBytes::InFile { file, checked, .. } = open_file().await.unwrap().bytes else {
        panic!("a data file is a file");
    };
    checked.ensure(0..whole.len() as u64).await.unwrap();
    assert!(!checked.is_given_up());
    world.engine.tiering().reclaim(0).await.unwrap();
    assert!(
        checked.is_given_up(),
        "whoever has it open holds up its space"
    );
    assert_eq!(read(&file), whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_serves_a_storage_that_it_never_had() {
    let world = uploaded().await;
    let folder = tempfile::tempdir().unwrap();
    let other = open(folder.path(), &world.store).await;
    let adoption = || {
        let mut adoption = world.adoption.clone();
        (adoption.tier.is_own, adoption.tier.is_evicted) = (false, true);
        adoption
    };
    // What does not fit together is refused, and leaves nothing.
    let mut without = adoption();
    without.small.retain(|(name, _)| !name.ends_with(".index"));
    let mut changed = adoption();
    changed.tier.files[0].checksum ^= 1;
    let mut foreign = adoption();
    foreign.small.push(("../../x".into(), Bytes::new()));
    let mut of_another = adoption();
    of_another.tier.storage = StorageId::new(1, [1; 10]);
    for wrong in [without, changed, foreign, of_another] {
        let refused = other.tiering().adopt(wrong).await.unwrap_err();
        assert_eq!(refused.code(), "invalid_value", "{refused}");
    }
    let left = std::fs::read_dir(folder.path().join("storages")).unwrap();
    assert_eq!(left.count(), 0, "nothing is left of a refusal");

    let info = other.tiering().adopt(adoption()).await.unwrap();
    assert_eq!(info, world.engine.storages().get(world.storage).unwrap());
    check_packets(&other, world.storage, PACKETS).await;
    check_intact(&other, world.storage, 2 * PACKETS).await;
    let twice = other.tiering().adopt(adoption()).await.unwrap_err();
    assert!(matches!(twice, StorageError::StorageExists(_)), "{twice}");

    // It is there after a restart, too, and can be deleted.
    other.shutdown().await.unwrap();
    let again = open(folder.path(), &world.store).await;
    check_packets(&again, world.storage, PACKETS).await;
    again.storages().delete(world.storage).await.unwrap();
    assert!(again.storages().get(world.storage).is_err());
}

/// All threads that may block wait for bytes, and nothing else is left to write them.
#[test]
fn readers_on_all_threads_get_their_bytes() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let read = async {
        let world = uploaded().await;
        world.engine.tiering().evict(world.storage).await.unwrap();
        let reading = world.engine.reading();
        let all = (0..PACKETS).map(|number| reading.read_packet(world.storage, number));
        for packet in futures_util::future::join_all(all).await {
            packet.unwrap();
        }
    };
    let limit = std::time::Duration::from_secs(60);
    let ended = runtime.block_on(async { tokio::time::timeout(limit, read).await });
    // Threads that hang would hold up the end of the test.
    runtime.shutdown_background();
    ended.unwrap();
}
