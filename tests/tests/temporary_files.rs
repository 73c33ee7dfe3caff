//! The server writes only to its data folder: its root file system may be read-only.

use std::fmt::Write as _;
use std::fs;

use harness::{Request, Server, Settings};
use serde_json::json;

use crate::queries::push;

#[test]
fn rows_are_spilled_without_a_folder_for_temporary_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::with_config("[query]\nwaiting_bytes_max = 0\n");
    let nowhere = folder.path().join("does not exist").display().to_string();
    settings.environment.push(("TMPDIR".to_owned(), nowhere));
    let server = Server::start(&folder.path().join("server"), &settings);
    let mut api = server.api();
    let mut trace = String::new();
    let name = "x".repeat(2000);
    for id in 0..4000 {
        let event = json!({ "id": id, "name": name, "cat": "c", "pid": 1, "tid": 1,
                            "ts": 4000 - id, "dur": 1, "ph": "X" });
        writeln!(trace, "{event}").unwrap();
    }
    let path = folder.path().join("trace.pfw");
    fs::write(&path, trace).unwrap();
    let storage = api.create_storage("rows");
    push(&server, &storage, &path, "65536");
    let body = json!({ "format": "csv", "fields": ["id", "name"], "order_by": "id desc" });
    let body = body.to_string();
    let target = format!("/api/v1/storages/{storage}/query");
    let request = Request::new("POST", &target)
        .header("content-type", "application/json")
        .body(body.as_bytes());
    let answer = api.send(&request).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.brief());
    let text = String::from_utf8(answer.body).unwrap();
    let ids = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap());
    let ids: Vec<u32> = ids.map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids, (0..4000).rev().collect::<Vec<_>>());
    // Nothing of it is left.
    let names = fs::read_dir(server.data()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let is_temporary = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with(".tmp");
    assert_eq!(names.iter().find(is_temporary), None);
}
