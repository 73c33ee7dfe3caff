//! Archives that other programs made are imported, and hostile ones leave nothing.

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Problem, Request, Server, Settings};
use serde_json::json;

use crate::archives::{check_same, export, filled, import, imported, names, run};

/// Builds archives from the files of an exported one, as other programs would.
const REPACK: &str = "\
import gzip, io, os, sys, zipfile
source, target, how = sys.argv[1:]
z = zipfile.ZipFile(source)
files = [(n, z.read(n)) for n in z.namelist()]
method = zipfile.ZIP_DEFLATED if how in ('deflated', 'bomb', 'bomb_first') else zipfile.ZIP_STORED
if how == 'reversed':
    files.reverse()
if how == 'folder':
    files = [('some folder/' + n, b) for n, b in files]
if how == 'gzip':
    files = [(n, gzip.compress(b)) for n, b in reversed(files)]
if how == 'missing':
    files = files[:-1]
if how == 'foreign':
    files.append(('readme.txt', b'hello'))
if how == 'foreign_only':
    files = [('readme.txt', b'hello')]
if how == 'unlisted':
    files.append(('stranger.agent', b'hello'))
if how in ('derived', 'derived_first'):
    leaf = open(os.path.join(os.path.dirname(target), 'leaf')).read()
    derived = [(leaf + e, b'made again anyhow') for e in ('.idx', '.pidx')]
    derived.append(('00000000000000ff.idx', b'of no data file'))
    files = derived + files if how == 'derived_first' else files + derived
if how == 'changed':
    n, b = files[-1]
    files[-1] = (n, b[:-1] + bytes([b[-1] ^ 1]))
if how == 'longer':
    n, b = files[-1]
    files[-1] = (n, b + b'x')
if how == 'storage_changed':
    n, b = files[0]
    files[0] = (n, b[:40] + bytes([b[40] ^ 1]) + b[41:])
if how == 'renamed':
    files[0] = ('01932c5e-0000-7000-8000-000000000000.storage', files[0][1])
if how == 'bomb':
    n, b = files[-1]
    files[-1] = (n, b + bytes(200 << 20))
if how == 'escape':
    files.append(('../../' + files[-1][0], b'x'))
if how == 'absolute':
    files.append(('/tmp/' + files[-1][0], b'x'))
out = zipfile.ZipFile(target, 'w', method)
for n, b in files:
    info = zipfile.ZipInfo(n)
    info.compress_type = method
    info.external_attr = 0o100644 << 16
    if how == 'link' and n.endswith('.agent'):
        info.external_attr = 0o120777 << 16
    out.writestr(info, b)
if how == 'twice':
    out.writestr(files[-1][0], files[-1][1])
out.close()
";

fn repacked(folder: &Path, archive: &Path, how: &str) -> Option<Vec<u8>> {
    let target: PathBuf = folder.join(format!("{how}.zip"));
    let (from, to) = (archive.to_str().unwrap(), target.to_str().unwrap());
    let output = run("python3", &["-c", REPACK, from, to, how])?;
    assert!(output.status.success(), "{how}: {output:?}");
    Some(fs::read(target).unwrap())
}

#[test]
fn foreign_archives_are_imported_and_hostile_ones_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "repacked");
    let archive = folder.path().join("archive.zip");
    let leaves = api.leaves(&storage);
    fs::write(folder.path().join("leaf"), leaves.first().unwrap()).unwrap();
    fs::write(&archive, export(&mut api, &storage)).unwrap();
    for how in [
        "plain",
        "deflated",
        "reversed",
        "folder",
        "gzip",
        "derived",
        "derived_first",
    ] {
        let Some(bytes) = repacked(folder.path(), &archive, how) else {
            return;
        };
        let report = imported(&there, &bytes);
        let not_taken = report["not_taken"].as_array().map_or(0, Vec::len);
        assert_eq!(
            not_taken,
            if how.starts_with("derived") { 2 } else { 0 },
            "{report}"
        );
        check_same(&mut api, &mut there.api(), &storage);
        there
            .api()
            .done("DELETE", &format!("/storages/{storage}"), None);
    }
    for (how, reason) in [
        ("missing", "not there"),
        ("foreign", "not a file of a storage"),
        ("foreign_only", "not a file of a storage"),
        ("unlisted", "not listed"),
        ("changed", "another length or checksum"),
        ("longer", "longer"),
        ("storage_changed", "damaged"),
        ("renamed", "describes storage"),
        ("bomb", "longer"),
        ("escape", "points outside"),
        ("absolute", "points outside"),
        ("link", "links"),
        ("twice", "twice"),
    ] {
        let bytes = repacked(folder.path(), &archive, how).unwrap();
        let problem = Problem::of(&import(&there, &bytes));
        let detail = problem.document["detail"].as_str().unwrap();
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (422, "archive_refused"),
            "{how}"
        );
        assert!(detail.contains(reason), "{how}: {detail}");
        assert_eq!(names(&there), [] as [String; 0], "{how} left something");
    }
    let complete = fs::read(&archive).unwrap();
    for bytes in [
        &complete[..complete.len() / 2],
        &complete[..complete.len() - 1],
        b"no archive",
        b"",
    ] {
        let problem = Problem::of(&import(&there, bytes));
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (400, "archive_damaged")
        );
        assert_eq!(names(&there), [] as [String; 0]);
    }
    let listed = there.api().done("GET", "/storages", None);
    assert_eq!(listed["items"], json!([]));
}

/// A form of a web page sends these types without asking the server first.
#[test]
fn an_archive_is_not_accepted_as_a_form() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = filled(&mut api, "form");
    let archive = export(&mut api, &storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    for (media_type, expected) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("Application/ZIP; x=y", 201),
    ] {
        let request = Request::new("POST", "/api/v1/storages/import")
            .header("content-type", media_type)
            .body(&archive);
        let response = server.api().send(&request).unwrap();
        assert_eq!(
            response.status,
            expected,
            "{media_type}: {}",
            response.brief()
        );
        assert_eq!(names(&server).len(), usize::from(expected == 201));
    }
}
