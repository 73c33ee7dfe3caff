use storage_format::checksum::crc32c_append;
use storage_format::log::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, PreviousFile, SegmentHeader,
};

use super::*;

const SALT: u64 = 0x0123_4567_89ab_cdef;
const FILE: DataFileId = DataFileId(4);
const LEAF: LeafId = LeafId(0xbb);
/// The leaf that an earlier file began, and where this one continues it.
const CONTINUED: (LeafId, u64) = (LeafId(0xcc), 4096);

fn file_header(is_arranged: bool) -> LogFileHeader {
    LogFileHeader {
        storage: storage(),
        file: FILE,
        is_arranged,
        replaces: None,
        salt: SALT,
        created: 5,
        first_batch: 10,
        previous: Some(PreviousFile {
            file: DataFileId(3),
            length: 8192,
        }),
        chain: 0xabc,
    }
}

/// Bytes of segments, the checksum of their headers, and where their leaves end.
struct Segments {
    bytes: Vec<u8>,
    checksum: u32,
    ends: BTreeMap<LeafId, u64>,
    number: u64,
}

impl Segments {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            checksum: 0,
            ends: BTreeMap::new(),
            number: 0,
        }
    }

    fn headers(&mut self, bytes: &[u8]) {
        self.checksum = crc32c_append(self.checksum, bytes);
        self.bytes.extend(bytes);
    }

    /// A segment with one packet; the first one of a leaf contains its header.
    fn add(&mut self, leaf: LeafId, payload: &[u8]) {
        let is_first = !self.ends.contains_key(&leaf);
        let repeats = is_first && leaf == CONTINUED.0;
        let start = if repeats { CONTINUED.1 } else { 0 };
        let start = self.ends.get(&leaf).copied().unwrap_or(start);
        let frame_start = if start == 0 { 512 } else { start };
        let (header, padding) = frame_of(payload, self.number, leaf, frame_start);
        let end = frame_start + (header.len() + payload.len() + padding.len()) as u64;
        let segment = SegmentHeader {
            leaf,
            repeats_leaf_header: repeats,
            leaf_offset: start,
            length: end - start,
        };
        self.headers(&segment.encode());
        if is_first {
            self.headers(&leaf_header_of(leaf).encode());
        }
        self.headers(&header);
        self.bytes.extend(payload);
        self.headers(&padding);
        self.ends.insert(leaf, end);
        self.number += 1;
    }
}

/// A file of `count` batches, each of one packet of both leaves.
fn log(count: u64) -> Vec<u8> {
    let mut bytes = file_header(false).encode();
    let mut segments = Segments::new();
    let mut chain = file_header(false).chain;
    for number in 10..10 + count {
        for leaf in [LEAF, CONTINUED.0] {
            segments.add(leaf, format!("packet of batch {number}").as_bytes());
        }
        let header = BatchHeader {
            segments: 2,
            salt: SALT,
            number,
            // The batch before the last one is in flight.
            durable_mark: number - 1,
            length: (BATCH_HEADER_BYTES + segments.bytes.len()) as u64,
            headers_checksum: segments.checksum,
            chain,
        };
        let head = header.encode(BatchLocation {
            storage: storage(),
            file: FILE,
            offset: bytes.len() as u64,
        });
        chain = BatchHeader::checksum_of(&head);
        bytes.extend([&head[..], &segments.bytes].concat());
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        segments.bytes.clear();
        segments.checksum = 0;
    }
    bytes
}

#[test]
fn a_log_file_shows_its_batches() {
    for (count, tail) in [(0, 0), (1, 0), (3, 0), (3, 4096), (3, 65_536)] {
        let bytes = log(count);
        let end = bytes.len();
        let (shown, is_whole) = show(&[&bytes[..], &vec![0; tail]].concat()).unwrap();
        assert!(is_whole, "{shown}");
        assert_eq!(shown["role"], "data");
        let header = json!({
            "version": 2, "storage": STORAGE, "file": "0000000000000004", "is_arranged": false,
            "salt": "0123456789abcdef", "created": 5, "first_batch": 10,
            "previous": { "file": "0000000000000003", "length": 8192 }, "chain": "00000abc",
        });
        assert_eq!(shown["header"], header);
        assert_eq!(shown["batches"].as_array().unwrap().len(), count as usize);
        assert_eq!(shown["batches_end"], end);
        assert_eq!(shown["length"], end + tail);
        assert!(shown.get("damage").is_none() && shown.get("damage_was_durable").is_none());
    }
}

#[test]
fn a_batch_shows_its_segments_and_frames() {
    let (shown, _) = show(&log(2)).unwrap();
    let [first, second] = [0, 1].map(|at| shown["batches"][at].clone());
    assert_eq!(
        (&first["number"], &first["durable_mark"], &first["offset"]),
        (&json!(10), &json!(9), &json!(4096))
    );
    assert_eq!(first["chain"], "00000abc");
    assert_ne!(second["chain"], first["chain"]);
    let [new, continued] = [0, 1].map(|at| first["segments"][at].clone());
    assert_eq!(
        (&new["leaf"], &new["leaf_offset"]),
        (&json!("00000000000000bb"), &json!(0))
    );
    assert_eq!(new["leaf_header"]["path"]["agent"], "host");
    // After the headers of the batch and of the segment.
    assert_eq!(new["offset"], 4096 + 64 + 40);
    assert_eq!(new["frames"][0]["leaf_offset"], 512);
    assert_eq!(new["frames"][0]["offset"], 4096 + 64 + 40 + 512);
    assert_eq!(continued["leaf_offset"], 4096);
    assert_eq!(continued["leaf_header"]["leaf"], "00000000000000cc");
    assert_eq!(continued["frames"][0]["leaf_offset"], 4096);
    assert_eq!(continued["frames"][0]["number"], 1);
    for segment in second["segments"].as_array().unwrap() {
        assert_eq!(segment["leaf_header"], Value::Null);
        assert_eq!(segment["frames"].as_array().unwrap().len(), 1);
    }
}

/// Offset of batch `index` in [`log`].
fn start(index: u64) -> usize {
    log(index).len()
}

/// Changes a byte of a file of four batches; the document must show these batches, and the damage.
fn check(at: usize, batches: &[u64], reason: &str, was_durable: bool) {
    let mut bytes = log(4);
    bytes[at] ^= 1;
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(!is_whole);
    let found = shown["batches"].as_array().unwrap();
    let found: Vec<_> = found.iter().map(|batch| batch["number"].clone()).collect();
    assert_eq!(json!(found), json!(batches), "byte {at}");
    let damage = shown["damage"].as_str().unwrap();
    assert!(damage.contains(reason), "{damage}");
    assert_eq!(shown["damage_was_durable"], was_durable, "{damage}");
}

#[test]
fn damage_in_a_log_is_located() {
    let all = &[10, 11, 12, 13];
    let first = start(0);
    // The mark of the last batch proves that batch 11 was durable, but says nothing of batch 12.
    for (index, was_durable) in [(0, true), (1, true), (2, false), (3, false)] {
        let lost = 10 + index;
        let left: Vec<u64> = (10..14).filter(|&number| number != lost).collect();
        let at = start(index);
        let reason = format!("batch header at byte {at}: the magic number");
        check(at, &left, &reason, was_durable);
        let reason = format!("batch header at byte {}", at + 60);
        check(at + 20, &left, &reason, was_durable);
        let reason = format!("segment header at byte {}", at + 64 + 36);
        check(at + 64 + 20, all, &reason, was_durable);
    }
    let frame = first + 64 + 40 + 512;
    check(
        first + 64 + 40 + 20,
        all,
        "data file header at byte 4708",
        true,
    );
    check(
        frame + 16,
        all,
        &format!("frame header at byte {}", frame + 84),
        true,
    );
    check(
        frame + 88,
        all,
        &format!("frame payload at byte {}", frame + 88),
        true,
    );
    check(
        frame + 88 + 18,
        all,
        "headers of a batch at byte 4096",
        true,
    );
}

#[test]
fn a_damaged_segment_does_not_hide_the_others() {
    let mut bytes = log(1);
    bytes[start(0) + 64 + 40 + 512 + 16] ^= 1;
    let (shown, _) = show(&bytes).unwrap();
    let segments = shown["batches"][0]["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 2);
    assert!(segments[0]["damage"].is_string());
    assert_eq!(segments[0]["frames"], json!([]));
    assert!(segments[1].get("damage").is_none());
    assert_eq!(segments[1]["frames"].as_array().unwrap().len(), 1);
}

#[test]
fn zeros_and_batches_of_another_salt_do_not_end_a_log_silently() {
    let mut bytes = log(4);
    bytes[start(1)..start(2)].fill(0);
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(!is_whole);
    let damage = shown["damage"].as_str().unwrap();
    assert!(
        damage.contains(&format!("batch header at byte {}", start(1))),
        "{damage}"
    );
    assert_eq!(shown["damage_was_durable"], true);

    // Batches of the same location with another salt.
    let mut header = file_header(false);
    header.salt += 1;
    let mut bytes = log(2);
    bytes[..4096].copy_from_slice(&header.encode());
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(!is_whole);
    assert_eq!(shown["batches"], json!([]));
    assert_eq!(shown["batches_end"], 4096);
    assert_eq!(shown["damage_was_durable"], false);
    assert!(
        shown["damage"]
            .as_str()
            .unwrap()
            .contains("`salt` does not follow")
    );
}

#[test]
fn a_batch_that_does_not_follow_is_damage() {
    for (first_batch, chain, name) in [(11, 0xabc, "number"), (10, 0xabd, "chain")] {
        let header = LogFileHeader {
            first_batch,
            chain,
            ..file_header(false)
        };
        let mut bytes = log(2);
        bytes[..4096].copy_from_slice(&header.encode());
        let (shown, _) = show(&bytes).unwrap();
        assert_eq!(shown["batches"].as_array().unwrap().len(), 2);
        let damage = shown["damage"].as_str().unwrap();
        assert!(
            damage.contains(&format!("`{name}` does not follow")),
            "{damage}"
        );
    }
}

#[test]
fn every_truncation_of_a_log_is_damage_or_ends_at_a_batch() {
    let bytes = log(2);
    for length in (0..bytes.len()).step_by(61) {
        let shown = show(&bytes[..length]);
        if length < 4096 {
            assert!(shown.is_err(), "{length}");
            continue;
        }
        let (shown, is_whole) = shown.unwrap();
        let ends = [start(0), start(1)].contains(&length);
        assert_eq!(is_whole, ends, "{length}: {shown}");
    }
    let (shown, is_whole) = show(&bytes[..start(1)]).unwrap();
    assert!(is_whole);
    assert_eq!(shown["batches"].as_array().unwrap().len(), 1);
}

#[test]
fn an_arranged_file_shows_its_segments() {
    let mut segments = Segments::new();
    segments.add(LEAF, b"one");
    segments.add(CONTINUED.0, b"two");
    let bytes = [&file_header(true).encode()[..], &segments.bytes].concat();
    let (shown, is_whole) = show(&bytes).unwrap();
    assert!(is_whole, "{shown}");
    assert_eq!(shown["header"]["is_arranged"], true);
    assert_eq!(shown["segments"].as_array().unwrap().len(), 2);
    assert_eq!(shown["segments"][1]["frames"][0]["number"], 1);
    for length in 4097..bytes.len() {
        let (_, is_whole) = show(&bytes[..length]).unwrap();
        let first_end = 4096 + 40 + 512 + 96;
        assert_eq!(is_whole, length == first_end, "{length}");
    }
}
