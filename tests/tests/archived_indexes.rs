//! Archives contain chunk indexes and provenance. After an import they are used like local ones,
//! and rejected if they do not belong to their data files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Api, Server, run_tracehold};
use serde_json::Value;

use crate::archives::{export, imported, run};
use crate::queries::{answers, push, settings, wait_for_indexes, write_trace};

const QUERY: &str = "name == 'fsync' or ret in [3, 77]";

/// A finalized storage with indexes and provenance, from a trace with this many lines.
fn filled(server: &Server, folder: &Path, lines: u64) -> String {
    let trace = folder.join(format!("trace-{lines}.pfw"));
    write_trace(&trace, lines);
    let storage = server.api().create_storage("filled");
    push(server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

/// The chunk indexes or the provenance of the only data file of a storage.
fn derived_file(server: &Server, storage: &str, ending: &str) -> PathBuf {
    let files = server.api().files(storage);
    let (data, ..) = files.iter().find(|file| file.1 == "data").unwrap();
    let folder = server.data().join("storages").join(storage);
    folder.join(data).with_extension(ending)
}

fn descriptors(api: &mut Api, storage: &str) -> Vec<Value> {
    let path = format!("/storages/{storage}/descriptors?limit=1000&provenance=true");
    let page = api.done("GET", &path, None);
    page["items"].as_array().unwrap().clone()
}

fn query_results(server: &Server, storage: &str) -> Vec<String> {
    answers(&["--server", &server.url(), "--storage", storage], QUERY)
}

#[test]
fn an_imported_storage_needs_no_new_index() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &settings());
    let there = Server::start(&folder.path().join("there"), &settings());
    let storage = filled(&here, folder.path(), 3_000);
    let archive = export(&mut here.api(), &storage);
    let report = imported(&there, &archive);
    assert!(report["not_taken"].is_null(), "{report}");
    let (mut one, mut other) = (here.api(), there.api());
    assert_eq!(one.files(&storage), other.files(&storage));
    let inode = |server| {
        let of = |ending| {
            fs::metadata(derived_file(server, &storage, ending))
                .unwrap()
                .ino()
        };
        ["idx", "pidx"].map(of)
    };
    let before = inode(&there);
    let known = descriptors(&mut one, &storage);
    assert!(known.len() > 3 && known.iter().all(|packet| packet["provenance"].is_object()));
    assert_eq!(descriptors(&mut other, &storage), known);
    assert_eq!(
        query_results(&there, &storage),
        query_results(&here, &storage)
    );
    // The indexer works through storages in order: once a later storage has its index, it has
    // visited this one.
    let second = filled(&there, folder.path(), 500);
    let later = descriptors(&mut other, &second);
    let read: u64 = later
        .iter()
        .map(|packet| packet["size"].as_u64().unwrap())
        .sum();
    let indexed = other.metric("tracehold_indexed_bytes_total");
    let frames = 1024.0 * later.len() as f64;
    assert!(
        indexed > 0.0 && indexed <= read as f64 + frames,
        "{indexed} of {read}"
    );
    assert_eq!(inode(&there), before, "a file was made again");
    assert!(other.verify(&storage).is_empty());
}

/// The replacement of a file; `None` removes it.
type Replaced = Option<Vec<u8>>;

/// Replaces files of an archive, or removes them.
const REPLACE: &str = "\
import sys, zipfile
source, target = sys.argv[1:3]
others = dict(zip(sys.argv[3::2], sys.argv[4::2]))
out = zipfile.ZipFile(target, 'w', zipfile.ZIP_STORED)
z = zipfile.ZipFile(source)
for n in z.namelist():
    other = others.get(n.rsplit('.', 1)[1])
    if other != '-':
        out.writestr(n, open(other, 'rb').read() if other else z.read(n))
out.close()
";

#[test]
fn derived_files_of_archives_are_checked_and_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let here = Server::start(&path("here"), &settings());
    let there = Server::start(&path("there"), &settings());
    let storage = filled(&here, folder.path(), 3_000);
    let other = filled(&here, folder.path(), 700);
    fs::write(path("whole.zip"), export(&mut here.api(), &storage)).unwrap();
    let read = |of: &str, ending| fs::read(derived_file(&here, of, ending)).unwrap();
    let (index, provenance) = (read(&storage, "idx"), read(&storage, "pidx"));
    let (expected, known) = (
        query_results(&here, &storage),
        descriptors(&mut here.api(), &storage),
    );
    let flipped = |bytes: &[u8], place: usize| {
        let mut bytes = bytes.to_vec();
        bytes[place] ^= 0x55;
        bytes
    };
    let end = index.len() - 20;
    // For each file: its replacement, if any, and whether the log reports it.
    let cases: [(&str, Replaced, Replaced); 8] = [
        ("none", None, None),
        (
            "foreign",
            Some(read(&other, "idx")),
            Some(read(&other, "pidx")),
        ),
        (
            "damaged",
            Some(flipped(&index, end)),
            Some(flipped(&provenance, 30)),
        ),
        (
            "cut",
            Some(index[..end].to_vec()),
            Some(provenance[..20].to_vec()),
        ),
        ("empty", Some(Vec::new()), Some(Vec::new())),
        ("each other", Some(provenance.clone()), Some(index.clone())),
        ("zeros", Some(vec![0; 5000]), Some(vec![0; 5000])),
        (
            "damaged within",
            Some(flipped(&index, index.len() / 8)),
            Some(provenance.clone()),
        ),
    ];
    for (case, index_there, provenance_there) in cases {
        let mut words = ["-c", REPLACE].map(str::to_owned).to_vec();
        words.extend(["whole.zip", "case.zip"].map(|name| path(name).display().to_string()));
        for (ending, bytes) in [("idx", &index_there), ("pidx", &provenance_there)] {
            let place = bytes.as_ref().map_or("-".into(), |bytes| {
                fs::write(path(ending), bytes).unwrap();
                path(ending).display().to_string()
            });
            words.extend([ending.to_owned(), place]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(output) = run("python3", &words) else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let report = imported(&there, &fs::read(path("case.zip")).unwrap());
        let not_taken = report["not_taken"].as_array().cloned().unwrap_or_default();
        let rejected = match case {
            "none" | "damaged within" => 0,
            _ => 2,
        };
        assert_eq!(not_taken.len(), rejected, "{case}: {report}");
        for file in &not_taken {
            assert!(
                !file["reason"].as_str().unwrap().is_empty(),
                "{case}: {report}"
            );
        }
        assert_eq!(query_results(&there, &storage), expected, "{case}");
        let found = descriptors(&mut there.api(), &storage);
        match case {
            "damaged within" => assert_eq!(found, known),
            _ => assert!(
                found.iter().all(|packet| packet["provenance"].is_null()),
                "{case}"
            ),
        }
        // A file that was rejected is rebuilt with the same content.
        let begin = Instant::now();
        let made = || fs::read(derived_file(&there, &storage, "idx")).ok();
        while made().as_deref() != Some(&index[..]) {
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(60), "{case}: {}", there.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(query_results(&there, &storage), expected, "{case}");
        let gone = format!("/storages/{storage}");
        there.api().done("DELETE", &gone, None);
        if case == "foreign" {
            let url = there.url();
            let archive = path("case.zip").display().to_string();
            let words = ["storage", "import", "--server", &url, &archive].map(str::to_owned);
            let output = run_tracehold(&words);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            assert_eq!(errors.matches(" is not used: ").count(), 2, "{errors}");
            there.api().done("DELETE", &gone, None);
        }
    }
}

/// The only section of a bundle: everything between its header and its footer, whose offset is in
/// its trailer.
fn section(bundle: &[u8]) -> &[u8] {
    let trailer = &bundle[bundle.len() - 48..];
    let end = u64::from_le_bytes(trailer[..8].try_into().unwrap());
    &bundle[24..usize::try_from(end).unwrap()]
}

/// Puts the derived files of a leaf into an archive, in place of the bundles of its data file.
const SPLIT: &str = "\
import sys, zipfile
source, target, leaf = sys.argv[1:4]
others = dict(zip(sys.argv[4::2], sys.argv[5::2]))
out = zipfile.ZipFile(target, 'w', zipfile.ZIP_STORED)
z = zipfile.ZipFile(source)
for n in z.namelist():
    ending = n.rsplit('.', 1)[1]
    if ending in others:
        out.writestr(leaf + '.' + ending, open(others[ending], 'rb').read())
    else:
        out.writestr(n, z.read(n))
out.close()
";

/// Earlier servers wrote one file per leaf. What these files contain is moved, not made again.
#[test]
fn archives_with_a_chunk_index_per_leaf_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let here = Server::start(&path("here"), &settings());
    let there = Server::start(&path("there"), &settings());
    let storage = filled(&here, folder.path(), 3_000);
    fs::write(path("whole.zip"), export(&mut here.api(), &storage)).unwrap();
    let leaves = here.api().leaves(&storage);
    let mut words = ["-c", SPLIT].map(str::to_owned).to_vec();
    words.extend(["whole.zip", "split.zip"].map(|name| path(name).display().to_string()));
    words.push(leaves.first().unwrap().clone());
    for ending in ["idx", "pidx"] {
        let bundle = fs::read(derived_file(&here, &storage, ending)).unwrap();
        fs::write(path(ending), section(&bundle)).unwrap();
        words.extend([ending.to_owned(), path(ending).display().to_string()]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(output) = run("python3", &words) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let report = imported(&there, &fs::read(path("split.zip")).unwrap());
    assert!(report["not_taken"].is_null(), "{report}");
    assert_eq!(
        query_results(&there, &storage),
        query_results(&here, &storage)
    );
    wait_for_indexes(&there, &storage);
    let begin = Instant::now();
    for ending in ["idx", "pidx"] {
        let bundle = fs::read(derived_file(&here, &storage, ending)).unwrap();
        let made = derived_file(&there, &storage, ending);
        while fs::read(&made).ok().as_ref() != Some(&bundle) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{ending}: {}",
                there.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let own = made.with_file_name(format!("{}.{ending}", leaves.first().unwrap()));
        while own.exists() {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{} is left",
                own.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let mut other = there.api();
    assert_eq!(other.metric("tracehold_indexed_bytes_total"), 0.0);
    assert_eq!(
        descriptors(&mut other, &storage),
        descriptors(&mut here.api(), &storage)
    );
    assert!(other.verify(&storage).is_empty());
}
