//! Files that were pushed into an open storage come back as files from the node that took it over.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use harness::{ObjectStore, Server};
use serde_json::{Value, json};

use crate::queries::{push, run};
use crate::takeover::{adopt, node, start};

/// Lines of a DFTracer file.
fn lines(range: std::ops::Range<u64>) -> String {
    range.fold(String::new(), |mut text, id| {
        let ts = 1_700_000_000_000_000 + id;
        writeln!(
            text,
            r#"{{"id":{id},"name":"read","cat":"POSIX","pid":1,"tid":2,"ts":{ts},"dur":5,"ph":"X"}}"#
        )
        .unwrap();
        text
    })
}

/// The files of an export by their names.
fn exported(server: &Server, storage: &str, target: &Path) -> Vec<(String, Vec<u8>)> {
    let (url, target) = (server.url(), target.to_str().unwrap());
    let words = ["export", "--server", &url, "--storage", storage];
    let (code, out, errors) = run(&[&words[..], &["--json", target]].concat());
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let files = report["files"].as_array().unwrap().iter();
    let mut files: Vec<_> = files
        .map(|file| {
            let path = Path::new(file["path"].as_str().unwrap());
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.to_owned(), fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn pushed_files_come_back_from_the_node_that_takes_over() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_data, mut one) = start(&node(&store, "one"));
    let storage = one.api().create_storage("files");
    let first = folder.path().join("first.pfw");
    let second = folder.path().join("second.pfw");
    fs::write(&first, lines(0..300)).unwrap();
    push(&one, &storage, &first, "4096");
    fs::write(&second, lines(300..500)).unwrap();
    push(&one, &storage, &second, "4096");
    // One that has changed is another file.
    fs::write(&first, lines(0..400)).unwrap();
    push(&one, &storage, &first, "4096");
    one.kill();
    fs::remove_dir_all(one.data()).unwrap();

    let (_other, two) = start(&node(&store, "two"));
    assert_eq!(adopt(&two, &storage)["state"], json!("written"));
    two.api().finalize(&storage);
    let found = exported(&two, &storage, &folder.path().join("exported"));
    let expected = [
        ("first.pfw", lines(0..400)),
        ("first.pfw.1", lines(0..300)),
        ("second.pfw", lines(300..500)),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.into_bytes()));
    let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
    assert!(found == expected, "other files: {names:?}");
}
