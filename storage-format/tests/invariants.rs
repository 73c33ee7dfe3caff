//! Values that no writer stores are errors to every reader, although their checksums match.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use storage_format::{
    AgentId, Codec, DataFileId, FormatErrorKind, Kind, LeafId, LeafType, StorageId, StreamPosition,
    agent_file::{AgentFile, StreamSpec},
    checksum::{crc32c, crc32c_append},
    data_file::{Bucket, DataFileHeader, LeafPath},
    frame::Facts,
    index_part::{
        ArrayBlock, ENTRY_BYTES, Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafEntry,
        LeafNumbers, NewLeaf, PacketEntry, TRAILER_BYTES, TimeBases, Trailer,
    },
    integer::u64_of,
    limits::INDEX_FOOTER_BYTES_MAX,
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

fn builder() -> IndexPartBuilder {
    IndexPartBuilder::new(IndexPartHeader {
        storage: storage(),
        ordinal: 0,
        first_ordinal: 0,
        created: 0,
    })
}

fn add_leaf(builder: &mut IndexPartBuilder, leaf: LeafId, entries: impl AsRef<[PacketEntry]>) {
    let entries = entries.as_ref();
    let last = u64_of(entries.len()) - 1;
    let length = 128 * last + 172;
    builder.add_leaf(NewLeaf {
        leaf,
        path: path(None),
        entries: Some(entries),
        extents: &[Extent {
            leaf_offset: 512,
            file: DataFileId(0),
            offset: 4712,
            length,
        }],
        covered: 512..512 + length,
        covered_checksum: 0,
        totals: Totals {
            time_span: Some((5, 6)),
            ..Totals::default()
        },
        numbers: LeafNumbers {
            first: 0,
            last,
            first_position: StreamPosition::new(7, 0),
            last_position: StreamPosition::new(7, last),
        },
    });
}

/// A part with one leaf of two packets.
fn part(entries: [PacketEntry; 2]) -> Vec<u8> {
    let mut builder = builder();
    add_leaf(&mut builder, LeafId(5), entries);
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

/// A part with this leaf of two packets, and leaf 9 with the same ones: its footer and trailer.
fn footer_of_two_leaves() -> (Vec<u8>, Trailer) {
    let mut builder = builder();
    for leaf in [LeafId(5), LeafId(9)] {
        add_leaf(&mut builder, leaf, [entry(0), entry(1)]);
    }
    footer(&builder.finish(Vec::new(), None).0)
}

fn footer(part: &[u8]) -> (Vec<u8>, Trailer) {
    let trailer = Trailer::decode(part, u64_of(part.len()), storage()).unwrap();
    let start = usize::try_from(trailer.footer_offset).unwrap();
    (part[start..part.len() - TRAILER_BYTES].to_vec(), trailer)
}

/// Decodes a footer that was changed, with its checksum.
fn decoded(footer: &[u8], trailer: Trailer) -> Result<Footer, storage_format::FormatError> {
    let trailer = Trailer {
        footer_checksum: crc32c(footer),
        footer_length: u32::try_from(footer.len()).unwrap(),
        ..trailer
    };
    Footer::decode(footer, &trailer)
}

#[test]
fn a_leaf_of_a_footer_is_in_order() {
    let (footer, trailer) = footer(&part([entry(0), entry(1)]));
    // The record ends with time span (17), numbers (48) and number of extents (4).
    let end = footer.len() - 4;
    let (numbers, span) = (end - 48, end - 48 - 16);
    for (at, value, expected) in [
        (numbers, 0_u64, None),
        (numbers, 1, None),
        (numbers, 2, Some("packet numbers")),
        (numbers + 24, 1, None),
        (numbers + 24, 2, Some("packet numbers")),
        (span, 6, None),
        (span, 7, Some("time span")),
    ] {
        let mut footer = footer.clone();
        footer[at..][..8].copy_from_slice(&value.to_le_bytes());
        assert_eq!(field(decoded(&footer, trailer)), expected, "{at} {value}");
    }
}

/// Where the record of a leaf begins in a footer.
fn record_of(footer: &[u8], leaf: u64) -> usize {
    let id = leaf.to_le_bytes();
    footer.windows(8).position(|bytes| bytes == id).unwrap()
}

#[test]
fn packets_have_bytes_in_their_leaf() {
    let (footer, trailer) = footer(&part([entry(0), entry(1)]));
    // Before the range of bytes: id (8), types (4), agent and stream (1 each), bucket (16), block
    // offset (8), number of packets (4), checksum (4).
    let record = record_of(&footer, 5);
    let (packets, covered_end) = (record + 38, record + 46 + 8);
    for (count, end, expected) in [
        (2_u32, 813_u64, None),
        (2, 512, Some("block range")),
        (2, 511, Some("block range")),
        (0, 512, None),
        (0, 511, Some("block range")),
    ] {
        let mut footer = footer.clone();
        footer[packets..][..4].copy_from_slice(&count.to_le_bytes());
        footer[covered_end..][..8].copy_from_slice(&end.to_le_bytes());
        assert_eq!(
            field(decoded(&footer, trailer)),
            expected,
            "{count} packets in the bytes 512 to {end}"
        );
    }
}

/// A leaf is searched by its id, so one at a wrong place would not be found.
#[test]
fn leaves_of_a_footer_are_sorted() {
    let (footer, trailer) = footer_of_two_leaves();
    let found = decoded(&footer, trailer).unwrap();
    for leaf in [5, 9] {
        assert_eq!(
            found.leaf(LeafId(leaf)).map(|entry| entry.leaf.0),
            Some(leaf)
        );
    }
    assert_eq!(found.leaf(LeafId(7)), None);
    assert_eq!(found.leaves[0].path, path(None), "a leaf without a bucket");
    let second = record_of(&footer, 9);
    let first = record_of(&footer, 5);
    let swapped = [&footer[..first], &footer[second..], &footer[first..second]].concat();
    let twice = [&footer[..second], &footer[first..second]].concat();
    let longer = [&footer[..], &[0]].concat();
    for (name, wrong) in [("swapped", swapped), ("twice", twice), ("longer", longer)] {
        assert_eq!(field(decoded(&wrong, trailer)), Some("leaves"), "{name}");
    }
}

/// Parts are merged, and a footer has two records of one leaf, only where one ends and the next
/// begins.
#[test]
fn records_of_a_leaf_follow_each_other() {
    let (footer, trailer) = footer(&part([entry(0), entry(1)]));
    let first = decoded(&footer, trailer).unwrap().leaves[0].clone();
    let mut next = first.clone();
    next.covered = first.covered.end..first.covered.end + 100;
    next.numbers = LeafNumbers {
        first: 2,
        last: 2,
        first_position: StreamPosition::new(7, 2),
        last_position: StreamPosition::new(7, 2),
    };
    assert!(first.is_followed_by(&next));
    let changes: [fn(&mut LeafEntry); 6] = [
        |next| next.leaf = LeafId(6),
        |next| next.path.kind = Kind::Ctf,
        |next| next.covered.start -= 1,
        |next| next.covered.start += 1,
        |next| next.numbers.first = 1,
        |next| next.numbers.first_position = StreamPosition::new(7, 1),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut wrong = next.clone();
        change(&mut wrong);
        assert!(!first.is_followed_by(&wrong), "change {at}");
    }
}

#[test]
fn a_trailer_points_at_the_footer_before_it() {
    let most = u64::from(INDEX_FOOTER_BYTES_MAX);
    for (start, offset, length, is_right) in [
        (1000_u64, 64_u64, 936_u64, true),
        (1000, 999, 1, true),
        (1000, 63, 937, false),
        (1000, 64, 935, false),
        (1000, 65, 936, false),
        (1000, u64::MAX, 1001, false),
        (64 + most, 64, most, true),
        (65 + most, 64, most + 1, false),
    ] {
        let trailer = Trailer {
            footer_offset: offset,
            footer_length: u32::try_from(length).unwrap(),
            footer_checksum: 0,
            leaf_count: 0,
            version: 2,
        };
        let whole = part([entry(0), entry(1)]);
        let mut bytes = whole[whole.len() - TRAILER_BYTES..].to_vec();
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&trailer.footer_length.to_le_bytes());
        bytes[12..20].fill(0);
        let sum = crc32c_append(crc32c(&bytes[..20]), storage().as_bytes());
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        let read = Trailer::decode(&bytes, start + u64_of(TRAILER_BYTES), storage());
        if is_right {
            assert_eq!(read, Ok(trailer));
        } else {
            assert_eq!(field(read), Some("footer range"), "{offset}, {length}");
        }
    }
}

/// Entries refer to time bases by 16 bits; a part with all of them is read back.
#[test]
fn a_part_has_as_many_time_bases_as_entries_can_refer_to() {
    let count = u32::from(u16::MAX);
    let entries: Vec<_> = (0..count)
        .map(|at| PacketEntry {
            facts: Facts {
                time_span: Some((5, 6)),
                time_basis: Some(at + 1000),
                ..Facts::default()
            },
            ..entry(u64::from(at))
        })
        .collect();
    let mut builder = builder();
    add_leaf(&mut builder, LeafId(5), &entries);
    let (bytes, _, _) = builder.finish(Vec::new(), None);
    let (footer, trailer) = footer(&bytes);
    let footer = decoded(&footer, trailer).unwrap();
    let bases = footer.time_bases(&bytes).unwrap();
    let block = footer.leaves[0].entries_in(&bytes[64..]);
    let block = ArrayBlock::new(block, &bases).unwrap();
    for at in [0, 1, entries.len() - 1] {
        assert_eq!(block.get(at), Ok(entries[at]));
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
