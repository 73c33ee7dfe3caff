//! Chunk indexes, columns, provenance and cached results as documents.

use std::path::PathBuf;

use chunk_index::{Identity, Provenance, Segment, SourceFile};
use query_engine::{IndexOptions, Scratch, columns_path, index_files, sidecar_path};

use super::*;

/// A DFTracer file with its index and columns, in a folder of its own.
fn indexed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let lines: String = (0..100)
        .map(|id| {
            let name = if id % 10 == 0 { "open" } else { "read" };
            format!(
                "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":7,\"tid\":8,\
                 \"ts\":{},\"dur\":5,\"ph\":\"X\",\"args\":{{}}}}\n",
                1_000 + id
            )
        })
        .collect();
    std::fs::write(&path, lines).unwrap();
    let options = IndexOptions {
        fields: Vec::new(),
        chunk_bytes: None,
        spacing_bytes: None,
        columns: true,
        rebuild: true,
    };
    for file in index_files(&path, &mut Vec::new()).unwrap() {
        file.update(&options, &mut Scratch::default()).unwrap();
    }
    (folder, path)
}

#[test]
fn a_chunk_index_shows_what_each_chunk_holds() {
    let (_folder, path) = indexed();
    let bytes = std::fs::read(sidecar_path(&path)).unwrap();
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(is_whole);
    assert_eq!(shown["role"], "chunk index");
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(shown["of"]["length"], length);
    let chunk = &shown["chunks"][0];
    assert_eq!(
        (&chunk["events"], &chunk["raw_length"]),
        (&json!(100), &json!(length))
    );
    let times = json!({ "first": 1_000_000, "last": 1_099_000, "end": 1_104_000 });
    assert_eq!(chunk["times"], times);
    let name = &chunk["fields"]["name"];
    assert_eq!(name["values"], json!([["open", 10], ["read", 90]]));
    assert_eq!(chunk["fields"]["pid"]["numbers"], json!([7, 7]));
    let group = &chunk["groups"][1];
    assert_eq!(group["name"], "read");
    assert_eq!(group["totals"]["durations"]["sum"], 90 * 5_000);
}

#[test]
fn columns_show_their_offsets() {
    let (_folder, path) = indexed();
    let bytes = std::fs::read(columns_path(&path)).unwrap();
    let (shown, _) = show(&bytes).unwrap();
    assert_eq!(
        (&shown["role"], &shown["fields"][0]),
        (&json!("columns"), &json!("ts"))
    );
    let chunk = &shown["chunks"][0];
    assert_eq!(chunk["events"], 100);
    assert!(chunk["columns"]["dur"]["length"].as_u64().unwrap() > 0);
}

#[test]
fn provenance_and_answers_are_shown() {
    let provenance = Provenance {
        owner: "leaf".to_owned(),
        sources: vec![SourceFile {
            path: "/a/trace.pfw".to_owned(),
            identity: Identity {
                length: 9,
                modified: None,
                checksum: Some(0xab),
            },
        }],
        groups: Vec::new(),
        segments: vec![Segment {
            chunk: 3,
            source: 0,
            group: None,
            offset: 1,
            length: 2,
            first_line: 0,
            lines: 1,
            events: 1,
        }],
    };
    let (shown, _) = show(&provenance.encode().unwrap()).unwrap();
    assert_eq!(
        shown["sources"][0]["identity"]["checksum"],
        "00000000000000ab"
    );
    assert_eq!(shown["segments"][0]["chunk"], 3);

    let (shown, _) = show(&cached_file::encode("count", b"7")).unwrap();
    let expected = json!({ "role": "cache", "key": "count", "answer": "7" });
    assert_eq!(shown, expected);
}

#[test]
fn damage_anywhere_is_reported() {
    let (_folder, path) = indexed();
    let mut files = vec![cached_file::encode("count", b"7")];
    for path in [sidecar_path(&path), columns_path(&path)] {
        files.push(std::fs::read(path).unwrap());
    }
    for file in &files {
        for at in (8..file.len()).step_by(7) {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(show(&damaged).is_err(), "byte {at} of {}", file.len());
        }
    }
}
