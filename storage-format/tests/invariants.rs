//! Values that no writer stores are errors to every reader, although their checksums match.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use storage_format::{
    AgentId, Codec, DataFileId, FormatErrorKind, Kind, LeafId, LeafType, StorageId, StreamPosition,
    agent_file::{AgentFile, StreamSpec},
    checksum::crc32c,
    data_file::{Bucket, DataFileHeader, LeafPath},
    frame::Facts,
    index_part::{
        ArrayBlock, ENTRY_BYTES, Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafNumbers,
        NewLeaf, PacketEntry, TRAILER_BYTES, TimeBases, Trailer,
    },
    integer::u64_of,
    log::{LogFileHeader, PreviousFile},
    ring_block::RingBlock,
    storage_file::Totals,
};

fn storage() -> StorageId {
    StorageId::from_bytes([7; 16])
}

/// The name of the field that a reader reports.
fn field<T>(read: Result<T, storage_format::FormatError>) -> Option<&'static str> {
    match read.err()?.kind {
        FormatErrorKind::Field { name } => Some(name),
        other => panic!("{other}"),
    }
}

/// `bytes` with `value` at `at`, and the checksum of what precedes `checksum` there.
fn changed(bytes: &[u8], checksum: usize, at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..][..value.len()].copy_from_slice(value);
    let sum = crc32c(&bytes[..checksum]);
    bytes[checksum..][..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn path(bucket: Option<Bucket>) -> LeafPath {
    LeafPath {
        agent: "a".parse().unwrap(),
        kind: Kind::Raw,
        stream: "s".parse().unwrap(),
        bucket,
    }
}

fn leaf_header(bucket: Option<Bucket>) -> [u8; 512] {
    let header = DataFileHeader {
        storage: storage(),
        leaf: LeafId(5),
        leaf_type: LeafType::Array,
        path: path(bucket),
        created: 0,
    };
    header.encode()
}

#[test]
fn a_leaf_without_a_bucket_has_no_begin_of_one() {
    let bytes = leaf_header(None);
    assert_eq!(field(DataFileHeader::decode(&bytes)), None);
    let bytes = changed(&bytes, 508, 40, &7_i64.to_le_bytes());
    assert_eq!(field(DataFileHeader::decode(&bytes)), Some("time bucket"));
}

#[test]
#[should_panic(expected = "a length of 0 means that a leaf has no bucket")]
fn a_bucket_without_a_length_is_never_written() {
    leaf_header(Some(Bucket {
        begin: 7,
        length: 0,
    }));
}

fn log_header(previous: Option<u64>) -> Vec<u8> {
    let header = LogFileHeader {
        storage: storage(),
        file: DataFileId(3),
        is_arranged: false,
        replaces: None,
        salt: 1,
        created: 0,
        first_batch: 9,
        previous: previous.map(|file| PreviousFile {
            file: DataFileId(file),
            length: 4096,
        }),
        chain: 2,
    };
    header.encode()
}

#[test]
fn the_files_of_a_log_are_in_order() {
    let bytes = log_header(Some(2));
    assert_eq!(field(LogFileHeader::decode_any(&bytes)), None);
    for (at, value, expected) in [
        (10, &[3][..], "arranged"),
        (64, &3_u64.to_le_bytes(), "previous file"),
        (64, &4_u64.to_le_bytes(), "previous file"),
        (32, &0_u64.to_le_bytes(), "previous file"),
    ] {
        let bytes = changed(&bytes, 4092, at, value);
        assert_eq!(field(LogFileHeader::decode_any(&bytes)), Some(expected));
    }
}

#[test]
#[should_panic(expected = "the files of a log have ascending ids")]
fn a_log_file_after_itself_is_never_written() {
    log_header(Some(3));
}

#[test]
fn a_time_span_of_a_ring_does_not_end_before_it_begins() {
    let block = RingBlock {
        sequence: 0,
        facts: Facts {
            time_span: Some((5, 6)),
            ..Facts::default()
        },
        payload: b"packet",
    };
    let bytes = [&block.header()[..], block.payload].concat();
    assert_eq!(field(RingBlock::split(&bytes)), None);
    let bytes = changed(&bytes, 60, 24, &7_i64.to_le_bytes());
    assert_eq!(field(RingBlock::split(&bytes)), Some("time span"));
}

fn entry(number: u64) -> PacketEntry {
    PacketEntry {
        number,
        offset: 600 + 128 * number,
        stored_size: 31,
        raw_size: 62,
        position: StreamPosition::new(7, number),
        facts: Facts {
            time_span: Some((5, 6)),
            ..Facts::default()
        },
        raw_checksum: 1,
        codec: Codec::None,
    }
}

/// A part with one leaf of two packets.
fn part(entries: [PacketEntry; 2]) -> Vec<u8> {
    let mut builder = IndexPartBuilder::new(IndexPartHeader {
        storage: storage(),
        ordinal: 0,
        first_ordinal: 0,
        created: 0,
    });
    builder.add_leaf(NewLeaf {
        leaf: LeafId(5),
        path: path(None),
        entries: Some(&entries),
        extents: &[Extent {
            leaf_offset: 512,
            file: DataFileId(0),
            offset: 4712,
            length: 300,
        }],
        covered: 512..812,
        covered_checksum: 0,
        totals: Totals {
            time_span: Some((5, 6)),
            ..Totals::default()
        },
        numbers: LeafNumbers {
            first: 0,
            last: 1,
            first_position: StreamPosition::new(7, 0),
            last_position: StreamPosition::new(7, 1),
        },
    });
    builder.finish(Vec::new(), None).0
}

#[test]
fn an_entry_is_of_a_possible_packet() {
    let part = part([entry(0), entry(1)]);
    let block = &part[64..][..2 * ENTRY_BYTES];
    let bases = TimeBases::default();
    let read = |block: &[u8], at| field(ArrayBlock::new(block, &bases).unwrap().get(at));
    assert_eq!([read(block, 0), read(block, 1)], [None, None]);
    for (at, value, expected) in [
        (16, &0_u32.to_le_bytes()[..], "size"),
        (16, &u32::MAX.to_le_bytes(), "size"),
        (20, &0_u32.to_le_bytes(), "size"),
        (40, &7_i64.to_le_bytes(), "time span"),
        (68, &[99], "codec"),
    ] {
        let mut block = block.to_vec();
        block[ENTRY_BYTES + at..][..value.len()].copy_from_slice(value);
        assert_eq!([read(&block, 0), read(&block, 1)], [None, Some(expected)]);
    }
}

#[test]
#[should_panic(expected = "an entry is of a packet of a valid size")]
fn an_entry_without_bytes_is_never_written() {
    let empty = PacketEntry {
        stored_size: 0,
        ..entry(1)
    };
    part([entry(0), empty]);
}

#[test]
fn entries_that_do_not_grow_are_never_written() {
    let (first, next) = (entry(0), entry(1));
    let wrong = [
        PacketEntry {
            number: first.number,
            ..next
        },
        PacketEntry {
            offset: first.offset,
            ..next
        },
        PacketEntry {
            position: first.position,
            ..next
        },
    ];
    for second in wrong {
        let written = std::panic::catch_unwind(|| part([first, second]));
        let message = *written.unwrap_err().downcast::<&str>().unwrap();
        let expected = "a block is searched by number, offset and position, so all of them grow";
        assert_eq!(message, expected, "{second:?}");
    }
}

#[test]
fn a_leaf_of_a_footer_is_in_order() {
    let part = part([entry(0), entry(1)]);
    let trailer = Trailer::decode(&part, u64_of(part.len()), storage()).unwrap();
    let start = usize::try_from(trailer.footer_offset).unwrap();
    let footer = &part[start..part.len() - TRAILER_BYTES];
    // The record ends with time span (17), numbers (48) and number of extents (4).
    let end = footer.len() - 4;
    let (numbers, span) = (end - 48, end - 48 - 16);
    for (at, value, expected) in [
        (numbers, 0_u64, None),
        (numbers, 2, Some("packet numbers")),
        (numbers + 24, 2, Some("packet numbers")),
        (span, 7, Some("time span")),
    ] {
        let mut footer = footer.to_vec();
        footer[at..][..8].copy_from_slice(&value.to_le_bytes());
        let trailer = Trailer {
            footer_checksum: crc32c(&footer),
            ..trailer
        };
        assert_eq!(field(Footer::decode(&footer, &trailer)), expected, "{at}");
    }
}

fn agent_file(streams: [&str; 2]) -> AgentFile {
    AgentFile {
        id: "agent".parse().unwrap(),
        name: String::new(),
        host: String::new(),
        attributes: Default::default(),
        streams: streams
            .map(|id| StreamSpec {
                id: id.parse().unwrap(),
                kind: Kind::Raw,
                leaf_type: LeafType::Array,
                codec: Codec::None,
            })
            .into(),
        metadata: None,
    }
}

#[test]
fn streams_of_an_agent_file_are_sorted() {
    let bytes = agent_file(["first", "other"]).encode().unwrap();
    assert_eq!(field(AgentFile::decode(&bytes)), None);
    let at = bytes.windows(5).position(|text| text == b"first").unwrap();
    for id in [b"other", b"zzzzz"] {
        let mut bytes = bytes.clone();
        bytes[at..][..5].copy_from_slice(id);
        // The checksum of the body is in the header.
        let body = crc32c(&bytes[24..]);
        let bytes = changed(&bytes, 20, 16, &body.to_le_bytes());
        assert_eq!(field(AgentFile::decode(&bytes)), Some("streams"));
    }
}

#[test]
#[should_panic(expected = "streams are searched by id, so they are sorted")]
fn unsorted_streams_are_never_written() {
    let _bytes = agent_file(["other", "first"]).encode();
}

#[test]
fn an_agent_file_is_of_its_agent() {
    let file = agent_file(["first", "other"]);
    assert_eq!(file.check_id(&file.id), Ok(()));
    let other: AgentId = "other".parse().unwrap();
    assert_eq!(
        file.check_id(&other).unwrap_err().kind,
        FormatErrorKind::Foreign
    );
}
