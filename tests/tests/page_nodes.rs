//! The page of a server that shares an object store with others.

use harness::{Agent, ObjectStore, Server};
use serde_json::{Value, json};

use crate::page::drive;
use crate::takeover::{start, until};

/// What the page should show of a node.
fn shown(server: &Server, node: &str, storages: &[String]) -> Value {
    json!({ "node": node, "url": server.url(), "storages": storages })
}

fn of<'n>(nodes: &'n Value, name: &str) -> &'n Value {
    let all = nodes["nodes"].as_array().unwrap();
    let found = all.iter().find(|node| node["node"] == name);
    found.unwrap_or(&Value::Null)
}

#[test]
fn the_page_shows_the_nodes_and_what_they_own() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&store.settings("one", ""));
    let (_other, mut two) = start(&store.settings("two", ""));
    let open = |server: &Server, count: usize| {
        let names = (0..count).map(|number| {
            let mut api = server.api();
            let storage = api.create_storage(&format!("s{number}"));
            Agent::declare(&mut api, &storage, "host", "s", "none").push(&mut api, 0, b"first");
            storage
        });
        names.collect::<Vec<String>>()
    };
    let (own, others) = (open(&one, 1), open(&two, 2));
    until("the nodes do not know each other", &one, || {
        let nodes = one.api().done("GET", "/nodes", None);
        assert_eq!(nodes["node"], "one");
        let mut expected = others.clone();
        expected.reverse();
        of(&nodes, "two")["open"] == json!(expected) && of(&nodes, "one")["open"] == json!(own)
    });
    let given = |gone: bool, url: &str| {
        let mut other = shown(&one, "two", &others);
        other["url"] = json!(url);
        json!({
            "server": one.url(), "gone": gone, "own": shown(&one, "one", &own), "other": other,
        })
    };
    let url = two.url();
    drive("nodes.mjs", given(false, &url));

    two.kill();
    until("it is not gone", &one, || {
        of(&one.api().done("GET", "/nodes", None), "two")["state"] == "gone"
    });
    drive("nodes.mjs", given(true, &url));
}
