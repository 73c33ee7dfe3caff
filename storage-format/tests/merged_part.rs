//! Index parts that replace several others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use storage_format::{
    Codec, DataFileId, FormatErrorKind, Kind, LeafId, StorageId, StreamPosition,
    data_file::LeafPath,
    frame::Facts,
    index_part::{
        ArrayBlock, ENTRY_BYTES, Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafEntry,
        LeafNumbers, NewLeaf, PacketEntry, StoredBlock, TRAILER_BYTES, TimeBases, Trailer,
    },
    integer::usize_of_u64,
    storage_file::Totals,
};

fn storage() -> StorageId {
    StorageId::from_bytes([7; 16])
}

/// Packets of each leaf in a part, and bytes of each packet with its header.
const PACKETS: u64 = 3;
const PACKET_BYTES: u64 = 100;

/// The packet of a leaf with this index. Parts have their time bases in different orders.
fn entry(leaf: u64, at: u64) -> PacketEntry {
    PacketEntry {
        number: 10 * at + leaf,
        offset: 512 + PACKET_BYTES * at + 96,
        stored_size: 4,
        raw_size: 4,
        position: StreamPosition::new(1, at),
        facts: Facts {
            time_span: Some((0, 1)),
            time_basis: [Some(77), None, Some(88)][usize_of_u64((at * at + leaf) % 3)],
            ..Facts::default()
        },
        raw_checksum: 5,
        codec: Codec::None,
    }
}

fn path(leaf: u64) -> LeafPath {
    LeafPath {
        agent: "a".parse().unwrap(),
        kind: Kind::Raw,
        stream: format!("s{leaf}").parse().unwrap(),
        bucket: None,
    }
}

/// A part that was read.
struct Part {
    bytes: Vec<u8>,
    header: IndexPartHeader,
    footer: Footer,
    bases: TimeBases,
}

impl Part {
    fn read(bytes: Vec<u8>) -> Self {
        let trailer = &bytes[bytes.len() - TRAILER_BYTES..];
        let trailer = Trailer::decode(trailer, bytes.len() as u64, storage()).unwrap();
        let at = usize_of_u64(trailer.footer_offset);
        let footer = &bytes[at..bytes.len() - TRAILER_BYTES];
        let footer = Footer::decode(footer, &trailer).unwrap();
        Self {
            header: IndexPartHeader::decode(&bytes).unwrap(),
            bases: footer.time_bases(&bytes).unwrap(),
            footer,
            bytes,
        }
    }

    /// The part with this ordinal; some leaves are not in all parts.
    fn new(ordinal: u64, leaves: &[u64]) -> Self {
        let mut builder = IndexPartBuilder::new(header(ordinal, ordinal));
        for &leaf in leaves {
            let first = ordinal * PACKETS;
            let entries: Vec<_> = (first..first + PACKETS).map(|at| entry(leaf, at)).collect();
            let start = 512 + first * PACKET_BYTES;
            let covered = start..start + PACKETS * PACKET_BYTES;
            let (head, tail) = (entries[0], entries[entries.len() - 1]);
            builder.add_leaf(NewLeaf {
                leaf: LeafId(leaf),
                path: path(leaf),
                // Leaf 2 is a plain one.
                entries: (leaf != 2).then_some(&entries),
                extents: &[Extent {
                    leaf_offset: covered.start,
                    file: DataFileId(ordinal),
                    offset: 4096,
                    length: covered.end - covered.start,
                }],
                covered,
                covered_checksum: 100 + u32::try_from(ordinal).unwrap(),
                totals: Totals {
                    packets: PACKETS,
                    ..Totals::default()
                },
                numbers: LeafNumbers {
                    first: head.number,
                    last: tail.number,
                    first_position: head.position,
                    last_position: tail.position,
                },
            });
        }
        Self::read(builder.finish(Vec::new(), None).0)
    }

    fn block<'a>(&'a self, entry: &'a LeafEntry) -> StoredBlock<'a> {
        let range = entry.block_range();
        let bytes = &self.bytes[usize_of_u64(range.start)..usize_of_u64(range.end)];
        entry.check_block(bytes).unwrap();
        let bases = &self.bases;
        StoredBlock {
            entry,
            bytes,
            bases,
        }
    }

    /// The packets and extents of a leaf.
    fn contents(&self, leaf: u64) -> (Vec<PacketEntry>, Vec<Extent>) {
        let (mut packets, mut extents) = (Vec::new(), Vec::new());
        let of_leaf = |entry: &&LeafEntry| entry.leaf == LeafId(leaf);
        for entry in self.footer.leaves.iter().filter(of_leaf) {
            let block = self.block(entry);
            let entries = ArrayBlock::new(entry.entries_in(block.bytes), &self.bases).unwrap();
            packets.extend((0..entries.len()).map(|at| entries.get(at).unwrap()));
            extents.extend(entry.extents_in(block.bytes).unwrap());
        }
        (packets, extents)
    }
}

fn header(first_ordinal: u64, ordinal: u64) -> IndexPartHeader {
    IndexPartHeader {
        storage: storage(),
        ordinal,
        first_ordinal,
        created: 9,
    }
}

fn parts() -> [Part; 3] {
    [
        Part::new(0, &[1, 2]),
        Part::new(1, &[1, 2, 3]),
        Part::new(2, &[1, 2]),
    ]
}

/// The blocks of a leaf in parts.
fn blocks(parts: &[Part], leaf: u64) -> Vec<StoredBlock<'_>> {
    let found = parts.iter().filter_map(|part| {
        let entry = part.footer.leaf(LeafId(leaf))?;
        Some(part.block(entry))
    });
    found.collect()
}

/// The merged part; the blocks of leaf 1 become two.
fn merged(parts: &[Part]) -> Vec<u8> {
    let mut builder = IndexPartBuilder::new(header(0, 2));
    let mut bytes = Vec::new();
    let first = blocks(parts, 1);
    builder.add_joined(&first[..2]).unwrap();
    bytes.extend(builder.take());
    builder.add_joined(&first[2..]).unwrap();
    builder.add_joined(&blocks(parts, 2)).unwrap();
    bytes.extend(builder.take());
    builder.add_joined(&blocks(parts, 3)).unwrap();
    let (rest, footer, bases) = builder.finish(Vec::new(), None);
    bytes.extend(rest);
    let read = Part::read(bytes.clone());
    assert_eq!((&read.footer, &read.bases), (&footer, &bases));
    bytes
}

#[test]
fn a_merged_part_has_the_packets_of_its_parts_and_keeps_its_bytes() {
    let parts = parts();
    let bytes = merged(&parts);
    let part = Part::read(bytes.clone());
    assert_eq!(part.header, header(0, 2));
    let leaves: Vec<_> = part
        .footer
        .leaves
        .iter()
        .map(|entry| entry.leaf.0)
        .collect();
    assert_eq!(leaves, [1, 1, 2, 3]);
    for leaf in 1..=3 {
        let (mut packets, mut extents) = (Vec::new(), Vec::new());
        for part in &parts {
            let (more_packets, more_extents) = part.contents(leaf);
            packets.extend(more_packets);
            extents.extend(more_extents);
        }
        assert_eq!(part.contents(leaf), (packets, extents), "leaf {leaf}");
    }
    let joined = &part.footer.leaves[0];
    assert_eq!(joined.covered, 512..512 + 2 * PACKETS * PACKET_BYTES);
    assert_eq!((joined.totals.packets, joined.covered_checksum), (6, 101));
    assert_eq!((joined.numbers.first, joined.numbers.last), (1, 51));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v2/merged.index");
    if !path.exists() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn blocks_that_do_not_follow_each_other_are_refused() {
    let parts = parts();
    let all = blocks(&parts, 1);
    let check = |blocks: &[StoredBlock<'_>]| {
        let mut builder = IndexPartBuilder::new(header(0, 2));
        let error = builder.add_joined(blocks).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Order { name: "leaf" });
    };
    check(&[all[0], all[2]]);
    check(&[all[1], all[0]]);
    check(&[all[0], all[0]]);
    check(&[all[0], blocks(&parts, 2)[1]]);
    let other = LeafEntry {
        path: path(8),
        ..all[1].entry.clone()
    };
    let renamed = StoredBlock {
        entry: &other,
        ..all[1]
    };
    check(&[all[0], renamed]);
}

#[test]
fn entries_out_of_order_are_refused() {
    let parts = parts();
    let all = blocks(&parts, 1);
    // The record is that of the second part, the bytes are not.
    let swapped = StoredBlock {
        bytes: all[0].bytes,
        ..all[1]
    };
    let mut builder = IndexPartBuilder::new(header(0, 2));
    let error = builder.add_joined(&[all[0], swapped]).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Order { name: "packets" });
}

#[test]
fn number_offset_and_position_grow_each_for_itself() {
    let parts = parts();
    let all = blocks(&parts, 1);
    let last = all[0].entry.entries_in(all[0].bytes);
    let last = &last[last.len() - ENTRY_BYTES..];
    for (field, range) in [("number", 0..8), ("offset", 8..16), ("position", 24..40)] {
        let mut bytes = all[1].bytes.to_vec();
        bytes[range.clone()].copy_from_slice(&last[range]);
        let repeated = StoredBlock {
            bytes: &bytes,
            ..all[1]
        };
        let mut builder = IndexPartBuilder::new(header(0, 2));
        let error = builder.add_joined(&[all[0], repeated]).unwrap_err();
        let expected = FormatErrorKind::Order { name: "packets" };
        assert_eq!(error.kind, expected, "{field}");
    }
    let mut builder = IndexPartBuilder::new(header(0, 2));
    let head = builder.waiting();
    builder.add_joined(&all).unwrap();
    let bytes: usize = all.iter().map(|block| block.bytes.len()).sum();
    assert_eq!(builder.waiting(), head + bytes);
    assert_eq!(builder.take().len(), head + bytes);
    assert_eq!(builder.waiting(), 0);
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let bytes = header(3, 9).encode();
    assert_eq!(IndexPartHeader::decode(&bytes).unwrap(), header(3, 9));
    for at in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[at] ^= 4;
        assert!(IndexPartHeader::decode(&damaged).is_err(), "byte {at}");
    }
    // More ordinals than there are before the part.
    let mut impossible = header(0, 9).encode();
    impossible[48] = 10;
    let checksum = storage_format::checksum::crc32c(&impossible[..60]);
    impossible[60..].copy_from_slice(&checksum.to_le_bytes());
    let error = IndexPartHeader::decode(&impossible).unwrap_err();
    let name = "replaced ordinals";
    assert_eq!(error.kind, FormatErrorKind::Field { name });
}

/// A part that is written again because bytes of its leaves are in other places now.
#[test]
fn a_part_is_written_again_with_other_places() {
    let part = Part::new(1, &[1, 2, 3]);
    let moved = |leaf: u64| {
        let extents = part.contents(leaf).1.into_iter();
        let extents = extents.flat_map(|extent| {
            let half = Extent {
                file: DataFileId(70),
                offset: 9000 + leaf,
                length: extent.length / 2,
                ..extent
            };
            let rest = Extent {
                leaf_offset: half.leaf_end(),
                file: DataFileId(71),
                length: extent.length - half.length,
                ..half
            };
            [half, rest]
        });
        extents.collect::<Vec<_>>()
    };
    let mut builder = IndexPartBuilder::new(part.header);
    let mut bytes = Vec::new();
    for entry in &part.footer.leaves {
        let block = part.block(entry);
        builder.add_moved(&block, &moved(entry.leaf.0)).unwrap();
        bytes.extend(builder.take());
    }
    let (rest, footer, bases) = builder.finish(Vec::new(), None);
    bytes.extend(rest);
    let read = Part::read(bytes);
    assert_eq!((&read.footer, &read.bases), (&footer, &bases));
    assert_eq!(read.header, part.header);
    for leaf in 1..=3 {
        assert_eq!(read.contents(leaf).0, part.contents(leaf).0);
        assert_eq!(read.contents(leaf).1, moved(leaf));
    }
    for (entry, before) in read.footer.leaves.iter().zip(&part.footer.leaves) {
        let same = LeafEntry {
            block_offset: before.block_offset,
            block_extents: before.block_extents,
            block_checksum: before.block_checksum,
            ..entry.clone()
        };
        assert_eq!(same, *before);
    }
    // Extents that are not those of the block.
    let entry = &part.footer.leaves[0];
    let whole = moved(1);
    for wrong in [&[], &whole[..1], &whole[1..], &[whole[0], whole[0]]] {
        let mut builder = IndexPartBuilder::new(part.header);
        let refused = builder.add_moved(&part.block(entry), wrong).unwrap_err();
        let name = "extents";
        assert_eq!(refused.kind, FormatErrorKind::Order { name });
    }
}
