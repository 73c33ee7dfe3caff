use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::prelude::*;
use storage_format::checksum::crc32c;

use super::*;
use crate::{
    Reader,
    faulty::{Fault, Faulty},
    remove_storage,
    sample::{Node, bytes, node, storage},
};

/// Compares everything that the seal in the bucket names with the files.
async fn check_sealed(bucket: &Bucket, files: &BTreeMap<String, Vec<u8>>) -> Seal {
    let seal = Seal::get(bucket, storage()).await.unwrap().expect("a seal");
    let heads = Heads::get(bucket, &seal).await.unwrap();
    assert_eq!(seal.small.len() + seal.files.len(), files.len());
    for file in &seal.small {
        assert_eq!(heads.small(file).unwrap(), files[&file.name], "{file:?}");
    }
    for file in &seal.files {
        let wanted = &files[&file.name];
        let found = bucket.get(&file.key).await.unwrap();
        assert!(found.expect(&file.key) == *wanted, "{}", file.name);
        assert_eq!(file.checksum, crc32c(wanted));
        let granules = wanted
            .chunks(1 << 16)
            .map(|granule| crc32c(granule).to_le_bytes());
        let sums: Vec<u8> = granules.flatten().collect();
        assert_eq!(heads.sums(file).unwrap(), sums);
    }
    seal
}

async fn send(bucket: &Bucket, node: &Node) -> Result<Uploaded, TierError> {
    upload(bucket, node.upload.clone(), |_| ()).await
}

#[tokio::test]
async fn what_is_uploaded_is_there_and_found() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let lengths = [20 << 20, 0, 1, 65_536, 8 << 20, (8 << 20) + 1, 200_000];
    let node = node("a", &lengths);
    let sent = AtomicU64::new(0);
    let progress = |bytes| {
        sent.fetch_add(bytes, Ordering::Relaxed);
    };
    let uploaded = upload(&bucket, node.upload.clone(), progress)
        .await
        .unwrap();
    let seal = check_sealed(&bucket, &node.files).await;
    let heads = Heads::get(&bucket, &seal).await.unwrap();
    let Uploaded::Sealed {
        seal: own,
        sums,
        sums_at,
    } = uploaded
    else {
        panic!("{uploaded:?}");
    };
    assert_eq!(own, seal);
    assert_eq!(sums_at, seal.files[0].sums_at);
    assert_eq!(sums, heads.bytes()[usize::try_from(sums_at).unwrap()..]);
    assert_eq!(sent.into_inner(), lengths.iter().sum::<usize>() as u64);
    let hints = crate::sealed_since(&bucket, None).await.unwrap();
    assert_eq!(hints, [("20251124T16".to_owned(), storage())]);
}

#[tokio::test]
async fn the_future_of_an_upload_can_be_spawned() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let node = node("a", &[10]);
    let sent = node.upload.clone();
    let task = tokio::spawn(async move { upload(&bucket, sent, |_| ()).await });
    assert!(matches!(task.await.unwrap(), Ok(Uploaded::Sealed { .. })));
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_nothing_is_sealed() {
    for (damaged, at) in [(0, 5), (1, 0), (1, 9 << 20), (1, (20 << 20) - 1)] {
        let store = Faulty::new();
        let bucket = store.bucket(8);
        let mut node = node("a", &[100, 20 << 20, 3 << 20]);
        let path = &node.upload.large[damaged].path;
        let mut body = std::fs::read(path).unwrap();
        body[at] ^= 1;
        std::fs::write(path, &body).unwrap();
        let error = send(&bucket, &node).await.unwrap_err();
        assert!(error.to_string().contains("the storage lists"), "{error}");
        assert!(Seal::get(&bucket, storage()).await.unwrap().is_none());
        let name = &node.upload.large[damaged].name.clone();
        let listed = bucket.list_all(&keys::files(storage())).await.unwrap();
        assert!(listed.iter().all(|object| !object.key.contains(name)));
        // The same bytes are fine when the storage lists nothing about them.
        node.upload.large[damaged].checksum = None;
        node.files.insert(name.clone(), body);
        send(&bucket, &node).await.unwrap();
        check_sealed(&bucket, &node.files).await;
    }
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let node = node("a", &[100]);
    std::fs::write(&node.upload.small[0].path, bytes(98, 777)).unwrap();
    let error = send(&bucket, &node).await.unwrap_err();
    assert!(error.to_string().contains("the storage lists"), "{error}");
    assert!(Seal::get(&bucket, storage()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_file_of_another_length_or_a_wrong_name_is_refused() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let good = node("a", &[100]);
    let mut bad = good.upload.clone();
    bad.large[0].length = 99;
    let error = upload(&bucket, bad, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("99 were expected"), "{error}");
    let other = StorageId::new(5, [5; 10]);
    for name in [
        "../a.agent",
        "a",
        &format!("{other}.checksums"),
        "node_1.agent",
    ] {
        let mut bad = good.upload.clone();
        bad.large[0].name = name.into();
        let error = upload(&bucket, bad, |_| ()).await.unwrap_err();
        assert!(matches!(error, TierError::Local { .. }), "{name}: {error}");
    }
}

/// Uploads with a stop at each operation, then again.
async fn stop_everywhere(fault: Fault, lengths: &[usize]) {
    for stop_at in 1.. {
        let store = Faulty::new();
        let bucket = store.bucket(8);
        let node = node("a", lengths);
        let chosen = fault.clone();
        store.plan(move |number, _, _| {
            if number == stop_at {
                chosen.clone()
            } else {
                Fault::Nothing
            }
        });
        let is_stopped = tokio::select! {
            uploaded = send(&bucket, &node) => {
                uploaded.unwrap();
                false
            }
            () = store.stopped() => true,
        };
        store.plan(|_, _, _| Fault::Nothing);
        if let Some(seal) = Seal::get(&bucket, storage()).await.unwrap() {
            check_sealed(&bucket, &node.files).await;
            assert_eq!(seal.node, "a");
        }
        if !is_stopped {
            assert!(stop_at > 10, "few operations: {stop_at}");
            return;
        }
        // A seal of this node is its own, also when it does not know that it made it.
        let again = send(&bucket, &node).await.unwrap();
        assert!(
            matches!(again, Uploaded::Sealed { .. }),
            "{stop_at}: {again:?}"
        );
        let seal = check_sealed(&bucket, &node.files).await;
        let hints = crate::sealed_since(&bucket, None).await.unwrap();
        assert_eq!(hints.len(), 1, "{stop_at}");
        // A third time finds the seal and sends nothing.
        let third = send(&bucket, &node).await.unwrap();
        assert!(matches!(third, Uploaded::Sealed { seal: same, .. } if same == seal));
    }
}

#[tokio::test]
async fn an_upload_that_is_killed_before_an_operation_can_be_repeated() {
    stop_everywhere(Fault::StopBefore, &[9 << 20, 5, 70_000]).await;
}

#[tokio::test]
async fn an_upload_that_is_killed_after_an_operation_can_be_repeated() {
    stop_everywhere(Fault::StopAfter, &[9 << 20, 5, 70_000]).await;
}

#[tokio::test]
async fn finished_files_are_not_sent_again() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let mut node = node("a", &[9 << 20, 5, 70_000]);
    node.upload.large[2].checksum = None;
    store.plan(|_, name, key| {
        if name == "put" && key.contains("/heads.") {
            Fault::StopBefore
        } else {
            Fault::Nothing
        }
    });
    tokio::select! {
        _ = send(&bucket, &node) => panic!("it ends before the heads"),
        () = store.stopped() => {}
    }
    let before = bucket.list_all(&keys::files(storage())).await.unwrap();
    assert_eq!(before.len(), 3);
    store.plan(|_, _, _| Fault::Nothing);
    // A derived file with new bytes of the same length.
    let derived = &node.upload.large[2];
    let rebuilt = bytes(55, 70_000);
    std::fs::write(&derived.path, &rebuilt).unwrap();
    node.files.insert(derived.name.clone(), rebuilt);
    // An object that is not there any more.
    bucket.delete(&before[1].key).await.unwrap();
    send(&bucket, &node).await.unwrap();
    let seal = check_sealed(&bucket, &node.files).await;
    assert_eq!(seal.files[0].key, before[0].key);
    assert_ne!(seal.files[1].key, before[1].key);
    assert_ne!(seal.files[2].key, before[2].key);
}

#[tokio::test]
async fn of_two_nodes_one_seals() {
    for _ in 0..20 {
        let store = Faulty::new();
        let (one, other) = (store.bucket(8), store.bucket(8));
        let (a, b) = (node("a", &[70_000, 3]), node("b", &[70_000, 3]));
        let (a, b) = tokio::join!(send(&one, &a), send(&other, &b));
        let seal = Seal::get(&one, storage()).await.unwrap().unwrap();
        let mut won = 0;
        for (uploaded, name) in [(a.unwrap(), "a"), (b.unwrap(), "b")] {
            match uploaded {
                Uploaded::Sealed { seal: own, .. } => {
                    assert_eq!((own.node.as_str(), &own), (name, &seal));
                    won += 1;
                }
                Uploaded::SealedByOther(other) => assert_eq!(other, seal),
                Uploaded::Removed => panic!("nobody removes it"),
            }
        }
        assert_eq!(won, 1);
    }
}

#[tokio::test]
async fn a_lost_answer_of_the_seal_or_of_the_last_part_is_no_failure() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let node = node("a", &[9 << 20]);
    store.plan(|_, name, key| {
        if name == "complete" || (name == "put" && key.ends_with("/seal")) {
            Fault::FailAfter("connection reset")
        } else {
            Fault::Nothing
        }
    });
    let uploaded = send(&bucket, &node).await.unwrap();
    assert!(matches!(uploaded, Uploaded::Sealed { .. }));
    check_sealed(&bucket, &node.files).await;
}

#[tokio::test]
async fn after_a_failed_part_the_store_forgets_the_others() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let node = node("a", &[33 << 20, 33 << 20]);
    // Objects that were begun and are neither complete nor forgotten.
    let open = Arc::new(AtomicU64::new(0));
    let counted = open.clone();
    store.plan(move |_, name, key| {
        match name {
            "begin" => counted.fetch_add(1, Ordering::Relaxed),
            "complete" | "abort" => counted.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        if name == "part" && key.contains("/0000000000000001") {
            Fault::Fail("disk full")
        } else {
            Fault::Nothing
        }
    });
    let error = send(&bucket, &node).await.unwrap_err();
    assert!(error.to_string().contains("disk full"), "{error}");
    assert_eq!(open.load(Ordering::Relaxed), 0);
    assert!(Seal::get(&bucket, storage()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_removed_storage_is_not_sealed() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let node = node("a", &[100]);
    remove_storage(&bucket, storage(), "b").await.unwrap();
    let error = send(&bucket, &node).await.unwrap_err();
    assert!(matches!(error, TierError::Gone(_)), "{error}");
}

#[tokio::test]
async fn who_had_a_seal_ready_learns_that_the_storage_was_removed() {
    let bucket = Faulty::new().bucket(8);
    let node = node("a", &[100]);
    send(&bucket, &node).await.unwrap();
    remove_storage(&bucket, storage(), "b").await.unwrap();
    let again = send(&bucket, &node).await.unwrap();
    assert!(matches!(again, Uploaded::Removed), "{again:?}");
}

#[tokio::test]
async fn a_storage_that_is_removed_during_its_upload_stays_removed() {
    for stop_at in 1..40 {
        let store = Faulty::new();
        let bucket = store.bucket(8);
        let node = node("a", &[100]);
        let (begin, begun) = tokio::sync::oneshot::channel();
        let mut begin = Some(begin);
        store.plan(move |number, _, _| {
            if number < stop_at {
                return Fault::Nothing;
            }
            match begin.take() {
                Some(begin) => {
                    begin.send(()).unwrap();
                    Fault::Delay(std::time::Duration::from_millis(10))
                }
                None => Fault::Nothing,
            }
        });
        let removal = async {
            if begun.await.is_ok() {
                remove_storage(&bucket, storage(), "b").await.unwrap();
                return true;
            }
            false
        };
        let sending = async {
            let sent = send(&bucket, &node).await;
            store.plan(|_, _, _| Fault::Nothing);
            sent
        };
        let (sent, is_removed) = tokio::join!(sending, removal);
        if !is_removed {
            assert!(stop_at > 8, "{stop_at}");
            return;
        }
        drop(sent);
        let seal = Seal::get(&bucket, storage()).await.unwrap();
        assert!(seal.is_none(), "{stop_at}");
    }
}

#[tokio::test]
async fn four_parts_are_in_memory_at_most() {
    let store = Faulty::new();
    let bucket = store.bucket(64);
    let node = node("a", &[33 << 20, 33 << 20, 20 << 20]);
    let begun = Arc::new(AtomicU64::new(0));
    let counted = begun.clone();
    store.plan(move |_, name, _| {
        if name == "part" {
            counted.fetch_add(1, Ordering::Relaxed);
            Fault::StopBefore
        } else {
            Fault::Nothing
        }
    });
    let time = std::time::Duration::from_secs(1);
    let sent = tokio::time::timeout(time, send(&bucket, &node)).await;
    assert!(sent.is_err());
    assert_eq!(begun.load(Ordering::Relaxed), 4);
}

/// Uploads once; a stop at an operation ends it early.
async fn send_until(
    store: &Faulty,
    bucket: &Bucket,
    node: &Node,
    stop_at: u64,
    fault: Fault,
) -> Option<Uploaded> {
    store.plan(move |number, _, _| {
        if number == stop_at {
            fault.clone()
        } else {
            Fault::Nothing
        }
    });
    let uploaded = tokio::select! {
        uploaded = send(bucket, node) => Some(uploaded.unwrap()),
        () = store.stopped() => None,
    };
    store.plan(|_, _, _| Fault::Nothing);
    uploaded
}

#[tokio::test]
async fn two_nodes_that_are_killed_again_and_again_agree() {
    let mut random = bytes(7, 4000).into_iter();
    let mut random = |below: u8| u64::from(random.next().unwrap() % below);
    for round in 0..40 {
        let store = Faulty::new();
        let bucket = store.bucket(8);
        let nodes = [node("a", &[70_000, 5]), node("b", &[70_000, 5])];
        for _ in 0..6 {
            let chosen = &nodes[usize::try_from(random(2)).unwrap()];
            let faults = [Fault::StopBefore, Fault::StopAfter];
            let fault = faults[usize::try_from(random(2)).unwrap()].clone();
            send_until(&store, &bucket, chosen, 1 + random(14), fault).await;
        }
        let mut won = Vec::new();
        for node in &nodes {
            if let Uploaded::Sealed { seal, .. } = send(&bucket, node).await.unwrap() {
                assert_eq!(seal.node, node.upload.node, "{round}");
                won.push(seal);
            }
        }
        let seal = check_sealed(&bucket, &nodes[0].files).await;
        assert_eq!(won, std::slice::from_ref(&seal), "{round}");
        // What no seal names may go, and the storage is as before.
        let grace = std::time::Duration::ZERO;
        let now = clock::now_ns();
        let collected = crate::collect_unnamed(&bucket, storage(), &seal, grace, now);
        collected.await.unwrap();
        check_sealed(&bucket, &nodes[0].files).await;
        let left = bucket.list_all(&keys::storage(storage())).await.unwrap();
        assert_eq!(left.len(), 4, "{round}: {left:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn ranges_of_uploaded_files_are_those_of_the_files(
        lengths in prop::collection::vec(
            prop_oneof![0..70_000_usize, 0..(18_usize << 20)],
            1..4,
        ),
        places in prop::collection::vec((any::<u64>(), any::<u64>()), 8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Faulty::new();
            let bucket = store.bucket(4);
            let node = node("a", &lengths);
            send(&bucket, &node).await.unwrap();
            let seal = check_sealed(&bucket, &node.files).await;
            let reader = Reader::new(bucket);
            for file in &seal.files {
                for (begin, end) in &places {
                    let (begin, end) = (begin % (file.length + 1), end % (file.length + 1));
                    let range = begin.min(end)..begin.max(end);
                    let found = reader.fetch(&file.key, range.clone()).await.unwrap();
                    let place = |at| usize::try_from(at).unwrap();
                    let wanted = &node.files[&file.name][place(range.start)..place(range.end)];
                    assert!(found == wanted, "{range:?} of {}", file.name);
                }
            }
        });
    }
}
