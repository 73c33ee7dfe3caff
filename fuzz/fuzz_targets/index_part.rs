//! Footers and blocks of index parts. The input is a footer; a matching header, trailer and
//! checksums are added.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage_format::StorageId;
use storage_format::checksum::crc32c;
use storage_format::index_part::{
    ArrayBlock, Extent, Footer, IndexPartHeader, TRAILER_BYTES, TimeBases, Trailer,
};

/// Bytes of blocks that precede the footer.
const BLOCK_BYTES: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    for version in [1, 2] {
        check(input, version);
    }
});

fn check(input: &[u8], version: u16) {
    let storage = StorageId::from_bytes([7; 16]);
    let _header = IndexPartHeader::decode(input);
    let _trailer = Trailer::decode(input, input.len() as u64, storage);
    let Some((count, footer)) = input.split_first() else {
        return;
    };
    let Ok(footer_length) = u32::try_from(footer.len()) else {
        return;
    };
    let trailer = Trailer {
        footer_offset: BLOCK_BYTES,
        footer_length,
        footer_checksum: crc32c(footer),
        leaf_count: u32::from(*count),
        version,
    };
    let file_length = BLOCK_BYTES + u64::from(footer_length) + TRAILER_BYTES as u64;
    assert_eq!(
        Trailer::decode(&trailer.encode(storage), file_length, storage),
        Ok(trailer)
    );
    if let Ok(decoded) = Footer::decode(footer, &trailer) {
        for leaf in &decoded.leaves {
            assert_eq!(decoded.leaf(leaf.leaf), Some(leaf));
            assert!(leaf.block_range().end <= BLOCK_BYTES);
            if let Ok(extents) = leaf.extents_in(footer)
                && !leaf.covered.is_empty()
            {
                let ends = extents.first().zip(extents.last());
                let (first, last) = ends.expect("extents cover what the part describes");
                assert_eq!(first.leaf_offset..last.leaf_end(), leaf.covered);
                assert_eq!(leaf.extent_at(footer, first.leaf_offset), Some(*first));
            }
        }
    }
    let bases = TimeBases::decode(footer, BLOCK_BYTES).unwrap_or_default();
    if let Ok(block) = ArrayBlock::new(footer, &bases) {
        for index in 0..block.len() {
            if let Ok(entry) = block.get(index) {
                let extent = Extent {
                    leaf_offset: 0,
                    file: storage_format::DataFileId(1),
                    offset: u64::from(*count),
                    length: u64::MAX / 2,
                };
                let _descriptor = entry.descriptor(&extent);
            }
            let _facts = block.facts(index);
        }
        let _number = block.find_number(u64::from(*count));
        let position = storage_format::StreamPosition::new(1, u64::from(*count));
        let _position = block.find_position(position);
    }
}
