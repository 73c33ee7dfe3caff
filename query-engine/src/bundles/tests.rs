use std::ops::Range;

use chunk_index::BundleWriter;

use super::*;

struct Memory(Vec<u8>);

impl Fetch for Memory {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let read = |range: &Range<u64>| {
            let [begin, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
            let bytes = self.0.get(begin..end).ok_or(ErrorKind::UnexpectedEof)?;
            Ok(bytes.to_vec())
        };
        ranges.iter().map(read).collect()
    }
}

const STORAGE: [u8; 16] = [7; 16];

fn bytes_of(storage: [u8; 16], file: u64, sections: &[(u64, &str)]) -> Vec<u8> {
    let owner = BundleOwner {
        storage: StorageId::from_bytes(storage),
        file: DataFileId(file),
    };
    let mut writer = BundleWriter::new(BundleContent::Indexes, owner);
    let mut bytes = writer.header();
    for (leaf, section) in sections {
        writer.add(LeafId(*leaf), section.as_bytes()).unwrap();
        bytes.extend(section.as_bytes());
    }
    bytes.extend(writer.finish().unwrap());
    bytes
}

fn open(files: Vec<(u64, Vec<u8>)>) -> Bundles {
    let files = files.into_iter().map(|(file, bytes)| BundleFile {
        file: DataFileId(file),
        length: bytes.len() as u64,
        fetch: Arc::new(Memory(bytes)),
    });
    let storage = StorageId::from_bytes(STORAGE);
    Bundles::open(BundleContent::Indexes, storage, files)
}

#[test]
fn a_leaf_is_found_in_the_bundle_that_has_it() {
    let first = bytes_of(STORAGE, 0, &[(50, "fifty"), (10, "ten")]);
    let second = bytes_of(STORAGE, 1, &[(30, "thirty"), (10, "again")]);
    let bundles = open(vec![(0, first), (1, second)]);
    for (leaf, expected) in [
        (10, Some("ten")),
        (30, Some("thirty")),
        (50, Some("fifty")),
        (20, None),
        (60, None),
    ] {
        let leaf = LeafId(leaf);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let found = bundles.find(leaf);
        let whole = found.map(|(slice, length)| {
            assert!(
                slice.place().starts_with("memory: leaf 0"),
                "{}",
                slice.place()
            );
            assert_eq!(
                slice.fetch_one(1..2).unwrap(),
                text(slice.fetch_one(0..2).unwrap()).as_bytes()[1..]
            );
            let beyond = slice.fetch_one(0..length + 1).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
            text(slice.fetch_one(0..length).unwrap())
        });
        assert_eq!(whole.as_deref(), expected, "{leaf}");
        let read = bundles.read(leaf).unwrap().map(text);
        assert_eq!(read.as_deref(), expected, "{leaf}");
    }
    let in_second: Vec<_> = bundles.leaves_in(DataFileId(1)).collect();
    assert_eq!(in_second, [LeafId(30)]);
}

#[test]
fn a_bundle_that_does_not_belong_or_is_damaged_is_refused_and_the_others_are_used() {
    let right = bytes_of(STORAGE, 0, &[(1, "one")]);
    let mut damaged = bytes_of(STORAGE, 4, &[(4, "four")]);
    let end = damaged.len() - 60;
    damaged[end] ^= 1;
    let bundles = open(vec![
        (0, right),
        (1, bytes_of([8; 16], 1, &[(2, "of another storage")])),
        (2, bytes_of(STORAGE, 1, &[(3, "of another file")])),
        (4, damaged),
        (5, Vec::new()),
    ]);
    let refused: Vec<u64> = bundles
        .refused()
        .iter()
        .map(|bundle| bundle.file.0)
        .collect();
    assert_eq!(refused, [1, 2, 4, 5]);
    assert!(bundles.refused()[0].reason.contains("another data file"));
    let found = (1..6).filter(|leaf| bundles.find(LeafId(*leaf)).is_some());
    assert_eq!(found.collect::<Vec<_>>(), [1]);
}

#[test]
fn a_damaged_section_is_not_read_and_the_others_are() {
    let mut bytes = bytes_of(STORAGE, 0, &[(1, "one"), (2, "two")]);
    bytes[24] ^= 1;
    let bundles = open(vec![(0, bytes)]);
    let damaged = bundles.read(LeafId(1)).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::InvalidData);
    assert_eq!(
        bundles.read(LeafId(2)).unwrap().as_deref(),
        Some(&b"two"[..])
    );
}

/// Bytes of which some cannot be read for now.
struct Failing(Memory, ErrorKind, Range<u64>);

impl Fetch for Failing {
    fn place(&self) -> String {
        self.0.place()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let Self(memory, kind, failing) = self;
        if ranges
            .iter()
            .any(|range| range.start < failing.end && failing.start < range.end)
        {
            return Err((*kind).into());
        }
        memory.fetch(ranges)
    }
}

#[test]
fn what_cannot_be_read_now_is_not_given_up() {
    // The directory is read without the first section.
    let long = "ten".repeat(1 << 20);
    let bytes = bytes_of(STORAGE, 0, &[(10, &long), (30, "thirty")]);
    let storage = StorageId::from_bytes(STORAGE);
    let length = bytes.len() as u64;
    let open = |kind, failing: Range<u64>| {
        let file = BundleFile {
            file: DataFileId(0),
            length,
            fetch: Arc::new(Failing(Memory(bytes.clone()), kind, failing)),
        };
        Bundles::open(BundleContent::Indexes, storage, [file])
    };
    for (kind, may_pass) in [
        (ErrorKind::OutOfMemory, true),
        (ErrorKind::Other, true),
        (ErrorKind::UnexpectedEof, false),
    ] {
        let bundles = open(kind, 0..length);
        assert_eq!(bundles.refused()[0].is_unread, may_pass, "{kind}");
        assert_eq!(bundles.all_read().is_err(), may_pass, "{kind}");
        let bundles = open(kind, 1000..1001);
        bundles.all_read().unwrap();
        let kept = bundles.read_to_keep(LeafId(10));
        assert_eq!(kept.is_err(), may_pass, "{kind}");
        assert!(kept.is_err() || kept.unwrap().is_none(), "{kind}");
        let kept = bundles.read_to_keep(LeafId(30)).unwrap();
        assert_eq!(kept.as_deref(), Some(&b"thirty"[..]));
    }
}
