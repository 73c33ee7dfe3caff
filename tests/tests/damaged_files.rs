//! Flipped bytes of a finalized storage are never sent as if they were intact.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{
    Agent, Api, Connection, Request, Response, Server, Settings, payload, run_tracehold,
};

use serde_json::json;

use crate::queries::{mount, push, run, wait_for_indexes};

/// Bytes of a block of a data file that has a checksum of its own.
const BLOCK: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A file and its bytes.
struct Intact {
    name: String,
    role: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Intact {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A byte in each block.
    fn places(&self) -> Vec<u64> {
        let starts = (0..self.length()).step_by(usize::try_from(BLOCK).unwrap());
        starts
            .map(|start| start + (self.length() - start).min(BLOCK) * 2 / 3)
            .collect()
    }

    /// The bytes with some of them flipped.
    fn flipped(&self, places: &[u64]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for at in places {
            bytes[usize::try_from(*at).unwrap()] ^= 0x10;
        }
        bytes
    }

    fn restore(&self) {
        fs::write(&self.path, &self.bytes).unwrap();
    }
}

/// A finalized storage with data of several blocks, chunk indexes and provenance.
fn filled(server: &Server, folder: &Path) -> String {
    let mut api = server.api();
    let storage = api.create_storage("blocks");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..50 {
        agent.push(&mut api, sequence, &payload(1, sequence, 200_000));
    }
    let mut lines = String::new();
    for line in 0..2000 {
        writeln!(
            lines,
            "{{\"id\":{line},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{},\
             \"dur\":3,\"ph\":\"X\",\"args\":{{\"ret\":{line}}}}}",
            1_000_000 + line * 10,
        )
        .unwrap();
    }
    let trace = folder.join("trace.pfw");
    fs::write(&trace, lines).unwrap();
    let words = [
        "push",
        "--server",
        &server.url(),
        "--storage",
        &storage,
        trace.to_str().unwrap(),
    ];
    let output = run_tracehold(&words.map(str::to_owned));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    api.finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

fn files(server: &Server, storage: &str) -> Vec<Intact> {
    let folder = server.data().join("storages").join(storage);
    let listed = server.api().files(storage).into_iter();
    let files: Vec<_> = listed
        .map(|(name, role, length)| {
            let path = folder.join(&name);
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, length, "{name}");
            Intact {
                name,
                role,
                path,
                bytes,
            }
        })
        .collect();
    for role in [
        "storage",
        "agent",
        "index",
        "data",
        "checksums",
        "chunk_index",
        "provenance",
    ] {
        assert!(
            files.iter().any(|file| file.role == role),
            "no file is {role}"
        );
    }
    assert!(
        files.iter().any(|file| file.places().len() > 2),
        "no file has blocks"
    );
    files
}

fn get(connection: &mut Connection, path: &str, range: Option<&str>) -> io::Result<Response> {
    let mut request = Request::new("GET", path);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    connection.send(&request)
}

/// Requests the bytes at `at` of `file` in every way. Over HTTP/2 they take another path.
fn responses(server: &Server, storage: &str, file: &Intact, at: u64) -> Vec<io::Result<Response>> {
    let path = format!("/storage/{storage}/{}", file.name);
    let export = format!("/api/v1/storages/{storage}/export");
    let last = (at + 65_535).min(file.length() - 1);
    let first = at.saturating_sub(99);
    let ranges = [
        None,
        Some(format!("bytes={at}-{at}")),
        Some(format!("bytes={first}-{last}")),
        Some(format!("bytes={first}-")),
        Some(format!("bytes=0-0,{at}-{last}")),
    ];
    let mut all = Vec::new();
    for is_http2 in [false, true] {
        let open = || {
            if is_http2 {
                Connection::open_http2(server.address()).unwrap()
            } else {
                Connection::open(server.address()).unwrap()
            }
        };
        for range in &ranges {
            all.push(get(&mut open(), &path, range.as_deref()));
        }
        all.push(get(&mut open(), &export, None));
    }
    all
}

/// A response has no flipped bytes: it is refused, cut off, or does not contain them.
fn check_unflipped(file: &Intact, at: u64, flipped: &[u8], responses: Vec<io::Result<Response>>) {
    let at = usize::try_from(at).unwrap();
    // Long enough to be nowhere else.
    let window = at.saturating_sub(12)..(at + 12).min(flipped.len());
    for response in responses.into_iter().flatten() {
        let name = &file.name;
        if response.status >= 400 {
            let problem = response.json();
            assert_eq!(
                (response.status, &problem["code"]),
                (500, &"damaged".into()),
                "{problem}"
            );
            assert_eq!(problem["file"], name.as_str(), "{problem}");
            assert!(problem["offset"].as_u64() <= Some(at as u64), "{problem}");
            continue;
        }
        let wrong = &flipped[window.clone()];
        let is_wrong = response
            .body
            .windows(wrong.len())
            .any(|bytes| bytes == wrong);
        assert!(!is_wrong, "{name} at {at}: {}", response.brief());
        if response.body.len() == 1 {
            assert_eq!(response.body[0], file.bytes[at], "{name} at {at}");
        }
    }
}

fn check_whole(api: &mut Api, storage: &str, file: &Intact) {
    let response = api.send(&Request::new(
        "GET",
        &format!("/storage/{storage}/{}", file.name),
    ));
    let response = response.unwrap();
    assert_eq!(response.status, 200, "{}: {}", file.name, response.brief());
    assert!(response.body == file.bytes, "{} has other bytes", file.name);
}

#[test]
fn flipped_bytes_of_a_finalized_storage_are_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let storage = filled(&server, folder.path());
    let files = files(&server, &storage);

    // Blocks that were compared and sent before, one after another.
    for file in &files {
        for at in file.places() {
            check_whole(&mut server.api(), &storage, file);
            let flipped = file.flipped(&[at]);
            fs::write(&file.path, &flipped).unwrap();
            check_unflipped(file, at, &flipped, responses(&server, &storage, file, at));
            // A chunk index is made again as soon as its damage is met.
            if !matches!(&*file.role, "storage" | "chunk_index") {
                let path = format!("/storage/{storage}/{}", file.name);
                let range = format!("bytes={at}-{at}");
                let refused = get(&mut server.connect(), &path, Some(&range)).unwrap();
                assert_eq!(refused.status, 500, "{}: {}", file.name, refused.brief());
            }
            file.restore();
        }
        check_whole(&mut server.api(), &storage, file);
    }
    assert_eq!(server.api().verify(&storage).len(), 0);

    // All at once, before the server starts. The storage file would be restored, and without the
    // checksums of blocks a data file is one block.
    server.terminate();
    assert!(server.wait(PATIENCE).success());
    let is_flipped = |file: &&Intact| !matches!(&*file.role, "storage" | "checksums");
    let damaged: Vec<_> = files.iter().filter(is_flipped).collect();
    for file in &damaged {
        fs::write(&file.path, file.flipped(&file.places())).unwrap();
    }
    server.restart();
    for file in &damaged {
        for at in file.places() {
            // A damaged chunk index is rebuilt meanwhile.
            let flipped = file.flipped(&file.places());
            let all = responses(&server, &storage, file, at);
            // An export ends at any of the damaged files.
            let of_file = all.into_iter().enumerate().filter(|(at, _)| at % 6 != 5);
            let of_file = of_file.map(|(_, response)| response).collect();
            check_unflipped(file, at, &flipped, of_file);
        }
    }
    let mut api = server.api();
    let listed = api.status(&storage)["damage"].as_array().unwrap().clone();
    for file in damaged.iter().filter(|file| file.role == "data") {
        for block in (0..file.length()).step_by(usize::try_from(BLOCK).unwrap()) {
            let is_listed = |place: &&serde_json::Value| {
                place["file"] == file.name.as_str() && place["offset"] == block
            };
            assert_eq!(listed.iter().filter(is_listed).count(), 1, "{listed:?}");
        }
    }
    assert!(api.metric("tracehold_storage_damaged_blocks_total") >= listed.len() as f64);
    assert!(
        server
            .log()
            .contains("bytes of a finalized storage are damaged")
    );

    // Restored files are served again, without a restart.
    damaged.iter().for_each(|file| file.restore());
    for file in &files {
        check_whole(&mut api, &storage, file);
    }
    assert_eq!(api.status(&storage)["damaged_places"], 0);
}

/// Damage in one block does not affect the others, and a file that is put in the place of a damaged
/// one is used.
#[test]
fn damage_is_limited_to_its_block() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = filled(&server, folder.path());
    let files = files(&server, &storage);
    let data = files.iter().find(|file| file.places().len() > 2).unwrap();
    let path = format!("/storage/{storage}/{}", data.name);
    fs::write(&data.path, data.flipped(&[BLOCK + 5])).unwrap();
    let connection = &mut server.connect();
    for (range, first, last, is_intact) in [
        ("bytes=0-4194303", 0, BLOCK - 1, true),
        ("bytes=4194303-4194304", BLOCK - 1, BLOCK, false),
        ("bytes=8388607-8388607", 2 * BLOCK - 1, 2 * BLOCK - 1, false),
        ("bytes=8388608-8388700", 2 * BLOCK, 2 * BLOCK + 92, true),
    ] {
        let response = get(connection, &path, Some(range)).unwrap();
        assert_eq!(
            response.status == 206,
            is_intact,
            "{range}: {}",
            response.brief()
        );
        if is_intact {
            let [first, last] = [first, last].map(|at| usize::try_from(at).unwrap());
            assert!(response.body == data.bytes[first..=last], "{range}");
        }
    }
    let intact = data.path.with_extension("restored");
    fs::write(&intact, &data.bytes).unwrap();
    fs::rename(&intact, &data.path).unwrap();
    check_whole(&mut server.api(), &storage, data);
}

/// A chunk of several blocks, of which two are damaged.
#[test]
fn a_mount_reads_all_intact_packets_in_and_between_damaged_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[query]\nchunk_bytes = 67108864\n");
    let server = Server::start(&folder.path().join("data"), &settings);
    let mut api = server.api();
    let storage = api.create_storage("blocks");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "events", "dft", "none");
    let agent = Agent::new(&storage, "host", "events");
    let long = "x".repeat(200_000);
    for sequence in 0..60 {
        let line = format!(
            "{{\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{sequence},\"dur\":3,\
             \"ph\":\"X\",\"args\":{{\"long\":\"{long}\"}}}}\n"
        );
        agent.push(&mut api, sequence, line.as_bytes());
    }
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = ["query", "--dir", mounted.to_str().unwrap(), "--count"];
    // Nothing but the packets can answer it.
    let query = "pid + tid == 3";
    let (code, counted, _) = run(&[&mounted[..], &[query]].concat());
    assert_eq!((code, counted.trim()), (0, "60"));
    let own = server.data().join("storages").join(&storage);
    let data = api.files(&storage).into_iter();
    let data = data.filter(|(_, role, _)| role == "data");
    let (name, _, length) = data.max_by_key(|(_, _, length)| *length).unwrap();
    assert!((2 * BLOCK + 1000..3 * BLOCK).contains(&length), "{length}");
    let path = own.join(name);
    let mut bytes = fs::read(&path).unwrap();
    for at in [BLOCK / 2, 2 * BLOCK + BLOCK / 2] {
        bytes[usize::try_from(at).unwrap()] ^= 0x10;
    }
    fs::write(&path, bytes).unwrap();
    let (code, counted, told) = run(&[&mounted[..], &[query]].concat());
    let found: u64 = counted.trim().parse().unwrap();
    assert_eq!(code, 1, "{told}");
    // Those in the damaged blocks are read one by one.
    assert_eq!(found, 58, "{told}");
    let places = told.lines().filter(|line| line.contains("leaf ")).count();
    assert_eq!(places, 2, "{told}");
}

/// What a verification finds is in the status and in the metric, until another one finds the file
/// intact.
#[test]
fn what_a_verification_finds_is_in_the_status() {
    let (folder, server, mut api) = Server::fresh();
    let storage = filled(&server, folder.path());
    let files = files(&server, &storage);
    let file = files.iter().find(|file| file.role == "data").unwrap();
    fs::write(&file.path, file.flipped(&file.places())).unwrap();
    for _ in 0..2 {
        let found = api.verify(&storage);
        let status = api.status(&storage);
        assert_eq!(status["damaged_places"], found.len() as u64, "{status}");
        let listed = status["damage"].as_array().unwrap();
        assert!(
            listed
                .iter()
                .all(|place| place["file"] == file.name.as_str())
        );
        assert_eq!(api.metric("tracehold_storage_damaged_storages"), 1.0);
    }
    let log = server.log();
    let told = log.matches("a verification found damage").count();
    assert_eq!(told, api.verify(&storage).len(), "each place once: {log}");
    file.restore();
    assert_eq!(api.verify(&storage).len(), 0);
    assert_eq!(api.status(&storage)["damaged_places"], 0);
    assert_eq!(api.metric("tracehold_storage_damaged_storages"), 0.0);
}

/// Provenance is in no list of files, and nothing but a verification reads all of it.
#[test]
fn damaged_provenance_is_in_the_status_until_it_is_reported_again() {
    let (folder, server, mut api) = Server::fresh();
    let storage = filled(&server, folder.path());
    let files = files(&server, &storage);
    let file = files.iter().find(|file| file.role == "provenance").unwrap();
    fs::write(&file.path, file.flipped(&file.places())).unwrap();
    for _ in 0..2 {
        let found = api.verify(&storage);
        assert_eq!((found.len(), &found[0]["file"]), (1, &json!(file.name)));
        let status = api.status(&storage);
        assert_eq!(status["damaged_places"], 1, "{status}");
        assert_eq!(status["damage"][0]["file"], file.name, "{status}");
        assert_eq!(api.metric("tracehold_storage_damaged_storages"), 1.0);
    }
    let log = server.log();
    assert_eq!(log.matches("push the files again").count(), 1, "{log}");
    file.restore();
    assert_eq!(api.verify(&storage).len(), 0);
    assert_eq!(api.status(&storage)["damaged_places"], 0);
    assert_eq!(api.metric("tracehold_storage_damaged_storages"), 0.0);

    // Also of a storage that is not finalized, where the remedy is as the log says.
    let storage = api.create_storage("open");
    let trace = folder.path().join("trace.pfw");
    push(&server, &storage, &trace, "65536");
    let own = server.data().join("storages").join(&storage);
    let path = own.join(format!("{}.pidx", api.leaves(&storage).first().unwrap()));
    let intact = fs::read(&path).unwrap();
    fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    assert_eq!(api.verify(&storage).len(), 1);
    assert_eq!(api.status(&storage)["damaged_places"], 1);
    push(&server, &storage, &trace, "65536");
    assert_eq!(api.status(&storage)["damaged_places"], 0);
    assert_eq!(api.verify(&storage).len(), 0);
}
