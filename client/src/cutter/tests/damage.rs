//! What is cut of files that are damaged or cut off.

use std::io::Write as _;

use trace_kinds::DamagedBytes;
use trace_kinds::otlp::file::FileForm;

use super::*;

/// The bytes of a file that packets have.
fn own_bytes(packets: &[Bytes]) -> Vec<u8> {
    packets.iter().flat_map(|packet| bytes_of(packet)).collect()
}

/// The text of the packets that can be decoded.
fn intact_text(packets: &[Bytes]) -> Vec<u8> {
    let intact = packets
        .iter()
        .filter(|it| DamagedBytes::decode(it).is_none());
    intact.flat_map(|packet| text_of(packet)).collect()
}

/// What the packets that cannot be decoded say.
fn reasons(packets: &[Bytes]) -> Vec<String> {
    let damaged = packets.iter().filter_map(|it| DamagedBytes::decode(it));
    damaged.map(|damaged| damaged.reason()).collect()
}

/// Checks that nothing is lost of a damaged file, and what is told about it.
pub(super) fn check_gzip(bytes: &[u8], lines: usize, told: &[&str]) {
    let folder = folder();
    let path = file(&folder, bytes);
    let mut cutter = GzipCutter::open(&path, 64).unwrap();
    let all = packets(&mut cutter);
    assert!(own_bytes(&all) == bytes, "every byte is in a packet");
    let text = intact_text(&all);
    assert_eq!(memchr::memchr_iter(b'\n', &text).count(), lines);
    let damage = cutter.damage().unwrap_or_default();
    for part in told {
        assert!(damage.contains(part), "{damage} lacks {part:?}");
    }
    assert_eq!(told.is_empty(), damage.is_empty(), "{damage}");
}

#[test]
fn nothing_is_lost_of_damaged_gzip() {
    let members = [numbered(0..3), numbered(3..6), numbered(6..9)].map(|text| gzip(&text));
    let (whole, first) = (members.concat(), members[0].len());
    let second = first + members[1].len();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let at = |offset: usize| format!("the gzip member at offset {offset}");
    check_gzip(&whole, 9, &[]);
    for (bytes, lines, told) in [
        (flipped(0), 6, [at(0), "not the beginning".to_owned()]),
        (
            flipped(first),
            6,
            [at(first), "not the beginning".to_owned()],
        ),
        (flipped(second - 6), 6, [at(first), "checksum".to_owned()]),
        (
            flipped(whole.len() - 6),
            6,
            [at(second), "checksum".to_owned()],
        ),
        (
            [&whole[..first], b"garbage", &whole[first..]].concat(),
            9,
            [at(first), format!("bytes {first} to {}", first + 7)],
        ),
        (
            [&whole[..], b"end"].concat(),
            9,
            [at(whole.len()), "not the beginning".to_owned()],
        ),
    ] {
        check_gzip(&bytes, lines, &[&told[0], &told[1]]);
    }
    let mut both = flipped(0);
    both[second] ^= 0x10;
    check_gzip(&both, 3, &["offset 0", "there is another such place"]);
}

#[test]
fn a_damaged_long_member_is_passed() {
    let (long, short) = (lines(40_000), numbered(0..3));
    let (long, short) = (gzip(&long), gzip(&short));
    let mut bytes = [&long[..], &long, &short].concat();
    // Its trailer: the text is as it was, and must not be taken for intact.
    let at = 2 * long.len() - 6;
    bytes[at] ^= 1;
    check_gzip(&bytes, 40_003, &[&format!("offset {}", long.len())]);
}

/// Only the end of a member of more than 32 MiB shows that it is damaged: what was cut before says
/// nothing, so the rest does.
#[test]
fn the_text_of_a_very_long_damaged_member_is_told_to_be_unverified() {
    let text = lines(40_000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for _ in 0..=(32 << 20) / text.len() {
        encoder.write_all(&text).unwrap();
    }
    let mut bytes = encoder.finish().unwrap();
    let at = bytes.len() - 6;
    bytes[at] ^= 1;
    let folder = folder();
    let path = file(&folder, &bytes);
    let mut cutter = GzipCutter::open(&path, PACKET_BYTES_TARGET).unwrap();
    let all = packets(&mut cutter);
    assert!(own_bytes(&all) == bytes);
    assert!(all.len() > 2, "{}", all.len());
    let reasons = reasons(&all);
    let told = reasons.last().unwrap();
    assert!(told.contains("is stored, and may be wrong"), "{told}");
    assert!(cutter.damage().unwrap().contains(told), "{told}");
}

/// Cuts a file in packets of 64 bytes; checks that all bytes are in packets, where those are
/// stored, what of the text is in packets that can be decoded, and what the others say.
fn check_cuts(
    open: impl Fn(&Path) -> Box<dyn Cutter>,
    bytes: &[u8],
    intact: &[u8],
    (damage, reason): (Option<&str>, &str),
) {
    let folder = folder();
    let path = file(&folder, bytes);
    let all = check_skips(&|| open(&path));
    assert_eq!(intact_text(&all), intact, "{reason}");
    let mut cutter = open(&path);
    let mut position = 0;
    while let Some(cut) = cutter.next(End::Final).unwrap() {
        assert!(cut.position >= position, "{reason}");
        position = cut.position;
    }
    assert_eq!(position, bytes.len() as u64, "{reason}");
    let reasons = reasons(&all);
    let is_told = !reasons.is_empty() && reasons.iter().all(|it| it.contains(reason));
    assert!(is_told, "{reasons:?} lack {reason}");
    let told = cutter.damage();
    assert_eq!(told.is_some(), damage.is_some(), "{told:?}");
    assert!(
        told.unwrap_or_default()
            .contains(damage.unwrap_or_default())
    );
    assert!(damage.is_some() || cutter.remark().is_some());
}

fn chrome(container: Container) -> impl Fn(&Path) -> Box<dyn Cutter> {
    move |path| Box::new(ChromeCutter::open(path, container, 64).unwrap())
}

#[test]
fn chrome_traces_are_cut_up_to_damage_and_the_rest_is_told() {
    let event = "{\"ph\":\"X\",\"ts\":1,\"name\":\"e\"}";
    let list = format!("[{}]", [event; 9].join(",\n"));
    let document = format!("{{\"traceEvents\":{list}, ");
    for (intact, rest, reason) in [
        (&list, " and more of it", "something follows the end"),
        (&list, ",\"a\":1}", "something follows the end"),
        (&document, "oops, {\"ph\":1}]}", "the document is not JSON"),
    ] {
        let (trace, damage) = (format!("{intact}{rest}"), (Some(reason), reason));
        let blanks = rest.len() - rest.trim_start().len();
        let intact = &trace.as_bytes()[..intact.len() + blanks];
        let check = |container, bytes: &[u8]| {
            check_cuts(chrome(container), bytes, intact, damage);
            let folder = folder();
            let mut cutter = chrome(container)(&file(&folder, bytes));
            own_bytes(&packets(&mut *cutter))
        };
        let plain = trace.as_bytes();
        assert_eq!(check(Container::Plain, plain), plain);
        assert_eq!(check(Container::Gzip, &gzip(plain)), gzip(plain));
        let zstd = zstd::encode_all(plain, 1).unwrap();
        assert_eq!(check(Container::Zstd, &zstd), plain);
    }
    // Between two events, the decoder of a packet cannot tell that something is missing.
    let cut = format!("{{\"traceEvents\":[{event},{event}");
    let told = (None, "before the end of its document");
    check_cuts(
        chrome(Container::Plain),
        cut.as_bytes(),
        cut.as_bytes(),
        told,
    );
    let compressed = gzip(cut.as_bytes());
    check_cuts(chrome(Container::Gzip), &compressed, cut.as_bytes(), told);
}

#[test]
fn gzip_members_of_chrome_traces_are_cut_up_to_damage() {
    let mut text = "[".to_owned();
    for ts in 0..3000_u32 {
        let separator = if ts > 0 { ",\n" } else { "" };
        let name = ts.wrapping_mul(2_654_435_761);
        write!(
            text,
            "{separator}{{\"ph\":\"i\",\"ts\":{ts},\"name\":\"e{name}\"}}"
        )
        .unwrap();
    }
    let whole = gzip(text.as_bytes());
    let check = |bytes: &[u8], text: &[u8], reason: &str| {
        check_cuts(chrome(Container::Gzip), bytes, text, (Some(reason), reason));
        let folder = folder();
        let mut cutter = chrome(Container::Gzip)(&file(&folder, bytes));
        assert!(own_bytes(&packets(&mut *cutter)) == bytes, "{reason}");
    };
    // Who reads the file reads the text of the damaged member, too.
    let mut sum = whole.clone();
    let at = sum.len() - 6;
    sum[at] ^= 1;
    check(
        &sum,
        text.as_bytes(),
        "the gzip member at offset 0 is damaged",
    );
    let more = [&whole[..], b"garbage"].concat();
    let place = format!("at offset {} is damaged", whole.len());
    check(&more, text.as_bytes(), &place);
}

#[test]
fn what_is_no_request_is_told_also_in_compressed_files() {
    let request = "{\"resourceSpans\":[]}\n";
    let open = |container| {
        move |path: &Path| -> Box<dyn Cutter> {
            Box::new(OtlpCutter::open(path, FileForm::Json, container).unwrap())
        }
    };
    let cut = "{\"resourceSpans\":[";
    let others = format!("{request}one\ntwo\n{request}three\n{request}");
    let cut_off = format!("{request}{request}{cut}");
    for (text, requests, told) in [
        (
            &others,
            3,
            (Some("there is another such place"), "no request in JSON"),
        ),
        (&cut_off, 2, (None, "the file ends inside a request")),
    ] {
        let lines = request.repeat(requests);
        check_cuts(
            open(Container::Plain),
            text.as_bytes(),
            lines.as_bytes(),
            told,
        );
        // The blanks between requests are not stored.
        let lines = lines.replace('\n', "");
        let bytes = gzip(text.as_bytes());
        check_cuts(open(Container::Gzip), &bytes, lines.as_bytes(), told);
        let bytes = zstd::encode_all(text.as_bytes(), 1).unwrap();
        check_cuts(open(Container::Zstd), &bytes, lines.as_bytes(), told);
    }
}

#[test]
fn what_cannot_be_decompressed_is_told() {
    let text = numbered(0..2000);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(&text).unwrap();
    let mut bytes = encoder.finish().unwrap();
    let at = bytes.len() / 2;
    bytes[at..at + 8].fill(0xff);
    let folder = folder();
    let path = file(&folder, &bytes);
    let mut cutter = LineCutter::compressed(&path, Container::Zstd, 64).unwrap();
    let all = packets(&mut cutter);
    let mut readable = Vec::new();
    let text = Container::Zstd.text_of(&bytes[..]);
    assert!(text.unwrap().read_to_end(&mut readable).is_err());
    assert!(intact_text(&all) == readable);
    let reasons = reasons(&all);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(
        reasons[0].contains("cannot be decompressed beyond byte"),
        "{reasons:?}"
    );
    assert!(cutter.damage().unwrap().contains(&reasons[0]));
}
