//! What the nodes do, as scripts: each request is repeated until it succeeds, as a client does it
//! whose node is killed.

use super::nodes::Cluster;

/// Settings of the section of the object store.
const CHAINED: &str = "durability = \"object\"\n";
const LOCAL: &str = "";
/// Everything that is uploaded is evicted.
const EVICTING: &str = "local_bytes_max = 1\n";
/// It never uploads by itself.
const KEEPING: &str = "durability = \"object\"\nupload_label = \"never\"\n";
/// What is left of other uploads is removed at once.
const COLLECTING: &str = "grace_seconds = 0\n";

/// Something that the nodes do.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    /// Settings of each node.
    pub(super) nodes: [&'static str; 3],
    pub(super) run: fn(&mut Cluster<'_>),
}

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "upload",
        nodes: [CHAINED, CHAINED, CHAINED],
        run: upload,
    },
    Script {
        name: "eviction",
        nodes: [EVICTING, LOCAL, EVICTING],
        run: evict,
    },
    Script {
        name: "takeover",
        nodes: [CHAINED, CHAINED, CHAINED],
        run: take_over,
    },
    Script {
        name: "takeover-of-finalized",
        nodes: [KEEPING, CHAINED, CHAINED],
        run: take_over_finalized,
    },
    Script {
        name: "labels",
        nodes: [LOCAL, LOCAL, LOCAL],
        run: label,
    },
    Script {
        name: "deletion",
        nodes: [CHAINED, CHAINED, LOCAL],
        run: delete,
    },
    Script {
        name: "collection",
        nodes: [COLLECTING, LOCAL, LOCAL],
        run: collect,
    },
];

/// A storage that all nodes show, written and uploaded by the first.
fn uploaded(cluster: &mut Cluster<'_>) -> String {
    let id = cluster.create(0, "first");
    cluster.push(0, &id, 5);
    cluster.finalize(0, &id);
    cluster.has_all(&id);
    id
}

fn upload(cluster: &mut Cluster<'_>) {
    let id = uploaded(cluster);
    cluster.until("it is not known that it is uploaded", |cluster| {
        ["uploaded", "evicted"]
            .iter()
            .any(|state| cluster.is_in_tier(0, &id, state))
    });
    cluster.until("its packets stay in the chain", |cluster| {
        let keys = cluster.keys(&id);
        let chain = keys.iter().filter(|key| key.starts_with("chain/"));
        keys.iter().any(|key| key == "seal") && chain.count() <= 3
    });
    cluster.has_all(&id);
}

fn evict(cluster: &mut Cluster<'_>) {
    let id = uploaded(cluster);
    cluster.until("it is not evicted", |cluster| {
        cluster.is_in_tier(0, &id, "evicted")
    });
    cluster.has_all(&id);
}

fn take_over(cluster: &mut Cluster<'_>) {
    let id = cluster.create(0, "first");
    cluster.push(0, &id, 4);
    cluster.take_down(0);
    let path = format!("/storages/{id}/adopt");
    cluster.call(1, ("POST", &path), r#"{"force":true}"#, &[200]);
    cluster.push(1, &id, 2);
    cluster.bring_back(0);
    cluster.push(1, &id, 1);
    cluster.finalize(1, &id);
    cluster.has_all(&id);
}

fn take_over_finalized(cluster: &mut Cluster<'_>) {
    let id = cluster.create(0, "first");
    cluster.push(0, &id, 4);
    cluster.finalize(0, &id);
    cluster.take_down(0);
    let path = format!("/storages/{id}/adopt");
    cluster.call(1, ("POST", &path), r#"{"force":true}"#, &[200]);
    cluster.until("it is not sealed", |cluster| {
        cluster.keys(&id).iter().any(|key| key == "seal")
    });
    cluster.bring_back(0);
    cluster.has_all(&id);
}

fn label(cluster: &mut Cluster<'_>) {
    let id = cluster.create(0, "first");
    cluster.push(0, &id, 4);
    cluster.take_down(2);
    cluster.finalize(0, &id);
    cluster.until("a node does not show the storage", |cluster| {
        cluster.listed(1, &id).is_some()
    });
    let path = format!("/storages/{id}");
    cluster.call(1, ("PATCH", &path), r#"{"description":"changed"}"#, &[200]);
    let label = format!("{path}/labels/team");
    cluster.call(0, ("PUT", &label), r#"{"value":"blue"}"#, &[200]);
    cluster.bring_back(2);
    for node in 0..3 {
        cluster.until("a node lacks a change of labels", |cluster| {
            let listed = cluster.listed(node, &id);
            listed.is_some_and(|listed| {
                listed["description"] == "changed" && listed["labels"]["team"] == "blue"
            })
        });
    }
    cluster.has_all(&id);
}

fn delete(cluster: &mut Cluster<'_>) {
    let open = cluster.create(0, "open");
    cluster.push(0, &open, 2);
    cluster.delete(0, &open);
    let id = uploaded(cluster);
    cluster.delete(1, &id);
    for id in [&open, &id] {
        for node in 0..3 {
            cluster.until("a node still shows it", |cluster| {
                cluster.listed(node, id).is_none()
            });
        }
        cluster.until("it is still in the store", |cluster| {
            let keys = cluster.keys(id);
            let is_mark = |key: &String| key == "gone" || key.starts_with("chain/");
            keys.contains(&"gone".to_owned()) && keys.iter().all(is_mark)
        });
    }
}

fn collect(cluster: &mut Cluster<'_>) {
    let id = cluster.create(0, "first");
    cluster.push(0, &id, 4);
    let left = format!("heads.{:032x}", 7);
    cluster.leave(&id, &left);
    cluster.finalize(0, &id);
    cluster.until("what is left of an upload stays", |cluster| {
        !cluster.keys(&id).contains(&left)
    });
    cluster.has_all(&id);
}
