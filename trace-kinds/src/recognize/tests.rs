use std::io::Write as _;

use super::*;
use crate::rocksdb::{Continuation, TraceHeader};

const DFT_LINE: &[u8] =
    br#"{"id":1,"name":"read","cat":"POSIX","pid":3,"tid":4,"ts":5,"dur":6,"ph":"X","args":{}}"#;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    file.write_all(text).unwrap();
    file.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(text, 1).unwrap()
}

/// As `zstd --long` compresses a file of unknown length.
fn with_long_window(text: &[u8]) -> Vec<u8> {
    let mut encoder = ::zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A RocksDB trace with the header of 7.8, then records of the given types without payload.
fn rocksdb(continuation: Option<Continuation>, types: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let header = TraceHeader {
        start_us: 7,
        major: 7,
        minor: 8,
        continuation,
    };
    header.put(&mut file);
    for record_type in types {
        file.extend(9_u64.to_le_bytes());
        file.push(*record_type);
        file.extend(0_u32.to_le_bytes());
    }
    file
}

fn check(container: Container, kind: Option<Kind>, content: Content, files: &[&[u8]]) {
    for (number, file) in files.iter().enumerate() {
        let found = recognize(file, true);
        let of_file = (found.container, found.kind(), found.content);
        let what = format!("file {number} of {content:?}");
        assert_eq!(of_file, (container, kind, content), "{what}");
    }
}

#[test]
fn traces_are_recognized_by_content() {
    use Container::{Gzip, Plain, Zstd};
    use Content::{ChromeTrace, CtfMetadata, CtfPacketIndex, CtfPackets, DftLines, Empty};
    use Content::{IoTrace, Rocksdb};

    let tsdl = CtfMetadata(MetadataFormat::Tsdl);
    check(Plain, None, tsdl, &[b"/* CTF 1.8 */ trace {"]);
    let packets: [&[u8]; 2] = [b"\x57\x1d\xd1\x75\0", b"\x75\xd1\x1d\x57"];
    let tsdl = CtfMetadata(MetadataFormat::PacketizedTsdl);
    check(Plain, None, tsdl, &packets);
    let json = CtfMetadata(MetadataFormat::Json);
    check(Plain, None, json, &[b"\x1e\n{\"type\": \"preamble\"}"]);

    let io_trace = crate::io_trace::preamble();
    check(Plain, Some(Kind::IoTrace), IoTrace, &[&io_trace]);
    // Without its UUID, it is like any CTF packet.
    let packets: [&[u8]; 2] = [&io_trace[..19], b"\xc1\xfc\x1f\xc1"];
    check(Plain, Some(Kind::Ctf), CtfPackets, &packets);
    check(Plain, None, CtfPacketIndex, &[b"\xc1\xf1\xdc\xc1\0"]);

    let header = rocksdb(None, &[]);
    let continued = Some(Continuation {
        first_time: 1,
        offset: 2,
    });
    let joined = [&header[..], &rocksdb(continued, &[12])].concat();
    let io = Rocksdb(Some(TraceKind::Io));
    let files = [&rocksdb(None, &[12, 7])[..], &joined];
    check(Plain, Some(Kind::RocksdbIo), io, &files);
    let blocks = Rocksdb(Some(TraceKind::BlockCache));
    let files = [&rocksdb(None, &[7, 12])[..], &rocksdb(continued, &[11])];
    check(Plain, Some(Kind::RocksdbBlockCache), blocks, &files);
    let queries = [&header[..13], b"feedcafedeadbeef\t  4    "].concat();
    let files = [&header[..], &rocksdb(None, &[99]), &queries];
    check(Plain, None, Rocksdb(None), &files);
    check(Gzip, None, io, &[&gzip(&joined)]);

    let lines = |text: &[u8]| [text, b"\n", DFT_LINE, b"\n"].concat();
    let (array, broken, zeros) = (lines(b"["), lines(b"d\",\"ts\":5}"), lines(b"\0\0"));
    let other_order = br#"{"ph":"C", "name":"x"}"#;
    let no_phase = br#"{"ts":5, "name":"x"}"#;
    let files = [
        DFT_LINE,
        &array,
        &broken,
        &zeros,
        other_order,
        no_phase,
        b"[\n",
    ];
    check(Plain, Some(Kind::Dft), DftLines, &files);
    check(Gzip, Some(Kind::Dft), DftLines, &[&gzip(&array)]);
    let skipped = [
        &[0x5e, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7],
        &zstd(&array)[..],
    ]
    .concat();
    let files = [&zstd(&array)[..], &skipped, &with_long_window(&array)];
    check(Zstd, Some(Kind::Dft), DftLines, &files);
    // A Chrome trace has commas between its events, or all of them on one line.
    let document = br#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"X","ts":1}]}"#;
    let list = [b"[", DFT_LINE, b",\n", DFT_LINE, b"\n]\n"].concat();
    let line = [b" [", DFT_LINE, b"]\n"].concat();
    let cut = &list[..DFT_LINE.len() + 8];
    let files = [&document[..], b"{\"traceEvents\":[", &list, &line, cut];
    check(Plain, Some(Kind::Chrome), ChromeTrace, &files);
    check(Gzip, Some(Kind::Chrome), ChromeTrace, &[&gzip(document)]);
    check(Zstd, Some(Kind::Chrome), ChromeTrace, &[&zstd(&list)]);
    let closed = [b"[\n", DFT_LINE, b"\n]\n"].concat();
    check(Plain, Some(Kind::Dft), DftLines, &[&closed]);
    check(Plain, Some(Kind::Chrome), ChromeTrace, &[b"[]", b" [ ]\n"]);
    let spans = br#"{"resourceSpans":[]}"#;
    let json = Content::Otlp(FileForm::Json);
    check(
        Plain,
        Some(Kind::Otlp),
        json,
        &[spans, b"\n{ \"resourceSpans\" :"],
    );
    check(Gzip, Some(Kind::Otlp), json, &[&gzip(spans)]);
    check(Zstd, Some(Kind::Otlp), json, &[&zstd(spans)]);
    check(Plain, None, Empty, &[b""]);
    check(Gzip, None, Empty, &[&gzip(b"")]);
}

#[test]
fn other_files_are_unknown() {
    let cases: [(&str, Vec<u8>); 10] = [
        ("text", b"Jan 1 host kernel: {ph}\n".to_vec()),
        (
            "json lines",
            b"{\"level\":\"info\",\"args\":{\"ph\":1}}\n".to_vec(),
        ),
        ("document", b"{\"a\":{\"traceEvents\":[]}}".to_vec()),
        ("list of objects", b"[{\"ts\":1},{\"ts\":2}]".to_vec()),
        ("cut document", b"{\"a\":\"".to_vec()),
        ("json array", b"[1, 2]\n".to_vec()),
        (
            "part of a rocksdb header",
            rocksdb(None, &[])[..29].to_vec(),
        ),
        ("text in gzip", gzip(b"text")),
        ("damaged gzip", b"\x1f\x8b\x08\x00 and so on".to_vec()),
        ("damaged zstd", b"\x28\xb5\x2f\xfd and so on".to_vec()),
    ];
    for (name, file) in cases {
        let found = recognize(&file, true);
        assert!(
            matches!(found.content, Content::Unknown(_)),
            "{name}: {found:?}"
        );
        assert_eq!((found.kind(), found.hint()), (None, None), "{name}");
    }
}

#[test]
fn a_cut_prefix_is_enough() {
    let long = [
        &DFT_LINE[..DFT_LINE.len() - 2],
        &b" ".repeat(1 << 20),
        b"}}",
    ]
    .concat();
    let mut files = vec![DFT_LINE.to_vec(), long];
    files.push(gzip(&[DFT_LINE, b"\n"].concat().repeat(10_000)));
    files.push(zstd(&files[1]));
    for file in files {
        let prefix = &file[..file.len().min(PREFIX_BYTES) - 1];
        assert_eq!(recognize(prefix, false).content, Content::DftLines);
    }
    // The comma decides, whatever follows it.
    let gap = [&b"["[..], DFT_LINE, b",", &b" ".repeat(1 << 20)].concat();
    for file in [gzip(&gap), gap] {
        let prefix = &file[..file.len().min(PREFIX_BYTES)];
        assert_eq!(recognize(prefix, false).content, Content::ChromeTrace);
    }
    let cut = [&b"["[..], &DFT_LINE[..20]].concat();
    assert!(matches!(
        recognize(&cut, false).content,
        Content::Unknown(_)
    ));
}

#[test]
fn a_longer_prefix_decides_where_a_short_one_does_not() {
    let blanks = b" ".repeat(PREFIX_BYTES);
    let (event, rest) = DFT_LINE.split_at(1);
    let long_event = [b"[", event, &blanks, rest, b",", DFT_LINE, b"]"].concat();
    let members: [&[u8]; 5] = [
        b"{\"a\":\"",
        &blanks,
        b"\",\"traceEvents\":[",
        DFT_LINE,
        b"]}",
    ];
    for file in [long_event, members.concat()] {
        assert!(recognize(&file[..PREFIX_BYTES], false).is_undecided());
        assert_eq!(recognize(&file, true).content, Content::ChromeTrace);
        // The text of a compressed file is decompressed further.
        for file in [gzip(&file), zstd(&file)] {
            assert_eq!(recognize(&file, true).content, Content::ChromeTrace);
        }
    }
    let endless = b" ".repeat(LONG_PREFIX_BYTES);
    let event = [b"[", event, &endless].concat();
    assert_eq!(recognize(&event, false).content, Content::ChromeTrace);
    let document = [&b"{\"a\":\""[..], &endless].concat();
    assert!(recognize(&document, false).is_undecided());
    let lines = [b"[\n", &DFT_LINE[..DFT_LINE.len() - 2], &blanks].concat();
    assert_eq!(recognize(&lines, false).content, Content::DftLines);
}

#[test]
fn files_of_tracehold_are_recognized() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let golden = [
        ("storage-format/golden/v1/data.itdata", "data file"),
        ("storage-format/golden/v1/part.index", "index part"),
        ("storage-format/golden/v1/file.agent", "agent file"),
        ("storage-format/golden/v1/file.local", "local file"),
        ("storage-format/golden/v1/file.storage", "storage file"),
        ("storage-format/golden/v1/labels.types", "label file"),
        (
            "storage-format/golden/v1/segment.ring",
            "ring of an I/O trace",
        ),
        ("chunk-index/golden/v3/sample.idx", "chunk index"),
        ("chunk-index/golden/v1/sample.cidx", "columns file"),
    ];
    for (path, name) in golden {
        let file = std::fs::read(format!("{root}/{path}")).unwrap();
        let found = recognize(&file[..file.len().min(PREFIX_BYTES)], false);
        assert_eq!(found.content, Content::Tracehold(name), "{path}");
        assert!(found.hint().is_some(), "{path}");
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    proptest::proptest!(|(bytes: Vec<u8>, whole: bool, magic in 0_usize..6)| {
        let magics = [
            &b""[..],
            b"\x1f\x8b\x08\x00",
            b"\x28\xb5\x2f\xfd",
            b"[{",
            &rocksdb(None, &[1]),
            b"\x1e",
        ];
        recognize(&[magics[magic], &bytes].concat(), whole).to_string();
    });
}
