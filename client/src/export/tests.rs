use std::cell::RefCell;
use std::fs;
use std::io::Write;

use chunk_index::{Identity, SourceFile};
use storage_format::StreamPosition;
use storage_format::checksum::crc32c;

use super::packet::{FileRange, StoredPacket, Unread};
use super::target::file_name;
use super::*;

/// A storage in memory: packets by number.
#[derive(Default)]
struct Memory {
    streams: Vec<ExportStream>,
    packets: RefCell<BTreeMap<u64, Vec<u8>>>,
    metadata: Option<Vec<u8>>,
}

impl PacketSource for Memory {
    fn streams(&self, _: &ExportOptions) -> Result<Vec<ExportStream>, ClientError> {
        Ok(self.streams.clone())
    }

    fn read(&self, packet: &StoredPacket) -> Result<Vec<u8>, Unread> {
        let packets = self.packets.borrow();
        let found = packets.get(&packet.number).cloned();
        found.ok_or_else(|| Unread::Damaged("its checksum does not match".to_owned()))
    }

    fn metadata(&self, _: &AgentId) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.metadata.clone())
    }
}

/// A file that was pushed in packets of ten bytes, or of its members if they are given.
struct Pushed<'a> {
    stream: &'a str,
    kind: Kind,
    path: &'a str,
    epoch: u64,
    /// The packets, each with the bytes of the file that it stands for.
    packets: Vec<(Vec<u8>, u64)>,
    content: Vec<u8>,
}

impl<'a> Pushed<'a> {
    fn new(stream: &'a str, kind: Kind, path: &'a str, epoch: u64, content: &[u8]) -> Self {
        let pieces = content.chunks(10);
        Self {
            stream,
            kind,
            path,
            epoch,
            packets: pieces
                .map(|piece| (piece.to_vec(), piece.len() as u64))
                .collect(),
            content: content.to_vec(),
        }
    }
}

impl Memory {
    fn push(&mut self, pushed: Pushed<'_>) {
        let is = |stream: &ExportStream| {
            stream.stream.as_str() == pushed.stream && stream.kind == pushed.kind
        };
        let at = self.streams.iter().position(is).unwrap_or_else(|| {
            let stream = ExportStream::new(
                "agent".parse().unwrap(),
                pushed.stream.parse().unwrap(),
                pushed.kind,
            );
            self.streams.push(stream);
            self.streams.len() - 1
        });
        let stream = &mut self.streams[at];
        let file = stream.file(SourceFile {
            path: pushed.path.to_owned(),
            identity: Identity {
                length: pushed.content.len() as u64,
                modified: None,
                checksum: Some(u64::from(crc32c(&pushed.content))),
            },
        });
        let mut offset = 0;
        let mut packets = self.packets.borrow_mut();
        for (sequence, (bytes, length)) in (0..).zip(pushed.packets) {
            let number = packets.len() as u64;
            stream.packets.push(StoredPacket {
                position: StreamPosition::new(pushed.epoch, sequence),
                number,
                raw_size: bytes.len() as u64,
                place: None,
                origin: (!pushed.path.is_empty()).then_some(FileRange {
                    file,
                    offset,
                    bytes: length,
                }),
            });
            packets.insert(number, bytes);
            offset += length;
        }
    }
}

fn text(lines: usize) -> Vec<u8> {
    (0..lines)
        .flat_map(|line| format!("line {line}\n").into_bytes())
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn run(memory: &Memory, folder: &Path) -> ExportReport {
    export(memory, folder, &ExportOptions::default()).unwrap()
}

/// The names and fidelities of the files.
fn outcome(report: &ExportReport) -> Vec<(String, Fidelity)> {
    let files = report.files.iter();
    files
        .map(|file| {
            let name = file.path.file_name().unwrap().to_string_lossy();
            (name.into_owned(), file.fidelity)
        })
        .collect()
}

#[test]
fn files_come_back_under_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let (old, new, other) = (text(7), text(9), text(5));
    memory.push(Pushed::new("a", Kind::Dft, "/x/trace.pfw", 1, &old));
    memory.push(Pushed::new("a", Kind::Dft, "/x/trace.pfw", 2, &new));
    memory.push(Pushed::new("b", Kind::Raw, "/x/same", 1, &other));
    memory.push(Pushed::new("c", Kind::Raw, "/y/same", 1, &old));
    memory.push(Pushed::new("d", Kind::Raw, "", 1, &other));
    memory.push(Pushed::new(
        "e",
        Kind::Raw,
        "/storage/id/7.itdata",
        1,
        &other,
    ));
    memory.push(Pushed::new("f", Kind::Raw, "/x/../..", 1, &other));
    let report = run(&memory, folder.path());
    let named = |name: &str, fidelity| (name.to_owned(), fidelity);
    assert_eq!(
        outcome(&report),
        [
            named("trace.pfw.1", Fidelity::Exact),
            named("trace.pfw", Fidelity::Exact),
            named("b", Fidelity::Exact),
            named("c", Fidelity::Exact),
            named("d", Fidelity::Unverified),
            named("e", Fidelity::Exact),
            named("f", Fidelity::Exact),
        ]
    );
    let read = |name: &str| fs::read(folder.path().join("agent").join(name)).unwrap();
    assert_eq!(
        (read("trace.pfw.1"), read("trace.pfw"), read("b"), read("c")),
        (old.clone(), new, other, old)
    );
    assert!(report.is_complete());
    assert_eq!((report.streams, report.packets), (6, 33));
    // Nothing else is in the folder.
    assert_eq!(
        fs::read_dir(folder.path().join("agent")).unwrap().count(),
        7
    );
}

#[test]
fn a_name_is_the_last_component_of_a_path() {
    for (path, name) in [
        ("/a/b.pfw", Some("b.pfw")),
        ("b", Some("b")),
        ("/a/.hidden", Some(".hidden")),
        ("../../../etc/passwd", Some("passwd")),
        ("/a/..", None),
        ("/a/.", None),
        ("/a/", None),
        ("", None),
        ("/a/b\0c", None),
        ("/a/b\nc", None),
        ("C:\\a\\..\\b", None),
    ] {
        assert_eq!(file_name(path), name, "{path:?}");
    }
    assert_eq!(file_name(&"x".repeat(256)), None);
}

#[test]
fn what_is_missing_is_said() {
    let damage = |what: &dyn Fn(&mut Memory)| {
        let folder = tempfile::tempdir().unwrap();
        let mut memory = Memory::default();
        memory.push(Pushed::new("s", Kind::Dft, "/x/t.pfw", 1, &text(9)));
        what(&mut memory);
        let report = run(&memory, folder.path());
        let [file] = report.files.as_slice() else {
            panic!("{report:?}");
        };
        assert!(!report.is_complete());
        assert_eq!(file.fidelity, Fidelity::Incomplete);
        file.note.clone().unwrap()
    };
    let remove = |at: usize| {
        move |memory: &mut Memory| {
            memory.streams[0].packets.remove(at);
        }
    };
    assert_eq!(damage(&remove(0)), "bytes 0 to 10 of the file are missing");
    assert_eq!(damage(&remove(3)), "bytes 30 to 40 of the file are missing");
    assert_eq!(
        damage(&remove(6)),
        "the last 3 bytes of the file are missing"
    );
    let no_origin = |memory: &mut Memory| {
        let packets = &mut memory.streams[0].packets;
        packets.drain(2..4);
        packets.iter_mut().for_each(|packet| packet.origin = None);
    };
    assert_eq!(damage(&no_origin), "packets 2 to 3 are missing");
    let unreadable = |memory: &mut Memory| {
        memory.packets.borrow_mut().remove(&2);
        memory.packets.borrow_mut().remove(&4);
    };
    assert_eq!(
        damage(&unreadable),
        "packet 2 is missing: its checksum does not match (and 1 more fault)"
    );
    let other_bytes = |memory: &mut Memory| {
        memory
            .packets
            .borrow_mut()
            .insert(1, b"0123456789".to_vec());
    };
    assert!(damage(&other_bytes).contains("do not match the checksum"));
}

#[test]
fn the_text_of_a_compressed_file_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let (first, second) = (text(5), text(8));
    let whole = [gzip(&first), gzip(&second)].concat();
    let pushed = |stream, path, packets| Pushed {
        stream,
        kind: Kind::Dft,
        path,
        epoch: 1,
        packets,
        content: whole.clone(),
    };
    let (one, two) = (first.len() as u64, second.len() as u64);
    let members = vec![(gzip(&first), one), (gzip(&second), two)];
    memory.push(pushed("members", "/x/members.pfw.gz", members));
    let mixed = vec![(gzip(&first), one), (second.clone(), two)];
    memory.push(pushed("mixed", "/x/mixed.pfw.gz", mixed));
    let lines = vec![(first.clone(), one), (second.clone(), two)];
    memory.push(pushed("text", "/x/text.pfw.gz", lines));
    let report = run(&memory, folder.path());
    let named = |name: &str, fidelity| (name.to_owned(), fidelity);
    assert_eq!(
        outcome(&report),
        [
            named("members.pfw.gz", Fidelity::Exact),
            named("mixed.pfw", Fidelity::Text),
            named("text.pfw", Fidelity::Text),
        ]
    );
    let read = |name: &str| fs::read(folder.path().join("agent").join(name)).unwrap();
    let joined = [first, second].concat();
    assert_eq!(read("members.pfw.gz"), whole);
    assert_eq!(
        (read("mixed.pfw"), read("text.pfw")),
        (joined.clone(), joined)
    );
}

#[test]
fn existing_files_are_replaced_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    memory.push(Pushed::new("a", Kind::Raw, "/x/a", 1, &text(3)));
    memory.push(Pushed::new("b", Kind::Raw, "/x/b", 1, &text(4)));
    let agent = folder.path().join("agent");
    fs::create_dir(&agent).unwrap();
    fs::write(agent.join("b"), "mine").unwrap();
    let refused = export(&memory, folder.path(), &ExportOptions::default());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("b already exists") && refused.contains("--force"),
        "{refused}"
    );
    assert!(!agent.join("a").exists(), "nothing was written");
    assert_eq!(fs::read(agent.join("b")).unwrap(), b"mine");
    let force = ExportOptions {
        force: true,
        ..ExportOptions::default()
    };
    export(&memory, folder.path(), &force).unwrap();
    assert_eq!(fs::read(agent.join("b")).unwrap(), text(4));
    // A link is never replaced, nor written through.
    let outside = folder.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    fs::remove_file(agent.join("b")).unwrap();
    std::os::unix::fs::symlink(&outside, agent.join("b")).unwrap();
    assert!(export(&memory, folder.path(), &force).is_err());
    assert_eq!(fs::read(&outside).unwrap(), b"outside");
}

#[test]
fn a_trace_and_other_files_of_an_agent_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory {
        metadata: Some(b"/* CTF 1.8 */".to_vec()),
        ..Memory::default()
    };
    memory.push(Pushed::new("chan", Kind::Ctf, "/x/chan", 1, &text(3)));
    memory.push(Pushed::new("notes", Kind::Raw, "/x/notes", 1, &text(4)));
    memory.push(Pushed::new("ring", Kind::IoTrace, "", 1, &text(4)));
    let report = run(&memory, folder.path());
    let traces = ["agent", "agent+io-trace"].map(|name| folder.path().join(name));
    assert_eq!(report.traces, traces);
    for (name, count) in [
        ("agent/chan", 3),
        ("agent+files/notes", 4),
        ("agent+io-trace/ring", 4),
    ] {
        assert_eq!(
            fs::read(folder.path().join(name)).unwrap(),
            text(count),
            "{name}"
        );
    }
    let metadata = fs::read_to_string(folder.path().join("agent+io-trace/metadata")).unwrap();
    assert!(metadata.starts_with("/* CTF 1.8 */"), "{metadata}");
    assert_eq!((report.streams, report.other_streams), (3, 0));
    let again = export(&memory, folder.path(), &ExportOptions::default());
    assert!(again.unwrap_err().to_string().contains("already exists"));
    let force = ExportOptions {
        force: true,
        ..ExportOptions::default()
    };
    export(&memory, folder.path(), &force).unwrap();
    fs::write(folder.path().join("agent/stranger"), "x").unwrap();
    let mixed = export(&memory, folder.path(), &force)
        .unwrap_err()
        .to_string();
    assert!(mixed.contains("stranger"), "{mixed}");
}

/// A source that fails behind its first packets, as one whose server is gone.
struct Failing(Memory);

impl PacketSource for Failing {
    fn streams(&self, options: &ExportOptions) -> Result<Vec<ExportStream>, ClientError> {
        self.0.streams(options)
    }

    fn read(&self, packet: &StoredPacket) -> Result<Vec<u8>, Unread> {
        if packet.number < 2 {
            return self.0.read(packet);
        }
        Err(Unread::Failed(ClientError::input("the server is gone")))
    }

    fn metadata(&self, _: &AgentId) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(None)
    }
}

/// The disk may be full because of it.
#[test]
fn a_file_that_is_not_completed_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    memory.push(Pushed::new("a", Kind::Raw, "/x/a", 1, &text(9)));
    let failed = export(&Failing(memory), folder.path(), &ExportOptions::default());
    assert!(failed.unwrap_err().to_string().contains("gone"));
    let agent = fs::read_dir(folder.path().join("agent")).unwrap();
    assert_eq!(agent.count(), 0);
}

/// A copy with a query has some spans of a request: what it has is written, in one form.
#[test]
fn requests_that_lack_spans_are_written_as_json() {
    let request = |names: &[&str]| {
        let span = |(id, name): (usize, &&str)| {
            format!(
                "{{\"traceId\":\"000102030405060708090a0b0c0d0e0f\",\"spanId\":\"{id:016x}\",\
                 \"name\":\"{name}\",\"startTimeUnixNano\":\"1\",\"endTimeUnixNano\":\"2\"}}"
            )
        };
        let spans: Vec<String> = (1..).zip(names).map(span).collect();
        let spans = spans.join(",");
        format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{spans}]}}]}}]}}\n")
            .into_bytes()
    };
    let message = |names: &[&str]| trace_kinds::otlp::to_protobuf(&request(names)).unwrap();
    let with_length = |message: Vec<u8>| message.len() as u64 + 4;
    // The first request is whole, and the second one lacks a span.
    let (whole, part) = (["a", "b"], ["c"]);
    let was = request(&["c", "d"]);
    let of_json = vec![
        (request(&whole), request(&whole).len() as u64),
        (message(&part), was.len() as u64),
    ];
    let of_protobuf = vec![
        (message(&whole), with_length(message(&whole))),
        (message(&part), with_length(message(&["c", "d"]))),
    ];
    for (path, packets, name) in [
        ("/x/spans.jsonl", of_json, "spans.jsonl"),
        ("/x/spans.pb", of_protobuf, "spans.pb.jsonl"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let length = packets.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        let mut memory = Memory::default();
        memory.push(Pushed {
            packets,
            ..Pushed::new("s", Kind::Otlp, path, 1, &vec![0; length as usize])
        });
        let report = run(&memory, folder.path());
        assert_eq!(outcome(&report), [(name.to_owned(), Fidelity::Incomplete)]);
        let note = report.files[0].note.as_deref().unwrap();
        assert!(note.starts_with("1 of the 2 requests lack spans"), "{note}");
        let text = fs::read_to_string(&report.files[0].path).unwrap();
        let names: Vec<String> = text
            .lines()
            .flat_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
                let spans = spans.as_array().unwrap().clone();
                spans
                    .into_iter()
                    .map(|span| span["name"].as_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
