//! The bytes of every layout, kept for ever under `golden/vN/`.
//!
//! What is missing there is written by this test, once, for the current version; what is there
//! must be produced again bit for bit and read back as it was.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::Path};

use storage_format::{
    Codec, FORMAT_VERSION, Kind, LeafId, LeafType, StorageId, StreamPosition,
    agent_file::{AgentFile, StreamSpec},
    batch::RecordHeader,
    checksum::crc32c,
    data_file::{self, Bucket, DataFileHeader, LeafPath},
    frame::{Facts, FrameHeader, FrameLocation},
    index_part::{
        ArrayBlock, Footer, IndexPartBuilder, IndexPartHeader, LeafNumbers, NewLeaf, PacketEntry,
        TRAILER_BYTES, Trailer,
    },
    label_file::{LabelFile, LabelType, ValueType},
    local_file::LocalFile,
    paths::FileRole,
    ring_block::RingBlock,
    storage_file::{FileEntry, StorageFile, StorageState, Totals},
};

const PAYLOAD: &[u8] = b"{\"name\":\"read\",\"ts\":1,\"dur\":2}\n";

fn storage() -> StorageId {
    "0193a2f0-7c1e-7b3a-9d2e-0123456789ab".parse().unwrap()
}

fn leaf_path() -> LeafPath {
    LeafPath {
        agent: "node-17".parse().unwrap(),
        kind: Kind::Dft,
        stream: "rank_0.pfw".parse().unwrap(),
        bucket: Some(Bucket {
            begin: 1_700_000_000_000_000_000,
            length: 3_600_000_000_000,
        }),
    }
}

fn facts() -> Facts {
    Facts {
        time_span: Some((-5, 1_700_000_000_000_000_001)),
        events: Some(1),
        lost: None,
        time_basis: None,
    }
}

fn data_header() -> DataFileHeader {
    DataFileHeader {
        storage: storage(),
        leaf: LeafId(0x0123_4567_89ab_cdef),
        leaf_type: LeafType::Array,
        path: leaf_path(),
        created: 1_700_000_000_123_456_789,
    }
}

fn frame_header() -> FrameHeader {
    FrameHeader {
        codec: Codec::None,
        stored_size: PAYLOAD.len() as u32,
        raw_size: PAYLOAD.len() as u32,
        number: 41,
        position: StreamPosition::new(7, 3),
        arrival: 1_700_000_000_999_999_999,
        facts: facts(),
        stored_checksum: crc32c(PAYLOAD),
        raw_checksum: crc32c(PAYLOAD),
    }
}

fn frame_place() -> FrameLocation {
    let offset = data_file::HEADER_BYTES as u64;
    FrameLocation {
        storage: storage(),
        leaf: data_header().leaf,
        offset,
    }
}

/// As [`frame_header`], of a packet whose times rest on more than its bytes.
fn based_frame_header() -> FrameHeader {
    FrameHeader {
        facts: Facts {
            time_basis: Some(0x0bad_cafe),
            ..facts()
        },
        ..frame_header()
    }
}

fn data_file(frame: &FrameHeader) -> Vec<u8> {
    let mut bytes = data_header().encode().to_vec();
    bytes.extend(frame.encode(frame_place()));
    bytes.extend(PAYLOAD);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn entry(number: u64) -> PacketEntry {
    PacketEntry {
        number,
        offset: 600 + 128 * number,
        stored_size: 31,
        raw_size: 62,
        position: StreamPosition::new(7, number),
        facts: Facts {
            lost: Some(2),
            ..facts()
        },
        raw_checksum: 0xdead_beef,
        codec: Codec::Zstd,
    }
}

/// Entries of packets whose times rest on different things, and one of which that is not told.
fn based_entries() -> [PacketEntry; 4] {
    let based = |number, time_basis| PacketEntry {
        facts: Facts {
            time_basis,
            ..entry(number).facts
        },
        ..entry(number)
    };
    [
        based(0, Some(1_000)),
        based(2, Some(0)),
        based(3, None),
        based(5, Some(1_000)),
    ]
}

fn index_part(entries: &[PacketEntry]) -> Vec<u8> {
    let totals = Totals {
        packets: 3,
        raw_bytes: 186,
        stored_bytes: 93,
        events: 3,
        lost: 6,
        time_span: facts().time_span,
    };
    let numbers = LeafNumbers {
        first: 0,
        last: 5,
        first_position: StreamPosition::new(7, 0),
        last_position: StreamPosition::new(7, 5),
    };
    let header = IndexPartHeader {
        storage: storage(),
        ordinal: 1,
        created: 99,
    };
    let mut builder = IndexPartBuilder::new(header);
    let mut plain_path = leaf_path();
    plain_path.bucket = None;
    for (leaf, path, entries) in [
        (LeafId(9), leaf_path(), Some(entries)),
        (LeafId(4), plain_path, None),
    ] {
        builder.add_leaf(NewLeaf {
            leaf,
            path,
            entries,
            covered: 512..4096,
            covered_checksum: 0x0102_0304,
            totals,
            numbers,
        });
    }
    builder.finish().0
}

fn storage_file() -> StorageFile {
    StorageFile {
        id: storage(),
        name: "run 12".into(),
        description: "first line\nsecond line".into(),
        state: StorageState::Finalized,
        labels: BTreeMap::from([("status".into(), "good".into())]),
        created: 1,
        opened: Some(2),
        finalized: Some(3),
        server_version: "0.1.0".into(),
        idempotency_key: None,
        failure: None,
        totals: Totals {
            packets: 1,
            ..Totals::default()
        },
        files: vec![FileEntry {
            name: "0123456789abcdef.itdata".into(),
            role: FileRole::Data,
            length: 640,
            checksum: 5,
        }],
    }
}

fn agent_file() -> AgentFile {
    AgentFile {
        id: "node-17".parse().unwrap(),
        name: "Node 17".into(),
        host: "node-17.cluster".into(),
        attributes: BTreeMap::from([("arch".into(), "x86_64".into())]),
        streams: vec![StreamSpec {
            id: "rank_0.pfw".parse().unwrap(),
            kind: Kind::Dft,
            leaf_type: LeafType::Plain,
            codec: Codec::Zstd,
        }],
        metadata: Some(b"/* CTF 1.8 */".to_vec()),
    }
}

fn local_file() -> LocalFile {
    LocalFile {
        storage: storage(),
        origin: "http://127.0.0.1:7117/storage/0193a2f0-7c1e-7b3a-9d2e-0123456789ab".into(),
        fetched: 11,
        complete: vec!["node-17.agent".into()],
    }
}

fn batch() -> Vec<u8> {
    let mut bytes = RecordHeader::of(PAYLOAD, StreamPosition::new(7, 3))
        .encode()
        .to_vec();
    bytes.extend(PAYLOAD);
    bytes
}

/// The golden bytes of `name`; written first when they are missing.
fn golden(name: &str, current: &[u8]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{FORMAT_VERSION}"));
    let path = folder.join(name);
    if !path.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, current).unwrap();
    }
    std::fs::read(path).unwrap()
}

fn check<T: PartialEq + std::fmt::Debug>(
    name: &str,
    value: &T,
    current: &[u8],
    decode: impl Fn(&[u8]) -> T,
) {
    let kept = golden(name, current);
    assert_eq!(
        kept, current,
        "the bytes of {name} never change within a version"
    );
    assert_eq!(decode(&kept), *value, "{name} is read back as it was");
}

#[test]
fn data_files_keep_their_bytes() {
    check_data_file("data.itdata", frame_header());
    check_data_file("based.itdata", based_frame_header());
}

fn check_data_file(name: &str, frame: FrameHeader) {
    let value = (data_header(), frame);
    check(name, &value, &data_file(&frame), |bytes| {
        let header = DataFileHeader::decode(bytes).unwrap();
        let at = data_file::HEADER_BYTES;
        let frame = FrameHeader::decode(&bytes[at..], frame_place()).unwrap();
        let payload = at + storage_format::frame::HEADER_BYTES;
        let stored = &bytes[payload..payload + frame.stored_size as usize];
        frame.check_payload(stored, payload as u64).unwrap();
        assert_eq!(stored, PAYLOAD);
        assert_eq!(bytes.len() as u64, at as u64 + frame.frame_bytes());
        (header, frame)
    });
}

#[test]
fn index_parts_keep_their_bytes() {
    check_index_part("part.index", &[entry(0), entry(2), entry(5)]);
    check_index_part("based.index", &based_entries());
}

fn check_index_part(name: &str, entries: &[PacketEntry]) {
    check(name, &entries.to_vec(), &index_part(entries), |bytes| {
        let header = IndexPartHeader::decode(bytes).unwrap();
        assert_eq!(
            (header.storage, header.ordinal, header.created),
            (storage(), 1, 99)
        );
        let length = bytes.len() as u64;
        let trailer =
            Trailer::decode(&bytes[bytes.len() - TRAILER_BYTES..], length, storage()).unwrap();
        let at = trailer.footer_offset as usize;
        let footer = &bytes[at..at + trailer.footer_length as usize];
        let footer = Footer::decode(footer, &trailer).unwrap();
        let ids: Vec<_> = footer.leaves.iter().map(|leaf| leaf.leaf).collect();
        assert_eq!(ids, [LeafId(4), LeafId(9)], "leaves are sorted");
        assert_eq!(footer.leaf(LeafId(4)).unwrap().leaf_type, LeafType::Plain);
        let leaf = footer.leaf(LeafId(9)).unwrap();
        assert_eq!(leaf.path, leaf_path());
        let range = leaf.block_range();
        let block = &bytes[range.start as usize..range.end as usize];
        leaf.check_block(block).unwrap();
        let bases = footer.time_bases(bytes).unwrap();
        let block = ArrayBlock::new(block, &bases).unwrap();
        assert_eq!(block.find_number(5), Some(block.len() - 1));
        assert_eq!(block.find_number(4), None);
        assert_eq!(block.find_position(StreamPosition::new(7, 2)), Some(1));
        assert_eq!(block.first_at_or_after_number(3), 2);
        assert_eq!(block.facts(2), entries[2].facts);
        (0..block.len()).map(|at| block.get(at).unwrap()).collect()
    });
}

#[test]
fn enveloped_files_keep_their_bytes() {
    let value = storage_file();
    check("file.storage", &value, &value.encode().unwrap(), |bytes| {
        StorageFile::decode(bytes).unwrap()
    });
    let value = agent_file();
    check("file.agent", &value, &value.encode().unwrap(), |bytes| {
        AgentFile::decode(bytes).unwrap()
    });
    let value = local_file();
    check("file.local", &value, &value.encode().unwrap(), |bytes| {
        LocalFile::decode(bytes).unwrap()
    });
    let value = label_file();
    check("labels.types", &value, &value.encode().unwrap(), |bytes| {
        LabelFile::decode(bytes).unwrap()
    });
}

fn label_file() -> LabelFile {
    let label_type = |name: &str, value_type, several, values: &[&str]| LabelType {
        name: name.into(),
        value_type,
        several,
        values: values.iter().map(|&value| value.into()).collect(),
    };
    LabelFile {
        types: vec![
            label_type("approved", ValueType::Boolean, false, &[]),
            label_type("release", ValueType::String, true, &["1.0", "1.1"]),
            label_type("score", ValueType::Number, false, &["0.5"]),
            label_type("until", ValueType::Date, false, &[]),
            label_type("window", ValueType::TimeFrame, false, &[]),
        ],
    }
}

#[test]
fn batches_keep_their_bytes() {
    check(
        "push.batch",
        &RecordHeader::of(PAYLOAD, StreamPosition::new(7, 3)),
        &batch(),
        |bytes| {
            let header = RecordHeader::decode(bytes[..24].try_into().unwrap()).unwrap();
            header.check(&bytes[24..]).unwrap();
            header
        },
    );
}

#[test]
fn ring_blocks_keep_their_bytes() {
    let block = RingBlock {
        sequence: 9,
        facts: Facts {
            time_span: Some((5, 17)),
            events: Some(3),
            lost: None,
            time_basis: None,
        },
        payload: PAYLOAD,
    };
    let bytes = [&block.header(), PAYLOAD].concat();
    check("segment.ring", &(9, block.facts), &bytes, |bytes| {
        let (block, rest) = RingBlock::split(bytes).unwrap();
        assert_eq!((block.payload, rest), (PAYLOAD, &[][..]));
        (block.sequence, block.facts)
    });
}
