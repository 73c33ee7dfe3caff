//! The server writes only to its data folder: its root file system may be read-only.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Request, Server, Settings, traceholdd};
use serde_json::json;

use crate::queries::{push, wait_for_indexes};

/// Rows are in files as soon as they wait.
const SPILL: &str = "[query]\nwaiting_bytes_max = 0\n";
const EVENTS: usize = 4000;

/// Pushes events into a new storage and asks for them in another order.
fn check_spilled_rows(server: &Server, folder: &Path) -> String {
    let mut api = server.api();
    let mut trace = String::new();
    let name = "x".repeat(2000);
    for id in 0..EVENTS {
        let event = json!({ "id": id, "name": name, "cat": "c", "pid": 1, "tid": 1,
                            "ts": EVENTS - id, "dur": 1, "ph": "X" });
        writeln!(trace, "{event}").unwrap();
    }
    let path = folder.join("trace.pfw");
    fs::write(&path, trace).unwrap();
    let storage = api.create_storage("rows");
    push(server, &storage, &path, "65536");
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
    let ids: Vec<usize> = ids.map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids, (0..EVENTS).rev().collect::<Vec<_>>());
    // Nothing of it is left.
    let names = fs::read_dir(server.data()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let is_temporary = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with(".tmp");
    assert_eq!(names.iter().find(is_temporary), None);
    storage
}

#[test]
fn rows_are_spilled_without_a_folder_for_temporary_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::with_config(SPILL);
    let nowhere = folder.path().join("does not exist").display().to_string();
    settings.environment.push(("TMPDIR".to_owned(), nowhere));
    let server = Server::start(&folder.path().join("server"), &settings);
    check_spilled_rows(&server, folder.path());
}

/// A program that starts the server where nothing but a folder can be written.
fn read_only_but(folder: &Path) -> PathBuf {
    let (own, program) = (folder.display(), traceholdd());
    let script = format!(
        "#!/bin/sh\n\
         set -e\n\
         if [ -z \"$IS_INSIDE\" ]; then\n\
         IS_INSIDE=1 exec unshare --mount --propagation private \"$0\" \"$@\"\n\
         fi\n\
         mount --bind '{own}' '{own}'\n\
         for place in / /tmp /var/tmp /dev/shm; do\n\
         if mountpoint -q $place; then mount -o remount,ro,bind $place; fi\n\
         done\n\
         exec '{}' \"$@\"\n",
        program.display()
    );
    let path = folder.join("read-only.sh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// As in a container with a read-only root file system: everything works, start to end.
#[test]
fn a_server_works_on_a_read_only_root() {
    let may_mount = Command::new("unshare").args(["--mount", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: file systems cannot be mounted here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("server");
    fs::create_dir(&own).unwrap();
    let config = format!("{SPILL}[seal]\nat_finalization = true\n");
    let settings = Settings {
        program: Some(read_only_but(&own)),
        ..Settings::with_config(&config)
    };
    let mut server = Server::start(&own, &settings);
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", server.pid())).unwrap();
    let root = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(1) == Some("/"));
    let options = root.unwrap().split(' ').nth(3).unwrap();
    assert!(options.split(',').any(|option| option == "ro"), "{mounts}");
    let storage = check_spilled_rows(&server, folder.path());
    let mut api = server.api();
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    assert!(api.verify(&storage).is_empty());
    let counted = json!({ "count": true });
    let count = api.done(
        "POST",
        &format!("/storages/{storage}/query"),
        Some(&counted),
    );
    assert_eq!(count["count"], EVENTS, "{count}");
    drop(api);
    server.kill();
    server.restart();
    assert_eq!(server.api().state(&storage), "FINALIZED");
}
