use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::Read;

use trace_kinds::gzip::{Inflater, PiecePacket, is_piece};
use trace_kinds::{Container, DamagedBytes};

use super::gzip::PADDING_BYTES_MAX;
use super::*;

mod damage;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn packets(cutter: &mut dyn Cutter) -> Vec<Bytes> {
    std::iter::from_fn(|| cutter.next(End::Final).unwrap())
        .map(|cut| cut.bytes)
        .collect()
}

/// The cutter's packets, after checking that skipping any number of them gives the others.
fn check_skips(open: &dyn Fn() -> Box<dyn Cutter>) -> Vec<Bytes> {
    let all = packets(&mut *open());
    for count in 0..=all.len() {
        let mut cutter = open();
        assert_eq!(cutter.skip(count as u64).unwrap(), count as u64);
        assert_eq!(packets(&mut *cutter), all[count..], "skipped {count}");
    }
    let beyond = all.len() as u64 + 5;
    assert_eq!(open().skip(beyond).unwrap(), all.len() as u64);
    all
}

fn check_raw(bytes: &[u8], expected: &[&[u8]]) {
    let folder = folder();
    let path = file(&folder, bytes);
    let all = check_skips(&|| Box::new(RawCutter::open(&path, 0, 4).unwrap()));
    assert_eq!(all, expected);
}

#[test]
fn raw_files_are_cut_by_length() {
    check_raw(b"", &[]);
    check_raw(b"abc", &[b"abc"]);
    check_raw(b"abcd", &[b"abcd"]);
    check_raw(b"abcdefghi", &[b"abcd", b"efgh", b"i"]);
}

fn check_lines(text: &str, expected: &[&str]) {
    let folder = folder();
    let path = file(&folder, text.as_bytes());
    let all = check_skips(&|| Box::new(LineCutter::open(&path, 0, 8).unwrap()));
    assert_eq!(all, expected);
}

#[test]
fn text_is_cut_at_line_ends() {
    check_lines("", &[]);
    check_lines("a\nb\nc\n", &["a\nb\nc\n"]);
    check_lines("a\nb\ncde\nfg\n", &["a\nb\ncde\n", "fg\n"]);
    check_lines("abc\ndefgh\ni", &["abc\n", "defgh\ni"]);
    check_lines(
        "a line longer than that\nb\n",
        &["a line longer than that\n", "b\n"],
    );
    check_lines(
        "x\na line longer than that",
        &["x\n", "a line longer than that"],
    );
    check_lines("123456789\nab", &["123456789\n", "ab"]);
    check_lines("\n\n\n\n\n\n\n\n\n", &["\n\n\n\n\n\n\n\n", "\n"]);
}

/// Checks the pieces of `text`: while the file grows, and at a pause.
/// Searched again from its start after each step of 64 bytes, this line would take a minute.
#[test]
fn a_line_of_many_packets_is_searched_once() {
    let folder = folder();
    let line = [&vec![b'x'; 12 << 20][..], b"\nend\n"].concat();
    let path = file(&folder, &line);
    let begin = std::time::Instant::now();
    let packets = packets(&mut LineCutter::open(&path, 0, 64).unwrap());
    let lengths: Vec<_> = packets.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [line.len() - 4, 4]);
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

fn check_growing(text: &str, growing: &[&str], pause: &[&str]) {
    let folder = folder();
    let path = file(&folder, text.as_bytes());
    let mut cutter = LineCutter::open(&path, 0, 8).unwrap();
    let mut take = |end| -> Vec<Bytes> {
        std::iter::from_fn(|| cutter.next(end).unwrap())
            .map(|cut| cut.bytes)
            .collect()
    };
    assert_eq!(take(End::Growing), growing);
    assert_eq!(take(End::Pause), pause);
    let mut more = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    more.write_all(b"!\n").unwrap();
    let all = [growing, pause].concat().concat();
    let rest = format!("{text}!\n")[all.len()..].to_owned();
    assert_eq!(take(End::Final).concat(), rest.as_bytes());
}

#[test]
fn growing_text_is_cut_into_full_packets_and_into_lines_at_a_pause() {
    check_growing("", &[], &[]);
    check_growing("a\nb", &[], &["a\n"]);
    check_growing("abc\ndef\nghi\nj", &["abc\ndef\n"], &["ghi\n"]);
    check_growing("no line end in all of this", &[], &[]);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn text_of(packet: &[u8]) -> Vec<u8> {
    if DamagedBytes::decode(packet).is_some() {
        return Vec::new();
    }
    if is_piece(packet) {
        let piece = PiecePacket::decode(packet).unwrap();
        return piece.text(&mut Inflater::default()).unwrap();
    }
    if !packet.starts_with(&[0x1f, 0x8b]) {
        return packet.to_vec();
    }
    let mut text = Vec::new();
    let read = MultiGzDecoder::new(packet).read_to_end(&mut text);
    assert!(read.is_ok() || !text.is_empty(), "{read:?}");
    text
}

fn numbered(lines: std::ops::Range<u32>) -> Vec<u8> {
    lines
        .flat_map(|n| format!("{{\"line\":{n}}}\n").into_bytes())
        .collect()
}

/// The bytes of the file that a packet has.
fn bytes_of(packet: &[u8]) -> Vec<u8> {
    if is_piece(packet) {
        PiecePacket::decode(packet).unwrap().own_bytes().to_vec()
    } else {
        packet.to_vec()
    }
}

/// Cuts members with a target of 64 bytes; `expected` says of each packet whether it is gzip.
fn check_gzip(members: &[&[u8]], cut_off: usize, expected: &[bool]) {
    let folder = folder();
    let compressed: Vec<u8> = members.iter().flat_map(|text| gzip(text)).collect();
    let path = file(&folder, &compressed[..compressed.len() - cut_off]);
    let all = check_skips(&|| Box::new(GzipCutter::open(&path, 64).unwrap()));
    let forms: Vec<bool> = all
        .iter()
        .map(|packet| packet.starts_with(&[0x1f, 0x8b]))
        .collect();
    assert_eq!(forms, expected);
    let text: Vec<u8> = all.iter().flat_map(|packet| text_of(packet)).collect();
    let whole = members.concat();
    assert!(whole.starts_with(&text), "text changed");
    assert!(cut_off > 0 || text == whole, "text lost");
    let is_intact = |packet: &&Bytes| DamagedBytes::decode(packet).is_none();
    let intact: Vec<&Bytes> = all.iter().filter(is_intact).collect();
    for packet in &intact[..intact.len().saturating_sub(1)] {
        assert_eq!(text_of(packet).last(), Some(&b'\n'));
    }
    let bytes: Vec<u8> = all.iter().flat_map(|packet| bytes_of(packet)).collect();
    assert_eq!(bytes, compressed[..compressed.len() - cut_off], "bytes");
}

#[test]
fn gzip_members_of_complete_lines_are_unchanged() {
    let (small, other) = (numbered(0..3), numbered(3..9));
    check_gzip(&[], 0, &[]);
    check_gzip(&[b""], 0, &[true]);
    check_gzip(&[&small], 0, &[true]);
    check_gzip(&[&small, &small, &other, &small], 0, &[true, true, true]);
    check_gzip(&[&small, b"", b"", &small, &other], 0, &[true, true]);
    check_gzip(&[b"first half, ", b"second half\n", &small], 0, &[true]);
}

#[test]
fn zero_bytes_after_a_member_are_padding() {
    let (small, other) = (gzip(&numbered(0..3)), gzip(&numbered(3..9)));
    for padding in [1, 4096, PADDING_BYTES_MAX, PADDING_BYTES_MAX + 1] {
        let zeros = vec![0; usize::try_from(padding).unwrap()];
        let whole = [&small[..], &zeros, &other, &other, &[0; 7]].concat();
        let folder = folder();
        let mut cutter = GzipCutter::open(&file(&folder, &whole), 64).unwrap();
        if padding > PADDING_BYTES_MAX {
            damage::check_gzip(&whole, 15, &["not the beginning"]);
            continue;
        }
        let all = packets(&mut cutter);
        assert_eq!(all.concat(), whole, "{padding}");
        // Each begins with a member, by which the server knows what it is.
        assert!(all.iter().all(|packet| packet.starts_with(&[0x1f, 0x8b])));
    }
}

#[test]
fn huge_members_of_one_block_are_not_divided() {
    let (small, huge) = (numbered(0..3), numbered(100..140));
    check_gzip(&[&huge], 0, &[true]);
    check_gzip(&[&small, &huge, &small], 0, &[true, true, true]);
    let begun = [&huge[..], b"begun"].concat();
    check_gzip(&[&begun, b" and ended\n", &small], 0, &[false, false]);
    // The last packet says that the file ends inside a member.
    check_gzip(&[&huge, &begun], 12, &[true, true, false]);
}

/// Lines that compress about as traces do.
fn lines(count: u32) -> Vec<u8> {
    let line = |n: u32| {
        let odd = n.wrapping_mul(2_654_435_761);
        format!(
            "{{\"id\":{n},\"name\":\"read\",\"ts\":{odd},\"args\":{{\"fname\":\"/data/{}\"}}}}\n",
            odd % 977
        )
    };
    (0..count).flat_map(|n| line(n).into_bytes()).collect()
}

#[test]
fn huge_members_are_cut_into_pieces() {
    const TARGET: usize = 64 << 10;
    let (text, folder) = (lines(40_000), folder());
    let (front, back) = text.split_at(text.len() / 3);
    for level in [1, 6, 9, 0] {
        let member = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        for members in [
            vec![&text[..]],
            vec![front, back],
            vec![b"[\n", front, b"", back],
        ] {
            let whole: Vec<u8> = members.iter().flat_map(|text| member(text)).collect();
            for torn in [0, 5, whole.len() / 2] {
                let path = file(&folder, &whole[..whole.len() - torn]);
                let what = format!("{level} {} {torn}", members.len());
                let open = || GzipCutter::open(&path, TARGET).unwrap();
                let all = packets(&mut open());
                let bytes: Vec<u8> = all.iter().flat_map(|packet| bytes_of(packet)).collect();
                assert!(bytes == whole[..whole.len() - torn], "{what}");
                let found: Vec<u8> = all.iter().flat_map(|packet| text_of(packet)).collect();
                assert!(
                    text.ends_with(&found) || torn > 0 || members.len() == 4,
                    "{what}"
                );
                let divided = all.iter().filter(|packet| is_piece(packet)).count();
                // Inflating cannot start at blocks that are not compressed.
                let is_long = level > 0 && torn == 0;
                assert!(divided >= 2 * usize::from(is_long), "{what}: {divided}");
                let overhead = all.iter().map(Bytes::len).sum::<usize>() - bytes.len();
                assert!(
                    overhead < bytes.len() / 4,
                    "{what}: {overhead} of {}",
                    bytes.len()
                );
                let is_intact = |packet: &&Bytes| DamagedBytes::decode(packet).is_none();
                let intact: Vec<&Bytes> = all.iter().filter(is_intact).collect();
                assert_eq!(intact.len() < all.len(), torn > 0 && divided > 0, "{what}");
                for packet in &intact[..intact.len() - 1] {
                    // A member without a line end gives a packet without text.
                    let own = text_of(packet);
                    assert!(own.is_empty() || own.ends_with(b"\n"), "{what}");
                }
                let mut cutter = open();
                packets(&mut cutter);
                assert_eq!(cutter.remark().is_some(), torn > 0, "{what}");
            }
        }
    }
}

/// A producer that flushes leaves empty stored blocks between those with text.
#[test]
fn huge_members_with_flushes_keep_their_text() {
    const TARGET: usize = 64 << 10;
    let (text, folder) = (lines(40_000), folder());
    for pieces in [1, 2, 7, 100] {
        for level in [1, 6, 0] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            for part in text.chunks(text.len().div_ceil(pieces)) {
                encoder.write_all(part).unwrap();
                encoder.flush().unwrap();
            }
            let path = file(&folder, &encoder.finish().unwrap());
            let all = packets(&mut GzipCutter::open(&path, TARGET).unwrap());
            let what = format!("{pieces} {level}");
            let found: Vec<u8> = all.iter().flat_map(|packet| text_of(packet)).collect();
            assert!(found == text, "{what}");
            let divided = all.iter().filter(|packet| is_piece(packet)).count();
            assert!(level == 0 || divided >= 2, "{what}: {divided}");
        }
    }
}

#[test]
fn a_torn_last_member_is_pushed() {
    let (small, other) = (numbered(0..3), numbered(3..9));
    check_gzip(&[&other, &small], 4, &[true, true]);
    check_gzip(&[&other, &small], 12, &[true, true]);
    let folder = folder();
    let path = file(&folder, &gzip(&small)[..15]);
    let mut cutter = GzipCutter::open(&path, 64).unwrap();
    packets(&mut cutter);
    assert!(
        cutter
            .remark()
            .unwrap()
            .contains("ends inside the gzip member at offset 0")
    );
}

/// A file of the corpus, or `None` after saying that there is none.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.is_dir() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(folder)
}

#[test]
fn real_gzip_traces_keep_their_text() {
    let Some(corpus) = corpus() else { return };
    for folder in ["dft/cm1", "dft/dlio", "dft/polaris"] {
        for entry in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            for target in [4096, PACKET_BYTES_TARGET] {
                let all = packets(&mut GzipCutter::open(&path, target).unwrap());
                let text: Vec<u8> = all.iter().flat_map(|packet| text_of(packet)).collect();
                assert!(text == text_of(&bytes), "{} by {target}", path.display());
            }
        }
    }
}

/// A folder with copies of files of a real trace.
fn copied_trace(corpus: &Path, names: &[&str]) -> tempfile::TempDir {
    let folder = folder();
    std::fs::create_dir(folder.path().join("index")).unwrap();
    for name in names {
        let from = corpus.join("ctf/lttng-probe/ust/uid/0/64-bit").join(name);
        std::fs::copy(from, folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn a_real_ctf_file_is_cut_into_its_packets() {
    let Some(corpus) = corpus() else { return };
    let by_index = ["chan_1", "index/chan_1.idx"];
    let by_packets = ["chan_1", "metadata"];
    for names in [by_index, by_packets] {
        let folder = copied_trace(&corpus, &names);
        let path = folder.path().join("chan_1");
        let all = check_skips(&|| Box::new(CtfCutter::open(&path).unwrap()));
        assert_eq!(all.len(), 3);
        assert!(all.concat() == std::fs::read(&path).unwrap());
        for packet in &all {
            assert_eq!(packet[..4], 0xc1fc_1fc1_u32.to_le_bytes());
        }
    }
}

/// Changes a copy of the real trace; checks the lengths of its packets, and the note about it.
fn check_damaged_ctf(change: &dyn Fn(&mut Vec<u8>), lengths: &[usize], remark: &str) {
    let Some(corpus) = corpus() else { return };
    let folder = copied_trace(&corpus, &["chan_1", "metadata", "index/chan_1.idx"]);
    let path = folder.path().join("chan_1");
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    let mut cutter = CtfCutter::open(&path).unwrap();
    let all = packets(&mut cutter);
    assert_eq!(all.iter().map(Bytes::len).collect::<Vec<_>>(), lengths);
    assert!(all.concat() == bytes, "no byte is skipped");
    assert!(
        cutter.remark().unwrap_or_default().contains(remark),
        "{:?}",
        cutter.remark()
    );
}

#[test]
fn a_damaged_ctf_file_is_pushed_completely() {
    let packet = 1_048_576;
    let last = 3_039_232 - 2 * packet;
    check_damaged_ctf(&|_| {}, &[packet, packet, last], "");
    let torn = |bytes: &mut Vec<u8>| bytes.truncate(2 * packet + 100_000);
    check_damaged_ctf(&torn, &[packet, packet, 100_000], "it declares a length of");
    let grown = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&[0; 5000]);
    check_damaged_ctf(&grown, &[packet, packet, last, 5000], "is unknown");
    let foreign = |bytes: &mut Vec<u8>| *bytes = vec![7; 5_000_000];
    check_damaged_ctf(&foreign, &[5_000_000], "packet at offset 0 is unknown");
}

/// Resumes a trace behind bytes that were sent in other packets.
fn check_resumed_ctf(offset: u64, expected: Result<&[usize], &str>) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lttng/uid/0/64-bit");
    let folder = folder();
    for name in ["chan_1", "metadata"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("chan_1");
    match (CtfCutter::resume(&path, offset), expected) {
        (Ok(mut cutter), Ok(lengths)) => {
            let all = packets(&mut cutter);
            assert_eq!(all.iter().map(Bytes::len).collect::<Vec<_>>(), lengths);
        }
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
        (found, _) => panic!("{offset}: {found:?}"),
    }
}

#[test]
fn a_ctf_file_is_resumed_behind_bytes() {
    let all = CtfCutter::lengths(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lttng/uid/0/64-bit/chan_1"),
    );
    let all: Vec<usize> = all.unwrap().iter().map(|length| *length as usize).collect();
    let whole = all.iter().sum::<usize>() as u64;
    check_resumed_ctf(0, Ok(&all));
    check_resumed_ctf(all[0] as u64, Ok(&all[1..]));
    check_resumed_ctf(whole, Ok(&[]));
    check_resumed_ctf(all[0] as u64 + 8, Err("no packet ends there"));
    check_resumed_ctf(whole + 8, Err("into another storage"));
}

#[test]
fn a_real_rocksdb_trace_is_cut_between_records() {
    let Some(corpus) = corpus() else { return };
    let path = corpus.join("rocksdb/io_small_load.trace");
    let all = check_skips(&|| Box::new(RocksdbCutter::open(&path, 0, 8 << 10).unwrap()));
    assert_eq!(all.len(), 10);
    let torn = corpus.join("rocksdb/io_cut_midrecord.trace");
    let mut cutter = RocksdbCutter::open(&torn, 0, PACKET_BYTES_TARGET).unwrap();
    assert_eq!(packets(&mut cutter).len(), 2);
    assert!(cutter.remark().is_some());
}

/// Cuts to the end or to an error; the bytes of the packets before that.
fn cut_anything(cutter: &mut dyn Cutter) -> usize {
    let mut bytes = 0;
    while let Ok(Some(cut)) = cutter.next(End::Final) {
        assert!(!cut.bytes.is_empty());
        bytes += cut.bytes.len();
    }
    bytes
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_are_cut_or_refused(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000),
        at in 0..60usize,
        flip in 1..=255u8,
    ) {
        let folder = folder();
        let mut mutated = gzip(&numbered(0..40));
        mutated[at] ^= flip;
        for content in [bytes, mutated] {
            let path = file(&folder, &content);
            let whole = [
                cut_anything(&mut RawCutter::open(&path, 0, 64).unwrap()),
                cut_anything(&mut LineCutter::open(&path, 0, 64).unwrap()),
                cut_anything(&mut CtfCutter::open(&path).unwrap()),
            ];
            proptest::prop_assert_eq!(whole, [content.len(); 3]);
            cut_anything(&mut GzipCutter::open(&path, 64).unwrap());
            cut_anything(&mut RocksdbCutter::open(&path, 0, 64).unwrap());
        }
    }
}

#[test]
fn chrome_traces_are_cut_between_events() {
    let folder = folder();
    let event = "{\"ph\":\"X\",\"ts\":1,\n\"name\":\"e\"}";
    let trace = format!("{{\"traceEvents\":[{}],\"a\":1}}\n", [event; 9].join(",\n"));
    let zstd = zstd::encode_all(trace.as_bytes(), 1).unwrap();
    for (container, bytes) in [
        (Container::Plain, trace.as_bytes().to_vec()),
        (Container::Gzip, gzip(trace.as_bytes())),
        (Container::Zstd, zstd),
    ] {
        let path = file(&folder, &bytes);
        let open = || ChromeCutter::open(&path, container, 70);
        let all = check_skips(&|| Box::new(open().unwrap()));
        let text: Vec<u8> = all.iter().flat_map(|packet| text_of(packet)).collect();
        assert_eq!(text, trace.as_bytes());
        let is_gzip = container == Container::Gzip;
        assert_eq!(all.len(), if is_gzip { 1 } else { 6 });
        assert_eq!(is_piece(&all[0]), is_gzip);
        assert!(all[1..].iter().all(|packet| packet.starts_with(b",")));
        let mut cutter = open().unwrap();
        let cuts = std::iter::from_fn(|| cutter.next(End::Final).unwrap());
        let (positions, texts): (Vec<u64>, Vec<_>) =
            cuts.map(|cut| (cut.position, cut.text.unwrap())).unzip();
        assert!(positions.is_sorted());
        assert_eq!(positions.last(), Some(&(bytes.len() as u64)));
        assert_eq!(texts.iter().map(|text| text.lines).sum::<u64>(), 18);
        assert_eq!(cutter.remark(), None);
    }
    let mut long = "[".to_owned();
    for ts in 0..60_000 {
        let separator = if ts > 0 { ",\n" } else { "" };
        write!(
            long,
            "{separator}{{\"ph\":\"i\",\"ts\":{ts},\"name\":\"e{}\"}}",
            ts % 991
        )
        .unwrap();
    }
    let compressed = gzip(long.as_bytes());
    let path = file(&folder, &compressed);
    let mut cutter = ChromeCutter::open(&path, Container::Gzip, 64 << 10).unwrap();
    let all = packets(&mut cutter);
    assert!(all.len() > 1, "{}", all.len());
    let bytes: Vec<u8> = all.iter().flat_map(|packet| bytes_of(packet)).collect();
    assert!(bytes == compressed);
    assert!(
        all[1..]
            .iter()
            .all(|packet| text_of(packet).starts_with(b","))
    );
    let remark = cutter.remark().unwrap();
    assert!(
        remark.contains("the list is not closed at byte"),
        "{remark}"
    );
    for (trace, remark) in [
        (
            format!("[{event},{event}"),
            "the list is not closed at byte",
        ),
        (
            format!("{{\"traceEvents\":[{event},"),
            "before the end of its document",
        ),
        (
            format!("[{event},]"),
            "a comma after the last element at byte",
        ),
    ] {
        let path = file(&folder, trace.as_bytes());
        let mut cutter = ChromeCutter::open(&path, Container::Plain, 1 << 20).unwrap();
        let all = packets(&mut cutter);
        let bytes: Vec<u8> = all.iter().flat_map(|packet| bytes_of(packet)).collect();
        assert_eq!(bytes, trace.as_bytes());
        let found = cutter.remark().unwrap();
        assert!(found.contains(remark), "{found}");
    }
}
