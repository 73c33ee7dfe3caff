//! Long reads of evicted files: they pass by the cache, and are fetched before they are needed.

use std::{fs::File, future::poll_fn, sync::atomic::Ordering, time::Duration};

use storage_core::{CheckedFile, NewPacket, RangeScan, Scanned};
use storage_format::{StreamPosition, frame::Facts};

use super::*;
use crate::support::push;

const MIB: u64 = 1 << 20;
/// Packets of 1 MiB that are the long file.
const LONG_PACKETS: u64 = 30;

/// A packet that no compression makes smaller.
fn noise(sequence: u64) -> NewPacket {
    let mut state = sequence + 1;
    let words = (0..MIB / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let position = StreamPosition::new(0, sequence);
    NewPacket::new(position, words.collect(), Facts::default())
}

/// An evicted storage with one long file, of which so many bytes may be in memory.
async fn evicted(ahead_bytes_max: u64) -> (World, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let engine = Engine::open(config(folder.path(), IoChoice::Auto))
        .await
        .unwrap();
    engine
        .tiering()
        .set_source(Arc::clone(&store) as _, ahead_bytes_max);
    let storage = prepare(&engine, &[("a", LeafType::Plain)]).await;
    for number in 0..LONG_PACKETS {
        let pushed = push(&engine, storage, "a", vec![noise(number)]).await;
        assert!(pushed.refused.is_none(), "{:?}", pushed.refused);
    }
    engine.storages().finalize(storage).await.unwrap();
    let adoption = upload(&engine, storage, &store).await;
    engine.tiering().evict(storage).await.unwrap();
    let key = &adoption.tier.files[0].key;
    let whole = store.objects.lock().unwrap()[key].clone();
    assert!(whole.len() > 25 << 20, "{}", whole.len());
    let world = World {
        _folder: folder,
        engine,
        storage,
        store,
        adoption,
    };
    (world, whole)
}

async fn opened(world: &World) -> (Arc<File>, CheckedFile) {
    let name = &world.adoption.tier.files[0].name;
    let served = world.engine.reading().open_file(world.storage, name).await;
    let ServedBytes::InFile { file, checked, .. } = served.unwrap().bytes else {
        panic!("a data file is a file");
    };
    (file, checked)
}

/// The next bytes of a scan that is at `at`.
async fn next(scan: &mut RangeScan, file: &File, at: u64) -> io::Result<Vec<u8>> {
    match poll_fn(|cx| scan.poll_next(cx)).await {
        None => Ok(Vec::new()),
        Some(Ok(Scanned::InMemory(bytes))) => Ok(bytes.to_vec()),
        Some(Ok(Scanned::InFile(range))) => {
            assert_eq!(range.start, at);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        }
        Some(Err(error)) => Err(error),
    }
}

/// What a scan reads from `at` on.
async fn rest(mut scan: RangeScan, file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        let bytes = next(&mut scan, file, at + read.len() as u64).await?;
        if bytes.is_empty() {
            return Ok(read);
        }
        read.extend(bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_is_fetched_once_and_ahead_and_passes_by_the_cache() {
    let (world, whole) = evicted(AHEAD_BYTES_MAX).await;
    let (file, checked) = opened(&world).await;
    let kept = checked.scan(0..8 << 20).await.unwrap();
    assert!(kept.is_none(), "a range of 8 MiB is kept");
    let length = whole.len() as u64;
    for range in [0..length, 100_001..length - 7] {
        let before = world.store.bytes.load(Ordering::SeqCst);
        let scan = checked.scan(range.clone()).await.unwrap().unwrap();
        let read = rest(scan, &file, range.start).await.unwrap();
        assert!(read == whole[range.start as usize..range.end as usize]);
        let fetched = world.store.bytes.load(Ordering::SeqCst) - before;
        assert!(fetched <= length, "{fetched} of {length} bytes");
    }
    let at_once = world.store.running_max.load(Ordering::SeqCst);
    assert!((2..=8).contains(&at_once), "{at_once} requests at once");
    assert_eq!(world.engine.tiering().cached().here, 0);

    // What is here is not fetched.
    checked.ensure(0..16 * MIB).await.unwrap();
    let before = world.store.bytes.load(Ordering::SeqCst);
    let scan = checked.scan(0..length).await.unwrap().unwrap();
    assert!(rest(scan, &file, 0).await.unwrap() == whole);
    let fetched = world.store.bytes.load(Ordering::SeqCst) - before;
    // Pieces of which a part is not here are fetched as a whole.
    assert!(fetched <= length - 10 * MIB, "{fetched} of {length} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_the_same_bytes_share_their_requests() {
    let (world, whole) = evicted(AHEAD_BYTES_MAX).await;
    let (file, checked) = opened(&world).await;
    let length = whole.len() as u64;
    let mut scans = Vec::new();
    for _ in 0..3 {
        scans.push(checked.scan(0..length).await.unwrap().unwrap());
    }
    let mut read = [(); 3].map(|()| Vec::new());
    while read[2].len() < whole.len() {
        for (scan, read) in scans.iter_mut().zip(&mut read) {
            let bytes = next(scan, &file, read.len() as u64).await.unwrap();
            read.extend(bytes);
        }
    }
    assert!(read.iter().all(|read| *read == whole));
    let fetched = world.store.bytes.load(Ordering::SeqCst);
    // A reader that is a little behind may find that a piece is gone.
    assert!(fetched < 2 * length, "{fetched} for {length} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_one_reader_is_none_of_another() {
    let (world, whole) = evicted(AHEAD_BYTES_MAX).await;
    let (file, checked) = opened(&world).await;
    let length = whole.len() as u64;
    // The first reader has asked for pieces while the store is down, and the second one joins.
    world.store.is_slow.store(true, Ordering::SeqCst);
    world.store.is_down.store(true, Ordering::SeqCst);
    let first = tokio::spawn({
        let checked = checked.clone();
        async move { checked.scan(0..length).await }
    });
    while world.store.running.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.store.is_down.store(false, Ordering::SeqCst);
    let scan = checked.scan(0..length).await.unwrap().unwrap();
    let refused = first.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), "object_store_unavailable", "{refused}");
    world.store.is_slow.store(false, Ordering::SeqCst);
    assert!(rest(scan, &file, 0).await.unwrap() == whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_long_ranges_go_through_the_file() {
    let (world, whole) = evicted(1 << 20).await;
    let (file, checked) = opened(&world).await;
    let length = whole.len() as u64;
    let scan = checked.scan(0..length).await.unwrap().unwrap();
    assert!(rest(scan, &file, 0).await.unwrap() == whole);
    let here = world.engine.tiering().cached().here;
    assert!(here > length / 2, "{here} of {length} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_ends_where_bytes_are_damaged_or_absent() {
    let (world, whole) = evicted(AHEAD_BYTES_MAX).await;
    let (file, checked) = opened(&world).await;
    let length = whole.len() as u64;
    let damaged = 20 << 20;
    let key = &world.adoption.tier.files[0].key;
    world.store.objects.lock().unwrap().get_mut(key).unwrap()[damaged] ^= 1;
    let mut scan = checked.scan(0..length).await.unwrap().unwrap();
    let mut at = 0;
    let error = loop {
        match next(&mut scan, &file, at).await {
            Ok(bytes) => {
                assert!(bytes == whole[at as usize..at as usize + bytes.len()]);
                at += bytes.len() as u64;
                assert!(at <= damaged as u64, "damaged bytes were read");
            }
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("checksum"), "{error}");
    assert!(storage_core::is_lost_object(&error), "{error}");

    world.store.is_down.store(true, Ordering::SeqCst);
    let refused = checked.scan(0..length).await.unwrap_err();
    assert_eq!(refused.code(), "object_store_unavailable", "{refused}");
    world.store.is_down.store(false, Ordering::SeqCst);
    // A reader that hangs up leaves no requests.
    let scan = checked.scan(0..length).await.unwrap();
    drop(scan);
    for _ in 0..200 {
        if world.store.running.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("requests go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_by_reads_moves_little_for_nothing() {
    let (world, whole) = evicted(AHEAD_BYTES_MAX).await;
    check_intact(&world.engine, world.storage, LONG_PACKETS).await;
    let length = whole.len() as u64;
    let fetched = world.store.bytes.load(Ordering::SeqCst);
    // Nobody says where such a scan ends: a part of what it is given is for nothing.
    assert!(fetched <= 3 * length, "{fetched} for {length} bytes");
}
