//! Nodes find each other by their heartbeats.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "not every test needs all of the support")]

mod support;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use object_tier::{
    Bucket, GONE_AFTER, HEARTBEAT_INTERVAL, Heartbeat, LocalOwner, NodeName, Nodes, TierError, beat,
};
use storage_format::StorageId;
use support::{
    faulty_store::{Faults, FaultyStore},
    world::World,
};
use uuid::Uuid;

fn bucket(world: &Arc<World>) -> Bucket {
    Bucket::new(
        Arc::new(FaultyStore::new(world, Faults::default())),
        "here",
        8,
    )
}

fn heartbeat(name: &str, boot: u128) -> Heartbeat {
    Heartbeat {
        node: NodeName::new(name).unwrap(),
        boot: Uuid::from_u128(boot),
        url: format!("http://{name}:1234"),
        version: "1".into(),
        // Clocks of nodes do not matter.
        time: -77,
        storages_open: 3,
        open: vec!["01a00000-0000-7000-8000-000000000000".into()],
        bytes_free: 1 << 40,
    }
}

async fn live(bucket: &Bucket, own: &Heartbeat) -> Nodes {
    Nodes::live(bucket, (&own.node, own.boot)).await.unwrap()
}

fn names(nodes: &Nodes) -> Vec<(&str, bool)> {
    let name = |node: &'_ object_tier::Node| node.is_gone;
    let all = nodes.all().iter();
    all.map(|node| (node.heartbeat.node.as_str(), name(node)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_without_heartbeats_is_gone() {
    let world = World::new(1);
    let bucket = bucket(&world);
    let (one, two) = (heartbeat("one", 1), heartbeat("two", 2));
    two.write(&bucket).await.unwrap();
    let task = tokio::spawn({
        let (bucket, one) = (bucket.clone(), one.clone());
        async move { beat(&bucket, || one.clone()).await }
    });
    tokio::time::sleep(GONE_AFTER - HEARTBEAT_INTERVAL).await;
    assert_eq!(
        names(&live(&bucket, &one).await),
        [("one", false), ("two", false)]
    );
    tokio::time::sleep(3 * HEARTBEAT_INTERVAL).await;
    let nodes = live(&bucket, &one).await;
    assert_eq!(names(&nodes), [("one", false), ("two", true)]);
    let gone = nodes.find(&two.node).unwrap();
    assert_eq!(gone.heartbeat, two);
    assert!(
        gone.age > GONE_AFTER && gone.age < 2 * GONE_AFTER,
        "{:?}",
        gone.age
    );
    // For two, whose last heartbeat is older, nobody is.
    assert_eq!(
        names(&live(&bucket, &two).await),
        [("one", false), ("two", false)]
    );
    two.write(&bucket).await.unwrap();
    assert_eq!(
        names(&live(&bucket, &one).await),
        [("one", false), ("two", false)]
    );
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn the_last_run_of_a_node_is_the_node() {
    let world = World::new(2);
    let bucket = bucket(&world);
    let (before, after) = (heartbeat("one", 1), heartbeat("one", 2));
    before.write(&bucket).await.unwrap();
    tokio::time::sleep(2 * GONE_AFTER).await;
    after.write(&bucket).await.unwrap();
    let nodes = live(&bucket, &after).await;
    assert_eq!(nodes.all().len(), 1);
    assert_eq!(
        (nodes.all()[0].heartbeat.boot, nodes.all()[0].is_ambiguous),
        (after.boot, false)
    );
    // Both at once are two machines with one name.
    before.write(&bucket).await.unwrap();
    assert!(live(&bucket, &after).await.all()[0].is_ambiguous);

    let own = (&after.node, after.boot);
    assert_eq!(Nodes::sweep(&bucket, own).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_secs(25 * 3600)).await;
    after.write(&bucket).await.unwrap();
    assert_eq!(Nodes::sweep(&bucket, own).await.unwrap(), 1);
    assert_eq!(bucket.list_all("n").await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_heartbeat_is_skipped() {
    let world = World::new(3);
    let bucket = bucket(&world);
    let own = heartbeat("own", 1);
    own.write(&bucket).await.unwrap();
    let other = heartbeat("other", 7);
    let body = serde_json::to_vec(&other).unwrap();
    let boot = Uuid::from_u128(7);
    for (key, body) in [
        ("n/stray".to_owned(), body.clone()),
        ("n/a/b/c".to_owned(), body.clone()),
        (format!("n/third/{boot}"), body.clone()),
        (format!("n/text/{boot}"), b"text".to_vec()),
        (format!("n/long/{boot}"), vec![b' '; 1 << 20]),
    ] {
        bucket.put(&key, body.into()).await.unwrap();
    }
    assert_eq!(names(&live(&bucket, &own).await), [("own", false)]);
}

fn storage(number: u16) -> StorageId {
    StorageId::new(1_700_000_000_000 + u64::from(number), [0; 10])
}

#[tokio::test(start_paused = true)]
async fn only_the_storages_of_a_node_that_goes_move() {
    let world = World::new(4);
    let bucket = bucket(&world);
    let all: Vec<_> = (0..5)
        .map(|number| heartbeat(&format!("node-{number}"), number))
        .collect();
    for heartbeat in &all {
        heartbeat.write(&bucket).await.unwrap();
    }
    let five = live(&bucket, &all[0]).await;
    tokio::time::sleep(2 * GONE_AFTER).await;
    for heartbeat in &all[..4] {
        heartbeat.write(&bucket).await.unwrap();
    }
    let four = live(&bucket, &all[0]).await;
    let mut shares = BTreeMap::<_, u32>::new();
    for number in 0..1000 {
        let name = |node: &&object_tier::Node| node.heartbeat.node.to_string();
        let mut before: Vec<_> = five.rank(storage(number)).iter().map(name).collect();
        let after: Vec<_> = four.rank(storage(number)).iter().map(name).collect();
        *shares.entry(before[0].clone()).or_default() += 1;
        before.retain(|name| name != "node-4");
        assert_eq!(before, after);
    }
    assert_eq!(shares.len(), 5);
    assert!(
        shares.values().all(|share| (140..260).contains(share)),
        "{shares:?}"
    );
}

/// Nodes of different versions must agree.
#[tokio::test(start_paused = true)]
async fn the_order_never_changes() {
    let world = World::new(5);
    let bucket = bucket(&world);
    for number in 0..5 {
        heartbeat(&format!("node-{number}"), number)
            .write(&bucket)
            .await
            .unwrap();
    }
    let nodes = live(&bucket, &heartbeat("node-0", 0)).await;
    let first = |number| {
        nodes.rank(storage(number))[0]
            .heartbeat
            .node
            .as_str()
            .to_owned()
    };
    let firsts: Vec<_> = (0..8).map(first).collect();
    let expected = "node-4 node-1 node-0 node-4 node-3 node-4 node-1 node-2";
    assert_eq!(firsts.join(" "), expected);
}

#[tokio::test(start_paused = true)]
async fn a_storage_on_a_disk_has_one_owner() {
    let world = World::new(6);
    let bucket = bucket(&world);
    let owner = |name: &str| LocalOwner::new(&NodeName::new(name).unwrap(), "http://there:1");
    let (one, two) = (owner("one"), owner("two"));
    assert_eq!(LocalOwner::of(&bucket, storage(1)).await.unwrap(), None);
    one.claim(&bucket, storage(1)).await.unwrap();
    one.claim(&bucket, storage(1)).await.unwrap();
    let error = two.claim(&bucket, storage(1)).await.unwrap_err();
    assert!(matches!(error, TierError::Superseded { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("node one created it; push to http://there:1")
    );
    assert_eq!(
        LocalOwner::of(&bucket, storage(1)).await.unwrap(),
        Some(one)
    );
    two.claim(&bucket, storage(2)).await.unwrap();
    bucket
        .put(&format!("s/{}/owner", storage(2)), "x".into())
        .await
        .unwrap();
    let error = LocalOwner::of(&bucket, storage(2)).await.unwrap_err();
    assert!(matches!(error, TierError::Damaged { .. }), "{error}");
}
