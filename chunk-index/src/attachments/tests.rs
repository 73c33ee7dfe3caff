//! Attachments are written as their golden files have them, come back, and are refused when they
//! are damaged.

use std::fmt::Debug;

use proptest::prelude::*;
use storage_format::{Kind, LeafId, StorageId};

use super::*;

fn leaf_facts() -> LeafFacts {
    LeafFacts {
        storage: StorageId::from_bytes(*b"0123456789abcdef"),
        leaf: LeafId(0x1234_5678_9abc_def0),
        unit: StoredUnit::Second,
        metadata_checksum: 0xdead_beef,
        metadata: 7,
        broken: u64::MAX,
        is_damaged: true,
        is_unit_lost: false,
        lacks_head: false,
        cuts: 0x0102_0304,
    }
}

fn dft_facts() -> DftFacts {
    DftFacts {
        unit: StoredUnit::Nanosecond,
        metadata: 4,
        broken: 1,
        text_limits: [
            Some([Box::from(&b"/a"[..]), Box::from(&b"/data/z"[..])]),
            None,
            Some([Box::from(&b""[..]), Box::from(&b""[..])]),
        ],
    }
}

fn dft_damage() -> DftDamage {
    let part = |offset, end, reason| DamagedPart {
        offset,
        end,
        reason,
    };
    DftDamage(vec![part(0, 64_049, 0), part(u64::MAX - 1, u64::MAX, 2)])
}

fn packet_file_facts() -> PacketFileFacts {
    PacketFileFacts {
        kind: Kind::RocksdbIo,
        stamp: TraceStamp {
            metadata: 1,
            folder: 2,
            file_index: 3,
        },
        metadata: 0,
        broken: 2,
        header: Box::from(&b"header"[..]),
        fault: Some("byte 70: the record is cut off".to_owned()),
    }
}

fn chrome_unpaired() -> ChromeUnpaired {
    let mark = |position, ts, kind, texts| StoredMark {
        position,
        ts,
        offset: 12,
        kind,
        texts,
    };
    ChromeUnpaired {
        durations_checksum: 0xcafe_f00d,
        is_cut: true,
        texts: vec![Box::from(&b""[..]), Box::from(&b"main"[..])],
        marks: vec![
            mark(0, -1, 1, [0, 0, 1, 0]),
            mark(u64::MAX, i64::MAX, 2, [0, 0, 0, 1]),
        ],
    }
}

fn packet_ranges() -> PacketRanges {
    let packet = |range, shift| PacketRange { range, shift };
    PacketRanges(vec![
        packet(0..64, 0),
        packet(64..99, -64),
        packet(128..129, 7),
    ])
}

fn dft_names() -> Vec<DftName<'static>> {
    let name = |kind, text, hash| DftName { kind, text, hash };
    let mut names = vec![
        name(0, &b"/data/file_1"[..], StoredHash::Number(17)),
        name(0, b"/data/file_2", StoredHash::Text(b"00000000000000ff")),
        name(1, b"node-1", StoredHash::Text(b"00000000000000FF")),
        name(2, b"", StoredHash::Number(u64::MAX)),
    ];
    sort_dft_names(&mut names);
    names
}

/// Compares bytes with the golden file, and checks that no cut of them is accepted.
fn check<T: PartialEq + Debug>(
    golden: &str,
    bytes: &[u8],
    expected: &T,
    decode: impl Fn(&[u8]) -> Result<T, AttachmentError>,
) {
    let path = format!("{}/golden/{golden}", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(std::fs::read(path).unwrap(), bytes, "{golden}");
    assert_eq!(decode(bytes).as_ref(), Ok(expected), "{golden}");
    for length in 0..bytes.len() {
        assert!(
            decode(&bytes[..length]).is_err(),
            "{golden}: {length} bytes"
        );
    }
    let longer = [bytes, &[0]].concat();
    assert!(decode(&longer).is_err(), "{golden}: a byte follows");
    let newer = [&[bytes[0] + 1], &bytes[1..]].concat();
    let error = decode(&newer).unwrap_err();
    assert!(
        matches!(error, AttachmentError::Version { .. }),
        "{golden}: {error}"
    );
}

#[test]
fn golden_bytes_are_written_and_read() {
    let damage = dft_damage();
    check(
        "v1/dft.damage",
        &damage.encode(),
        &damage,
        DftDamage::decode,
    );
    let (leaf, dft, file) = (leaf_facts(), dft_facts(), packet_file_facts());
    check("v3/leaf.facts", &leaf.encode(), &leaf, LeafFacts::decode);
    let stamp = FileStamp {
        inode: 7,
        changed: -2,
    };
    check("v1/file.stamp", &stamp.encode(), &stamp, FileStamp::decode);
    check("v2/dft.facts", &dft.encode(), &dft, DftFacts::decode);
    check(
        "v1/packets.facts",
        &file.encode(),
        &file,
        PacketFileFacts::decode,
    );
    let unpaired = chrome_unpaired();
    check(
        "v1/chrome.unpaired",
        &unpaired.encode(),
        &unpaired,
        ChromeUnpaired::decode,
    );
    let ranges = packet_ranges();
    check("v1/packets.places", &ranges.encode(), &ranges, |bytes| {
        PacketRanges::decode(bytes, 129)
    });
    let names = encode_dft_names(&dft_names(), |name| name.kind == 0);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v3/dft.names");
    assert_eq!(std::fs::read(golden).unwrap(), names);
    let decoded = DftNames::decode(&names).unwrap();
    assert_eq!(decoded.entries(), 2);
    let texts: Vec<&[u8]> = decoded.iter().map(|name| name.text).collect();
    assert_eq!(
        texts,
        [&b"/data/file_1"[..], b"/data/file_2", b"node-1", b""]
    );
    let hashes: Vec<StoredHash<'_>> = decoded.iter().map(|name| name.hash).collect();
    let expected = [
        StoredHash::Entry(0),
        StoredHash::Entry(1),
        StoredHash::Text(b"00000000000000FF"),
        StoredHash::Number(u64::MAX),
    ];
    assert_eq!(hashes, expected);
}

#[test]
fn facts_of_leaves_of_earlier_versions_are_read() {
    for (version, is_damaged) in [("v1", false), ("v2", true)] {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        let bytes = std::fs::read(format!("{golden}/{version}/leaf.facts")).unwrap();
        let expected = LeafFacts {
            is_damaged,
            cuts: 0,
            ..leaf_facts()
        };
        assert_eq!(LeafFacts::decode(&bytes), Ok(expected), "{version}");
        let longer = [&bytes[..], &[0]].concat();
        assert!(LeafFacts::decode(&longer).is_err(), "{version}");
    }
    let headless = LeafFacts {
        lacks_head: true,
        ..leaf_facts()
    };
    assert_eq!(LeafFacts::decode(&headless.encode()), Ok(headless));
    let mut unknown = leaf_facts().encode();
    let flags = unknown.len() - 5;
    unknown[flags] = 8;
    assert!(LeafFacts::decode(&unknown).is_err());
}

#[test]
fn hexadecimal_hashes_are_stored_as_numbers() {
    let bytes = encode_dft_names(&dft_names(), |_| false);
    let decoded = DftNames::decode(&bytes).unwrap();
    assert_eq!(decoded.entries(), 0);
    let hash = decoded.iter().nth(1).unwrap().hash;
    assert_eq!(hash, StoredHash::Digits(0xff));
}

#[test]
fn packets_beyond_the_end_of_their_file_are_refused() {
    let bytes = packet_ranges().encode();
    assert!(PacketRanges::decode(&bytes, 128).is_err());
}

#[test]
fn a_mark_without_its_text_is_refused() {
    let mut unpaired = chrome_unpaired();
    unpaired.texts.pop();
    assert!(ChromeUnpaired::decode(&unpaired.encode()).is_err());
}

#[test]
fn a_long_fault_is_cut() {
    let facts = PacketFileFacts {
        fault: Some("é".repeat(1024)),
        ..packet_file_facts()
    };
    let bytes = facts.encode();
    let fault = PacketFileFacts::decode(&bytes).unwrap().fault.unwrap();
    assert_eq!(fault.len(), 1024);
    // A longer one was not written by this program.
    let at = bytes.len() - 1024 - 4;
    let longer = [
        &bytes[..at],
        &1026_u32.to_le_bytes(),
        &bytes[at + 4..],
        "é".as_bytes(),
    ]
    .concat();
    assert!(PacketFileFacts::decode(&longer).is_err());
}

proptest! {
    #[test]
    fn random_bytes_are_never_fatal(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
        for version in 0..4 {
            let bytes = [&[version], &bytes[..]].concat();
            let _leaf = LeafFacts::decode(&bytes);
            let _stamp = FileStamp::decode(&bytes);
            let _dft = DftFacts::decode(&bytes);
            let _file = PacketFileFacts::decode(&bytes);
            let _ranges = PacketRanges::decode(&bytes, 50);
            let _names = DftNames::decode(&bytes);
            let _unpaired = ChromeUnpaired::decode(&bytes);
        }
        let one = [&[1, 1, 0, 0, 0][..], &bytes].concat();
        let _ranges = PacketRanges::decode(&one, u64::MAX);
        let one = [&[3, 1, 0, 0, 0][..], &bytes].concat();
        let _names = DftNames::decode(&one);
    }

    #[test]
    fn names_come_back(
        texts in proptest::collection::vec((0..3_u8, "(/data/)?[ -~]{0,9}(_of_9)?", any::<u64>()), 0..20),
    ) {
        let mut names: Vec<DftName<'_>> = texts
            .iter()
            .map(|(kind, text, hash)| DftName {
                kind: *kind,
                text: text.as_bytes(),
                hash: StoredHash::Number(*hash),
            })
            .collect();
        sort_dft_names(&mut names);
        let bytes = encode_dft_names(&names, |_| false);
        let decoded = DftNames::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.iter().collect::<Vec<_>>(), names);
    }
}

#[test]
fn a_damaged_part_does_not_end_before_it_begins() {
    let mut bytes = dft_damage().encode();
    bytes[5..13].copy_from_slice(&64_050_u64.to_le_bytes());
    assert!(DftDamage::decode(&bytes).is_err());
}
