//! Blocks of index parts are restored as they were written, or not at all.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use storage_format::{
    Codec, DataFileId, Kind, LeafId, LeafType, StorageId, StreamPosition,
    data_file::LeafPath,
    frame::Facts,
    index_part::{
        Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafNumbers, NewLeaf, PacketEntry,
        TimeBases,
    },
    storage_file::Totals,
};

fn entry(number: u64) -> PacketEntry {
    PacketEntry {
        number,
        offset: 600 + 128 * number,
        stored_size: 31,
        raw_size: 62,
        position: StreamPosition::new(7, number),
        facts: Facts {
            time_span: Some((5, 6)),
            // Entries refer to numbers by their place in a table.
            time_basis: Some(900 - u32::try_from(number % 2).unwrap()),
            ..Facts::default()
        },
        raw_checksum: 1,
        codec: Codec::None,
    }
}

/// What a scan finds of a leaf.
#[derive(Clone)]
struct Contents {
    packets: Vec<PacketEntry>,
    extents: Vec<Extent>,
}

fn contents() -> Contents {
    let extent = |leaf_offset, offset, length| Extent {
        leaf_offset,
        file: DataFileId(0),
        offset,
        length,
    };
    Contents {
        packets: (0..4).map(entry).collect(),
        extents: vec![extent(512, 4712, 300), extent(812, 9000, 300)],
    }
}

/// A part in which leaf 5 has these contents.
fn part(contents: &Contents) -> (Vec<u8>, Footer, TimeBases) {
    let mut builder = IndexPartBuilder::new(IndexPartHeader {
        storage: StorageId::from_bytes([7; 16]),
        ordinal: 0,
        first_ordinal: 0,
        created: 0,
    });
    // Another leaf has filled the table of time bases.
    let mut others = contents.packets.clone();
    others[0].facts.time_basis = Some(899);
    for (leaf, packets) in [(LeafId(4), &others), (LeafId(5), &contents.packets)] {
        add_leaf(&mut builder, leaf, packets, &contents.extents);
    }
    builder.finish(Vec::new(), None)
}

fn add_leaf(
    builder: &mut IndexPartBuilder,
    leaf: LeafId,
    packets: &[PacketEntry],
    extents: &[Extent],
) {
    builder.add_leaf(NewLeaf {
        leaf,
        path: LeafPath {
            agent: "a".parse().unwrap(),
            kind: Kind::Raw,
            stream: "s".parse().unwrap(),
            bucket: None,
        },
        entries: Some(packets),
        extents,
        covered: 512..1112,
        covered_checksum: 0,
        totals: Totals::default(),
        numbers: LeafNumbers {
            first: 0,
            last: 3,
            first_position: StreamPosition::new(7, 0),
            last_position: StreamPosition::new(7, 3),
        },
    });
}

#[test]
fn a_damaged_block_is_restored_if_the_rest_is_known() {
    let known = contents();
    let (bytes, footer, bases) = part(&known);
    let leaf = footer.leaf(LeafId(5)).unwrap();
    assert_eq!(leaf.leaf_type, LeafType::Array);
    let range = leaf.block_range();
    let block = &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
    let entries = leaf.entries_in(block).len();
    // Of a merged part the extents that a scan finds are longer and fewer.
    let mut joined = known.clone();
    joined.extents = vec![Extent {
        length: 600,
        ..known.extents[0]
    }];
    let mut fewer = known.clone();
    fewer.packets.pop();
    let mut other = known.clone();
    other.packets[2].raw_checksum ^= 1;
    // Damaged bytes of the block, what a scan found, and whether it suffices.
    for (name, damage, found, is_restored) in [
        ("an entry", 0..1, &known, true),
        ("the last entry", entries - 1..entries, &known, true),
        ("an extent", entries..entries + 1, &known, true),
        ("all", 0..block.len(), &known, true),
        ("an entry, extents were joined", 0..1, &joined, true),
        (
            "an extent, and they were joined",
            entries..entries + 1,
            &joined,
            false,
        ),
        ("an entry of a packet that is lost", 0..1, &fewer, false),
        (
            "an extent, and a packet is lost",
            entries..entries + 1,
            &fewer,
            true,
        ),
        ("an entry, and another packet is there", 0..1, &other, false),
        (
            "all, and another packet is there",
            0..block.len(),
            &other,
            false,
        ),
    ] {
        let mut damaged = block.to_vec();
        for byte in &mut damaged[damage] {
            *byte ^= 0x55;
        }
        let restored = leaf.restored_block(&damaged, &bases, &found.packets, &found.extents);
        assert_eq!(restored.is_some(), is_restored, "{name}");
        if let Some(restored) = restored {
            assert_eq!(restored, block, "{name}");
        }
    }
}
