//! A Delta Lake table in real object stores: several writers at once, and readers that others made,
//! which find in it what the server answers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use harness::{ObjectStore, Request, Server, lake_python};
use object_tier::{
    Addition, Bucket, ColumnStatistics, Credentials, DataFile, DeltaColumn, DeltaSchema,
    DeltaTable, DeltaType, FileStatistics, StoreSettings,
};
use row_formats::write_delta_checkpoint;
use serde_json::{Value, json};
use storage_format::StorageId;

use crate::queries::push;

const STORAGES: u64 = 8;
const WRITERS: usize = 4;
const EVENTS: u64 = 200;
/// Microseconds of the first event; each storage begins a second after the one before.
const BEGIN: u64 = 1_700_000_000_000_000;

fn python(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/delta_table.py");
    let mut command = Command::new(lake_python().unwrap());
    let output = command.arg(script).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Reads a table with all programs, which have to find the lines of `expected`; those of the first
/// second after `begin` (nanoseconds) are in one file. A temporary file is in `folder`.
pub(crate) fn read(
    store: &ObjectStore,
    url: &str,
    (expected, folder): (&[u8], &Path),
    begin: u64,
) -> Value {
    let path = folder.join("expected.ndjson");
    fs::write(&path, expected).unwrap();
    let options = json!({
        "AWS_ENDPOINT_URL": format!("http://{}", store.address()),
        "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secretsecret",
        "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
    });
    let (options, begin) = (options.to_string(), begin.to_string());
    let found = python(&["read", url, &options, path.to_str().unwrap(), &begin]);
    serde_json::from_str(&found).unwrap()
}

fn bucket(store: &ObjectStore) -> Bucket {
    let settings = StoreSettings {
        url: "s3://traces/lake".to_owned(),
        endpoint: Some(format!("http://{}", store.address())),
        credentials: Some(Credentials::Keys {
            access: "AKIATEST".to_owned(),
            secret: "secretsecret".to_owned(),
        }),
        requests_max: 16,
        timeout: Duration::from_secs(30),
        ..StoreSettings::default()
    };
    settings.open().unwrap()
}

/// The columns of files of DFTracer events.
fn schema() -> DeltaSchema {
    let texts = ["name", "cat", "agent", "stream", "fname", "rest"];
    let numbers = ["ts", "dur", "pid", "tid", "ret", "size", "offset", "count"];
    let of = |name: &str, kind| DeltaColumn {
        name: name.to_owned(),
        kind,
    };
    let texts = texts.map(|name| of(name, DeltaType::String));
    DeltaSchema(
        numbers
            .map(|name| of(name, DeltaType::Long))
            .into_iter()
            .chain(texts)
            .collect(),
    )
}

/// Makes storages, and their files of events below `folder`. Returns their ids.
fn make_storages(server: &Server, folder: &Path) -> Vec<String> {
    let mut api = server.api();
    let ids = (0..STORAGES).map(|number| {
        let mut text = String::new();
        for id in 0..EVENTS {
            let name = ["read", "write", "open"][usize::try_from(id % 3).unwrap()];
            let ts = BEGIN + number * 1_000_000 + id;
            writeln!(
                text,
                r#"{{"id":{id},"name":"{name}","cat":"c","pid":{number},"tid":2,"ts":{ts},"dur":{},"ph":"X"}}"#,
                id % 9
            )
            .unwrap();
        }
        let path = folder.join("trace.pfw");
        fs::write(&path, text).unwrap();
        let id = api.create_storage(&format!("lake-{number}"));
        push(server, &id, &path, "4096");
        api.finalize(&id);
        let path = format!("/storage/{id}/events/dft.parquet");
        let file = api.send(&Request::new("GET", &path)).unwrap();
        assert_eq!(file.status, 200, "{}", file.brief());
        fs::write(folder.join(format!("{id}.parquet")), &file.body).unwrap();
        id
    });
    ids.collect()
}

fn statistics(known: &Value) -> FileStatistics {
    let columns = known["columns"].as_object().unwrap().iter();
    let columns = columns.map(|(name, of)| {
        let limits = ColumnStatistics {
            min: Some(of["min"].clone()).filter(|min| !min.is_null()),
            max: Some(of["max"].clone()).filter(|max| !max.is_null()),
            nulls: of["nulls"].as_u64(),
        };
        (name.clone(), limits)
    });
    FileStatistics {
        rows: known["rows"].as_u64().unwrap(),
        columns: columns.collect(),
    }
}

/// Every writer uploads the files of its storages, and tries to add all others, too.
async fn write(
    bucket: Bucket,
    writer: usize,
    files: Vec<(StorageId, Vec<u8>, FileStatistics)>,
) -> usize {
    let mut table = DeltaTable::open_or_create(bucket.clone(), "events/dft", &schema())
        .await
        .unwrap();
    let mut added = 0;
    let count = files.len();
    for turn in 0..count {
        let (id, body, statistics) = files[(turn + writer * 2) % count].clone();
        let path = format!("storage={id}/{writer}.parquet");
        let length = body.len() as u64;
        bucket
            .put(&format!("events/dft/{path}"), Bytes::from(body))
            .await
            .unwrap();
        let file = DataFile {
            path,
            length,
            statistics,
        };
        let done = table.add_storage(id, &[file]).await.unwrap();
        added += usize::from(matches!(done, Addition::Added(_)));
    }
    added
}

async fn check(store: &ObjectStore, server: &Server, folder: &Path) {
    let ids = make_storages(server, folder);
    let known = python(&["prepare", folder.to_str().unwrap()]);
    let known: Vec<Value> = known
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let files = ids.iter().map(|id| {
        let name = format!("{id}.parquet");
        let known = known.iter().find(|known| known["file"] == *name).unwrap();
        let body = fs::read(folder.join(&name)).unwrap();
        (id.parse().unwrap(), body, statistics(known))
    });
    let files: Vec<(StorageId, Vec<u8>, FileStatistics)> = files.collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(bucket(store), writer, files.clone())))
        .collect();
    let mut added = 0;
    for writer in writers {
        added += writer.await.unwrap();
    }
    assert_eq!(added, ids.len(), "each storage is added once");
    let mut table = DeltaTable::open_or_create(bucket(store), "events/dft", &schema())
        .await
        .unwrap();
    assert_eq!(
        (table.files().len(), table.version()),
        (ids.len(), STORAGES)
    );
    let read = |storages: &[String]| {
        let body = json!({ "storages": storages, "fields": ["ts", "dur", "name", "pid"] });
        let answer = server.api().call("POST", "/query", Some(&body));
        let url = "s3://traces/lake/events/dft";
        read(store, url, (&answer.body, folder), BEGIN * 1000)
    };
    let found = read(&ids);
    assert_eq!(
        found,
        json!({ "version": STORAGES, "files": STORAGES, "read": 1 })
    );
    let last: StorageId = ids.last().unwrap().parse().unwrap();
    assert_eq!(table.remove_storage(last).await.unwrap().len(), 1);
    let found = read(&ids[..ids.len() - 1]);
    let left = STORAGES - 1;
    assert_eq!(
        found,
        json!({ "version": STORAGES + 1, "files": left, "read": 1 })
    );
    // Ten commits are as good as a checkpoint, which everybody reads without them.
    let due = table.due_checkpoint().await.unwrap().unwrap();
    assert_eq!(due.version, STORAGES + 1);
    let file = write_delta_checkpoint(&due.actions).unwrap();
    table.store_checkpoint(&due, file).await.unwrap();
    assert_eq!(table.due_checkpoint().await.unwrap(), None);
    for version in 0..due.version {
        let key = format!("events/dft/_delta_log/{version:020}.json");
        bucket(store).delete(&key).await.unwrap();
    }
    assert_eq!(read(&ids[..ids.len() - 1]), found);
    let second: StorageId = ids[1].parse().unwrap();
    assert_eq!(table.remove_storage(second).await.unwrap().len(), 1);
    let mut ids = ids;
    ids.truncate(ids.len() - 1);
    ids.remove(1);
    let left = STORAGES - 2;
    assert_eq!(
        read(&ids),
        json!({ "version": STORAGES + 2, "files": left, "read": 1 })
    );
}

fn check_in(store: Option<ObjectStore>) {
    let Some(store) = store.filter(|_| lake_python().is_some()) else {
        return;
    };
    let (folder, server, _api) = Server::fresh();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    runtime.block_on(check(&store, &server, &files));
}

#[test]
fn a_table_in_radosgw_is_what_the_server_answers() {
    check_in(ObjectStore::radosgw());
}

#[test]
fn a_table_in_moto_is_what_the_server_answers() {
    check_in(ObjectStore::moto());
}
