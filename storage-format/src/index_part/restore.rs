//! Blocks of index parts as they were, from what they describe.

use super::{
    bases::{TimeBases, TimeBasesBuilder},
    block::PacketEntry,
    extent::Extent,
    footer::LeafEntry,
};

impl LeafEntry {
    /// The block of this leaf as it was written, from its damaged bytes and the packets and extents
    /// of `covered`; `None` if these do not give it. The record has the checksum of the block, so
    /// no other block is returned.
    #[must_use]
    pub fn restored_block(
        &self,
        damaged: &[u8],
        bases: &TimeBases,
        packets: &[PacketEntry],
        extents: &[Extent],
    ) -> Option<Vec<u8>> {
        let mut bases = TimeBasesBuilder::of(bases);
        let packets: Vec<u8> = (packets.iter())
            .flat_map(|packet| packet.encode(&mut bases))
            .collect();
        let extents: Vec<u8> = extents.iter().flat_map(Extent::encode).collect();
        let old_packets = self.entries_in(damaged);
        let old_extents = damaged.get(old_packets.len()..).unwrap_or_default();
        // Merged parts have extents that could be one, and the others may be intact.
        let candidates = [
            (&packets[..], &extents[..]),
            (&packets[..], old_extents),
            (old_packets, &extents[..]),
        ];
        let blocks = candidates.map(|parts| [parts.0, parts.1].concat());
        let is_block = |block: &Vec<u8>| self.check_block(block).is_ok();
        blocks.into_iter().find(is_block)
    }
}
