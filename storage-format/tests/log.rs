//! The log: golden bytes of file headers and batches, and that every damage to them is an error.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use proptest::{collection::vec, prelude::*, sample::Index};
use storage_format::{
    Codec, DataFileId, FormatError, FormatErrorKind, Kind, LeafId, LeafType, StorageId,
    StreamPosition,
    checksum::{crc32c, crc32c_append},
    data_file::{self, DataFileHeader, LeafPath},
    frame::{self, Facts, FrameHeader, FrameLocation},
    integer::{u64_of, usize_of, usize_of_u64},
    limits::LOG_BATCH_BYTES_MAX,
    log::{
        BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES,
        LogFileHeader, PreviousFile, ReplacedFile, SEGMENT_HEADER_BYTES, SegmentHeader,
    },
};

const PAYLOAD: &[u8] = b"{\"name\":\"read\",\"ts\":1,\"dur\":2}\n";
/// A leaf whose first bytes are in the batch, and one that an earlier file began.
const LEAVES: [LeafId; 2] = [LeafId(0x11), LeafId(0x2222_2222_2222_2222)];
/// Offset of the second leaf at which the batch continues it.
const CONTINUED_AT: u64 = 1 << 20;

fn storage() -> StorageId {
    "0193a2f0-7c1e-7b3a-9d2e-0123456789ab".parse().unwrap()
}

fn location() -> BatchLocation {
    BatchLocation {
        storage: storage(),
        file: DataFileId(3),
        offset: u64_of(FILE_HEADER_BYTES),
    }
}

fn file_header() -> LogFileHeader {
    LogFileHeader {
        storage: storage(),
        file: location().file,
        is_arranged: false,
        replaces: None,
        salt: 0x0123_4567_89ab_cdef,
        created: 1_700_000_000_123_456_789,
        first_batch: 17,
        previous: Some(PreviousFile {
            file: DataFileId(1),
            length: 81_920,
        }),
        chain: 0x090a_0b0c,
    }
}

fn leaf_header(leaf: LeafId) -> DataFileHeader {
    DataFileHeader {
        storage: storage(),
        leaf,
        leaf_type: LeafType::Array,
        path: LeafPath {
            agent: "node-17".parse().unwrap(),
            kind: Kind::Dft,
            stream: "rank_0.pfw".parse().unwrap(),
            bucket: None,
        },
        created: 5,
    }
}

fn frame_header(number: u64) -> FrameHeader {
    let size = u32::try_from(PAYLOAD.len()).unwrap();
    FrameHeader {
        codec: Codec::None,
        stored_size: size,
        raw_size: size,
        number,
        position: StreamPosition::new(7, number),
        arrival: 1_700_000_000_999_999_999,
        facts: Facts {
            time_span: Some((-5, 1_700_000_000_000_000_001)),
            events: Some(1),
            ..Facts::default()
        },
        stored_checksum: crc32c(PAYLOAD),
        raw_checksum: crc32c(PAYLOAD),
    }
}

/// Collects the bytes of a batch and the checksum of its headers.
#[derive(Default)]
struct BatchBytes {
    bytes: Vec<u8>,
    headers_checksum: u32,
}

impl BatchBytes {
    fn headers(&mut self, bytes: &[u8]) {
        self.headers_checksum = crc32c_append(self.headers_checksum, bytes);
        self.bytes.extend(bytes);
    }

    /// A segment with the packets `numbers`.
    fn segment(&mut self, leaf: LeafId, leaf_offset: u64, numbers: &[u64]) {
        let is_new = leaf_offset == 0;
        let mut next = leaf_offset;
        if is_new {
            next += u64_of(data_file::HEADER_BYTES);
        }
        let frame = frame_header(0).frame_bytes();
        let header = SegmentHeader {
            leaf,
            repeats_leaf_header: !is_new,
            leaf_offset,
            length: next - leaf_offset + frame * u64_of(numbers.len()),
        };
        self.headers(&header.encode());
        self.headers(&leaf_header(leaf).encode());
        for &number in numbers {
            let location = FrameLocation {
                storage: storage(),
                leaf,
                offset: next,
            };
            self.headers(&frame_header(number).encode(location));
            self.bytes.extend(PAYLOAD);
            let used = frame::HEADER_BYTES + PAYLOAD.len();
            let padding = [0; frame::ALIGNMENT];
            self.headers(&padding[..used.next_multiple_of(frame::ALIGNMENT) - used]);
            next += frame;
        }
    }
}

/// The golden batch without its padding, and its header.
fn batch() -> (Vec<u8>, BatchHeader) {
    let mut batch = BatchBytes::default();
    batch.segment(LEAVES[0], 0, &[40]);
    batch.segment(LEAVES[1], CONTINUED_AT, &[38, 41]);
    let header = BatchHeader {
        segments: 2,
        salt: file_header().salt,
        number: 17,
        durable_mark: 15,
        length: u64_of(BATCH_HEADER_BYTES + batch.bytes.len()),
        headers_checksum: batch.headers_checksum,
        chain: file_header().chain,
    };
    let bytes = [&header.encode(location())[..], &batch.bytes].concat();
    (bytes, header)
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// The segment headers and packet numbers of a batch.
type Contents = Vec<(SegmentHeader, Vec<u64>)>;

/// The next `length` bytes at `at`.
fn take<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Result<&'a [u8], String> {
    let end = at.saturating_add(length);
    let taken = bytes.get(*at..end).ok_or("short")?;
    *at = end;
    Ok(taken)
}

/// Reads `bytes` as a complete batch after the golden file header.
fn read_batch(bytes: &[u8]) -> Result<(BatchHeader, Contents), String> {
    let text = |error: FormatError| error.to_string();
    let header = BatchHeader::decode(bytes, location()).map_err(text)?;
    let file = file_header();
    if (header.salt, header.number, header.chain) != (file.salt, file.first_batch, file.chain) {
        return Err("another batch".into());
    }
    if bytes.len() < usize_of_u64(header.padded_length()) {
        return Err("short".into());
    }
    let end = usize_of_u64(header.length);
    let mut at = BATCH_HEADER_BYTES;
    let mut headers_checksum = 0;
    let mut headers = |at: &mut usize, length| -> Result<&[u8], String> {
        let taken = take(&bytes[..end], at, length)?;
        headers_checksum = crc32c_append(headers_checksum, taken);
        Ok(taken)
    };
    let mut contents = Vec::new();
    for _ in 0..header.segments {
        let offset = u64_of(at);
        let segment = headers(&mut at, SEGMENT_HEADER_BYTES)?;
        let segment = SegmentHeader::decode(segment, offset).map_err(text)?;
        let starts = segment.leaf_offset == 0;
        if starts || segment.repeats_leaf_header {
            let bytes = headers(&mut at, data_file::HEADER_BYTES)?;
            if DataFileHeader::decode(bytes).map_err(text)? != leaf_header(segment.leaf) {
                return Err("another leaf".into());
            }
        }
        let mut next = segment.leaf_offset;
        if starts {
            next += u64_of(data_file::HEADER_BYTES);
        }
        let segment_end = segment.leaf_offset + segment.length;
        let mut numbers = Vec::new();
        while next < segment_end {
            let location = FrameLocation {
                storage: storage(),
                leaf: segment.leaf,
                offset: next,
            };
            let frame = headers(&mut at, frame::HEADER_BYTES)?;
            let frame = FrameHeader::decode(frame, location).map_err(text)?;
            let size = usize_of(frame.stored_size);
            let payload = take(&bytes[..end], &mut at, size)?;
            frame.check_payload(payload, next).map_err(text)?;
            let used = frame::HEADER_BYTES + size;
            headers(&mut at, used.next_multiple_of(frame::ALIGNMENT) - used)?;
            next += frame.frame_bytes();
            numbers.push(frame.number);
        }
        contents.push((segment, numbers));
    }
    if headers_checksum != header.headers_checksum || at != end {
        return Err("other headers".into());
    }
    Ok((header, contents))
}

fn read_file_header(bytes: &[u8]) -> Result<LogFileHeader, String> {
    let header = LogFileHeader::decode(bytes, storage(), location().file);
    header.map_err(|error| error.to_string())
}

/// The header of an arranged file that replaces the one of [`file_header`].
fn replacement() -> LogFileHeader {
    let replaced = ReplacedFile {
        file: location().file,
        length: 1 << 30,
        next_batch: 4711,
        chain: 0x0d0e_0f10,
        arranged_length: 0x3fff_f123,
    };
    LogFileHeader {
        file: location().file.replacement().unwrap(),
        is_arranged: true,
        replaces: Some(replaced),
        salt: 0x1122_3344_5566_7788,
        ..file_header()
    }
}

/// The golden bytes of `name`; written first when they are missing.
fn golden(name: &str, current: &[u8]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v2");
    let path = folder.join(name);
    if !path.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, current).unwrap();
    }
    let stored = std::fs::read(path).unwrap();
    assert!(stored == current, "the bytes of {name} never change");
    stored
}

#[test]
fn file_headers_keep_their_bytes() {
    let first = LogFileHeader {
        first_batch: 0,
        previous: None,
        chain: 0,
        ..file_header()
    };
    let arranged = LogFileHeader {
        is_arranged: true,
        ..file_header()
    };
    for (name, header) in [
        ("log.header", file_header()),
        ("log_first.header", first),
        ("log_arranged.header", arranged),
        ("log_replaces.header", replacement()),
    ] {
        let bytes = golden(name, &header.encode());
        assert_eq!(bytes.len(), FILE_HEADER_BYTES);
        assert!(LogFileHeader::recognizes(&bytes));
        let read = LogFileHeader::decode(&bytes, storage(), header.file);
        assert_eq!(read, Ok(header.clone()), "{name}");
        assert_eq!(LogFileHeader::decode_any(&bytes), Ok(header));
    }
    assert!(!LogFileHeader::recognizes(&leaf_header(LEAVES[0]).encode()));
}

/// Fields of a header that no writer makes, under a checksum that fits.
#[test]
fn an_impossible_replacement_is_refused() {
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = replacement().encode();
        bytes[at..at + value.len()].copy_from_slice(value);
        let end = FILE_HEADER_BYTES - 4;
        let checksum = crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        LogFileHeader::decode_any(&bytes)
    };
    let own = location().file.replacement().unwrap().0;
    for (at, value) in [
        (10, vec![3]),
        // The file itself, and the file before.
        (84, own.to_le_bytes().to_vec()),
        (84, 1_u64.to_le_bytes().to_vec()),
        // A batch before the first one.
        (100, 16_u64.to_le_bytes().to_vec()),
    ] {
        let refused = changed(at, &value).unwrap_err();
        assert_eq!(refused.offset, u64_of(at), "{refused}");
    }
    let changed = changed(100, &17_u64.to_le_bytes()).unwrap();
    assert_eq!(changed.replaces.unwrap().next_batch, 17);
}

#[test]
fn arranged_files_have_ids_of_their_own() {
    for (file, by) in [
        (0, Some(1 << 20)),
        ((1 << 20) - 1, Some((2 << 20) - 1)),
        (1 << 20, None),
    ] {
        let found = DataFileId(file).replacement();
        assert_eq!(found, by.map(DataFileId));
        let back = found.and_then(DataFileId::replaced);
        assert_eq!(back, found.map(|_| DataFileId(file)));
    }
    assert!(!DataFileId(2 << 20).is_numbered());
    assert_eq!(DataFileId(5).replaced(), None);
}

#[test]
fn batches_keep_their_bytes() {
    let (bytes, header) = batch();
    let frame = frame_header(0).frame_bytes();
    let first = SegmentHeader {
        leaf: LEAVES[0],
        repeats_leaf_header: false,
        leaf_offset: 0,
        length: u64_of(data_file::HEADER_BYTES) + frame,
    };
    let second = SegmentHeader {
        leaf: LEAVES[1],
        repeats_leaf_header: true,
        leaf_offset: CONTINUED_AT,
        length: 2 * frame,
    };
    let stored = golden("log.batch", &padded(bytes));
    assert_eq!(stored.len(), BLOCK_BYTES);
    let contents = vec![(first, vec![40]), (second, vec![38, 41])];
    assert_eq!(read_batch(&stored), Ok((header, contents)));
    let encoded = header.encode(location());
    assert_eq!(
        BatchHeader::checksum_of(&encoded).to_le_bytes(),
        encoded[BATCH_HEADER_BYTES - 4..],
        "the chain is the checksum of the header"
    );
}

type Read = fn(&[u8]) -> Result<(), String>;

/// Golden bytes, how to read them, and how many of them checksums cover.
fn layouts() -> [(Vec<u8>, Read, usize); 2] {
    let (bytes, header) = batch();
    let covered = usize_of_u64(header.length);
    [
        (
            file_header().encode(),
            |bytes| read_file_header(bytes).map(drop),
            FILE_HEADER_BYTES,
        ),
        (padded(bytes), |bytes| read_batch(bytes).map(drop), covered),
    ]
}

#[test]
fn every_flipped_bit_is_an_error() {
    for (bytes, read, covered) in layouts() {
        assert_eq!(read(&bytes), Ok(()));
        let mut damaged = bytes.clone();
        for at in 0..covered {
            for bit in 0..8 {
                damaged[at] ^= 1 << bit;
                assert!(read(&damaged).is_err(), "bit {bit} of byte {at}");
                damaged[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (bytes, read, _) in layouts() {
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut to {length}");
        }
    }
}

#[test]
fn a_batch_at_another_location_is_an_error() {
    let (bytes, header) = batch();
    assert_eq!(BatchHeader::decode(&bytes, location()), Ok(header));
    for other in [
        BatchLocation {
            storage: StorageId::from_bytes([7; 16]),
            ..location()
        },
        BatchLocation {
            file: DataFileId(4),
            ..location()
        },
        BatchLocation {
            offset: 2 * u64_of(BLOCK_BYTES),
            ..location()
        },
    ] {
        let error = BatchHeader::decode(&bytes, other).unwrap_err();
        assert!(matches!(error.kind, FormatErrorKind::Checksum { .. }));
        assert_eq!(error.offset, other.offset + 60, "counted from the file");
    }
}

#[test]
fn a_file_header_of_another_storage_or_file_is_an_error() {
    let bytes = file_header().encode();
    for (storage, file) in [
        (storage(), DataFileId(4)),
        (StorageId::from_bytes([7; 16]), location().file),
    ] {
        let error = LogFileHeader::decode(&bytes, storage, file).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Foreign);
    }
    let mut newer = bytes;
    newer[8] = 3;
    let error = LogFileHeader::decode_any(&newer).unwrap_err();
    let (found, newest) = (3, 2);
    assert_eq!(error.kind, FormatErrorKind::Version { found, newest });
}

/// `header` with field bytes `at` replaced and a correct checksum.
fn with_field<const N: usize>(header: &[u8], at: usize, value: [u8; N], domain: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes[at..at + N].copy_from_slice(&value);
    let end = bytes.len() - 4;
    let checksum = crc32c_append(crc32c(&bytes[..end]), domain);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn impossible_fields_of_a_batch_header_are_errors() {
    let (bytes, header) = batch();
    let place = location();
    let domain = [
        &place.storage.as_bytes()[..],
        &place.file.0.to_le_bytes(),
        &place.offset.to_le_bytes(),
    ]
    .concat();
    let least = u64_of(BATCH_HEADER_BYTES + 2 * SEGMENT_HEADER_BYTES);
    for (at, value, name) in [
        (4, 0, "length"),
        (32, 0, "length"),
        (32, least, "length"),
        (32, LOG_BATCH_BYTES_MAX + 1, "length"),
        (32, u64::MAX, "length"),
        (24, header.number + 1, "durable mark"),
        (24, u64::MAX, "durable mark"),
    ] {
        let head = &bytes[..BATCH_HEADER_BYTES];
        // The number of segments is the only field of 32 bits.
        let changed = if at == 4 {
            with_field::<4>(head, at, [0; 4], &domain)
        } else {
            with_field(head, at, u64::to_le_bytes(value), &domain)
        };
        let error = BatchHeader::decode(&changed, place).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Field { name }, "{at} {value}");
        let longest = with_field(head, 32, LOG_BATCH_BYTES_MAX.to_le_bytes(), &domain);
        assert!(BatchHeader::decode(&longest, place).is_ok());
    }
    // All batches before it were durable when it was written.
    let mark = header.number.to_le_bytes();
    let after_all = with_field(&bytes[..BATCH_HEADER_BYTES], 24, mark, &domain);
    let read = BatchHeader::decode(&after_all, place).unwrap();
    assert_eq!(read.durable_mark, header.number);
    let many = with_field(&bytes[..BATCH_HEADER_BYTES], 4, [0xff; 4], &domain);
    assert!(BatchHeader::decode(&many, place).is_err());
}

#[test]
fn impossible_fields_of_a_segment_header_are_errors() {
    let header = SegmentHeader {
        leaf: LEAVES[1],
        repeats_leaf_header: true,
        leaf_offset: 512,
        length: 120,
    };
    let bytes = header.encode();
    assert_eq!(SegmentHeader::decode(&bytes, 0), Ok(header));
    for (at, value, name) in [
        (24, 0, "length"),
        (24, u64::MAX, "length"),
        (16, u64::MAX - 100, "length"),
        (16, 0, "leaf header"),
    ] {
        let changed = with_field(&bytes, at, u64::to_le_bytes(value), &[]);
        let error = SegmentHeader::decode(&changed, 4096).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Field { name }, "{at} {value}");
        assert!(error.offset >= 4096, "counted from the file");
    }
}

proptest! {
    #[test]
    fn headers_read_back_as_they_were(
        words in vec(any::<u64>(), 8),
        (is_arranged, has_previous, repeats) in any::<(bool, bool, bool)>(),
        (chain, checksum, segments) in (any::<u32>(), any::<u32>(), 1..1000_u32),
        length in 65_000..=LOG_BATCH_BYTES_MAX,
        block in 1..1_u64 << 40,
    ) {
        let file = (words[0] >> 1).max(1);
        let header = LogFileHeader {
            storage: storage(),
            file: DataFileId(file),
            is_arranged,
            replaces: None,
            salt: words[1],
            created: words[2].cast_signed(),
            first_batch: words[3],
            previous: has_previous.then_some(PreviousFile {
                file: DataFileId(words[4] % file),
                length: words[5],
            }),
            chain,
        };
        prop_assert_eq!(LogFileHeader::decode_any(&header.encode()), Ok(header.clone()));
        let header = LogFileHeader {
            file: DataFileId(file.saturating_add(1)),
            is_arranged: true,
            replaces: Some(ReplacedFile {
                file: DataFileId(file),
                length: words[5],
                next_batch: words[3].saturating_add(words[6]),
                chain: checksum,
                arranged_length: words[7],
            }),
            ..header
        };
        prop_assert_eq!(LogFileHeader::decode_any(&header.encode()), Ok(header));
        let place = BatchLocation {
            storage: storage(),
            file: DataFileId(words[0]),
            offset: block * u64_of(BLOCK_BYTES),
        };
        let header = BatchHeader {
            segments,
            salt: words[1],
            number: words[2].max(words[3]),
            durable_mark: words[2].min(words[3]),
            length,
            headers_checksum: checksum,
            chain,
        };
        prop_assert!(header.padded_length() - length < u64_of(BLOCK_BYTES));
        prop_assert_eq!(BatchHeader::decode(&header.encode(place), place), Ok(header));
        let header = SegmentHeader {
            leaf: LeafId(words[0]),
            repeats_leaf_header: repeats,
            leaf_offset: (words[6] >> 1).max(1),
            length: (words[7] >> 1).max(1),
        };
        prop_assert_eq!(SegmentHeader::decode(&header.encode(), 0), Ok(header));
    }

    #[test]
    fn foreign_bytes_are_errors_and_never_a_panic(bytes in vec(any::<u8>(), 0..8192)) {
        for (_, read, _) in layouts() {
            prop_assert!(read(&bytes).is_err());
        }
        prop_assert!(SegmentHeader::decode(&bytes, 0).is_err());
    }

    #[test]
    fn mutated_bytes_are_errors_and_never_a_panic(
        layout in 0..2_usize,
        changes in vec((any::<Index>(), any::<u8>()), 1..20),
    ) {
        let (bytes, read, covered) = &layouts()[layout];
        let mut mutated = bytes.clone();
        for (at, value) in changes {
            mutated[at.index(bytes.len())] = value;
        }
        let is_same = bytes[..*covered] == mutated[..*covered];
        prop_assert_eq!(read(&mutated).is_ok(), is_same);
    }
}
