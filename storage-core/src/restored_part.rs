//! Index parts of finalized storages as they were written, from damaged ones and the frames.
//!
//! A part that is written anew is another file: the storage file has to list it, and the seal of
//! the storage is broken. So what is damaged in a part is made again where it is, and only used if
//! the part has the checksum that the storage file lists.

use std::path::Path;

use storage_format::{
    StorageId,
    checksum::crc32c,
    index_part::{
        Extent, Footer, HEADER_BYTES, IndexPartHeader, PacketEntry, TRAILER_BYTES, TimeBases,
        Trailer,
    },
    storage_file::FileEntry,
};

use crate::{
    read::read_at,
    tree::{IndexTree, Leaf, Sealed, SegmentBody},
};

/// Bytes of the checksum at the end of a header.
const CHECKSUM_BYTES: usize = size_of::<u32>();

/// A part to be written.
pub(crate) type Encoded = (IndexPartHeader, Vec<u8>, Footer, TimeBases);

/// The bytes of the part at `path` as it is listed, from those that are there and the packets of
/// `tree`, which was rebuilt from the frames; `None` if that does not suffice, and `Some(None)` if
/// nothing is damaged. Blocks the thread.
pub(crate) fn restored(
    path: &Path,
    listed: &FileEntry,
    storage: StorageId,
    tree: &IndexTree,
) -> Option<Option<Vec<u8>>> {
    let length = usize::try_from(listed.length).ok()?;
    let mut bytes = read_at(path, 0, length).ok()?;
    if crc32c(&bytes) == listed.checksum {
        return Some(None);
    }
    let header = header_of(&bytes, storage)?.encode();
    bytes.get_mut(..HEADER_BYTES)?.copy_from_slice(&header);
    let trailer = bytes.get(length.checked_sub(TRAILER_BYTES)?..)?;
    let trailer = Trailer::decode(trailer, listed.length, storage).ok()?;
    let start = usize::try_from(trailer.footer_offset).ok()?;
    let end = start.checked_add(usize::try_from(trailer.footer_length).ok()?)?;
    let footer = Footer::decode(bytes.get(start..end)?, &trailer).ok()?;
    let bases = footer.time_bases(&bytes).ok()?;
    for entry in &footer.leaves {
        let range = entry.block_range();
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        let block = bytes.get_mut(range)?;
        if entry.check_block(block).is_ok() {
            continue;
        }
        let (packets, extents) = contents(tree.leaf(entry.leaf)?, &entry.covered);
        let restored = entry.restored_block(block, &bases, &packets, &extents)?;
        block.copy_from_slice(&restored);
    }
    (crc32c(&bytes) == listed.checksum).then_some(Some(bytes))
}

/// The part that is listed, if its header was the one at `path` and it had all that `sealed` has.
/// Blocks the thread.
pub(crate) fn written_again(
    path: &Path,
    listed: &FileEntry,
    storage: StorageId,
    sealed: &Sealed,
) -> Option<Encoded> {
    let header = header_of(&read_at(path, 0, HEADER_BYTES).ok()?, storage)?;
    let (bytes, footer, bases) = sealed.encode_with(header);
    let is_listed = bytes.len() as u64 == listed.length && crc32c(&bytes) == listed.checksum;
    is_listed.then_some((header, bytes, footer, bases))
}

/// The header of a part with these bytes, as it was written. Nothing else has its ordinals and its
/// time, so its checksum must be that of the header with them: the checksum of the whole part is
/// the same with any header that contains its own.
fn header_of(bytes: &[u8], storage: StorageId) -> Option<IndexPartHeader> {
    let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
    let header = IndexPartHeader::unchecked(bytes, storage)?;
    let (_, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    header.encode().ends_with(checksum).then_some(header)
}

/// The packets of a range of a leaf, and where its bytes are.
fn contents(leaf: &Leaf, covered: &std::ops::Range<u64>) -> (Vec<PacketEntry>, Vec<Extent>) {
    let (mut packets, mut extents) = (Vec::new(), Vec::new());
    for segment in leaf.segments() {
        if let SegmentBody::Memory(entries) = &segment.body {
            let of_range = entries
                .iter()
                .filter(|entry| covered.contains(&entry.offset));
            packets.extend(of_range);
        }
        let of_range = segment.extents.iter();
        extents.extend(of_range.filter_map(|extent| extent.intersection(covered)));
    }
    (packets, extents)
}
