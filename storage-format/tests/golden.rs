//! The bytes of every layout, preserved for ever under `golden/vN/`.
//!
//! A missing file is written by this test, once. What is there must be produced again bit for bit
//! and read back; versions that are no longer written are only read back.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::Path};

use storage_format::{
    Codec, DataFileId, FORMAT_VERSION, Kind, LeafId, LeafType, StorageId, StreamPosition,
    agent_file::{AgentFile, StreamSpec},
    batch::RecordHeader,
    checksum::crc32c,
    checksum_file::{ChecksumFile, FileChecksums},
    data_file::{self, Bucket, DataFileHeader, LeafPath},
    frame::{Facts, FrameHeader, FrameLocation},
    index_part::{
        ArrayBlock, DataFileEntry, Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafNumbers,
        LogPosition, NewLeaf, PacketEntry, TRAILER_BYTES, Trailer,
    },
    label_file::{LabelFile, LabelType, ValueType},
    local_file::LocalFile,
    paths::FileRole,
    repair_file::{Missing, Repair, RepairFile},
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
        has_unreadable: false,
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

/// As [`frame_header`], of a packet whose times depend on more than its bytes.
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

fn few_entries() -> [PacketEntry; 3] {
    [entry(0), entry(2), entry(5)]
}

/// Entries of packets with different time bases, and of one without.
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

/// Where the bytes of both leaves are: in two files.
fn extents() -> [Extent; 2] {
    [
        Extent {
            leaf_offset: 512,
            file: DataFileId(0),
            offset: 4712,
            length: 488,
        },
        Extent {
            leaf_offset: 1000,
            file: DataFileId(3),
            offset: 70_000,
            length: 3096,
        },
    ]
}

fn data_files() -> Vec<DataFileEntry> {
    [(0, 8192), (3, 81_920), (0x0123_4567_89ab_cdef, 640)]
        .map(|(file, length)| DataFileEntry {
            file: DataFileId(file),
            length,
            checksum: 0x0506_0708,
        })
        .to_vec()
}

fn log_position() -> LogPosition {
    LogPosition {
        file: DataFileId(3),
        offset: 81_920,
        batch: 17,
        chain: 0x090a_0b0c,
    }
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
        first_ordinal: 1,
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
            extents: &extents(),
            covered: 512..4096,
            covered_checksum: 0x0102_0304,
            totals,
            numbers,
        });
    }
    builder.finish(data_files(), Some(log_position())).0
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

/// The golden bytes of `name` in `version`.
fn golden(version: u16, name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{version}"));
    folder.join(name)
}

/// Checks a layout of which `version` is written.
fn check<T: PartialEq + std::fmt::Debug>(
    version: u16,
    name: &str,
    value: &T,
    current: &[u8],
    decode: impl Fn(&[u8]) -> T,
) {
    let path = golden(version, name);
    if !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, current).unwrap();
    }
    let stored = std::fs::read(path).unwrap();
    assert_eq!(
        stored, current,
        "the bytes of {name} never change within a version"
    );
    assert_eq!(decode(&stored), *value, "{name} is read back as it was");
}

#[test]
fn data_files_keep_their_bytes() {
    check_data_file("data.itdata", frame_header());
    check_data_file("based.itdata", based_frame_header());
}

fn check_data_file(name: &str, frame: FrameHeader) {
    let value = (data_header(), frame);
    check(FORMAT_VERSION, name, &value, &data_file(&frame), |bytes| {
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
    let (few, based) = (few_entries(), based_entries());
    for (name, entries) in [("part.index", &few[..]), ("based.index", &based[..])] {
        check(2, name, &entries.to_vec(), &index_part(entries), |bytes| {
            let (footer, entries) = read_index_part(bytes, extents().to_vec());
            assert_eq!(footer.files, data_files());
            assert_eq!(footer.position, Some(log_position()));
            entries
        });
    }
}

#[test]
fn index_parts_of_version_1_are_read() {
    let (few, based) = (few_entries(), based_entries());
    for (name, entries) in [("part.index", &few[..]), ("based.index", &based[..])] {
        let bytes = std::fs::read(golden(1, name)).unwrap();
        // The bytes of a leaf are the data file with its id.
        let in_leaf_file = Extent {
            leaf_offset: 512,
            file: DataFileId(9),
            offset: 512,
            length: 4096 - 512,
        };
        let (footer, read) = read_index_part(&bytes, vec![in_leaf_file]);
        assert_eq!((footer.files, footer.position), (Vec::new(), None));
        assert_eq!(read, entries);
    }
}

/// Reads a part with [`leaf_path`] as leaf 9 and a plain leaf 4: the footer and the packets.
fn read_index_part(bytes: &[u8], extents: Vec<Extent>) -> (Footer, Vec<PacketEntry>) {
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
    assert_eq!(leaf.extents_in(block), Ok(extents));
    let bases = footer.time_bases(bytes).unwrap();
    let block = ArrayBlock::new(leaf.entries_in(block), &bases).unwrap();
    assert_eq!(block.find_number(5), Some(block.len() - 1));
    assert_eq!(block.find_number(4), None);
    assert_eq!(block.find_position(StreamPosition::new(7, 2)), Some(1));
    assert_eq!(block.first_at_or_after_number(3), 2);
    let entries: Vec<_> = (0..block.len()).map(|at| block.get(at).unwrap()).collect();
    assert_eq!(block.facts(2), entries[2].facts);
    (footer, entries)
}

/// Servers of earlier versions would remove the arranged files of an open storage.
#[test]
fn a_storage_file_that_earlier_servers_must_refuse_has_another_version() {
    let version = |state, files| {
        let file = StorageFile {
            state,
            files,
            ..storage_file()
        };
        let bytes = file.encode().unwrap();
        assert_eq!(StorageFile::decode(&bytes), Ok(file));
        u16::from_le_bytes([bytes[8], bytes[9]])
    };
    let data = storage_file().files;
    assert_eq!(version(StorageState::Finalized, data.clone()), 1);
    assert_eq!(version(StorageState::Open, Vec::new()), 1);
    for state in [
        StorageState::Open,
        StorageState::Finalizing,
        StorageState::Failed,
    ] {
        assert_eq!(version(state, data.clone()), 3);
    }
    // Only a repair file, or both.
    let repairs = FileEntry {
        role: FileRole::Repairs,
        ..data[0].clone()
    };
    let both = [data, vec![repairs.clone()]].concat();
    for state in [StorageState::Open, StorageState::Finalized] {
        assert_eq!(version(state, vec![repairs.clone()]), 3);
        assert_eq!(version(state, both.clone()), 3);
    }
}

#[test]
fn enveloped_files_keep_their_bytes() {
    let value = storage_file();
    check(
        FORMAT_VERSION,
        "file.storage",
        &value,
        &value.encode().unwrap(),
        |bytes| StorageFile::decode(bytes).unwrap(),
    );
    // The version that is written once checksums are listed.
    let mut value = storage_file();
    value.files.push(FileEntry {
        name: format!("{}.checksums", storage()),
        role: FileRole::Checksums,
        length: 128,
        checksum: 6,
    });
    check(
        2,
        "file.storage",
        &value,
        &value.encode().unwrap(),
        |bytes| StorageFile::decode(bytes).unwrap(),
    );
    // The version that is written once a repair file is listed.
    value.files.push(FileEntry {
        name: format!("{}.repairs", storage()),
        role: FileRole::Repairs,
        length: 70,
        checksum: 7,
    });
    check(
        3,
        "file.storage",
        &value,
        &value.encode().unwrap(),
        |bytes| StorageFile::decode(bytes).unwrap(),
    );
    // The version that is written once a seal is listed.
    value.files.push(FileEntry {
        name: format!("{}.seal", storage()),
        role: FileRole::Seal,
        length: 400,
        checksum: 8,
    });
    check(
        4,
        "file.storage",
        &value,
        &value.encode().unwrap(),
        |bytes| StorageFile::decode(bytes).unwrap(),
    );
    let value = agent_file();
    check(
        FORMAT_VERSION,
        "file.agent",
        &value,
        &value.encode().unwrap(),
        |bytes| AgentFile::decode(bytes).unwrap(),
    );
    let value = local_file();
    check(
        FORMAT_VERSION,
        "file.local",
        &value,
        &value.encode().unwrap(),
        |bytes| LocalFile::decode(bytes).unwrap(),
    );
    let value = label_file();
    check(
        FORMAT_VERSION,
        "labels.types",
        &value,
        &value.encode().unwrap(),
        |bytes| LabelFile::decode(bytes).unwrap(),
    );
}

#[test]
fn repair_files_keep_their_bytes() {
    let missing = |first, last, leaf| Missing {
        first,
        last,
        file: 3,
        offset: 0x2000,
        length: 4096,
        leaf,
    };
    let repair = |cut, copied_packets, missing| Repair {
        time: 1_700_000_000_123_456_789,
        cut,
        batch: 17,
        next_file: 9,
        copied_packets,
        next_number: 0x0123_4567_89ab_cdef,
        missing,
    };
    let value = RepairFile {
        storage: storage(),
        repairs: vec![
            repair(None, 0, Vec::new()),
            repair(
                Some((3, 0x2000)),
                250,
                vec![missing(40, 42, Some(u64::MAX)), missing(99, 99, None)],
            ),
        ],
    };
    check(
        FORMAT_VERSION,
        "file.repairs",
        &value,
        &value.encode().unwrap(),
        |bytes| RepairFile::decode(bytes).unwrap(),
    );
}

#[test]
fn checksum_files_keep_their_bytes() {
    let file = |file, length, pieces: &[u32]| FileChecksums {
        file: DataFileId(file),
        length,
        pieces: pieces.to_vec(),
    };
    let value = ChecksumFile {
        storage: storage(),
        files: vec![
            file(0, (4 << 20) + 1, &[0xdead_beef, 7]),
            file(2, 0, &[]),
            file(0x0123_4567_89ab_cdef, 8 << 20, &[1, u32::MAX]),
        ],
    };
    check(
        FORMAT_VERSION,
        "file.checksums",
        &value,
        &value.encode(),
        |bytes| ChecksumFile::decode(bytes).unwrap(),
    );
    assert_eq!(value.of(DataFileId(2)), Some(&value.files[1]));
    assert_eq!(value.of(DataFileId(3)), None);
    assert_eq!(value.check_id(storage()), Ok(()));
    assert!(value.check_id(StorageId::from_bytes([7; 16])).is_err());
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
        FORMAT_VERSION,
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
            has_unreadable: false,
        },
        payload: PAYLOAD,
    };
    let bytes = [&block.header(), PAYLOAD].concat();
    check(
        FORMAT_VERSION,
        "segment.ring",
        &(9, block.facts),
        &bytes,
        |bytes| {
            let (block, rest) = RingBlock::split(bytes).unwrap();
            assert_eq!((block.payload, rest), (PAYLOAD, &[][..]));
            (block.sequence, block.facts)
        },
    );
}
