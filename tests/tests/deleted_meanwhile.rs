//! A storage is deleted while a request reads it: the answer says that it does not exist. A FIFO in
//! the place of a data file holds up the reader until the storage is gone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Api, Problem, Request, Response, Server};
use serde_json::{Value, json};

use crate::queries::wait_for_indexes;
use crate::repair::pushed;

/// Puts a FIFO in the place of the only data file. Returns another name of it.
fn hold(server: &Server, storage: &str, folder: &Path) -> PathBuf {
    let files = server.data().join("storages").join(storage);
    let entries = fs::read_dir(files).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut data = paths.filter(|path| path.extension().is_some_and(|end| end == "itdata"));
    let (file, None) = (data.next().unwrap(), data.next()) else {
        panic!("the storage has several data files");
    };
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let other = folder.join(format!("{storage}.fifo"));
    fs::hard_link(&file, &other).unwrap();
    other
}

/// Sends a request, deletes the storage once the request `is_read`, and lets it go on.
fn answer(
    server: &Server,
    storage: &str,
    (fifo, request): (&Path, &(dyn Fn(&mut Api) -> Response + Sync)),
    is_read: impl Fn(&mut Api) -> bool,
) -> Response {
    std::thread::scope(|scope| {
        let answered = scope.spawn(|| request(&mut server.api()));
        let (mut api, begin) = (server.api(), Instant::now());
        while !is_read(&mut api) && begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_waiting = !answered.is_finished();
        let deleted = api.call("DELETE", &format!("/storages/{storage}"), None);
        // Who waits for it goes on, and who opens it later does not wait.
        let released = File::options().read(true).write(true).open(fifo).unwrap();
        let answered = answered.join().unwrap();
        drop(released);
        assert_eq!(deleted.status, 204, "{}", deleted.brief());
        assert!(is_waiting, "nothing held up {}", answered.brief());
        answered
    })
}

fn check_not_found(answer: &Response) {
    let problem = Problem::of(answer);
    let found = (problem.status, &*problem.code);
    assert_eq!(found, (404, "storage_not_found"), "{}", problem.document);
}

fn post(api: &mut Api, path: &str, body: &Value) -> Response {
    api.call("POST", path, Some(body))
}

#[test]
fn a_query_of_a_storage_that_is_deleted_finds_none() {
    let (folder, server, _) = Server::fresh();
    let is_read = |api: &mut Api| api.metric("tracehold_queries_running") > 0.5;
    for (number, body) in [
        json!({ "format": "ndjson" }),
        json!({ "group_by": "id" }),
        json!({ "format": "parquet", "order_by": "id desc" }),
    ]
    .into_iter()
    .enumerate()
    {
        let storage = pushed(&server, &format!("queried {number}"));
        server.api().finalize(&storage);
        wait_for_indexes(&server, &storage);
        let fifo = hold(&server, &storage, folder.path());
        let path = format!("/storages/{storage}/query");
        let request = |api: &mut Api| post(api, &path, &body);
        let found = answer(&server, &storage, (&fifo, &request), is_read);
        check_not_found(&found);
    }
}

#[test]
fn a_file_of_events_of_a_storage_that_is_deleted_is_not_found() {
    let (folder, server, _) = Server::fresh();
    let storage = pushed(&server, "events");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let fifo = hold(&server, &storage, folder.path());
    let path = format!("/storage/{storage}/events/dft.parquet");
    let request = |api: &mut Api| api.send(&Request::new("GET", &path)).unwrap();
    let is_read = |api: &mut Api| api.metric("tracehold_queries_running") > 0.5;
    check_not_found(&answer(&server, &storage, (&fifo, &request), is_read));
}

#[test]
fn a_plan_to_repair_a_storage_that_is_deleted_is_not_made() {
    let (folder, server, _) = Server::fresh();
    let storage = pushed(&server, "repaired");
    let fifo = hold(&server, &storage, folder.path());
    let path = format!("/storages/{storage}/verify?repair=plan");
    let request = |api: &mut Api| api.call("POST", &path, None);
    let is_read = |api: &mut Api| api.metric("tracehold_jobs_running") > 0.5;
    check_not_found(&answer(&server, &storage, (&fifo, &request), is_read));
}
