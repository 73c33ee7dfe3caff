//! Stores that do not speak like S3: Azurite, and a stand-in for Google Cloud Storage. What is
//! promised of a store holds there, too: the life of a storage, and packets that survive their node
//! although answers of the store are lost.

use object_tier::{
    Bucket, Creation, Credentials, Location, Reader, StoreSettings, TierError, store_file,
};

use super::*;
use crate::takeover::{lost_answers, lost_with_its_disk};

/// Those who create one object at once.
const CREATORS: u8 = 6;
/// An object of three parts.
const LONG_BYTES: usize = 20 << 20;

/// A store whose client was compiled in. `cargo xtask test` does that for all of them.
fn built_in(url: &str, start: impl Fn() -> Option<ObjectStore>) -> Option<ObjectStore> {
    let Err(error) = Location::parse(url) else {
        return start();
    };
    harness::without(&format!("a server that knows more stores ({})", error.what));
    None
}

fn azure() -> Option<ObjectStore> {
    built_in("azure://traces", ObjectStore::azurite)
}

fn google() -> Option<ObjectStore> {
    built_in("gs://traces", ObjectStore::google)
}

fn open_google() -> Option<ObjectStore> {
    built_in("gs://traces", ObjectStore::open_google)
}

/// A bucket as a program opens it that has the credentials in a file.
fn bucket(store: &ObjectStore) -> Bucket {
    let (url, endpoint) = store.urls();
    let service = Location::parse(&url).unwrap().service;
    let settings = StoreSettings {
        url,
        endpoint: Some(endpoint),
        credentials: Some(Credentials::parse(service, &store.credentials_file()).unwrap()),
        requests_max: 16,
        timeout: Duration::from_secs(30),
        ..StoreSettings::default()
    };
    settings.open().unwrap()
}

/// All that is asked of a store (`docs/decisions/0254-stores-besides-s3.md`).
async fn contract(bucket: &Bucket) {
    // Of several that create an object at once, one makes it, and the others learn what it made.
    for round in 0..5 {
        let key = format!("race/{round}");
        let creators = (0..CREATORS).map(|creator| {
            let (bucket, key) = (bucket.clone(), key.clone());
            tokio::spawn(async move { bucket.create(&key, vec![creator; 100].into()).await })
        });
        let (mut made, mut existing) = (Vec::new(), Vec::new());
        for (creator, creation) in creators.collect::<Vec<_>>().into_iter().enumerate() {
            match creation.await.unwrap().unwrap() {
                Creation::Made => made.push(vec![u8::try_from(creator).unwrap(); 100]),
                Creation::Exists(body) => existing.push(body.to_vec()),
            }
        }
        assert_eq!(made.len(), 1, "{made:?} {existing:?}");
        assert!(existing.iter().all(|body| *body == made[0]), "{existing:?}");
    }

    // The last writer of an object that may be replaced wins.
    for body in ["one", "other"] {
        bucket.put("put", body.into()).await.unwrap();
        assert_eq!(bucket.get("put").await.unwrap().unwrap(), body);
    }
    let missing = bucket.get("missing").await.unwrap();
    assert_eq!(missing, None);
    bucket.delete("put").await.unwrap();
    bucket.delete("put").await.unwrap();

    // Lists are in pages, complete, and in order, with the times of the store.
    let keys: Vec<_> = (0..130).map(|number| format!("list/{number:03}")).collect();
    for key in &keys {
        bucket.put(key, "x".into()).await.unwrap();
    }
    let listed = bucket.list_all("list").await.unwrap();
    assert!(listed.iter().map(|each| &each.key).eq(&keys), "{listed:?}");
    assert!(
        listed
            .iter()
            .all(|each| each.length == 1 && each.modified > 0)
    );

    // A long object goes up in parts, and any range of it comes back.
    let body: Vec<_> = (0..LONG_BYTES)
        .map(|at| (at % 251).to_le_bytes()[0])
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    fs::write(&path, &body).unwrap();
    let file = fs::File::open(&path).unwrap();
    let length = store_file(bucket, "long", file).await.unwrap();
    assert_eq!(length, body.len() as u64);
    let reader = Reader::new(bucket.clone());
    for range in [0..1, 8_388_600..8_388_700, 0..length, length - 1..length] {
        let found = reader.fetch("long", range.clone()).await.unwrap();
        let expected = &body[range.start.try_into().unwrap()..range.end.try_into().unwrap()];
        assert!(found == expected, "{range:?}");
    }
    let behind = reader.fetch("long", length..length + 1).await.unwrap_err();
    assert!(matches!(behind, TierError::Damaged { .. }), "{behind}");
    let missing = reader.fetch("missing", 0..1).await.unwrap_err();
    assert!(matches!(missing, TierError::Gone(_)), "{missing}");
}

pub(super) fn check_contract(store: &ObjectStore) {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(contract(&bucket(store)));
}

/// A node that logs all it can, with its credentials in the environment or in a file, serves the
/// store and shows no secret.
fn no_secrets(store: &ObjectStore, is_in_file: bool) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    fs::write(&file, store.credentials_file()).unwrap();
    let in_file = format!("credentials_file = {file:?}\n");
    let more = if is_in_file { in_file.as_str() } else { "" };
    let mut settings = store.settings("talkative", more);
    let level = "trace,hyper=trace,hyper_util=trace,object_store=trace,reqwest=trace";
    writeln!(settings.config, "[log]\nlevel = {level:?}").unwrap();
    let secrets = settings.environment.clone();
    if is_in_file {
        settings.environment.clear();
    }
    let (_folder, server) = start(settings);
    let storage = stored(&server, "logged");
    wait_uploaded(&server, &storage);
    let log = server.log();
    assert!(log.contains("TRACE"), "nothing is logged");
    for (name, secret) in secrets {
        assert!(
            secret == "true" || !log.contains(&secret),
            "{name} is in the log"
        );
    }
}

#[test]
fn stores_like_s3_keep_the_contract() {
    if let Some(store) = ObjectStore::moto() {
        check_contract(&store);
    }
}

#[test]
fn storages_live_in_azure() {
    if let Some(store) = azure() {
        check_contract(&store);
        life_of_a_storage(&store);
        no_secrets(&store, false);
        no_secrets(&store, true);
    }
}

#[test]
fn storages_live_in_google() {
    if let Some(store) = google() {
        life_of_a_storage(&store);
        no_secrets(&store, false);
    }
    if let Some(store) = open_google() {
        check_contract(&store);
        no_secrets(&store, true);
    }
}

#[test]
fn chains_in_azure_are_fenced_and_complete() {
    if let Some(store) = azure() {
        lost_with_its_disk(&store);
        lost_answers(&store);
    }
}

#[test]
fn chains_in_google_are_fenced_and_complete() {
    if let Some(store) = google() {
        lost_with_its_disk(&store);
        lost_answers(&store);
    }
}

#[test]
fn lost_answers_of_azure_neither_lose_nor_double_anything() {
    // What its client makes of an answer is its own; the rest is as for all stores.
    let faults = [
        ("PUT", StoreFault::DropAnswer),
        ("PUT", StoreFault::Refuse(409)),
        ("GET", StoreFault::Refuse(503)),
    ];
    if let Some(store) = azure() {
        lost_answers_and_refusals(&store, &faults);
    }
}
