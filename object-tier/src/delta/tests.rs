use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::faulty::{Fault, Faulty};

fn schema() -> DeltaSchema {
    let column = |name: &str, kind| DeltaColumn {
        name: name.to_owned(),
        kind,
    };
    DeltaSchema(vec![
        column("ts", DeltaType::Timestamp),
        column("dur", DeltaType::Long),
        column("name", DeltaType::String),
    ])
}

fn storage(number: u8) -> StorageId {
    StorageId::new(1_764_000_000_000, [number; 10])
}

fn file(path: &str) -> DataFile {
    DataFile {
        path: path.to_owned(),
        length: 100,
        statistics: FileStatistics {
            rows: 7,
            columns: BTreeMap::from([(
                "name".to_owned(),
                ColumnStatistics {
                    min: Some(json!("a")),
                    max: Some(json!("z".repeat(300))),
                    nulls: Some(2),
                },
            )]),
        },
    }
}

async fn open(bucket: &Bucket) -> Result<DeltaTable, TierError> {
    DeltaTable::open_or_create(bucket.clone(), "events/dft", &schema()).await
}

async fn put(bucket: &Bucket, version: u64, lines: &[serde_json::Value]) {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let key = format!("events/dft/_delta_log/{version:020}.json");
    bucket.put(&key, Bytes::from(body)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn four_writers_at_once_lose_nothing_and_add_nothing_twice() {
    let store = Faulty::new();
    let bucket = store.bucket(64);
    // Whoever looks for the next version and then makes it is overtaken by others in between.
    store.plan(|number, _, _| Fault::Delay(Duration::from_millis(number * 7 % 11)));
    let writers = (0..4_u8).map(|writer| {
        let bucket = bucket.clone();
        tokio::spawn(async move {
            let mut table = open(&bucket).await.unwrap();
            let mut added = 0;
            // Ten storages of its own, and ten that all of them want to add.
            for number in (0..10).flat_map(|number| [100 + number, 10 * writer + number]) {
                let path = format!("storage={number}/{writer}.parquet");
                let done = table.add_storage(storage(number), &[file(&path)]).await;
                added += u32::from(matches!(done.unwrap(), Addition::Added(_)));
            }
            added
        })
    });
    let mut added = 0;
    for writer in writers.collect::<Vec<_>>() {
        added += writer.await.unwrap();
    }
    let table = open(&bucket).await.unwrap();
    assert_eq!((added, table.files().len(), table.version()), (50, 50, 50));
    let lost = bucket.requests().failures.load(Ordering::Relaxed);
    assert!(lost > 20, "{lost} races were lost");
    let folders = table.files().into_keys();
    let folders = folders.map(|path| path.split('/').next().unwrap().to_owned());
    assert_eq!(folders.collect::<BTreeSet<_>>().len(), 50);
}

/// Some writes do what they should, and their answer is lost; others do nothing.
#[tokio::test(start_paused = true)]
async fn lost_answers_change_nothing() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    store.plan(|number, name, _| match (name, number % 3) {
        ("put", 1) => Fault::FailAfter("the connection broke"),
        ("put", 2) => Fault::Fail("the connection broke"),
        _ => Fault::Nothing,
    });
    let (mut one, mut other) = (open(&bucket).await.unwrap(), open(&bucket).await.unwrap());
    for number in 0..20 {
        let table = if number % 2 == 0 {
            &mut one
        } else {
            &mut other
        };
        let files = [file(&format!("{number}.parquet"))];
        let done = table.add_storage(storage(number), &files).await;
        assert!(matches!(done.unwrap(), Addition::Added(_)));
    }
    let table = open(&bucket).await.unwrap();
    assert_eq!((table.files().len(), table.version()), (20, 20));
}

/// A writer that ended between its commit and the answer, or before the commit, begins again.
#[tokio::test]
async fn adding_again_after_a_crash_is_nothing() {
    let store = Faulty::new();
    let bucket = store.bucket(8);
    let mut table = open(&bucket).await.unwrap();
    store.plan(|_, name, _| match name {
        "put" => Fault::StopAfter,
        _ => Fault::Nothing,
    });
    let files = [file("first.parquet")];
    let crashing = table.add_storage(storage(1), &files);
    tokio::select! {
        _ = crashing => panic!("it has to be stopped"),
        () = store.stopped() => {}
    }
    store.plan(|_, _, _| Fault::Nothing);
    let mut again = open(&bucket).await.unwrap();
    let files = [file("second.parquet")];
    let done = again.add_storage(storage(1), &files).await.unwrap();
    assert_eq!(done, Addition::AlreadyThere);
    assert_eq!(again.files(), BTreeMap::from([("first.parquet", 100)]));
    // The one that was stopped goes on with what it knew.
    let done = table.add_storage(storage(1), &files).await.unwrap();
    assert_eq!(done, Addition::AlreadyThere);
    assert_eq!(again.version(), 1);
}

#[tokio::test]
async fn what_was_removed_does_not_come_back() {
    let bucket = Faulty::new().bucket(8);
    let (mut one, mut other) = (open(&bucket).await.unwrap(), open(&bucket).await.unwrap());
    let files = [file("a.parquet"), file("b.parquet")];
    one.add_storage(storage(1), &files).await.unwrap();
    one.add_storage(storage(2), &[file("c.parquet")])
        .await
        .unwrap();
    let removed = other.remove_storage(storage(1)).await.unwrap();
    assert_eq!(removed, ["a.parquet", "b.parquet"]);
    assert!(one.remove_storage(storage(1)).await.unwrap().is_empty());
    assert!(one.remove_storage(storage(3)).await.unwrap().is_empty());
    let done = one.add_storage(storage(1), &files).await.unwrap();
    assert_eq!(done, Addition::Removed);
    assert_eq!(one.files(), BTreeMap::from([("c.parquet", 100)]));
    assert_eq!(one.version(), 3);
}

/// Files of interrupted tries go, those of others stay, and those of removed storages stay for as
/// long as their readers were promised.
#[tokio::test]
async fn files_that_no_version_needs_are_deleted() {
    let bucket = Faulty::new().bucket(8);
    let schema = schema();
    let open_now = || DeltaTable::open(bucket.clone(), "events/dft", &schema);
    assert!(open_now().await.unwrap().is_none());
    let mut table = open(&bucket).await.unwrap();
    let stored = |byte: u8, length: usize| {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &vec![byte; length]).unwrap();
        file
    };
    // One that is sent in parts.
    let long = 9 << 20;
    let mut paths = Vec::new();
    for length in [5, long] {
        let path = table.store_file(storage(1), stored(1, length)).await;
        let (path, stored) = path.unwrap();
        assert_eq!(stored, length as u64);
        paths.push(path);
    }
    let other = format!("storage={}/part-0.parquet", storage(1));
    let key = |path: &str| format!("events/dft/{path}");
    bucket.put(&key(&other), Bytes::new()).await.unwrap();
    assert!(!table.was_added(storage(1)));
    let added = table.add_storage(storage(1), &[file(&paths[1])]).await;
    assert_eq!(added.unwrap(), Addition::Added(1));
    assert!(table.was_added(storage(1)) && table.storages() == [storage(1)]);
    assert_eq!(table.delete_leftovers(storage(1)).await.unwrap(), 1);
    assert_eq!(table.delete_leftovers(storage(1)).await.unwrap(), 0);
    let has = async |path: &str| bucket.get(&key(path)).await.unwrap().is_some();
    assert!(!has(&paths[0]).await && has(&other).await);
    let body = bucket.get(&key(&paths[1])).await.unwrap().unwrap();
    assert!(body.len() == long && body.iter().all(|byte| *byte == 1));

    table.remove_storage(storage(1)).await.unwrap();
    assert!(table.was_added(storage(1)) && table.storages().is_empty());
    let hour = Duration::from_secs(3600);
    assert_eq!(table.delete_removed(hour).await.unwrap(), 0);
    assert_eq!(table.delete_leftovers(storage(1)).await.unwrap(), 0);
    assert!(has(&paths[1]).await);
    // Also by a writer that was not there when it was removed.
    let mut later = open_now().await.unwrap().unwrap();
    assert_eq!(later.delete_removed(Duration::ZERO).await.unwrap(), 1);
    assert!(!has(&paths[1]).await && has(&other).await);
    assert_eq!(later.delete_removed(Duration::ZERO).await.unwrap(), 0);
}

/// A program that joins files of a storage keeps the transactions.
#[tokio::test]
async fn files_that_another_program_rewrote_are_those_of_the_storage() {
    let bucket = Faulty::new().bucket(8);
    let mut table = open(&bucket).await.unwrap();
    let files = [file("a.parquet"), file("b.parquet")];
    table.add_storage(storage(1), &files).await.unwrap();
    let add = json!({ "add": {
        "path": "joined.parquet", "size": 150, "modificationTime": 0, "dataChange": false,
        "partitionValues": { "storage": storage(1).to_string() }, "tags": { "by": "another" },
    }});
    let remove = |path: &str| json!({ "remove": { "path": path, "dataChange": false } });
    let lines = [
        add,
        remove("a.parquet"),
        remove("b.parquet"),
        json!({ "unknown": {} }),
    ];
    put(&bucket, 2, &lines).await;
    let done = table.add_storage(storage(1), &files).await.unwrap();
    assert_eq!(done, Addition::AlreadyThere);
    assert_eq!(table.files(), BTreeMap::from([("joined.parquet", 150)]));
    let removed = table.remove_storage(storage(1)).await.unwrap();
    assert_eq!(removed, ["joined.parquet"]);
}

#[tokio::test]
async fn commits_are_as_the_protocol_says() {
    let bucket = Faulty::new().bucket(8);
    let mut table = open(&bucket).await.unwrap();
    table
        .add_storage(storage(1), &[file("a.parquet")])
        .await
        .unwrap();
    let lines = |version: u64| {
        let key = format!("events/dft/_delta_log/{version:020}.json");
        let bucket = bucket.clone();
        async move {
            let body = bucket.get(&key).await.unwrap().unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            lines.collect::<Vec<serde_json::Value>>()
        }
    };
    let first = lines(0).await;
    assert_eq!(
        first[1]["protocol"],
        json!({ "minReaderVersion": 1, "minWriterVersion": 2 })
    );
    let metadata = &first[2]["metaData"];
    assert_eq!(metadata["partitionColumns"], json!(["storage"]));
    let text = metadata["schemaString"].as_str().unwrap();
    let columns: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(columns["type"], "struct");
    assert_eq!(columns["fields"].as_array().unwrap().len(), 4);
    assert_eq!(
        columns["fields"][0],
        json!({ "name": "ts", "type": "timestamp", "nullable": true, "metadata": {} })
    );
    let second = lines(1).await;
    assert!(second[0]["commitInfo"]["txnId"].is_string());
    assert_eq!(second[1]["txn"]["version"], 1);
    let add = &second[2]["add"];
    let values = json!({ "storage": storage(1).to_string() });
    assert_eq!(
        (&add["partitionValues"], &add["size"]),
        (&values, &json!(100))
    );
    let statistics: serde_json::Value =
        serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
    let expected = json!({
        "numRecords": 7, "minValues": { "name": "a" }, "maxValues": {}, "nullCount": { "name": 2 },
    });
    assert_eq!(statistics, expected, "a text that is too long is no limit");
}

#[tokio::test]
async fn what_cannot_be_written_to_is_refused_and_says_why() {
    let said = async |bucket: &Bucket| open(bucket).await.unwrap_err().to_string();
    let bucket = Faulty::new().bucket(8);
    let mut table = open(&bucket).await.unwrap();
    let other = DeltaSchema(vec![DeltaColumn {
        name: "dur".to_owned(),
        kind: DeltaType::Double,
    }]);
    let refused = DeltaTable::open_or_create(bucket.clone(), "events/dft", &other).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`dur` has the type \"long\""), "{refused}");
    let newer = json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7 } });
    put(&bucket, 1, &[newer]).await;
    let refused = table.add_storage(storage(1), &[file("a.parquet")]).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("version 3 of readers")
    );
    put(&bucket, 1, &[json!({ "add": { "path": 7 } })]).await;
    let refused = said(&bucket).await;
    assert!(refused.contains("00000000000000000001.json` in the object store is damaged: line 1"));
    bucket
        .delete("events/dft/_delta_log/00000000000000000000.json")
        .await
        .unwrap();
    let refused = said(&bucket).await;
    assert!(refused.contains("cleaned the log"), "{refused}");
}

proptest! {
    #[test]
    fn no_commit_is_a_reason_to_panic(lines in prop::collection::vec(
        prop_oneof![
            any::<Vec<u8>>(),
            "[{}\":,a-z0-9]{0,40}".prop_map(String::into_bytes),
            prop::sample::select(vec![
                r#"{"add":{"path":"a","size":-1}}"#, r#"{"add":{"path":"a","size":1}}"#,
                r#"{"txn":{"appId":"tracehold/x","version":1}}"#, r#"{"remove":{"path":"a"}}"#,
                r#"{"metaData":{"schemaString":"{}"}}"#, "null", "[]", "{\"add\":null}",
            ]).prop_map(|line| line.as_bytes().to_vec()),
        ], 0..6,
    )) {
        let mut log = Log::default();
        let body = lines.join(&b'\n');
        if log.apply("key", &body).is_ok() {
            prop_assert_eq!(log.next, 1);
            let _checked = log.check("key", &schema());
        }
    }
}

/// The kinds of the actions of a checkpoint, with the paths of files.
fn kinds(checkpoint: &Checkpoint) -> Vec<String> {
    let kind = |action: &serde_json::Value| {
        let (kind, of) = action.as_object().unwrap().iter().next().unwrap();
        match of["path"].as_str() {
            Some(path) => {
                assert_eq!(of["dataChange"], false);
                format!("{kind} {path}")
            }
            None => kind.clone(),
        }
    };
    let mut kinds: Vec<String> = checkpoint.actions.iter().map(kind).collect();
    kinds.sort();
    kinds
}

#[tokio::test]
async fn a_checkpoint_has_what_counts_and_is_made_once() {
    let bucket = Faulty::new().bucket(8);
    let mut table = open(&bucket).await.unwrap();
    for number in 0..8 {
        assert_eq!(table.due_checkpoint().await.unwrap(), None, "{number}");
        let path = format!("{number}.parquet");
        table
            .add_storage(storage(number), &[file(&path)])
            .await
            .unwrap();
    }
    table.remove_storage(storage(0)).await.unwrap();
    // One that was removed a week ago, by another program.
    put(
        &bucket,
        10,
        &[json!({ "remove": { "path": "old.parquet", "deletionTimestamp": 1, "dataChange": true } })],
    )
    .await;
    table.refresh().await.unwrap();
    let due = table.due_checkpoint().await.unwrap().unwrap();
    assert_eq!(due.version, 10);
    let expected: Vec<String> = (1..8)
        .map(|number| format!("add {number}.parquet"))
        .chain(["metaData", "protocol", "remove 0.parquet"].map(str::to_owned))
        .chain(std::iter::repeat_n("txn".to_owned(), 8))
        .collect();
    assert_eq!(kinds(&due), expected);
    // Another node has the same thought.
    let mut other = open(&bucket).await.unwrap();
    assert_eq!(other.due_checkpoint().await.unwrap(), Some(due.clone()));
    table.store_checkpoint(&due, b"one".to_vec()).await.unwrap();
    other
        .store_checkpoint(&due, b"other".to_vec())
        .await
        .unwrap();
    let mut third = open(&bucket).await.unwrap();
    for table in [&mut table, &mut other, &mut third] {
        assert_eq!(table.due_checkpoint().await.unwrap(), None);
    }
    let folder = "events/dft/_delta_log/";
    let last = bucket.get(&format!("{folder}_last_checkpoint")).await;
    let last: serde_json::Value = serde_json::from_slice(&last.unwrap().unwrap()).unwrap();
    assert_eq!(last, json!({ "version": 10, "size": due.actions.len() }));
    let stored = bucket
        .get(&format!("{folder}{:020}.checkpoint.parquet", 10))
        .await;
    assert_eq!(stored.unwrap().unwrap(), "one");
    // One that cannot be read is none.
    bucket
        .put(&format!("{folder}_last_checkpoint"), "{".into())
        .await
        .unwrap();
    let mut fourth = open(&bucket).await.unwrap();
    assert!(fourth.due_checkpoint().await.unwrap().is_some());
}
