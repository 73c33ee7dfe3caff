//! A command that reads files says what of them is damaged or missing, and exits with 1, in every
//! format.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::small_traces;

use crate::queries::run;

/// Bytes of an I/O trace of RocksDB before its first record.
const IO_HEADER: usize = 38;
/// Offsets of the packets in `chan_1`.
const PACKETS: [usize; 2] = [16_384, 32_768];
/// Where a packet says which stream it is of.
const STREAM_NUMBER: Range<usize> = 24..32;

/// Files of a recorded CTF trace, each as `change` makes it.
fn ctf(folder: &Path, name: &str, change: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    let recorded = small_traces()[0].clone();
    for name in ["metadata", "chan_0", "chan_1"] {
        let bytes = fs::read(recorded.join(name)).unwrap();
        if let Some(bytes) = change(name, bytes) {
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

/// The text of the recorded metadata with a scope that no reader knows.
fn strange_metadata() -> Vec<u8> {
    let recorded = small_traces()[0].clone();
    let (_, text, _) = run(&["decode", recorded.to_str().unwrap(), "-o", "ctf-metadata"]);
    let header = "event.header :=";
    let strange = "strange := struct { integer { size = 8; } a; };\n";
    assert!(text.contains(header), "{text}");
    text.replacen(header, &format!("{strange}{header}"), 1)
        .into_bytes()
}

fn make(folder: &Path) {
    let bytes = |at: usize| fs::read(&small_traces()[at]).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    write("empty", b"");
    write("text", b"no trace\n");
    write(
        "lines.pfw",
        b"{\"id\":1,\"name\":\"r\",\"ph\":\"X\",\"ts\":1,\"dur\":2}\n",
    );
    write(
        "broken.pfw",
        b"{\"id\":1,\"name\":\"r\",\"ph\":\"X\",\"ts\":1,\"dur\":2}\n{\"id\":\n",
    );
    write("io", &bytes(2)[..1000]);
    write("io-empty", &bytes(2)[..IO_HEADER]);
    // A record of a type that no such trace has.
    write("io-odd", &[&bytes(2)[..IO_HEADER], &[0xff; 64]].concat());
    write("cut.json.gz", &damaged_chrome(true));
    write("odd.json.gz", &damaged_chrome(false));
    fs::create_dir(folder.join("nothing")).unwrap();
    write("blocks", &bytes(3)[..1000]);
    ctf(folder, "none", |name, bytes| {
        (name == "metadata").then_some(bytes)
    });
    ctf(folder, "more", |name, bytes| {
        let more: &[u8] = if name == "chan_1" { b"x" } else { b"" };
        Some([&bytes, more].concat())
    });
    ctf(folder, "garbage", |name, bytes| match name {
        "metadata" => Some(bytes),
        "chan_1" => Some(b"no packet".to_vec()),
        _ => None,
    });
    let metadata = strange_metadata();
    ctf(folder, "lost", |name, bytes| {
        let [from, to] = PACKETS;
        Some(match name {
            "metadata" => metadata.clone(),
            "chan_1" => [&bytes[..from], &bytes[to..]].concat(),
            _ => bytes,
        })
    });
    // Each stream has a packet of another time than the other one.
    let packets = fs::read(small_traces()[0].join("chan_1")).unwrap();
    let mut first = packets[..PACKETS[0]].to_vec();
    first[STREAM_NUMBER].fill(0);
    ctf(folder, "apart", |name, bytes| {
        Some(match name {
            "chan_0" => first.clone(),
            "chan_1" => packets[PACKETS[1]..].to_vec(),
            _ => bytes,
        })
    });
    // The events are whole, the padding behind them is not.
    ctf(folder, "cut", |name, mut bytes| {
        bytes.truncate(bytes.len() - if name == "chan_0" { 3_000 } else { 0 });
        Some(bytes)
    });
}

/// Folders with a whole trace, and one that cannot be recognized.
fn make_folders(folder: &Path) {
    let lines = fs::read(&small_traces()[1]).unwrap();
    for name in ["two", "some"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    ctf(folder, "two/whole", |_, bytes| Some(bytes));
    ctf(folder, "two/bare", |name, bytes| {
        (name != "metadata").then_some(bytes)
    });
    fs::write(folder.join("some/whole.pfw.gz"), &lines).unwrap();
    fs::write(folder.join("some/odd.pfw.gz"), &lines[1..]).unwrap();
    fs::write(folder.join("some/README"), b"no trace").unwrap();
    let frame = |id: u64| {
        let line = format!("{{\"id\":{id},\"name\":\"r\",\"ph\":\"X\",\"ts\":1,\"dur\":2}}\n");
        zstd::encode_all(line.as_bytes(), 1).unwrap()
    };
    let second = frame(2);
    let cut = [&frame(1), &second[..second.len() / 2]].concat();
    fs::write(folder.join("cut.pfw.zst"), cut).unwrap();
}

/// A compressed Chrome trace that is cut, or has other bytes in the middle.
fn damaged_chrome(is_cut: bool) -> Vec<u8> {
    let text = fs::read(&small_traces()[5]).unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&text).unwrap();
    let mut bytes = gzip.finish().unwrap();
    let half = bytes.len() / 2;
    if is_cut {
        bytes.truncate(half);
    } else {
        bytes[half..half + 64].fill(0xff);
    }
    bytes
}

/// A time before all events.
const EARLY: &str = "2000-01-01";
const NO_FILES: &str = "there are no stream files";
const TORN: &str = "the trace is torn";
const MORE: &str = "chan_1: packet at byte 61440";
const CUT: &str = "chan_0: packet at byte 0";

/// Arguments of which `@` begins the name of a file, the exit code, and what is told.
const CASES: &[(&[&str], i32, &str)] = &[
    (&["index", "@empty"], 1, "there is nothing to index"),
    (&["index", "@none"], 1, NO_FILES),
    (&["index", "@text"], 2, "unknown content"),
    (&["index", "@lines.pfw", "@text"], 2, "unknown content"),
    (&["index", "@missing", "@lines.pfw"], 4, "No such file"),
    (&["query", "@lines.pfw", "@missing"], 4, "No such file"),
    (&["query", "@lines.pfw", "@missing"], 4, "missing"),
    (&["query", "@lines.pfw", "name = x"], 2, "column"),
    (&["index", "@blocks"], 1, TORN),
    (&["decode", "@empty"], 1, "an empty file"),
    (&["decode", "@broken.pfw"], 1, "1 record cannot be read"),
    (&["decode", "@cut.pfw.zst"], 1, "cannot be decompressed"),
    (
        &["decode", "@cut.pfw.zst", "-o", "counter"],
        1,
        "cannot be decompressed",
    ),
    (&["query", "@cut.pfw.zst"], 1, "cannot be decompressed"),
    (&["decode", "@two"], 2, "no file `metadata`"),
    (
        &["decode", "@two", "-o", "counter"],
        2,
        "no file `metadata`",
    ),
    (&["query", "@two"], 2, "the file `metadata`"),
    (&["query", "@some", "--count"], 1, "odd.pfw.gz"),
    (&["index", "@some"], 1, "odd.pfw.gz"),
    (&["fields", "@some"], 1, "odd.pfw.gz"),
    (&["decode", "@io"], 1, TORN),
    (&["decode", "@io", "-o", "ndjson"], 1, TORN),
    (&["decode", "@blocks"], 1, TORN),
    (&["decode", "@none"], 1, NO_FILES),
    (&["decode", "@none", "-o", "ndjson"], 1, NO_FILES),
    (&["decode", "@none", "-o", "counter"], 1, NO_FILES),
    (&["decode", "@none", "-o", "elements"], 1, NO_FILES),
    (&["decode", "@none", "-o", "details"], 1, NO_FILES),
    (
        &["decode", "@none", "-o", "ctf", "-w", "@none.out"],
        1,
        NO_FILES,
    ),
    (&["decode", "@more"], 1, MORE),
    (&["decode", "@more", "--salvage"], 1, MORE),
    (&["decode", "@more", "--salvage", "-o", "dummy"], 1, MORE),
    (&["decode", "@more", "--salvage", "-o", "counter"], 1, MORE),
    (&["decode", "@more", "--salvage", "-o", "details"], 1, MORE),
    (
        &[
            "decode",
            "@more",
            "--salvage",
            "-o",
            "ctf",
            "-w",
            "@more.out",
        ],
        1,
        MORE,
    ),
    (&["decode", "@more", "-o", "elements"], 1, ""),
    (
        &[
            "decode",
            "@more",
            "--salvage",
            "-o",
            "counter",
            "--from",
            EARLY,
        ],
        1,
        MORE,
    ),
    (
        &["decode", "@none", "-o", "counter", "--from", EARLY],
        1,
        NO_FILES,
    ),
    (
        &["decode", "@apart", "--stream-intersection"],
        1,
        "no time in common",
    ),
    (&["decode", "@apart"], 0, ""),
    (&["decode", "@cut", "--salvage"], 1, CUT),
    (&["decode", "@cut", "--salvage", "-o", "details"], 1, CUT),
    (
        &["decode", "@cut", "--salvage", "-o", "ctf", "-w", "@cut.out"],
        1,
        CUT,
    ),
    (&["decode", "@lost"], 0, "Tracer discarded 1 packet"),
    (&["decode", "@lost"], 0, "unknown scope ignored"),
    (&["analyze", "@empty"], 1, "an empty file"),
    (&["analyze", "@io"], 1, TORN),
    (&["analyze", "@blocks"], 1, TORN),
    (&["analyze", "@io-empty"], 1, "the trace has no records"),
    (&["analyze", "@io-odd"], 1, "io-odd: offset 38: "),
    (&["analyze", "@io", "@io-odd"], 1, "io-odd: offset 38: "),
    (&["query", "@io"], 1, TORN),
    (&["query", "@blocks", "--count"], 1, TORN),
    (&["query", "@more"], 1, MORE),
    (&["query", "@none"], 1, ""),
    (&["query", "@cut.json.gz", "--count"], 1, "cut.json.gz: "),
    (&["query", "@odd.json.gz", "--count"], 1, "odd.json.gz: "),
    (&["query", "@nothing", "--count"], 2, "no trace is in it"),
    (&["decode", "@nothing"], 2, "no CTF trace is in it"),
    (
        &["decode", "@garbage", "--salvage"],
        1,
        "chan_1: packet at byte 0",
    ),
    (
        &["decode", "@garbage", "--salvage", "-o", "counter"],
        1,
        "chan_1: packet at byte 0",
    ),
];

#[test]
fn commands_on_files_say_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    make_folders(folder.path());
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    for (arguments, expected, told) in CASES {
        let words = arguments.iter().map(|word| match word.strip_prefix('@') {
            Some(name) => path(name).to_str().unwrap().to_owned(),
            None => (*word).to_owned(),
        });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, _, errors) = run(&words);
        assert_eq!(code, *expected, "{arguments:?}: {errors}");
        assert!(errors.contains(told), "{arguments:?}: {errors}");
    }
}

/// It is a stream file all the same.
#[test]
fn the_elements_of_a_file_without_a_packet_end_with_why() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let garbage = folder.path().join("garbage");
    let (code, out, errors) = run(&["decode", "-o", "elements", garbage.to_str().unwrap()]);
    assert_eq!((code, errors.as_str()), (1, ""), "{out}");
    assert!(out.lines().count() > 0, "nothing is printed");
}
