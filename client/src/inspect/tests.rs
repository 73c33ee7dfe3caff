use std::collections::BTreeMap;

use storage_format::index_part::{Extent, IndexPartBuilder, LeafNumbers, NewLeaf};
use storage_format::storage_file::Totals;
use storage_format::{Codec, DataFileId, Kind, LeafId, LeafType, StorageId, StreamPosition};

use super::*;

mod derived;

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

fn data_file(payloads: &[&[u8]]) -> Vec<u8> {
    let leaf = LeafId(0xbb);
    let header = DataFileHeader {
        storage: storage(),
        leaf,
        leaf_type: LeafType::Array,
        path: path(),
        created: 5,
    };
    let mut bytes = header.encode().to_vec();
    for (payload, number) in payloads.iter().zip(0..) {
        let frame = FrameHeader {
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
        let place = FrameLocation {
            storage: storage(),
            leaf,
            offset: bytes.len() as u64,
        };
        let end = bytes.len() + frame.frame_bytes() as usize;
        bytes.extend(frame.encode(place));
        bytes.extend_from_slice(payload);
        bytes.resize(end, 0);
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
        },
        raw_checksum: 1,
        codec: Codec::Zstd,
    };
    builder.add_leaf(NewLeaf {
        leaf: LeafId(0xbb),
        path: path(),
        entries: Some(&[entry]),
        extents: &[Extent {
            leaf_offset: 512,
            file: DataFileId(0),
            offset: 4712,
            length: 96,
        }],
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
    let (bytes, footer, _) = builder.finish(Vec::new(), None);
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(is_whole);
    assert_eq!(shown["header"]["ordinal"], 3);
    let leaf = &shown["leaves"][0];
    assert_eq!(leaf["leaf"], "00000000000000bb");
    assert_eq!(leaf["packets"][0]["number"], 11);
    assert_eq!(leaf["packets"][0]["facts"]["time_span"], json!([1, 2]));
    assert_eq!(leaf["packets"][0]["facts"]["time_basis"], 9);

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
    for foreign in [&b""[..], b"\x1f\x8b", &[0; 1000]] {
        assert!(
            show(foreign)
                .unwrap_err()
                .contains("not a file of Tracehold")
        );
    }
}
