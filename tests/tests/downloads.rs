//! A download is verified, and heals what is damaged.

use std::fs;
use std::path::PathBuf;

use harness::{Agent, Server, Settings, payload, run_tracehold};
use serde_json::Value;
use tempfile::TempDir;

const PIECE_BYTES: u64 = 4 << 20;

/// Runs the command with `--json`; returns its exit code and output.
fn run(arguments: &[&str]) -> (Option<i32>, Value) {
    let words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = run_tracehold(&[&words[..], &["--json".to_owned()]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(errors));
    (output.status.code(), document)
}

#[test]
fn only_damaged_pieces_are_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("large");
    let agent = Agent::declare(&mut api, &storage, "host", "raw", "none");
    for sequence in 0..12 {
        agent.push(&mut api, sequence, &payload(7, sequence, 1 << 20));
    }
    api.finalize(&storage);
    let url = format!("{}/storage/{storage}", server.url());
    let copy = folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    let (code, first) = run(&["download", &url, copy]);
    assert_eq!(
        (code, &first["healed_files"]),
        (Some(0), &Value::from(0)),
        "{first}"
    );
    let verify = || run(&["storage", "verify", "--dir", copy]);
    let (code, report) = verify();
    assert_eq!(
        (code, &report["packets"]),
        (Some(0), &Value::from(12)),
        "{report}"
    );

    let files = fs::read_dir(copy)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_data = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "itdata");
    let largest = files
        .filter(is_data)
        .max_by_key(|path| fs::metadata(path).unwrap().len());
    let path = largest.unwrap();
    let intact = fs::read(&path).unwrap();
    assert!(intact.len() as u64 > 2 * PIECE_BYTES);
    let mut damaged = intact.clone();
    damaged[usize::try_from(PIECE_BYTES).unwrap() + 17] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let (code, report) = verify();
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["damage"][0]["offset"], PIECE_BYTES, "{report}");
    assert_eq!(report["damage"].as_array().unwrap().len(), 1, "{report}");

    let (code, again) = run(&["download", &url, copy]);
    assert_eq!(code, Some(0), "{again}");
    assert_eq!(again["healed_files"], 1, "{again}");
    assert_eq!(again["fetched_bytes"], PIECE_BYTES, "{again}");
    assert!(fs::read(&path).unwrap() == intact);

    // A file that was cut, and one that is gone; without the server they are found all the same.
    fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    let (code, _) = run(&["download", &url, copy]);
    assert!(code == Some(0) && fs::read(&path).unwrap() == intact);
    server.kill();
    assert_eq!(verify().0, Some(0));
    fs::remove_file(&path).unwrap();
    let (code, report) = verify();
    assert_eq!(
        (code, &report["damage"][0]["what"]),
        (Some(1), &Value::from("it is missing"))
    );
    let empty = folder.path().join("server");
    let (code, _) = run(&["storage", "verify", "--dir", empty.to_str().unwrap()]);
    assert_eq!(code, Some(2));
}

/// A download of a storage with a DFTracer file; the server has to live for as long as it is
/// fetched again.
struct Download {
    _folder: TempDir,
    _server: Server,
    url: String,
    copy: String,
}

impl Download {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("server"), &Settings::default());
        let storage = server.api().create_storage("small");
        let trace = folder.path().join("a.pfw");
        let line =
            r#"{"id":1,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":5,"dur":2,"ph":"X"}"#;
        fs::write(&trace, format!("[\n{line}\n")).unwrap();
        let (trace, at) = (trace.to_str().unwrap(), server.url());
        let push = ["push", "--server", &at, "--storage", &storage, trace];
        assert_eq!(run(&push).0, Some(0));
        server.api().finalize(&storage);
        let download = Self {
            url: format!("{at}/storage/{storage}"),
            copy: folder.path().join("copy").to_str().unwrap().to_owned(),
            _folder: folder,
            _server: server,
        };
        download.fetch();
        download
    }

    fn fetch(&self) {
        assert_eq!(run(&["download", &self.url, &self.copy]).0, Some(0));
    }

    fn verify(&self) -> (Option<i32>, Value) {
        run(&["storage", "verify", "--dir", &self.copy])
    }

    /// The only file with this ending.
    fn file(&self, ending: &str) -> PathBuf {
        let files = fs::read_dir(&self.copy).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        let is_it = |path: &PathBuf| path.extension().is_some_and(|found| found == ending);
        files.find(is_it).expect("there is one")
    }
}

/// Chunk indexes and provenance are not in the storage file, because they may be rebuilt.
#[test]
fn derived_files_that_are_missing_are_told() {
    let download = Download::new();
    assert_eq!(download.verify().0, Some(0));
    for ending in ["idx", "pidx"] {
        let path = download.file(ending);
        fs::remove_file(&path).unwrap();
        let (code, report) = download.verify();
        let what = (&report["damage"][0]["file"], &report["damage"][0]["what"]);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            (code, what),
            (Some(1), (&name.into(), &"it is missing".into())),
            "{report}"
        );
        download.fetch();
        assert_eq!(download.verify().0, Some(0));
    }
}

/// Wherever an index part is damaged, a query says so with the exit code of damage.
#[test]
fn damaged_index_parts_of_a_download_are_damage() {
    let download = Download::new();
    let path = download.file("index");
    let intact = fs::read(&path).unwrap();
    let query = || run(&["query", "--dir", &download.copy, "name == 'read'"]);
    assert_eq!(query().0, Some(0));
    let mut told = 0;
    for at in (0..intact.len()).step_by(16) {
        let mut damaged = intact.clone();
        let end = intact.len().min(at + 16);
        damaged[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&path, damaged).unwrap();
        let (code, said) = query();
        told += u32::from(code == Some(1));
        // Some bytes are only space between blocks.
        let is_whole = code == Some(0) && said["name"] == "read";
        assert!(code == Some(1) || is_whole, "byte {at}: {code:?}, {said}");
    }
    // At least the block, its entry, and the footer.
    assert!(told >= 3, "{told} of {} bytes", intact.len());
}
