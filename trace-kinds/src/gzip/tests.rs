//! Scans of files of many shapes, of which every piece is inflated alone.

use std::io::Write;
use std::ops::ControlFlow;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::{
    DamageReason, Entry, GzipDamage, Inflater, Piece, ScanOptions, Scanned, Scanner, TextBuffer,
    TextSink,
};

#[derive(Default)]
struct Collected {
    entries: Vec<Entry>,
    text: Vec<u8>,
    gaps: usize,
}

impl TextSink for Collected {
    fn entry(&mut self, entry: Entry) {
        assert_eq!(
            entry.text_offset,
            self.text.len() as u64,
            "passed on where its text begins"
        );
        self.entries.push(entry);
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.text.extend_from_slice(text);
        ControlFlow::Continue(())
    }

    fn gap(&mut self) {
        self.gaps += 1;
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn options(spacing_bytes: Option<u64>, damaged: &[u64]) -> ScanOptions<'_> {
    ScanOptions {
        spacing_bytes,
        damaged,
        ..ScanOptions::default()
    }
}

fn scan_all(file: &[u8], spacing_bytes: Option<u64>) -> (Scanned, Collected) {
    let mut collected = Collected::default();
    let scanned = Scanner::default()
        .scan(file, options(spacing_bytes, &[]), &mut collected)
        .unwrap();
    assert_eq!(scanned.text_len, collected.text.len() as u64);
    (scanned, collected)
}

/// Lines that compress like those of traces.
fn lines(count: usize, seed: u64) -> Vec<u8> {
    let mut text = Vec::new();
    let mut state = seed | 1;
    for id in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let random = state >> 40;
        writeln!(
            text,
            "{{\"id\":{id},\"name\":\"read\",\"ts\":{},\"dur\":{}}}",
            id * 7,
            random
        )
        .unwrap();
    }
    text
}

fn member(text: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A member whose writer flushed several times.
fn flushed_member(text: &[u8], every: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    for part in text.chunks(every) {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

/// Scans `file`, then inflates each piece and the start of each piece alone. Returns the entries
/// inside members.
#[track_caller]
fn check(file: &[u8], text: &[u8], spacing_bytes: u64) -> usize {
    let (scanned, collected) = scan_all(file, Some(spacing_bytes));
    assert!(
        collected.text == text,
        "text of {} bytes differs",
        text.len()
    );
    assert_eq!(scanned.file_len, file.len() as u64);
    let mut inflater = Inflater::default();
    let mut buffer = TextBuffer::new();
    for piece in Piece::all(&collected.entries, scanned.file_len, scanned.text_len) {
        let bytes = &file[index(piece.entry.byte_offset())..index(piece.end.byte_offset())];
        let start = index(piece.entry.text_offset);
        let expected = &text[start..start + index(piece.text_len)];
        inflater.piece(&piece, bytes, &mut buffer).unwrap();
        assert!(buffer.text() == expected, "piece at {start}");

        let some = expected.len().min(100);
        buffer.clear();
        inflater.prefix(&piece, &bytes[..bytes.len().min(20_000)], some, &mut buffer);
        assert!(
            buffer.text() == &expected[..some],
            "start of piece at {start}"
        );
    }
    collected
        .entries
        .iter()
        .filter(|entry| entry.window.is_some())
        .count()
}

/// Longer than what is inflated in one call, so that it is streamed.
fn long_text() -> Vec<u8> {
    let text = lines(700_000, 1);
    assert!(text.len() > super::WHOLE_TEXT_BYTES_MAX);
    text
}

#[test]
fn members_that_fit_in_memory_have_entries_at_their_start_only() {
    let text = lines(20_000, 2);
    let parts: Vec<&[u8]> = text.chunks(100_001).collect();
    let file: Vec<u8> = parts.iter().flat_map(|part| member(part, 6)).collect();
    for spacing in [0, 150_000, 1 << 30] {
        assert_eq!(check(&file, &text, spacing), 0);
    }
    let (_, collected) = scan_all(&file, Some(0));
    assert_eq!(collected.entries.len(), parts.len());
}

#[test]
fn a_huge_member_has_entries_inside() {
    let text = long_text();
    for level in [6, 9] {
        let inside = check(&member(&text, level), &text, 4 << 20);
        assert!(inside >= 6, "level {level}: {inside} entries");
    }
    // The fastest level writes few and very long blocks.
    check(&member(&text, 1), &text, 4 << 20);
    assert!(
        check(&flushed_member(&text, 50_000), &text, 8 << 20) >= 3,
        "flushed"
    );
    // The start of a stored block is ambiguous; such entries may be missing but never wrong.
    check(&member(&text, 0), &text, 4 << 20);
    let mut file = member(&lines(100, 3), 6);
    file.extend(member(&text, 6));
    file.extend(member(&lines(100, 4), 6));
    let whole = [lines(100, 3), text, lines(100, 4)].concat();
    assert!(check(&file, &whole, 4 << 20) >= 6);
}

#[test]
fn windows_contain_only_bytes_that_the_text_refers_to() {
    let text = long_text();
    let (_, collected) = scan_all(&member(&text, 6), Some(4 << 20));
    let inside = collected.entries.iter().filter_map(|entry| {
        let end = usize::try_from(entry.text_offset).unwrap();
        let window = entry.window.as_ref()?;
        Some((&text[end - window.len()..end], window))
    });
    let mut windows = 0;
    for (before, window) in inside {
        windows += 1;
        assert_eq!(window.len(), super::WINDOW_BYTES);
        let needed = window.iter().filter(|byte| **byte != 0).count();
        assert!(needed > 0 && needed < window.len(), "{needed} bytes needed");
        let same = |(byte, needed): (&u8, &u8)| *needed == 0 || byte == needed;
        assert!(before.iter().zip(window).all(same), "not of the text");
    }
    assert!(windows >= 6, "{windows}");
}

#[test]
fn empty_members_padding_and_headers_with_names() {
    check(&[], &[], 0);
    check(&member(b"", 6), b"", 0);
    let named = flate2::GzBuilder::new()
        .filename("a.pfw")
        .comment("c")
        .extra(vec![7; 300]);
    let mut encoder = named.write(Vec::new(), Compression::new(6));
    encoder.write_all(b"named\n").unwrap();
    let file = [
        member(b"one\n", 6),
        vec![0; 5000],
        member(b"", 6),
        encoder.finish().unwrap(),
        vec![0; 9],
    ];
    for spacing in [0, 100] {
        check(&file.concat(), b"one\nnamed\n", spacing);
    }
}

#[test]
fn bytes_like_a_header_inside_a_member_are_not_a_header() {
    // Stored blocks contain the text verbatim.
    let inner = member(b"inner\n", 6);
    let text = [&inner[..], &inner, &inner, &inner, &inner, &inner, b"\n"].concat();
    check(
        &[member(&text, 0), member(b"next\n", 6)].concat(),
        &[&text[..], b"next\n"].concat(),
        0,
    );
}

#[test]
fn a_torn_file_yields_the_text_before_its_end() {
    let text = lines(20_000, 5);
    let parts: Vec<Vec<u8>> = text.chunks(200_000).map(|part| member(part, 6)).collect();
    let file = parts.concat();
    let first = parts[0].len();
    for cut in [
        1,
        5,
        11,
        first - 1,
        first + 1,
        first + 12,
        first + 500,
        file.len() - 1,
    ] {
        let (scanned, collected) = scan_all(&file[..cut], Some(0));
        let [damage] = scanned.damage[..] else {
            panic!("cut at {cut}: {scanned:?}");
        };
        assert_eq!(damage.reason, DamageReason::Torn, "cut at {cut}");
        assert!(text.starts_with(&collected.text), "cut at {cut}");
        assert!(
            cut < first || collected.text.len() >= 200_000,
            "cut at {cut}"
        );
        let mut inflater = Inflater::default();
        let mut buffer = TextBuffer::new();
        for piece in Piece::all(&collected.entries, scanned.file_len, scanned.text_len) {
            let range = index(piece.entry.byte_offset())..index(piece.end.byte_offset());
            inflater
                .piece(&piece, &file[..cut][range], &mut buffer)
                .unwrap();
            assert!(text[index(piece.entry.text_offset)..].starts_with(buffer.text()));
        }
    }
    let garbage = [&file[..], b"garbage that is long enough to be a member"].concat();
    let (scanned, collected) = scan_all(&garbage, None);
    let damage = GzipDamage {
        offset: file.len() as u64,
        end: garbage.len() as u64,
        reason: DamageReason::NotAMember,
    };
    assert_eq!(scanned.damage, [damage]);
    assert!(collected.text == text);
}

/// `file` with bytes replaced at `at`.
fn overwritten(file: &[u8], at: usize) -> Vec<u8> {
    let mut damaged = file.to_vec();
    damaged[at..at + 4].copy_from_slice(&[0x55, 0xaa, 0x33, 0xcc]);
    damaged
}

#[test]
fn the_text_of_a_damaged_member_is_not_passed_on() {
    let texts: Vec<Vec<u8>> = (0..4).map(|seed| lines(3_000, seed)).collect();
    let members: Vec<Vec<u8>> = texts.iter().map(|text| member(text, 6)).collect();
    let file = members.concat();
    let mut start = 0;
    for (number, damaged) in members.iter().enumerate() {
        let expected: Vec<u8> = texts
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .flat_map(|(_, text)| text.clone())
            .collect();
        let end = start + damaged.len();
        // In the header, in the data and in the checksum. The last byte is of the length.
        for at in [
            0,
            12,
            1000,
            damaged.len() / 2,
            damaged.len() - 20,
            damaged.len() - 6,
        ] {
            for spacing in [0, 1 << 30] {
                let (scanned, collected) = scan_all(&overwritten(&file, start + at), Some(spacing));
                let what = format!("member {number}, byte {at}");
                assert!(collected.text == expected, "{what}");
                assert_eq!(collected.gaps, 1, "{what}: {scanned:?}");
                let [damage] = scanned.damage[..] else {
                    panic!("{what}: {scanned:?}");
                };
                let range = (damage.offset, damage.end);
                assert_eq!(range, (start as u64, end as u64), "{what}");
                assert_ne!(damage.reason, DamageReason::Torn, "{what}");
            }
        }
        start = end;
    }
}

#[test]
fn a_member_torn_before_another_one_is_skipped() {
    let (first, second) = (lines(3_000, 1), lines(2_000, 2));
    let torn = member(&first, 6);
    let torn = &torn[..torn.len() / 2];
    let (scanned, collected) = scan_all(&[torn, &member(&second, 6)].concat(), None);
    assert!(collected.text == second);
    assert_eq!(scanned.damage[0].end, torn.len() as u64);
}

#[test]
fn a_damaged_long_member_is_reported_as_unverified() {
    let (text, other) = (long_text(), lines(3_000, 7));
    let long = member(&text, 6);
    let file = [&member(&other, 6)[..], &long, &member(&other, 6)].concat();
    let offset = (file.len() - long.len()) / 2;
    for at in [offset + long.len() - 100_000, offset + long.len() - 6] {
        let damaged = overwritten(&file, at);
        let (scanned, _) = scan_all(&damaged, Some(4 << 20));
        assert_eq!(scanned.unverified, Some(offset as u64), "byte {at}");

        let mut collected = Collected::default();
        let known = [offset as u64];
        let scanned = Scanner::default()
            .scan(&damaged[..], options(None, &known), &mut collected)
            .unwrap();
        assert!(collected.text == [&other[..], &other].concat(), "byte {at}");
        assert_eq!((scanned.unverified, collected.gaps), (None, 1));
        assert_eq!(scanned.damage[0].end, (offset + long.len()) as u64);
    }
    let mut collected = Collected::default();
    let stops = ScanOptions {
        stops_at_long_member: true,
        ..ScanOptions::default()
    };
    let scanned = Scanner::default()
        .scan(&file[..], stops, &mut collected)
        .unwrap();
    assert_eq!(scanned.long_member, Some(offset as u64));
    assert!(collected.text == other);
    // Damage in the first bytes is found before any text is passed on.
    let (scanned, collected) = scan_all(&overwritten(&file, offset + 3_000), None);
    assert_eq!((scanned.unverified, collected.gaps), (None, 1));
    assert!(collected.text == [&other[..], &other].concat());
}

#[test]
fn an_entry_of_another_file_is_refused() {
    let text = long_text();
    let file = member(&text, 6);
    let (scanned, collected) = scan_all(&file, Some(4 << 20));
    let other = member(&lines(700_000, 9), 6);
    let mut refused = 0;
    let mut buffer = TextBuffer::new();
    for piece in Piece::all(&collected.entries, scanned.file_len, scanned.text_len) {
        let range = index(piece.entry.byte_offset())..index(piece.end.byte_offset());
        if let Some(bytes) = other.get(range)
            && Inflater::default()
                .piece(&piece, bytes, &mut buffer)
                .is_err()
        {
            refused += 1;
        }
    }
    assert!(refused > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn members_of_any_size_and_level_are_restored(
        members in proptest::collection::vec((0..3000_usize, 0..10_u32, 0..40_usize), 0..6),
        spacing in 0..200_000_u64,
    ) {
        let mut file = Vec::new();
        let mut text = Vec::new();
        for (index, (count, level, padding)) in members.into_iter().enumerate() {
            let part = lines(count, index as u64);
            file.extend(member(&part, level));
            file.extend(vec![0; padding]);
            text.extend(part);
        }
        check(&file, &text, spacing);
    }

    #[test]
    fn damage_is_never_fatal(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = [member(&lines(500, 1), 6), member(&lines(900, 2), 1)].concat();
        file.truncate(cut.index(file.len()) + 1);
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        let (scanned, collected) = scan_all(&file, Some(1000));
        let mut buffer = TextBuffer::new();
        for piece in Piece::all(&collected.entries, scanned.file_len, scanned.text_len) {
            let range = index(piece.entry.byte_offset())..index(piece.end.byte_offset());
            // Either the same text or an error.
            if Inflater::default().piece(&piece, &file[range], &mut buffer).is_ok() {
                let start = index(piece.entry.text_offset);
                prop_assert!(collected.text[start..].starts_with(buffer.text()));
            }
        }
    }

    #[test]
    fn random_pieces_are_never_fatal(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        window in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
        skip in 0..8_u64,
        end in 0..8_u64,
        text_len in 0..5000_u64,
    ) {
        let bit_offset = if window.is_some() { skip } else { 0 };
        let entry = Entry { bit_offset, text_offset: 0, window: window.map(Into::into) };
        let len = bytes.len() as u64;
        for piece_end in [
            super::PieceEnd::Member { byte_offset: len },
            super::PieceEnd::Block { bit_offset: (len * 8).saturating_sub(end) },
        ] {
            let piece = Piece { entry: &entry, end: piece_end, text_len };
            let mut buffer = TextBuffer::new();
            if Inflater::default().piece(&piece, &bytes, &mut buffer).is_ok() {
                prop_assert_eq!(buffer.text().len() as u64, text_len);
            }
        }
    }
}
