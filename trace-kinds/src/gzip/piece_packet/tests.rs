use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::{ScanOptions, Scanner, TextSink};
use super::*;

/// Bytes of the header before the text that precedes a piece: where its numbers are.
const NUMBERS: [usize; 3] = [11, 19, 27];
/// Where the length of the text before is.
const BEFORE_LENGTH: usize = 35;

#[derive(Default)]
struct Collected {
    entries: Vec<Entry>,
    text: Vec<u8>,
}

impl TextSink for Collected {
    fn entry(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.text.extend_from_slice(text);
        ControlFlow::Continue(())
    }

    fn gap(&mut self) {}
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The packets of a file of one member, and its text.
fn pieces(spacing: u64) -> (Vec<Vec<u8>>, Vec<u8>, Vec<u8>) {
    let mut text = String::new();
    // Digits that do not repeat, so that there are many blocks.
    let mut odd = 1_u64;
    for line in 0..80_000 {
        odd = odd.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = odd.rotate_left(29).wrapping_mul(odd | 1);
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"{odd:016x}{other:016x}\"}}"
        )
        .unwrap();
    }
    let file = gzip(text.as_bytes());
    let mut collected = Collected::default();
    let options = ScanOptions {
        spacing_bytes: Some(spacing),
        whole_text_bytes_max: Some(1),
        ..ScanOptions::default()
    };
    let scanned = Scanner::default().scan(&file[..], options, &mut collected);
    let scanned = scanned.unwrap();
    let all = Piece::all(&collected.entries, scanned.file_len, scanned.text_len);
    let mut packets = Vec::new();
    let at = |offset: u64| usize::try_from(offset).unwrap();
    for piece in all {
        let bytes = &file[at(piece.entry.byte_offset())..at(piece.end.byte_offset())];
        let start = at(piece.entry.text_offset);
        let before = &collected.text[start.saturating_sub(5)..start];
        let own = piece.text_len + before.len() as u64 - 3;
        packets.push(PiecePacket::of(&piece, bytes, before, own).encode());
    }
    assert!(packets.len() > 3, "{}", packets.len());
    (packets, text.into_bytes(), file)
}

/// The text of a packet, within its bounds.
fn text_of(packet: &[u8]) -> Result<Vec<u8>, PieceDamage> {
    let piece = PiecePacket::decode(packet)?;
    let most = 2 * PIECE_TEXT_BYTES_MAX as u64;
    assert!(piece.text_bytes() <= most, "{}", piece.text_bytes());
    let text = piece.text(&mut Inflater::default())?;
    assert_eq!(text.len() as u64, piece.text);
    assert!(text.capacity() as u64 <= 2 * most);
    Ok(text)
}

#[test]
fn a_piece_has_its_text_and_its_bytes_whatever_is_with_it() {
    let (packets, text, file) = pieces(64 << 10);
    let mut end = 0;
    for packet in &packets {
        // Each is inflated alone.
        let found = text_of(packet).unwrap();
        let start = text.windows(found.len()).position(|part| part == found);
        let start = start.unwrap();
        assert!(start <= end, "{start} {end}");
        end = start + found.len() + 3;
    }
    assert_eq!(end, text.len());
    let own = packets.iter().flat_map(|packet| {
        let piece = PiecePacket::decode(packet).unwrap();
        piece.own_bytes().to_vec()
    });
    assert!(own.collect::<Vec<u8>>() == file);
    for packet in &packets {
        let piece = PiecePacket::decode(packet).unwrap();
        assert_eq!(PiecePacket::decode(&piece.encode()).unwrap(), piece);
    }
}

fn with_number(packet: &[u8], at: usize, number: u64) -> Vec<u8> {
    let mut changed = packet.to_vec();
    changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
    changed
}

#[test]
fn numbers_that_lie_are_refused_or_change_only_how_much_text_is_its_own() {
    let (packets, ..) = pieces(64 << 10);
    for packet in &packets {
        let expected = text_of(packet).unwrap();
        let bytes = packet.len() as u64;
        for at in NUMBERS {
            let number = u64::from_le_bytes(packet[at..at + 8].try_into().unwrap());
            let lies = [
                0,
                1,
                7,
                number.wrapping_sub(1),
                number + 1,
                number + 8,
                bytes,
                8 * bytes,
                PIECE_TEXT_BYTES_MAX as u64,
                PIECE_TEXT_BYTES_MAX as u64 + 1,
                u64::from(u32::MAX),
                1 << 40,
                i64::MAX.unsigned_abs(),
                u64::MAX - 7,
                u64::MAX,
            ];
            for lie in lies.into_iter().filter(|lie| *lie != number) {
                let found = text_of(&with_number(packet, at, lie));
                let is_own = at == NUMBERS[2];
                match found {
                    // All that is its own was inflated.
                    Ok(text) if !is_own => assert!(text == expected, "{at} {lie}"),
                    Ok(text) => {
                        let common = text.len().min(expected.len());
                        assert!(text[..common] == expected[..common]);
                    }
                    Err(damage) => assert!(!is_own || lie > number, "{damage} {lie}"),
                }
            }
        }
        for length in [0, 1, 4, 6, bytes, u64::from(u32::MAX)] {
            let mut changed = packet.clone();
            let length = u32::try_from(length).unwrap();
            changed[BEFORE_LENGTH..BEFORE_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
            if changed != *packet {
                assert!(text_of(&changed).is_err(), "{length}");
            }
        }
        for end in 0..packet.len().min(200) {
            assert!(text_of(&packet[..end]).is_err(), "{end}");
        }
        // What follows the last block of a member is not looked at.
        if PiecePacket::decode(packet).unwrap().last_bit.is_some() {
            assert!(text_of(&packet[..packet.len() - 1]).is_err());
        }
    }
}

/// A piece that claims to be a whole member.
fn member_piece(bytes: &[u8], inflated: u64) -> Vec<u8> {
    let entry = Entry {
        bit_offset: 0,
        text_offset: 0,
        window: None,
    };
    let piece = Piece {
        entry: &entry,
        end: PieceEnd::Member {
            byte_offset: bytes.len() as u64,
        },
        text_len: inflated,
    };
    PiecePacket::of(&piece, bytes, b"", inflated).encode()
}

#[test]
fn bombs_are_refused() {
    const TEXT: usize = 3 * PIECE_TEXT_BYTES_MAX;
    let bomb = gzip(&vec![b' '; TEXT]);
    assert!(bomb.len() < TEXT / 100);
    // More text than a piece may have, and less than there is.
    for claimed in [
        0,
        1 << 20,
        PIECE_TEXT_BYTES_MAX,
        PIECE_TEXT_BYTES_MAX + 1,
        TEXT,
    ] {
        let packet = member_piece(&bomb, claimed as u64);
        let found = text_of(&packet).map(|text| text.len());
        // Of the first `claimed` bytes nobody can say that they are not all.
        assert!(
            found.is_err() || found == Ok(claimed),
            "{claimed}: {found:?}"
        );
        assert!(
            claimed <= PIECE_TEXT_BYTES_MAX || found.is_err(),
            "{claimed}"
        );
    }
    // Text that so few bytes cannot inflate to is refused before anything is allocated for it.
    let tiny = member_piece(&gzip(b"tiny"), PIECE_TEXT_BYTES_MAX as u64);
    assert!(PiecePacket::decode(&tiny).is_err());

    // A window of more than deflate can refer back to.
    let long = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let mut packet = MAGIC.to_vec();
    packet.extend_from_slice(&[VERSION, 0, STARTS_AT_BLOCK]);
    packet.extend_from_slice(&[0; 24]);
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(&u32::try_from(long.len()).unwrap().to_le_bytes());
    packet.extend_from_slice(&long);
    assert!(PiecePacket::decode(&packet).is_err());
    // Members without text, which could be inflated for ever.
    let empty = gzip(b"").repeat(20_000);
    assert!(text_of(&member_piece(&empty, 1)).is_err());
    assert_eq!(text_of(&member_piece(&empty, 0)), Ok(Vec::new()));
}

static PIECES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| pieces(256 << 10).0);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_pieces_have_text_of_their_length_or_none(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        at in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut packet = PIECES[at.index(PIECES.len())].clone();
        for (place, byte) in changes {
            let place = place.index(packet.len().min(4096));
            packet[place] ^= byte;
        }
        let _checked = text_of(&packet);
        packet.truncate(cut.index(packet.len()));
        let _checked = text_of(&packet);
    }

    #[test]
    fn random_bytes_are_no_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let packet = [&MAGIC[..], &[VERSION], &bytes].concat();
        let _checked = text_of(&packet);
    }
}
