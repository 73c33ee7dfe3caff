//! Files compressed with zstd, whatever their frames are: they have the same events here and in a
//! storage, and an export gives their text and says so. Files that end inside a frame are told.

use std::fs;
use std::path::Path;

use harness::spans::{TestSpan, request};
use harness::{Server, Settings};
use serde_json::Value;

use crate::queries::run;

/// A frame that decoders skip.
const SKIPPABLE: &[u8] = b"\x5e\x2a\x4d\x18\x03\0\0\0abc";

fn frame(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap()
}

/// As `zstd --long` compresses what it reads from a pipe.
fn long_frame(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(27).unwrap();
    std::io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap()
}

/// A text in frames that are divided in many ways.
fn forms(text: &[u8]) -> [(&'static str, Vec<u8>); 5] {
    let (front, back) = text.split_at(text.len() / 3);
    let many = text.chunks(1000).flat_map(frame).collect();
    [
        ("one", frame(text)),
        ("two", [frame(front), frame(b""), frame(back)].concat()),
        ("many", many),
        (
            "skippable",
            [SKIPPABLE, &frame(front), SKIPPABLE, &frame(back)].concat(),
        ),
        ("long", long_frame(text)),
    ]
}

/// Names and texts of traces of every kind that may be compressed.
fn traces() -> [(&'static str, String); 3] {
    let line = |n: u32| {
        format!(
            "{{\"id\":{n},\"name\":\"r\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1,\
             \"ph\":\"X\"}}\n"
        )
    };
    let lines: String = (0..600).map(line).collect();
    let events: Vec<String> = (0..600).map(|n| line(n).trim_end().to_owned()).collect();
    let span = |id: u64| TestSpan {
        trace: 7,
        id,
        parent: 0,
        name: "order",
        time: (id, id + 1),
    };
    let requests: Vec<String> = (1..40).map(|id| request("shop", &[span(id)])).collect();
    [
        ("trace.pfw", lines),
        (
            "trace.json",
            format!("{{\"traceEvents\":[{}]}}\n", events.join(",\n")),
        ),
        ("spans.jsonl", requests.join("\n") + "\n"),
    ]
}

struct World {
    folder: tempfile::TempDir,
    server: Server,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"), &Settings::default());
        Self { folder, server }
    }

    fn write(&self, folder: &str, name: &str, bytes: &[u8]) -> String {
        let folder = self.folder.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Pushes a file in small packets into a storage of its own. Returns the storage and what the
    /// command said.
    fn push(&self, path: &str) -> (String, String) {
        let (url, storage) = (self.server.url(), self.server.api().create_storage(path));
        let target = [
            "--server",
            &url,
            "--storage",
            &storage,
            "--packet-bytes",
            "4096",
        ];
        let (code, _, errors) = run(&[&["push", path], &target[..]].concat());
        assert_eq!(code, 0, "{errors}");
        (storage, errors)
    }

    fn count(&self, source: &[&str]) -> (i32, u64, String) {
        let (code, out, errors) = run(&[&["query", "--count"], source].concat());
        let count = out.trim().parse();
        (
            code,
            count.unwrap_or_else(|_| panic!("{source:?} {errors}")),
            errors,
        )
    }

    fn stored(&self, storage: &str) -> (i32, u64, String) {
        self.count(&["--server", &self.server.url(), "--storage", storage])
    }

    /// The only file of an export, and what the report says of it.
    fn export(&self, storage: &str) -> (Value, Vec<u8>) {
        self.server.api().finalize(storage);
        let target = self.folder.path().join("exported").join(storage);
        let (target, url) = (target.to_str().unwrap(), self.server.url());
        let words = [
            "export",
            "--server",
            &url,
            "--storage",
            storage,
            "--json",
            target,
        ];
        let (code, out, errors) = run(&words);
        assert_eq!(code, 0, "{errors}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let file = report["files"][0].clone();
        let bytes = fs::read(file["path"].as_str().unwrap()).unwrap();
        (file, bytes)
    }
}

#[test]
fn files_of_zstd_frames_are_pushed_and_exported_as_their_text() {
    let world = World::new();
    for (name, text) in traces() {
        let plain = world.write("plain", name, text.as_bytes());
        let (_, expected, _) = world.count(&[&plain]);
        assert!(expected > 30, "{name}: {expected}");
        for (form, bytes) in forms(text.as_bytes()) {
            let what = format!("{name} {form}");
            let path = world.write(form, &format!("{name}.zst"), &bytes);
            assert_eq!(
                world.count(&[&path]),
                (0, expected, String::new()),
                "{what}"
            );
            // As a part of a folder, too.
            let folder = Path::new(&path).parent().unwrap().to_str().unwrap();
            assert_eq!(world.count(&[folder]).1, expected, "{what}");
            let (storage, told) = world.push(&path);
            assert!(!told.contains("ends inside"), "{what}: {told}");
            assert_eq!(
                world.stored(&storage),
                (0, expected, String::new()),
                "{what}"
            );
            let (file, exported) = world.export(&storage);
            assert_eq!(file["fidelity"], "text", "{what}: {file}");
            assert!(
                file["path"].as_str().unwrap().ends_with(name),
                "{what}: {file}"
            );
            assert!(
                file["note"]
                    .as_str()
                    .unwrap()
                    .contains("its compressed bytes are not stored")
            );
            let kept = match name {
                // Blanks between requests are not stored of compressed files.
                "spans.jsonl" => text.replace('\n', ""),
                _ => text.clone(),
            };
            let found = String::from_utf8(exported).unwrap();
            let found = if name == "spans.jsonl" {
                found.replace('\n', "")
            } else {
                found
            };
            assert!(found == kept, "{what}");
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn files_that_end_inside_a_frame_are_read_and_pushed_up_to_there() {
    let world = World::new();
    for (name, text) in traces() {
        let plain = world.write("plain", name, text.as_bytes());
        let (_, whole, _) = world.count(&[&plain]);
        let (_, bytes) = forms(text.as_bytes()).into_iter().nth(2).unwrap();
        let path = world.write("cut", &format!("{name}.zst"), &bytes[..bytes.len() - 60]);
        let (code, count, told) = world.count(&[&path]);
        assert_eq!(code, 1, "{name}: {told}");
        assert!(told.contains("decompressed"), "{name}: {told}");
        assert!(
            count > whole / 2 && count < whole,
            "{name}: {count} of {whole}"
        );
        let (storage, told) = world.push(&path);
        assert!(
            told.contains("cut") || told.contains("ends inside a zstd frame"),
            "{name}: {told}"
        );
        assert_eq!(world.stored(&storage).1, count, "{name}");
        // A frame with wrong bytes is not a frame that ends too early.
        let mut wrong = bytes.clone();
        let middle = wrong.len() / 2;
        wrong[middle] ^= 0x55;
        let path = world.write("wrong", &format!("{name}.zst"), &wrong);
        let (code, _, told) = world.count(&[&path]);
        assert_eq!(code, 1, "{name}: {told}");
        let url = world.server.url();
        let storage = world.server.api().create_storage("wrong");
        let (code, _, told) = run(&["push", &path, "--server", &url, "--storage", &storage]);
        assert_eq!(code, 1, "{name}: {told}");
        let place = format!("{path}: it cannot be decompressed beyond byte ");
        assert!(told.contains(&place), "{name}: {told}");
    }
}
