//! Parquet files of events at URLs: read in one line by other programs, made once, and kept until
//! their space is needed; and references to packets.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Problem, Request, Response, Server, Settings, python_client_python};
use serde_json::{Value, json};

use crate::queries::{push, settings, wait_for_indexes};
use crate::repair::damaged;

/// What programs do with a URL. DuckDB's extension for HTTP cannot be installed everywhere: here
/// Arrow reads the ranges for it.
const READERS: &str = "\
import json, sys
import duckdb, fsspec, pandas, polars, pyarrow.parquet as parquet
url, references = sys.argv[1:]

def told(count, sum, first, last):
    print(json.dumps([int(count), int(sum), int(first), int(last)]))

frame = pandas.read_parquet(url)
times = frame['ts'].astype('int64')
assert times.is_monotonic_increasing
told(len(frame), frame['dur'].sum(), times.min(), times.max())

lazy = polars.scan_parquet(url)
times = polars.col('ts').cast(polars.Int64)
ends = [times.min().alias('first'), times.max().alias('last')]
sums = [polars.len(), polars.col('dur').sum(), *ends]
row = lazy.select(sums).collect().row(0)
told(*row)

with fsspec.open(url) as file:
    events = parquet.read_table(file)
sums = 'count(*), sum(dur), min(epoch_ns(ts)), max(epoch_ns(ts))'
told(*duckdb.sql(f'SELECT {sums} FROM events').fetchall()[0])

with fsspec.open(url) as file:
    opened = parquet.ParquetFile(file)
    columns = opened.schema_arrow.names
    group = opened.metadata.row_group(0)
    name = group.column(columns.index('name'))
    print(json.dumps({
        'files': len(set(events.column('fname').to_pylist()) - {None}),
        'columns': columns, 'groups': opened.metadata.num_row_groups,
        'has_index': name.has_offset_index and name.has_column_index,
        'sorted': [each.column_index for each in group.sorting_columns],
        'skipped': (opened.metadata.metadata or {}).get(b'tracehold.skipped', b'').decode(),
    }))

files = fsspec.filesystem('reference', fo=references)
found = files.find('')
print(json.dumps([len(found), sum(len(files.cat_file(each)) for each in found)]))
";

fn get(server: &Server, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = Request::new("GET", path);
    for (name, value) in fields {
        request = request.header(name, value);
    }
    server.api().send(&request).unwrap()
}

/// A finalized storage with a DFTracer trace.
fn stored(server: &Server, name: &str) -> String {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/trace-0-of-1.pfw.gz");
    let storage = server.api().create_storage(name);
    push(server, &storage, &trace, "65536");
    server.api().finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

fn jobs(server: &Server, state: &str) -> usize {
    let all = server.api().done("GET", "/jobs", None);
    let jobs = all["items"].as_array().unwrap().iter();
    jobs.filter(|job| job["kind"] == "events" && job["state"] == state)
        .count()
}

fn on_disk(server: &Server, storage: &str) -> bool {
    let folder = server.data().join("storages").join(storage);
    folder.join("events/dft.parquet").exists()
}

#[test]
fn other_programs_read_a_file_of_events_in_one_line() {
    let Some(python) = python_client_python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let storage = stored(&server, "trace");
    let question = json!({ "aggregate": "count,sum:dur,min:ts,max:ts,distinct:fname" });
    let path = format!("/storages/{storage}/query");
    let row = server.api().call("POST", &path, Some(&question)).json();
    let expected = json!([row["count"], row["sum:dur"], row["min:ts"], row["max:ts"]]);
    let at = format!("{}/storage/{storage}", server.url());
    let read = Command::new(python)
        .args(["-W", "error::FutureWarning", "-c", READERS])
        .arg(format!("{at}/events/dft.parquet"))
        .arg(format!("{at}/references.json"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{errors}");
    let lines = String::from_utf8(read.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines[..3] {
        assert_eq!(*line, expected);
    }
    let about = &lines[3];
    assert_eq!(
        (&about["has_index"], &about["skipped"]),
        (&json!(true), &json!(""))
    );
    assert_eq!(about["sorted"], json!([0]), "by time");
    assert!(about["files"].as_u64() > Some(1), "{about}");
    assert_eq!(about["files"], row["distinct:fname"], "names of files");
    let columns = about["columns"].as_array().unwrap();
    let ends = (&columns[0], columns.last().unwrap());
    assert_eq!(ends, (&json!("ts"), &json!("rest")));
    let listed = server.api().done(
        "GET",
        &format!("/storages/{storage}/descriptors?limit=1000"),
        None,
    );
    let packets = listed["items"].as_array().unwrap();
    let sizes = packets
        .iter()
        .map(|packet| packet["size"].as_u64().unwrap());
    assert_eq!(lines[4], json!([packets.len(), sizes.sum::<u64>()]));
    assert_eq!(jobs(&server, "DONE"), 1, "it is made once");
}

#[test]
fn a_file_of_events_is_made_once_for_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let storage = stored(&server, "trace");
    let path = format!("/storage/{storage}/events/dft.parquet");
    let answers: Vec<Response> = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| get(&server, &path, &[]));
        let asked: Vec<_> = (0..6).map(|_| ask()).collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    let first = &answers[0];
    let etags: BTreeSet<_> = answers.iter().map(|answer| answer.header("etag")).collect();
    assert_eq!(etags.len(), 1);
    for (field, value) in [
        ("content-type", "application/vnd.apache.parquet"),
        ("accept-ranges", "bytes"),
        ("tracehold-skipped", "0"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(first.header(field), Some(value), "{}", first.brief());
    }
    assert_eq!(jobs(&server, "DONE"), 1);
    let length = first.body.len();
    assert!(first.body.starts_with(b"PAR1") && first.body.ends_with(b"PAR1"));
    let head = server.api().send(&Request::new("HEAD", &path)).unwrap();
    let told = head.header("content-length").map(str::to_owned);
    assert_eq!((head.status, told), (200, Some(length.to_string())));
    let part = get(&server, &path, &[("range", "bytes=-8")]);
    assert_eq!((part.status, &*part.body), (206, &first.body[length - 8..]));
    let etag = first.header("etag").unwrap();
    assert_eq!(get(&server, &path, &[("if-none-match", etag)]).status, 304);

    // It is there after a restart, and is made again if it is damaged.
    server.kill();
    server.restart_with(&settings());
    assert_eq!(get(&server, &path, &[]).body, first.body);
    assert_eq!(jobs(&server, "DONE"), 0);
    let file = server.data().join("storages").join(&storage);
    let file = file.join("events/dft.parquet");
    let mut bytes = fs::read(&file).unwrap();
    bytes[length / 2] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let refused = get(&server, &path, &[]);
    assert_eq!(Problem::of(&refused).code, "damaged");
    let log = server.log();
    assert!(
        log.contains("the next request makes the file again"),
        "{log}"
    );
    assert!(!log.contains("backup"), "nothing has to be restored: {log}");
    let again = get(&server, &path, &[]);
    assert_eq!((again.status, again.body == first.body), (200, true));
    assert_eq!(jobs(&server, "DONE"), 1);
}

#[test]
fn files_of_events_give_way_to_each_other_and_go_with_their_storage() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let storages = ["one", "two", "three"].map(|name| stored(&server, name));
    let path = |storage: &str| format!("/storage/{storage}/events/dft.parquet");
    let length = get(&server, &path(&storages[0]), &[]).body.len();
    let two_fit = format!(
        "[query]\nchunk_bytes = 16384\nevent_files_bytes_max = {}\n",
        length * 5 / 2
    );
    server.kill();
    server.restart_with(&Settings::with_config(&two_fit));
    for storage in [&storages[0], &storages[1], &storages[0], &storages[2]] {
        assert_eq!(get(&server, &path(storage), &[]).status, 200);
    }
    let left = storages.each_ref().map(|storage| on_disk(&server, storage));
    assert_eq!(left, [true, false, true], "the one used least recently");
    let bytes = |server: &Server| server.api().metric("tracehold_event_files_bytes");
    let two = bytes(&server);
    assert!(two > length as f64);
    let gone = format!("/storages/{}", storages[0]);
    server.api().done("DELETE", &gone, None);
    assert_eq!(get(&server, &path(&storages[0]), &[]).status, 404);
    assert!(!on_disk(&server, &storages[0]));
    let one = bytes(&server);
    assert!(0.0 < one && one < two, "{one} of {two}");

    server.kill();
    server.restart_with(&Settings::with_config(&two_fit));
    assert_eq!(bytes(&server), one, "what an earlier process made");
    server.kill();
    server.restart_with(&Settings::with_config(
        "[query]\nevent_files_bytes_max = 1000\n",
    ));
    let refused = Problem::of(&get(&server, &path(&storages[1]), &[]));
    assert_eq!((refused.status, &*refused.code), (507, "events_too_long"));
    assert!(!on_disk(&server, &storages[1]));
}

#[test]
fn a_file_of_events_that_cannot_be_made_is_refused() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("open");
    let check = |file: &str, status: u16, code: &str| {
        let problem = Problem::of(&get(&server, &format!("/storage/{storage}/{file}"), &[]));
        assert_eq!((problem.status, &*problem.code), (status, code), "{file}");
    };
    check("events/dft.parquet", 409, "storage_state_conflict");
    check("references.json", 409, "storage_state_conflict");
    api.finalize(&storage);
    for file in ["dft.parquet", "raw.parquet", "x.parquet", "dft.csv"] {
        check(&format!("events/{file}"), 404, "file_not_found");
    }
    let jobs = server.api().done("GET", "/jobs", None);
    let jobs = jobs["items"].as_array().unwrap();
    assert!(jobs.iter().all(|job| job["kind"] != "events"), "{jobs:?}");
    let empty = get(&server, &format!("/storage/{storage}/references.json"), &[]);
    assert_eq!(empty.json()["refs"], json!({}));
}

#[test]
fn a_file_of_events_says_what_could_not_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let storage = damaged(&mut server, "repaired");
    let repair = format!("/storages/{storage}/verify?repair=confirm");
    server.api().done("POST", &repair, None);
    server.api().finalize(&storage);
    let file = get(
        &server,
        &format!("/storage/{storage}/events/dft.parquet"),
        &[],
    );
    assert_eq!(file.status, 200, "{}", file.brief());
    assert_eq!(file.header("tracehold-skipped"), Some("1"));
    let text = String::from_utf8_lossy(&file.body);
    assert!(text.contains("tracehold.skipped") && text.contains("packets are missing"));
    let references = get(&server, &format!("/storage/{storage}/references.json"), &[]);
    assert_eq!(references.header("tracehold-skipped"), Some("1"));
}
