//! What a node has lost of the place of a storage in the store, and what uploads left there.

use super::*;

fn data_path(server: &Server, storage: &str) -> String {
    let files = server.api().files(storage);
    let (name, ..) = files.iter().find(|(_, role, _)| role == "data").unwrap();
    format!("/storage/{storage}/{name}")
}

fn lose(path: &Path, is_gone: bool) {
    if is_gone {
        return fs::remove_file(path).unwrap();
    }
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Damages a file of an evicted storage between two runs, the second of which begins while the
/// store is down; the bytes come back by themselves.
fn survives(server: &mut Server, data: &Path, proxy: &StoreProxy, storage: &str) {
    let path = data_path(server, storage);
    let read = |server: &Server| server.api().send(&Request::new("GET", &path)).unwrap();
    let before = read(server);
    assert_eq!(before.status, 200, "{}", before.brief());
    let file = |ending: &str| data.join(format!("storages/{storage}/{storage}.{ending}"));
    for (ending, is_gone) in [
        ("tier", false),
        ("tier-sums", false),
        ("tier", true),
        ("tier-sums", true),
    ] {
        act(server, storage, "evict");
        server.kill();
        lose(&file(ending), is_gone);
        proxy.set_down(true);
        server.restart();
        let refused = read(server);
        let what = format!("{ending} {is_gone}: {}", refused.brief());
        assert_eq!(refused.status, 503, "{what}");
        assert_eq!(refused.json()["code"], "object_store_unavailable", "{what}");
        assert!(refused.header("retry-after").is_some(), "{what}");
        proxy.set_down(false);
        until("it is not served again", server, || {
            let again = read(server);
            assert!([200, 503].contains(&again.status), "{}", again.brief());
            assert!(again.status == 503 || again.body == before.body);
            again.status == 200
        });
        assert!(file(ending).exists(), "{ending}");
        assert!(tier(server, storage)["bytes_here"].is_u64());
    }
    // While it runs: the next reader after the damage waits for nothing but the store.
    act(server, storage, "evict");
    lose(&file("tier-sums"), false);
    until("it is not served again", server, || {
        let again = read(server);
        again.status == 200 && again.body == before.body
    });
}

#[test]
fn what_is_lost_of_the_place_of_a_storage_is_made_again() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    let settings =
        |node: &str| ObjectStore::settings_at(proxy.address(), node, "request_seconds = 2\n");
    let (folder, mut one) = start(settings("one"));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    let labels = json!({ "labels": { "use_case": "ci" } });
    let path = format!("/storages/{storage}");
    one.api().done("PATCH", &path, Some(&labels));
    survives(&mut one, &folder.path().join("data"), &proxy, &storage);
    assert_eq!(tier(&one, &storage)["state"], "evicted");
    assert_eq!(one.api().storage(&storage)["labels"]["use_case"], "ci");
    assert_eq!(one.api().verify(&storage), Vec::<Value>::new());

    // On a node that has it from the store, too.
    let (folder, mut two) = start(settings("two"));
    wait_listed(&two, &storage);
    survives(&mut two, &folder.path().join("data"), &proxy, &storage);
    assert_eq!(tier(&two, &storage)["state"], "remote");
}

#[test]
fn what_an_upload_left_is_removed_after_a_restart() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    // The shortest grace.
    let (_folder, mut one) = start(store.settings("one", "grace_seconds = 60\n"));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    let left = format!(
        "cluster/s/{storage}/f/0000000000000000.itdata.{}",
        "0".repeat(32)
    );
    store.python(&format!(
        "s3.put_object(Bucket=bucket, Key={left:?}, Body=b'left')"
    ));
    let before = store.keys();
    one.kill();
    one.restart();
    let begun = Instant::now();
    while store.keys().contains(&left) {
        assert!(begun.elapsed() < 3 * PATIENCE, "it stays:\n{}", one.log());
        std::thread::sleep(Duration::from_secs(2));
    }
    let of_storage = |keys: Vec<String>| -> Vec<String> {
        let prefix = format!("cluster/s/{storage}/");
        let keys = keys.into_iter().filter(|key| key.starts_with(&prefix));
        keys.filter(|key| *key != left).collect()
    };
    assert_eq!(of_storage(store.keys()), of_storage(before));
}
