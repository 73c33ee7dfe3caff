//! Values at their bounds: the last that is accepted and the first that is refused.

use storage_format::{
    Codec, DataFileId, FormatErrorKind, Kind, LeafId, StorageId, StreamPosition, TimeBasis,
    batch::{RECORD_HEADER_BYTES, RecordHeader},
    checksum::{crc32c, crc32c_append},
    checksum_file::{ChecksumFile, FileChecksums, PIECE_BYTES},
    frame::{self, Facts, FrameHeader, FrameLocation},
    limits::{ENVELOPE_BODY_BYTES_MAX, PACKET_BYTES_MAX},
    local_file::LocalFile,
    ring_block::{self, RingBlock},
};

fn location() -> FrameLocation {
    FrameLocation {
        storage: StorageId::from_bytes([3; 16]),
        leaf: LeafId(5),
        offset: 4096,
    }
}

/// All combinations of known facts.
fn all_facts() -> impl Iterator<Item = Facts> {
    (0..32_u32).map(|bits| Facts {
        time_span: (bits & 1 != 0).then_some((-3, 8)),
        events: (bits & 2 != 0).then_some(21),
        lost: (bits & 4 != 0).then_some(22),
        time_basis: (bits & 8 != 0).then_some(23),
        has_unreadable: bits & 16 != 0,
    })
}

fn header(facts: Facts) -> FrameHeader {
    FrameHeader {
        codec: Codec::None,
        stored_size: 100,
        raw_size: 100,
        number: 1,
        position: StreamPosition::new(2, 3),
        arrival: 4,
        facts,
        stored_checksum: 6,
        raw_checksum: 7,
    }
}

/// Gives the header of a frame a correct checksum again.
fn seal_frame(bytes: &mut [u8; frame::HEADER_BYTES]) {
    let mut domain = [0; 32];
    domain[..16].copy_from_slice(location().storage.as_bytes());
    domain[16..24].copy_from_slice(&location().leaf.0.to_le_bytes());
    domain[24..].copy_from_slice(&location().offset.to_le_bytes());
    let end = frame::HEADER_BYTES - 4;
    let checksum = crc32c_append(crc32c(&bytes[..end]), &domain);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn facts_are_known_each_for_itself() {
    for facts in all_facts() {
        let bytes = header(facts).encode(location());
        assert_eq!(
            FrameHeader::decode(&bytes, location()).unwrap().facts,
            facts
        );
        let block = RingBlock {
            sequence: 9,
            facts: Facts {
                time_basis: None,
                has_unreadable: false,
                ..facts
            },
            payload: b"payload",
        };
        let bytes = [&block.header()[..], block.payload, b"next"].concat();
        assert_eq!(RingBlock::split(&bytes).unwrap(), (block, &b"next"[..]));
    }
}

#[test]
fn a_time_span_may_be_an_instant_and_never_ends_before_it_begins() {
    for (span, expected) in [((5, 6), true), ((5, 5), true), ((5, 4), false)] {
        let facts = Facts {
            time_span: Some(span),
            events: Some(1),
            ..Facts::default()
        };
        let valid = Facts {
            time_span: expected.then_some(span),
            ..facts
        };
        assert_eq!(facts.valid(), valid);

        let mut bytes = header(Facts {
            time_span: Some((5, 5)),
            ..facts
        })
        .encode(location());
        bytes[48..56].copy_from_slice(&i64::to_le_bytes(span.1));
        seal_frame(&mut bytes);
        let decoded = FrameHeader::decode(&bytes, location());
        assert_eq!(
            decoded.map(|header| header.facts).ok(),
            expected.then_some(facts)
        );

        let block = RingBlock {
            sequence: 0,
            facts: Facts {
                time_span: Some((5, 5)),
                ..facts
            },
            payload: b"x",
        };
        let mut bytes = block.header();
        bytes[32..40].copy_from_slice(&i64::to_le_bytes(span.1));
        let found = split_sealed(&mut bytes, b"x");
        assert_eq!(found.map(|block| block.facts), expected.then_some(facts));
    }
}

/// Reads a block after its header got a correct checksum again.
fn split_sealed<'a>(
    header: &mut [u8; ring_block::HEADER_BYTES],
    payload: &'a [u8],
) -> Option<RingBlock<'a>> {
    let end = ring_block::HEADER_BYTES - 4;
    let checksum = crc32c(&header[..end]);
    header[end..].copy_from_slice(&checksum.to_le_bytes());
    let bytes = [&header[..], payload].concat();
    let (block, rest) = RingBlock::split(&bytes).ok()?;
    assert!(rest.is_empty());
    Some(RingBlock { payload, ..block })
}

#[test]
fn a_ring_block_has_no_unknown_facts_and_no_packet_beyond_the_limit() {
    let block = RingBlock {
        sequence: 0,
        facts: Facts::default(),
        payload: b"x",
    };
    for (flags, is_accepted) in [(0, true), (7, true), (8, false), (255, false)] {
        let mut bytes = block.header();
        bytes[10] = flags;
        assert_eq!(
            split_sealed(&mut bytes, b"x").is_some(),
            is_accepted,
            "{flags}"
        );
    }
    for (length, is_limit) in [(PACKET_BYTES_MAX, false), (PACKET_BYTES_MAX + 1, true)] {
        let mut bytes = block.header();
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let end = ring_block::HEADER_BYTES - 4;
        let checksum = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        let kind = RingBlock::split(&bytes).unwrap_err().kind;
        let found = matches!(kind, FormatErrorKind::Limit { .. });
        assert_eq!(found, is_limit, "{length}: {kind:?}");
    }
}

#[test]
fn a_record_has_the_bytes_that_its_header_promises() {
    let record = RecordHeader::of(b"payload", StreamPosition::new(1, 2));
    assert_eq!(record.check(b"payload"), Ok(()));
    let kind = record.check(b"another").unwrap_err().kind;
    assert!(matches!(kind, FormatErrorKind::Checksum { .. }), "{kind:?}");
    for (length, is_accepted) in [
        (0, false),
        (1, true),
        (PACKET_BYTES_MAX, true),
        (PACKET_BYTES_MAX + 1, false),
    ] {
        let bytes: [u8; RECORD_HEADER_BYTES] = RecordHeader { length, ..record }.encode();
        assert_eq!(
            RecordHeader::decode(&bytes).is_ok(),
            is_accepted,
            "{length}"
        );
    }
}

#[test]
fn a_checksum_file_has_each_data_file_once_and_nothing_else() {
    let of = |file, pieces: u32| FileChecksums {
        file: DataFileId(file),
        length: u64::from(pieces) * PIECE_BYTES,
        pieces: (0..pieces).collect(),
    };
    let decode = |files: Vec<FileChecksums>| {
        let file = ChecksumFile {
            storage: location().storage,
            files,
        };
        let found = ChecksumFile::decode(&file.encode());
        assert!(found.as_ref().is_ok_and(|found| *found == file) || found.is_err());
        found.is_ok()
    };
    assert!(decode(vec![]));
    let empty = ChecksumFile {
        storage: location().storage,
        files: vec![],
    };
    assert_eq!(empty.check_id(location().storage), Ok(()));
    let kind = empty
        .check_id(StorageId::from_bytes([4; 16]))
        .unwrap_err()
        .kind;
    assert_eq!(kind, FormatErrorKind::Foreign);
    assert!(decode(vec![of(1, 2), of(2, 0), of(3, 1)]));
    assert!(!decode(vec![of(1, 2), of(1, 2)]), "a file twice");
    assert!(!decode(vec![of(2, 1), of(1, 1)]), "files in another order");

    // One piece more than the files have, with correct checksums.
    let file = ChecksumFile {
        storage: location().storage,
        files: vec![of(1, 2)],
    };
    let mut bytes = file.encode();
    bytes[40..48].copy_from_slice(&3_u64.to_le_bytes());
    let checksum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    bytes.truncate(bytes.len() - 4);
    bytes.extend([0; 4]);
    let checksum = crc32c(&bytes[64..]);
    bytes.extend(checksum.to_le_bytes());
    let kind = ChecksumFile::decode(&bytes).unwrap_err().kind;
    assert_eq!(
        kind,
        FormatErrorKind::Field {
            name: "number of pieces"
        }
    );
}

#[test]
fn a_file_with_a_header_alone_is_cut_and_no_other_file() {
    let file = LocalFile {
        storage: location().storage,
        origin: String::new(),
        fetched: 0,
        complete: Vec::new(),
    };
    let bytes = file.encode().unwrap();
    for length in [0, 9, 10, 23, 24, bytes.len() - 1] {
        let kind = LocalFile::decode(&bytes[..length]).unwrap_err().kind;
        let is_cut = matches!(kind, FormatErrorKind::Truncated { .. });
        assert!(is_cut, "{length} bytes: {kind:?}");
    }
    assert_eq!(LocalFile::decode(&bytes), Ok(file));
}

#[test]
fn a_header_that_promises_too_much_is_refused_before_its_body_is_read() {
    let file = LocalFile {
        storage: location().storage,
        origin: String::new(),
        fetched: 0,
        complete: Vec::new(),
    };
    for (length, is_allowed) in [
        (ENVELOPE_BODY_BYTES_MAX, true),
        (ENVELOPE_BODY_BYTES_MAX + 1, false),
        (u32::MAX, false),
    ] {
        let mut bytes = file.encode().unwrap();
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let sum = crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        let kind = LocalFile::decode(&bytes).unwrap_err().kind;
        let is_cut = matches!(kind, FormatErrorKind::Truncated { .. });
        assert_eq!(is_cut, is_allowed, "{kind:?}");
        let is_limit = matches!(kind, FormatErrorKind::Limit { .. });
        assert_eq!(is_limit, !is_allowed, "{kind:?}");
    }
}

#[test]
fn facts_count_only_with_the_current_time_basis() {
    let facts = Facts {
        time_span: Some((1, 2)),
        time_basis: Some(7),
        ..Facts::default()
    };
    for (basis, stored, is_current) in [
        (TimeBasis::Bytes, None, true),
        (TimeBasis::Bytes, Some(7), true),
        (TimeBasis::Number(7), Some(7), true),
        (TimeBasis::Number(8), Some(7), false),
        (TimeBasis::Number(7), None, false),
        (TimeBasis::Unknown, Some(7), false),
    ] {
        let facts = Facts {
            time_basis: stored,
            ..facts
        };
        assert_eq!(basis.is_of(stored), is_current, "{basis:?} {stored:?}");
        let expected = if is_current { facts } else { Facts::default() };
        assert_eq!(basis.known(&facts), expected, "{basis:?} {stored:?}");
    }
    for (kind, basis) in [
        (Kind::Ctf, TimeBasis::Unknown),
        (Kind::Otlp, TimeBasis::Bytes),
    ] {
        assert_eq!(TimeBasis::of_kind(kind), basis);
    }
}
