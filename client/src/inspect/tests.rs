use std::collections::BTreeMap;

use storage_format::checksum::crc32c;
use storage_format::index_part::{
    DataFileEntry, Extent, IndexPartBuilder, LeafNumbers, LogPosition, NewLeaf, PacketEntry,
};
use storage_format::storage_file::Totals;
use storage_format::{Codec, DataFileId, Kind, LeafId, LeafType, StorageId, StreamPosition};

use super::*;

mod derived;
mod log;

const STORAGE: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn storage() -> StorageId {
    STORAGE.parse().unwrap()
}

fn path() -> LeafPath {
    LeafPath {
        agent: "host".parse().unwrap(),
        kind: Kind::Raw,
        stream: "s".parse().unwrap(),
        bucket: None,
    }
}

fn leaf_header_of(leaf: LeafId) -> DataFileHeader {
    DataFileHeader {
        storage: storage(),
        leaf,
        leaf_type: LeafType::Array,
        path: path(),
        created: 5,
    }
}

/// The header of the frame of `payload`, and the padding after it.
fn frame_of(payload: &[u8], number: u64, leaf: LeafId, offset: u64) -> (Vec<u8>, Vec<u8>) {
    let header = FrameHeader {
        codec: Codec::None,
        stored_size: payload.len() as u32,
        raw_size: payload.len() as u32,
        number,
        position: StreamPosition::new(7, number),
        arrival: 9,
        facts: Facts::default(),
        stored_checksum: crc32c(payload),
        raw_checksum: crc32c(payload),
    };
    let bytes = header.encode(FrameLocation {
        storage: storage(),
        leaf,
        offset,
    });
    let padding = header.frame_bytes() as usize - bytes.len() - payload.len();
    (bytes.to_vec(), vec![0; padding])
}

fn data_file(payloads: &[&[u8]]) -> Vec<u8> {
    let leaf = LeafId(0xbb);
    let mut bytes = leaf_header_of(leaf).encode().to_vec();
    for (payload, number) in payloads.iter().zip(0..) {
        let (header, padding) = frame_of(payload, number, leaf, bytes.len() as u64);
        bytes.extend([&header, *payload, &padding].concat());
    }
    bytes
}

/// The document of a file with these bytes, and whether it is intact.
fn show(bytes: &[u8]) -> Result<(Value, bool), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut out = Vec::new();
    let is_whole = inspect(file.path(), &mut out).map_err(|error| error.to_string())?;
    Ok((serde_json::from_slice(&out).unwrap(), is_whole))
}

#[test]
fn a_data_file_shows_its_frames() {
    let bytes = data_file(&[b"one", b"number two"]);
    let end = bytes.len();
    for tail in [0, 4096] {
        let (shown, is_whole) = show(&[&bytes[..], &vec![0; tail]].concat()).unwrap();
        assert!(is_whole);
        assert_eq!(shown["header"]["path"]["agent"], "host");
        assert_eq!(shown["frames"][1]["stored_size"], 10);
        assert_eq!(
            shown["frames"][1]["raw_checksum"],
            hex(crc32c(b"number two"))
        );
        assert_eq!(shown["frames"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&shown["frames_end"], &shown["length"]),
            (&json!(end), &json!(end + tail))
        );
    }
}

/// Flips a bit at `at`, or truncates the file there.
fn check_damage(at: usize, ends: bool, frames: usize, reason: &str) {
    let mut bytes = data_file(&[b"one", b"number two"]);
    if ends {
        bytes.truncate(at)
    } else {
        bytes[at] ^= 1
    }
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(!is_whole);
    assert_eq!(shown["frames"].as_array().unwrap().len(), frames);
    let damage = shown["damage"].as_str().unwrap();
    assert!(damage.contains(reason), "{damage}");
}

#[test]
fn damage_in_a_data_file_is_located() {
    let second = data_file(&[b"one"]).len();
    check_damage(512 + 20, false, 0, "frame header at byte 596");
    check_damage(512 + 88, false, 2, "frame payload at byte 600");
    check_damage(second + 30, true, 1, "88 bytes are needed, 30 are there");
    check_damage(second + 92, true, 1, "10 bytes are needed, 4 are there");
}

#[test]
fn an_index_part_shows_its_leaves_and_packets() {
    let mut builder = IndexPartBuilder::new(IndexPartHeader {
        storage: storage(),
        ordinal: 3,
        first_ordinal: 2,
        created: 5,
    });
    let entry = PacketEntry {
        number: 11,
        offset: 600,
        stored_size: 3,
        raw_size: 3,
        position: StreamPosition::new(7, 0),
        facts: Facts {
            time_span: Some((1, 2)),
            events: Some(4),
            lost: None,
            time_basis: Some(9),
            has_unreadable: true,
        },
        raw_checksum: 1,
        codec: Codec::Zstd,
    };
    let extents = [(512, 0, 4712, 40), (552, 2, 9000, 56)];
    let extents = extents.map(|(leaf_offset, file, offset, length)| Extent {
        leaf_offset,
        file: DataFileId(file),
        offset,
        length,
    });
    builder.add_leaf(NewLeaf {
        leaf: LeafId(0xbb),
        path: path(),
        entries: Some(&[entry]),
        extents: &extents,
        covered: 512..608,
        covered_checksum: 0,
        totals: Totals::default(),
        numbers: LeafNumbers {
            first: 11,
            last: 11,
            first_position: StreamPosition::new(7, 0),
            last_position: StreamPosition::new(7, 0),
        },
    });
    let file = DataFileEntry {
        file: DataFileId(2),
        length: 12_288,
        checksum: 0xabc,
    };
    let position = LogPosition {
        file: DataFileId(2),
        offset: 12_288,
        batch: 9,
        chain: 0x1234,
    };
    let (bytes, footer, _) = builder.finish(vec![file], Some(position));
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(is_whole);
    assert_eq!(shown["header"]["ordinal"], 3);
    let leaf = &shown["leaves"][0];
    assert_eq!(leaf["leaf"], "00000000000000bb");
    assert_eq!(leaf["packets"][0]["number"], 11);
    let facts = &leaf["packets"][0]["facts"];
    assert_eq!(facts["time_span"], json!([1, 2]));
    assert_eq!(facts["has_unreadable"], true);
    assert_eq!(leaf["packets"][0]["facts"]["time_basis"], 9);
    let second = json!({
        "leaf_offset": 552, "file": "0000000000000002", "offset": 9000, "length": 56,
    });
    assert_eq!(leaf["extents"][1], second);
    assert_eq!(leaf["extents"].as_array().unwrap().len(), 2);
    let file = json!({ "file": "0000000000000002", "length": 12_288, "checksum": "00000abc" });
    assert_eq!(shown["files"], json!([file]));
    let position = json!({
        "file": "0000000000000002", "offset": 12_288, "batch": 9, "chain": "00001234",
    });
    assert_eq!(shown["position"], position);

    let mut damaged = bytes.clone();
    damaged[footer.leaves[0].block_offset as usize] ^= 1;
    let (shown, is_whole) = show(&damaged).unwrap();
    assert!(!is_whole && shown["leaves"][0]["damage"].is_string());
    let mut damaged = bytes;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(show(&damaged).unwrap_err().contains("index part trailer"));
}

#[test]
fn an_index_part_of_version_1_has_no_extents() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../storage-format/golden/v1/part.index"
    );
    let (shown, is_whole) = show(&std::fs::read(path).unwrap()).unwrap();
    assert!(is_whole);
    assert_eq!(shown["leaves"].as_array().unwrap().len(), 2);
    for name in ["files", "position"] {
        assert!(shown.get(name).is_none(), "{name}");
    }
    assert!(shown["leaves"][1].get("extents").is_none());
    assert_eq!(shown["leaves"][1]["packets"].as_array().unwrap().len(), 3);
}

#[test]
fn small_files_are_printed() {
    let agent = AgentFile {
        id: "host".parse().unwrap(),
        name: "n".to_owned(),
        host: "h".to_owned(),
        attributes: BTreeMap::new(),
        streams: Vec::new(),
        metadata: Some(b"/* CTF 1.8 */".to_vec()),
    };
    let bytes = agent.encode().unwrap();
    let (shown, _) = show(&bytes).unwrap();
    assert_eq!(
        shown["agent"]["metadata"],
        json!({ "bytes": 13, "text": "/* CTF 1.8 */" })
    );
    assert!(
        show(&bytes[..bytes.len() - 1])
            .unwrap_err()
            .contains("agent file")
    );
    let local = LocalFile {
        storage: storage(),
        origin: "http://h/storage/x".to_owned(),
        fetched: 1,
        complete: vec!["a.agent".to_owned()],
    };
    let (shown, _) = show(&local.encode().unwrap()).unwrap();
    assert_eq!(shown["local"]["complete"], json!(["a.agent"]));
    let checksums = ChecksumFile {
        storage: storage(),
        files: vec![FileChecksums {
            file: DataFileId(3),
            length: 9,
            pieces: vec![0xab],
        }],
    };
    let (shown, _) = show(&checksums.encode()).unwrap();
    assert_eq!(
        shown["files"],
        json!([{ "file": "0000000000000003", "length": 9, "pieces": ["000000ab"] }])
    );
    for foreign in [&b""[..], b"\x1f\x8b", &[0; 1000]] {
        assert!(
            show(foreign)
                .unwrap_err()
                .contains("not a file of Tracehold")
        );
    }
}
