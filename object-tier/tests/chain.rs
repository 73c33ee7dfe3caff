//! The chain of a storage, step by step.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use object_store::memory::InMemory;
use object_tier::{
    Bucket, Creation, NodeName, TierError,
    chain::{
        Chain, Claimant, Collected, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, Record, Takeover,
        Walker, chain_folder, collect, last_owner, record_key, seal_key, valid_records,
    },
};
use storage_format::StorageId;
use support::{
    faulty_store::{Faults, FaultyStore, LATEST},
    world::World,
};

fn storage() -> StorageId {
    StorageId::from_bytes([3; 16])
}

fn calm(world: &Arc<World>) -> Bucket {
    with(world, Faults::default())
}

fn with(world: &Arc<World>, faults: Faults) -> Bucket {
    Bucket::new(Arc::new(FaultyStore::new(world, faults)), "tests", 16)
}

/// Takes the storage over; the payloads that count are put into `packets`.
async fn try_take(
    bucket: &Bucket,
    node: &str,
    packets: &mut Vec<String>,
) -> Result<Takeover, TierError> {
    let node = claimant(node);
    Chain::take_over(bucket, storage(), &node, &mut |record: Record| {
        packets.push(String::from_utf8(record.payload.to_vec()).unwrap());
        Ok(())
    })
    .await
}

/// A node; each has a data folder of its own.
fn claimant(node: &str) -> Claimant {
    Claimant {
        node: NodeName::new(node).unwrap(),
        identity: u64::from(node.as_bytes()[0]),
    }
}

async fn take(bucket: &Bucket, node: &str) -> (Chain, String) {
    let mut packets = Vec::new();
    match try_take(bucket, node, &mut packets).await.unwrap() {
        Takeover::Owned(chain) => (chain, packets.join(" ")),
        other => panic!("{other:?}"),
    }
}

async fn append(chain: &mut Chain, packets: &'static str) -> Result<u64, TierError> {
    chain
        .append(&[Bytes::from_static(packets.as_bytes())])
        .await
}

async fn numbers(bucket: &Bucket) -> Vec<u64> {
    let listed = bucket.list_all(&chain_folder(storage())).await.unwrap();
    let number = |key: &str| key.rsplit_once('/').unwrap().1.parse().unwrap();
    listed.iter().map(|listed| number(&listed.key)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_node_before_learns_that_it_is_superseded() {
    let bucket = calm(&World::new(1));
    let (mut first, packets) = take(&bucket, "first").await;
    assert_eq!((packets.as_str(), first.owner().epoch), ("", 1));
    assert_eq!(append(&mut first, "a").await.unwrap(), 1);
    assert_eq!(append(&mut first, "b").await.unwrap(), 2);
    let (mut second, packets) = take(&bucket, "second").await;
    assert_eq!((packets.as_str(), second.owner().epoch), ("a b", 2));
    assert_eq!(append(&mut second, "c").await.unwrap(), 4);
    for _ in 0..2 {
        let error = append(&mut first, "d").await.unwrap_err();
        assert!(matches!(error, TierError::Superseded { .. }), "{error}");
        assert!(error.to_string().contains("second"), "{error}");
    }
    let owner = last_owner(&bucket, storage()).await.unwrap().unwrap();
    assert_eq!(&owner, second.owner());
    let (third, packets) = take(&bucket, "third").await;
    assert_eq!((packets.as_str(), third.next_number()), ("a b c", 6));
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_at_the_same_time_one_waits_or_loses() {
    let mut lost = 0;
    for seed in 0..20 {
        let bucket = calm(&World::new(seed));
        let (mut one_packets, mut other_packets) = (Vec::new(), Vec::new());
        let one = try_take(&bucket, "one", &mut one_packets);
        let other = try_take(&bucket, "other", &mut other_packets);
        let (one, other) = tokio::join!(one, other);
        let mut epochs = Vec::new();
        for taken in [one, other] {
            match taken {
                Ok(Takeover::Owned(chain)) => epochs.push(chain.owner().epoch),
                Err(TierError::Superseded { .. }) => lost += 1,
                other => panic!("{other:?}"),
            }
        }
        epochs.sort_unstable();
        assert!(epochs == [1] || epochs == [1, 2], "{epochs:?}");
    }
    assert!((1..20).contains(&lost), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn an_append_without_an_answer_leaves_the_chain_in_doubt() {
    let world = World::new(7);
    let late = Faults {
        late: 1000,
        ..Faults::default()
    };
    // Patience makes sure of what is late.
    let (mut chain, _) = take(&with(&world, late), "late").await;
    let piece = [Bytes::from_static(b"a")];
    let answer = tokio::time::timeout(Duration::from_secs(1), chain.append(&piece)).await;
    answer.unwrap_err();
    for _ in 0..2 {
        let error = append(&mut chain, "b").await.unwrap_err();
        let is_doubt = matches!(error, TierError::InDoubt { number: 1, .. });
        assert!(is_doubt, "{error}");
        let error = chain.close().await.unwrap_err();
        assert!(matches!(error, TierError::InDoubt { .. }), "{error}");
    }
    tokio::time::sleep(LATEST).await;
    // Whether the first arrived or not, there is one.
    assert_eq!(chain.settle().await.unwrap(), Some(1));
    assert_eq!(chain.settle().await.unwrap(), None);
    let (chain, packets) = take(&calm(&world), "calm").await;
    assert_eq!((packets.as_str(), chain.owner().number), ("a", 2));
}

#[tokio::test(start_paused = true)]
async fn any_node_seals_a_closed_chain_and_packets_alone_are_collected() {
    let bucket = calm(&World::new(4));
    let (mut first, _) = take(&bucket, "first").await;
    append(&mut first, "a").await.unwrap();
    let (mut second, _) = take(&bucket, "second").await;
    append(&mut second, "b").await.unwrap();
    assert_eq!(second.close().await.unwrap(), 4);
    let error = append(&mut second, "c").await.unwrap_err();
    assert!(matches!(error, TierError::Closed(_)), "{error}");
    let error = collect(&bucket, storage()).await.unwrap_err();
    assert!(matches!(error, TierError::NotSealed(_)), "{error}");

    let mut packets = Vec::new();
    let taken = try_take(&bucket, "third", &mut packets).await.unwrap();
    let Takeover::Closed { owner } = taken else {
        panic!("{taken:?}");
    };
    assert_eq!(
        (&owner, packets.join(" ").as_str()),
        (second.owner(), "a b")
    );
    let seal = Bytes::from_static(b"a b");
    let made = bucket.create(&seal_key(storage()), seal).await.unwrap();
    assert_eq!(made, Creation::Made);
    let collected = collect(&bucket, storage()).await.unwrap();
    let bytes = 2 * (RECORD_HEADER_BYTES as u64 + 1);
    let expected = Collected {
        removed: 2,
        bytes,
        kept: 3,
        damaged: 0,
    };
    assert_eq!(collected, expected);
    assert_eq!(numbers(&bucket).await, [0, 2, 4]);
    // Twice: the second finds an `own` of the same epoch behind the hole.
    for _ in 0..2 {
        let taken = try_take(&bucket, "late", &mut Vec::new()).await.unwrap();
        assert!(matches!(taken, Takeover::Sealed(seal) if seal == "a b"));
    }
    let error = append(&mut first, "a").await.unwrap_err();
    assert!(matches!(error, TierError::Superseded { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn damage_is_an_error_and_never_void() {
    let bucket = calm(&World::new(5));
    let (mut chain, _) = take(&bucket, "node").await;
    for packets in ["a", "b", "c"] {
        append(&mut chain, packets).await.unwrap();
    }
    let key = record_key(storage(), 2);
    let whole = bucket.get(&key).await.unwrap().unwrap();
    let mut damaged = whole.to_vec();
    damaged[20] ^= 1;
    bucket.put(&key, damaged.into()).await.unwrap();
    let mut packets = Vec::new();
    let error = try_take(&bucket, "other", &mut packets).await.unwrap_err();
    assert!(matches!(error, TierError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&key), "{error}");
    assert_eq!(packets, ["a"]);
    // Nothing was written: whole again, the chain goes on.
    bucket.put(&key, whole).await.unwrap();
    assert_eq!(append(&mut chain, "d").await.unwrap(), 4);
    let mut count = 0;
    let mut on_packets = |_| {
        count += 1;
        Ok(())
    };
    let end = valid_records(&bucket, storage(), &mut on_packets).await;
    let end = end.unwrap();
    assert_eq!((count, end.next, end.is_closed), (4, 5, false));
    assert_eq!(end.owner.as_ref(), Some(chain.owner()));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_neither_written_nor_fetched() {
    let bucket = calm(&World::new(6));
    let (mut chain, _) = take(&bucket, "node").await;
    let half = Bytes::from(vec![7; PAYLOAD_BYTES_MAX / 2]);
    chain.append(&[half.clone(), half.clone()]).await.unwrap();
    let long = [half.clone(), half, Bytes::from_static(b"x")];
    let error = chain.append(&long).await.unwrap_err();
    assert!(matches!(error, TierError::RecordLength { .. }), "{error}");
    chain.append(&[]).await.unwrap_err();
    // Neither leaves a doubt.
    assert_eq!(append(&mut chain, "a").await.unwrap(), 2);
    let long = Bytes::from(vec![0; PAYLOAD_BYTES_MAX + RECORD_HEADER_BYTES + 1]);
    bucket.put(&record_key(storage(), 3), long).await.unwrap();
    let before = bucket
        .requests()
        .bytes_read
        .load(std::sync::atomic::Ordering::Relaxed);
    let end = valid_records(&bucket, storage(), &mut |_: Record| Ok(())).await;
    assert!(matches!(end, Err(TierError::Damaged { .. })), "{end:?}");
    let after = bucket
        .requests()
        .bytes_read
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(after - before <= (PAYLOAD_BYTES_MAX + 1000) as u64);
}

/// Between the first look at the seal and the own of the node that takes over, another node seals
/// and collects.
#[tokio::test(start_paused = true)]
async fn a_storage_that_is_sealed_meanwhile_is_not_owned() {
    // Its operations end at once.
    let bucket = Bucket::new(Arc::new(InMemory::new()), "", 16);
    let (mut chain, _) = take(&bucket, "first").await;
    for _ in 0..12 {
        append(&mut chain, "a").await.unwrap();
    }
    let second = claimant("second");
    let mut on_packets = |record: Record| {
        if record.number == 1 {
            let body = Bytes::from_static(b"sealed");
            let (close, key) = (chain.close().now_or_never(), seal_key(storage()));
            close.unwrap().unwrap();
            bucket.create(&key, body).now_or_never().unwrap().unwrap();
            let collected = collect(&bucket, storage()).now_or_never().unwrap();
            assert_eq!(collected.unwrap().removed, 12);
        }
        Ok(())
    };
    let taken = Chain::take_over(&bucket, storage(), &second, &mut on_packets).await;
    assert!(matches!(taken, Ok(Takeover::Sealed(seal)) if seal == "sealed"));
    // The hole is not taken for the end.
    assert_eq!(numbers(&bucket).await, [0, 13]);
    let end = valid_records(&bucket, storage(), &mut |_: Record| Ok(())).await;
    assert_eq!(end.unwrap().next, 1);
}

#[tokio::test(start_paused = true)]
async fn a_collection_leaves_what_it_cannot_read_and_takes_what_comes_back() {
    let bucket = calm(&World::new(7));
    let (mut chain, _) = take(&bucket, "node").await;
    for packets in ["a", "b", "c"] {
        append(&mut chain, packets).await.unwrap();
    }
    chain.close().await.unwrap();
    let keys = [1, 2, 3].map(|number| record_key(storage(), number));
    let first = bucket.get(&keys[0]).await.unwrap().unwrap();
    bucket.put(&keys[1], "short".into()).await.unwrap();
    bucket.put(&keys[2], first.clone()).await.unwrap();
    bucket
        .create(&seal_key(storage()), "seal".into())
        .await
        .unwrap();
    let counts = |collected: Collected| (collected.removed, collected.kept, collected.damaged);
    let collected = collect(&bucket, storage()).await.unwrap();
    assert_eq!(counts(collected), (1, 2, 2));
    assert_eq!(numbers(&bucket).await, [0, 2, 3, 4]);
    bucket.put(&keys[0], first).await.unwrap();
    let collected = collect(&bucket, storage()).await.unwrap();
    assert_eq!(counts(collected), (1, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_takes_nothing_from_another() {
    let world = World::new(9);
    let bucket = calm(&world);
    let resume = async |name: &str| {
        let node = claimant(name);
        Chain::resume(&bucket, storage(), &node, &mut |_: Record| Ok(())).await
    };
    let Ok(Takeover::Owned(first)) = resume("one").await else {
        panic!("a new storage is everybody's");
    };
    assert_eq!(first.owner().epoch, 1);
    let Ok(Takeover::Owned(mut again)) = resume("one").await else {
        panic!("it is its own");
    };
    again.append(&[Bytes::from_static(b"a")]).await.unwrap();
    let (_, packets) = take(&bucket, "two").await;
    assert_eq!(packets, "a");
    let error = resume("one").await.unwrap_err();
    assert!(matches!(error, TierError::Superseded { .. }), "{error}");
    assert_eq!(
        last_owner(&bucket, storage()).await.unwrap().unwrap().epoch,
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_somebody_removed_ends_no_chain() {
    let world = World::new(9);
    let bucket = calm(&world);
    let (mut chain, _) = take(&bucket, "one").await;
    for packets in ["a", "b", "c"] {
        append(&mut chain, packets).await.unwrap();
    }
    bucket.delete(&record_key(storage(), 2)).await.unwrap();
    let error = try_take(&bucket, "two", &mut Vec::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, TierError::Damaged { .. }), "{text}");
    assert!(text.contains(&record_key(storage(), 2)), "{text}");
    // Its owner notices nothing, and nobody has taken the storage.
    append(&mut chain, "d").await.unwrap();
    let epoch = async || last_owner(&bucket, storage()).await.unwrap().unwrap().epoch;
    assert_eq!(epoch().await, 1);
    // Who has the packets elsewhere goes on there, and appends them again.
    struct Knowing(Vec<Bytes>);
    impl Walker for Knowing {
        fn packets(&mut self, record: Record) -> Result<(), TierError> {
            self.0.push(record.payload);
            Ok(())
        }

        fn has_packets(&self) -> bool {
            true
        }
    }
    let mut knowing = Knowing(Vec::new());
    let resumed = Chain::resume(&bucket, storage(), &claimant("one"), &mut knowing).await;
    let Ok(Takeover::Owned(mut chain)) = resumed else {
        panic!("{resumed:?}");
    };
    assert_eq!((knowing.0.concat(), chain.owner().epoch), (b"a".into(), 2));
    for packets in ["b", "c", "d"] {
        append(&mut chain, packets).await.unwrap();
    }
    let (_, packets) = take(&bucket, "two").await;
    assert_eq!(packets, "a b c d");
}

#[tokio::test(start_paused = true)]
async fn the_first_own_is_made_again_and_other_objects_are_no_records() {
    let world = World::new(9);
    let bucket = calm(&world);
    let (mut chain, _) = take(&bucket, "one").await;
    append(&mut chain, "a").await.unwrap();
    let folder = chain_folder(storage());
    for junk in [
        "notes",
        "99",
        "x/00000000000000000007",
        "9999999999999999999x",
    ] {
        let key = format!("{folder}/{junk}");
        bucket.put(&key, Bytes::from_static(b"junk")).await.unwrap();
    }
    let (mut chain, packets) = take(&bucket, "two").await;
    assert_eq!(packets, "a");
    append(&mut chain, "b").await.unwrap();
    bucket.delete(&record_key(storage(), 0)).await.unwrap();
    let error = try_take(&bucket, "one", &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, TierError::Damaged { .. }), "{error}");
    struct Knowing;
    impl Walker for Knowing {
        fn packets(&mut self, _: Record) -> Result<(), TierError> {
            Ok(())
        }

        fn has_packets(&self) -> bool {
            true
        }
    }
    let resumed = Chain::resume(&bucket, storage(), &claimant("two"), &mut Knowing).await;
    let Ok(Takeover::Owned(mut chain)) = resumed else {
        panic!("{resumed:?}");
    };
    assert_eq!(chain.owner().epoch, 3);
    append(&mut chain, "ab").await.unwrap();
    assert_eq!(take(&bucket, "three").await.1, "ab");
}

#[tokio::test(start_paused = true)]
async fn another_data_folder_of_the_same_name_resumes_nothing() {
    let bucket = calm(&World::new(9));
    let here = claimant("one");
    let elsewhere = Claimant {
        identity: here.identity + 1,
        ..here.clone()
    };
    let resume = async |claimant: &Claimant| {
        Chain::resume(&bucket, storage(), claimant, &mut |_: Record| Ok(())).await
    };
    let Ok(Takeover::Owned(mut chain)) = resume(&here).await else {
        panic!("a new storage is everybody's");
    };
    assert!(here.made(chain.owner()) && !elsewhere.made(chain.owner()));
    let error = resume(&elsewhere).await.unwrap_err();
    assert!(matches!(error, TierError::Superseded { .. }), "{error}");
    chain.look().await.unwrap();
    append(&mut chain, "a").await.unwrap();
    chain.look().await.unwrap();
    // Somebody decides against a takeover behind the last packets: nothing has happened.
    struct Unwilling(usize);
    impl Walker for Unwilling {
        fn packets(&mut self, _: Record) -> Result<(), TierError> {
            self.0 += 1;
            Ok(())
        }

        fn may_claim(&mut self) -> Result<(), TierError> {
            Err(TierError::Settings("no room".to_owned()))
        }
    }
    let mut unwilling = Unwilling(0);
    let refused = Chain::take_over(&bucket, storage(), &elsewhere, &mut unwilling).await;
    assert!(matches!(refused, Err(TierError::Settings(_))));
    assert_eq!(unwilling.0, 1);
    chain.look().await.unwrap();
    take(&bucket, "two").await;
    let error = chain.look().await.unwrap_err();
    assert!(matches!(error, TierError::Superseded { .. }), "{error}");
}
