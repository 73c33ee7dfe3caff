//! Extents of leaves in index parts, and the limits of footers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;

use proptest::{collection::vec, prelude::*};
use storage_format::{
    Codec, DataFileId, FormatErrorKind, Kind, LeafId, LeafType, StorageId, StreamPosition,
    checksum::crc32c,
    data_file::LeafPath,
    frame::Facts,
    index_part::{
        DataFileEntry, ENTRY_BYTES, EXTENT_BYTES, Extent, Footer, HEADER_BYTES, IndexPartBuilder,
        IndexPartHeader, LeafEntry, LeafNumbers, LogPosition, NewLeaf, PacketEntry, TRAILER_BYTES,
        Trailer,
    },
    integer::{u64_of, usize_of_u64},
    limits::{DATA_FILE_COUNT_MAX, INDEX_EXTENT_COUNT_MAX},
    storage_file::Totals,
};

fn extent(leaf_offset: u64, file: u64, offset: u64, length: u64) -> Extent {
    Extent {
        leaf_offset,
        file: DataFileId(file),
        offset,
        length,
    }
}

#[test]
fn an_intersection_contains_the_common_bytes() {
    let all = extent(100, 1, 5000, 50);
    for (range, expected) in [
        (0..100, None),
        (150..200, None),
        (120..120, None),
        (0..200, Some(all)),
        (100..150, Some(all)),
        (99..101, Some(extent(100, 1, 5000, 1))),
        (149..151, Some(extent(149, 1, 5049, 1))),
        (110..120, Some(extent(110, 1, 5010, 10))),
    ] {
        assert_eq!(all.intersection(&range), expected, "{range:?}");
    }
    let inverted = Range {
        start: 120,
        end: 90,
    };
    assert_eq!(all.intersection(&inverted), None);
}

#[test]
fn an_extent_is_appended_where_both_continue() {
    let first = extent(100, 1, 5000, 50);
    for (next, continues) in [
        (extent(150, 1, 5050, 10), true),
        (extent(150, 2, 5050, 10), false),
        (extent(150, 1, 5051, 10), false),
        (extent(151, 1, 5050, 10), false),
        (extent(149, 1, 5049, 10), false),
        (extent(100, 1, 5000, 50), false),
    ] {
        let mut joined = first;
        assert_eq!(joined.append(&next), continues, "{next:?}");
        let expected = extent(100, 1, 5000, if continues { 60 } else { 50 });
        assert_eq!(joined, expected);
    }
}

fn entry(number: u64) -> PacketEntry {
    PacketEntry {
        number,
        offset: 600 + 128 * number,
        stored_size: 31,
        raw_size: 62,
        position: StreamPosition::new(7, number),
        facts: Facts::default(),
        raw_checksum: 1,
        codec: Codec::None,
    }
}

fn path() -> LeafPath {
    LeafPath {
        agent: "a".parse().unwrap(),
        kind: Kind::Raw,
        stream: "s".parse().unwrap(),
        bucket: None,
    }
}

/// A part with one leaf of two packets, which has these extents.
fn part(extents: &[Extent], files: Vec<DataFileEntry>) -> (Vec<u8>, Footer) {
    let header = IndexPartHeader {
        storage: StorageId::from_bytes([7; 16]),
        ordinal: 0,
        first_ordinal: 0,
        created: 0,
    };
    let mut builder = IndexPartBuilder::new(header);
    let (first, last) = (extents.first().unwrap(), extents.last().unwrap());
    builder.add_leaf(NewLeaf {
        leaf: LeafId(5),
        path: path(),
        entries: Some(&[entry(0), entry(1)]),
        extents,
        covered: first.leaf_offset..last.leaf_end(),
        covered_checksum: 0,
        totals: Totals::default(),
        numbers: LeafNumbers {
            first: 0,
            last: 1,
            first_position: StreamPosition::new(7, 0),
            last_position: StreamPosition::new(7, 1),
        },
    });
    let (bytes, footer, _) = builder.finish(files, None);
    (bytes, footer)
}

fn block<'a>(part: &'a [u8], leaf: &LeafEntry) -> &'a [u8] {
    let range = leaf.block_range();
    &part[usize_of_u64(range.start)..usize_of_u64(range.end)]
}

const GOOD: [Extent; 3] = [
    Extent {
        leaf_offset: 512,
        file: DataFileId(0),
        offset: 4712,
        length: 88,
    },
    Extent {
        leaf_offset: 600,
        file: DataFileId(0),
        offset: 9000,
        length: 200,
    },
    Extent {
        leaf_offset: 800,
        file: DataFileId(2),
        offset: 4700,
        length: 40,
    },
];

#[test]
fn extents_are_found_by_offset_in_the_leaf() {
    let (bytes, footer) = part(&GOOD, Vec::new());
    let leaf = &footer.leaves[0];
    let block = block(&bytes, leaf);
    assert_eq!(leaf.extents_in(block), Ok(GOOD.to_vec()));
    for (offset, expected) in [
        (511, None),
        (512, Some(GOOD[0])),
        (599, Some(GOOD[0])),
        (600, Some(GOOD[1])),
        (799, Some(GOOD[1])),
        (800, Some(GOOD[2])),
        (839, Some(GOOD[2])),
        (840, None),
        (u64::MAX, None),
    ] {
        assert_eq!(leaf.extent_at(block, offset), expected, "{offset}");
    }
}

#[test]
fn a_payload_is_in_one_extent() {
    let whole = extent(600, 3, 9000, 31);
    let descriptor = entry(0).descriptor(&whole).unwrap();
    assert_eq!(descriptor.file(), DataFileId(3));
    assert_eq!(descriptor.range(), 9000..9031);
    for short in [
        extent(600, 3, 9000, 30),
        extent(601, 3, 9000, 100),
        extent(631, 3, 9000, 100),
        extent(512, 3, u64::MAX / 2, 1000),
    ] {
        assert!(entry(0).descriptor(&short).is_err(), "{short:?}");
    }
}

/// Whether the leaf of a part accepts these extents in its block.
fn check(extents: [Extent; 3], is_valid: bool) {
    let (bytes, footer) = part(&GOOD, Vec::new());
    let leaf = &footer.leaves[0];
    let mut block = block(&bytes, leaf).to_vec();
    let start = block.len() - 3 * EXTENT_BYTES;
    for (record, extent) in block[start..].chunks_exact_mut(EXTENT_BYTES).zip(extents) {
        let fields = [
            extent.leaf_offset,
            extent.file.0,
            extent.offset,
            extent.length,
        ];
        record.copy_from_slice(&fields.map(u64::to_le_bytes).concat());
    }
    let found = leaf.extents_in(&block);
    assert_eq!(found.is_ok(), is_valid, "{extents:?}");
    let Err(error) = found else { return };
    assert!(matches!(error.kind, FormatErrorKind::Field { .. }));
    let extents_start = leaf.block_range().end - u64_of(3 * EXTENT_BYTES);
    assert!(
        (extents_start..=leaf.block_range().end).contains(&error.offset),
        "the offset counts from the start of the part"
    );
}

#[test]
fn gaps_overlaps_and_overflows_are_errors() {
    let [first, second, third] = GOOD;
    check(GOOD, true);
    check([second, first, third], false);
    for leaf_offset in [599, 601, 0, u64::MAX] {
        let moved = Extent {
            leaf_offset,
            ..second
        };
        check([first, moved, third], false);
    }
    for length in [0, 199, 201, u64::MAX, u64::MAX - 600] {
        check([first, Extent { length, ..second }, third], false);
    }
    for length in [0, 39, 41, u64::MAX] {
        check([first, second, Extent { length, ..third }], false);
    }
    // The others cover the leaf without it.
    let (nothing, rest) = (extent(600, 2, 100, 0), extent(600, 2, 100, 240));
    check([first, nothing, rest], false);
    let past_the_end = Extent {
        offset: u64::MAX - 100,
        ..second
    };
    check([first, past_the_end, third], false);
    let first = Extent {
        leaf_offset: 511,
        ..first
    };
    check([first, second, third], false);
}

#[test]
fn blocks_without_their_extents_are_errors() {
    let (bytes, footer) = part(&GOOD, Vec::new());
    let leaf = &footer.leaves[0];
    let block = block(&bytes, leaf);
    leaf.check_block(block).unwrap();
    for length in 0..block.len() {
        assert!(leaf.check_block(&block[..length]).is_err(), "{length}");
        assert!(leaf.extents_in(&block[..length]).is_err(), "{length}");
        let _extent = leaf.extent_at(&block[..length], 700);
    }
}

#[test]
fn a_leaf_without_extents_is_the_file_with_its_id() {
    let (_, footer) = part(&GOOD, Vec::new());
    let leaf = LeafEntry {
        block_extents: 0,
        ..footer.leaves[0].clone()
    };
    let all = extent(512, 5, 512, 328);
    assert_eq!(leaf.extents_in(&[]), Ok(vec![all]));
    assert_eq!(leaf.extent_at(&[], 512), Some(all));
    assert_eq!(leaf.extent_at(&[], 839), Some(all));
    assert_eq!(leaf.extent_at(&[], 511), None);
    assert_eq!(leaf.extent_at(&[], 840), None);
}

/// Decodes `footer` as that of a part without blocks.
fn decode(footer: &[u8], leaf_count: u32) -> Result<Footer, FormatErrorKind> {
    decode_at(u64_of(HEADER_BYTES), footer, leaf_count)
}

/// Decodes `footer` as that of a part with `leaf_count` leaves, at this offset.
fn decode_at(
    footer_offset: u64,
    footer: &[u8],
    leaf_count: u32,
) -> Result<Footer, FormatErrorKind> {
    let trailer = Trailer {
        footer_offset,
        footer_length: u32::try_from(footer.len()).unwrap(),
        footer_checksum: crc32c(footer),
        leaf_count,
        version: 2,
    };
    Footer::decode(footer, &trailer).map_err(|error| error.kind)
}

/// A footer without leaves that lists these data files.
fn footer_of(count: u32, ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut footer = count.to_le_bytes().to_vec();
    for id in ids {
        footer.extend(id.to_le_bytes());
        footer.extend([0; 12]);
    }
    footer.extend([0; 29]);
    footer
}

#[test]
fn a_footer_lists_data_files_once_and_in_order() {
    let fault = Err(FormatErrorKind::Field { name: "data files" });
    for (ids, is_valid) in [
        (vec![], true),
        (vec![0], true),
        (vec![0, 1, u64::MAX], true),
        (vec![1, 0], false),
        (vec![1, 1], false),
    ] {
        let count = u32::try_from(ids.len()).unwrap();
        let found = decode(&footer_of(count, ids.clone()), 0);
        let found = found.map(|footer| footer.files.iter().map(|file| file.file.0).collect());
        let expected = if is_valid { Ok(ids) } else { fault.clone() };
        assert_eq!(found, expected);
    }
}

#[test]
fn the_number_of_data_files_is_bounded() {
    let most = DATA_FILE_COUNT_MAX;
    let footer = decode(&footer_of(most, 0..u64::from(most)), 0).unwrap();
    assert_eq!(footer.files.len(), 1 << 20);
    for count in [most + 1, u32::MAX] {
        let fault = FormatErrorKind::Field { name: "data files" };
        assert_eq!(decode(&footer_of(count, []), 0), Err(fault));
    }
    // A count that the bytes do not contain.
    let short = decode(&footer_of(most, [1, 2]), 0).unwrap_err();
    assert!(matches!(short, FormatErrorKind::Truncated { .. }));
}

#[test]
fn a_footer_gives_the_position_in_the_log_if_it_is_known() {
    let mut footer = footer_of(0, []);
    assert_eq!(decode(&footer, 0).unwrap().position, None);
    footer[4] = 1;
    let zero = LogPosition {
        file: DataFileId(0),
        offset: 0,
        batch: 0,
        chain: 0,
    };
    assert_eq!(decode(&footer, 0).unwrap().position, Some(zero));
}

#[test]
fn the_number_of_extents_is_bounded() {
    let (bytes, footer) = part(&GOOD, Vec::new());
    let start = usize_of_u64(footer.bases.end);
    let footer = &bytes[start..bytes.len() - TRAILER_BYTES];
    // Of a leaf with `count` extents in a part with space for `space`.
    let check = |count: u32, space: u32, is_valid: bool| {
        let blocks = u64_of(2 * ENTRY_BYTES) + u64::from(space) * u64_of(EXTENT_BYTES);
        let mut footer = footer.to_vec();
        let at = footer.len() - 4;
        footer[at..].copy_from_slice(&count.to_le_bytes());
        let found = decode_at(u64_of(HEADER_BYTES) + blocks, &footer, 1);
        let fault = FormatErrorKind::Field {
            name: "block range",
        };
        assert_eq!(
            found.err(),
            (!is_valid).then_some(fault),
            "{count} in {space}"
        );
    };
    let most = INDEX_EXTENT_COUNT_MAX;
    for (count, space, is_valid) in [
        (3, 3, true),
        (4, 3, false),
        (u32::MAX, 3, false),
        (most, most, true),
        (most + 1, most + 1, false),
    ] {
        check(count, space, is_valid);
    }
}

#[test]
#[should_panic(expected = "follow each other without a gap")]
fn a_part_with_a_gap_is_never_written() {
    let _part = part(&[GOOD[0], GOOD[2]], Vec::new());
}

#[test]
fn a_part_lists_the_data_files_of_its_storage() {
    let files = [4, 9].map(|id| DataFileEntry {
        file: DataFileId(id),
        length: 4096 * id,
        checksum: 7,
    });
    let (_, footer) = part(&GOOD, files.to_vec());
    assert_eq!(footer.files, files);
    assert_eq!(footer.leaves[0].leaf_type, LeafType::Array);
}

proptest! {
    #[test]
    fn intersections_partition_an_extent(
        (leaf_offset, offset, length) in (0..1_u64 << 40, 0..1_u64 << 40, 1..1_u64 << 30),
        cut in 0..1_u64 << 30,
    ) {
        let all = extent(leaf_offset, 1, offset, length);
        let cut = leaf_offset + cut % length;
        let before = all.intersection(&(0..cut));
        let mut after = all.intersection(&(cut..u64::MAX)).unwrap();
        if let Some(before) = before {
            let mut joined = before;
            prop_assert!(joined.append(&after));
            after = joined;
        }
        prop_assert_eq!(after, all);
    }

    #[test]
    fn extents_read_back_as_they_were(
        pieces in vec((0..5_u64, 0..1_u64 << 40, 1..1_u64 << 30), 1..50),
        at in any::<u64>(),
    ) {
        let mut next = 512;
        let extents: Vec<_> = pieces.iter().map(|&(file, offset, length)| {
            let piece = extent(next, file, offset, length);
            next += length;
            piece
        }).collect();
        let (bytes, footer) = part(&extents, Vec::new());
        let leaf = &footer.leaves[0];
        let block = block(&bytes, leaf);
        let at = at % (next + 100);
        let contains = |extent: &&Extent| extent.leaf_offset <= at && at < extent.leaf_end();
        let found = extents.iter().find(contains).copied();
        prop_assert_eq!(leaf.extent_at(block, at), found);
        prop_assert_eq!(leaf.extents_in(block), Ok(extents));
    }

    #[test]
    fn foreign_footers_are_errors_or_valid_and_never_a_panic(
        bytes in vec(any::<u8>(), 0..400),
        leaf_count in 0..3_u32,
        count in 0..4_u32,
    ) {
        let _footer = decode(&bytes, leaf_count);
        let counted = [&count.to_le_bytes()[..], &bytes].concat();
        if let Ok(footer) = decode(&counted, leaf_count) {
            prop_assert!(footer.files.is_sorted_by(|a, b| a.file < b.file));
        }
    }
}
