use proptest::prelude::*;

use super::*;
use crate::fuzzing;

fn owner() -> BundleOwner {
    BundleOwner {
        storage: StorageId::from_bytes([7; 16]),
        file: DataFileId(3),
    }
}

fn section(leaf: u64) -> Vec<u8> {
    format!("the sidecar of leaf {leaf}; ")
        .repeat(usize::try_from(leaf % 5 + 1).unwrap())
        .into_bytes()
}

fn bundle_of(content: BundleContent, leaves: &[u64]) -> Vec<u8> {
    let mut writer = BundleWriter::new(content, owner());
    let mut file = writer.header();
    for leaf in leaves {
        let section = section(*leaf);
        writer.add(LeafId(*leaf), &section).unwrap();
        file.extend(section);
    }
    file.extend(writer.finish().unwrap());
    file
}

fn reading(file: &[u8]) -> impl FnMut(Range<u64>) -> std::io::Result<Vec<u8>> {
    |range: Range<u64>| {
        let [begin, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
        let bytes = file
            .get(begin..end)
            .ok_or(std::io::ErrorKind::UnexpectedEof)?;
        Ok(bytes.to_vec())
    }
}

fn load(file: &[u8]) -> Result<Bundle, BundleError> {
    Bundle::load(file.len() as u64, &mut reading(file))
}

fn check(file: &[u8]) -> Result<(), BundleError> {
    Bundle::check(file.len() as u64, &mut reading(file))
}

const SAMPLE: [u64; 4] = [9, 2, u64::MAX, 4];

#[test]
fn sections_are_found_in_the_order_of_the_file() {
    for (content, leaves) in [
        (BundleContent::Indexes, &SAMPLE[..]),
        (BundleContent::Provenance, &[]),
        (BundleContent::Provenance, &[1]),
    ] {
        let file = bundle_of(content, leaves);
        check(&file).unwrap();
        let bundle = load(&file).unwrap();
        assert_eq!((bundle.content(), bundle.owner()), (content, owner()));
        let found: Vec<_> = bundle
            .sections()
            .iter()
            .map(|found| (found.leaf.0, reading(&file)(found.range()).unwrap()))
            .collect();
        let expected: Vec<_> = leaves.iter().map(|leaf| (*leaf, section(*leaf))).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn golden_bytes_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1");
    for (name, content, leaves) in [
        ("indexes.bundle", BundleContent::Indexes, &SAMPLE[..]),
        ("provenance.bundle", BundleContent::Provenance, &[5]),
    ] {
        let path = format!("{folder}/{name}");
        if !std::path::Path::new(&path).exists() {
            std::fs::write(&path, bundle_of(content, leaves)).unwrap();
        }
        let golden = std::fs::read(path).unwrap();
        check(&golden).unwrap();
        assert_eq!(
            load(&golden).unwrap(),
            load(&bundle_of(content, leaves)).unwrap()
        );
    }
}

/// Only the end of a bundle is read for its directory, and more of it only where that is needed.
#[test]
fn the_directory_is_read_without_the_sections() {
    for (leaves, reads) in [(1_000, 1), (40_000, 2)] {
        let file = bundle_of(BundleContent::Indexes, &(0..leaves).collect::<Vec<_>>());
        let mut ranges = Vec::new();
        let mut read = reading(&file);
        let bundle = Bundle::load(file.len() as u64, &mut |range| {
            ranges.push(range.clone());
            read(range)
        });
        let sections = bundle.unwrap().sections().to_vec();
        assert_eq!((sections.len() as u64, ranges.len()), (leaves, reads));
        let last = sections.last().unwrap().range().end;
        assert!(reads == 1 || ranges[1].start == last, "{ranges:?}");
    }
}

#[test]
fn a_damaged_section_is_named_and_the_directory_is_read() {
    let mut file = bundle_of(BundleContent::Indexes, &SAMPLE);
    let second = load(&file).unwrap().sections()[1];
    file[usize::try_from(second.offset).unwrap() + 3] ^= 1;
    assert_eq!(load(&file).unwrap().sections().len(), SAMPLE.len());
    let Err(BundleError::Sidecar(SidecarError::Damaged { offset, .. })) = check(&file) else {
        panic!("the damage is not found");
    };
    assert_eq!(offset, second.offset);
}

/// The footer of a bundle with these sections, as the directory of a file whose body has
/// `body` bytes.
fn footer(sections: &[(u64, u64)], body: u64) -> Vec<u8> {
    let mut footer = vec![0];
    footer.extend([7; 16]);
    footer.extend(3_u64.to_le_bytes());
    put_varint(&mut footer, sections.len() as u64);
    for (leaf, length) in sections {
        footer.extend(leaf.to_le_bytes());
        put_varint(&mut footer, *length);
        footer.extend([0; 4]);
    }
    let mut file = header(SIGNATURE);
    file.resize(HEADER_BYTES + usize::try_from(body).unwrap(), 0);
    file.extend(close(SIGNATURE, file.len() as u64, footer).unwrap());
    file
}

#[test]
fn directories_that_do_not_describe_their_file_are_refused() {
    for (what, sections, body, is_accepted) in [
        ("sections that fill it", &[(1, 5), (2, 7)][..], 12, true),
        ("no sections", &[], 0, true),
        ("bytes of no section", &[(1, 5)], 6, false),
        ("a section behind the end", &[(1, 5), (2, 8)], 12, false),
        ("a leaf twice", &[(1, 5), (1, 7)], 12, false),
        ("an empty section", &[(1, 0), (2, 12)], 12, false),
        (
            "lengths whose sum overflows",
            &[(1, u64::MAX), (2, 13)],
            12,
            false,
        ),
    ] {
        let loaded = load(&footer(sections, body));
        assert_eq!(loaded.is_ok(), is_accepted, "{what}: {loaded:?}");
    }
}

/// What a file claims does not decide how many of its bytes are read into memory.
#[test]
fn a_long_directory_is_refused_before_it_is_read() {
    let mut file = header(SIGNATURE);
    file.resize(PACKED_BYTES_MAX + HEADER_BYTES + 1, 0);
    let length = file.len() as u64 + 48;
    let mut trailer = Vec::new();
    trailer.extend((HEADER_BYTES as u64).to_le_bytes());
    trailer.extend(
        u32::try_from(file.len() - HEADER_BYTES)
            .unwrap()
            .to_le_bytes(),
    );
    trailer.extend([0; 8]);
    trailer.extend(SIGNATURE.version.to_le_bytes());
    trailer.extend(length.to_le_bytes());
    trailer.extend([0; 4]);
    trailer.extend(crc32c::crc32c(&trailer).to_le_bytes());
    trailer.extend(SIGNATURE.magic);
    let refused = Bundle::open(&trailer, length);
    assert!(
        matches!(&refused, Err(SidecarError::Damaged { reason, .. }) if reason.contains("longer")),
        "{refused:?}"
    );
}

#[test]
fn other_files_are_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v3/sample.idx");
    let index = std::fs::read(path).unwrap();
    for file in [&index[..], &[], &[0; 5000], &index[..60]] {
        assert!(matches!(
            load(file),
            Err(BundleError::Sidecar(SidecarError::NotAnIndex(_)))
        ));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_change_of_a_byte_goes_unnoticed(
        at in any::<proptest::sample::Index>(), flip in 1_u8..,
    ) {
        let mut file = bundle_of(BundleContent::Indexes, &SAMPLE);
        let at = at.index(file.len());
        file[at] ^= flip;
        prop_assert!(check(&file).is_err(), "byte {}", at);
    }

    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), end in any::<u64>(),
    ) {
        let _ = check(&bytes);
        fuzzing::bundle_footer(&bytes, end);
    }

    #[test]
    fn no_change_below_the_checksum_panics(
        at in any::<proptest::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let file = bundle_of(BundleContent::Indexes, &SAMPLE);
        let end = load(&file).unwrap().sections()[3].range().end;
        let mut footer = file[usize::try_from(end).unwrap()..file.len() - 48].to_vec();
        let at = at.index(footer.len());
        footer[at] = byte;
        if cut {
            footer.truncate(at);
        }
        fuzzing::bundle_footer(&footer, end);
    }
}
