//! Doors for the fuzz targets, to what sidecars keep beside their index: it is compressed and
//! checksummed in a file, which random bytes never pass. Not for readers.
//!
//! # Panics
//!
//! Each door panics when what it read is not what is read of it again after writing it.

use std::fmt::Debug;

use crate::dft::attachment as dft;
use crate::packet_files::facts as packets;
use crate::stored::attachment as leaf;

/// What an attachment of a sidecar may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// What a file of packets is.
    PacketFacts,
    /// Where the packets of a file of this length lie.
    PacketPlaces(u64),
    /// What a DFTracer file is.
    DftFacts,
    /// What the hashes of a DFTracer file stand for, where none is in a lexicon.
    DftNames,
    /// What a leaf is.
    LeafFacts,
}

/// Decodes an attachment; whether it is a sound one.
pub fn attachment(kind: Attachment, bytes: &[u8]) -> bool {
    match kind {
        Attachment::PacketFacts => again(bytes, packets::decode_facts, packets::encode_facts),
        Attachment::PacketPlaces(length) => again(
            bytes,
            |bytes| packets::decode_packets(bytes, length),
            |places| packets::encode_packets(places),
        ),
        Attachment::DftFacts => again(bytes, dft::decode_facts, dft::encode_facts),
        Attachment::DftNames => again(bytes, dft::decode_names, |names| {
            dft::encode_names(names, false)
        }),
        Attachment::LeafFacts => again(bytes, leaf::decode, leaf::encode),
    }
}

/// Decodes, and sees to it that what comes of it is written and read again as it is.
fn again<T: PartialEq + Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> bool {
    let Some(decoded) = decode(bytes) else {
        return false;
    };
    assert_eq!(decode(&encode(&decoded)).as_ref(), Some(&decoded));
    true
}
