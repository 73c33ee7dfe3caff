//! Entry points for fuzz targets, past compression and checksums.

use std::fmt::Debug;

use super::{
    AttachmentError, ChromeUnpaired, DftDamage, DftFacts, DftName, DftNames, FileStamp, LeafFacts,
    PacketFileFacts, PacketRanges, encode_dft_names,
};

/// An attachment to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// `packets.facts`
    PacketFileFacts,
    /// `packets.places` of a file of this length.
    PacketRanges(u64),
    /// `dft.facts`
    DftFacts,
    /// `dft.damage`
    DftDamage,
    /// `dft.names`
    DftNames,
    /// `leaf.facts`
    LeafFacts,
    /// `file.stamp`
    FileStamp,
    /// `chrome.unpaired`
    ChromeUnpaired,
}

/// Decodes an attachment; whether it is valid.
///
/// # Panics
///
/// When a valid attachment changes by being encoded and decoded again.
pub fn attachment(kind: Attachment, bytes: &[u8]) -> bool {
    match kind {
        Attachment::PacketFileFacts => {
            round_trip(bytes, PacketFileFacts::decode, PacketFileFacts::encode)
        }
        Attachment::PacketRanges(length) => round_trip(
            bytes,
            |bytes| PacketRanges::decode(bytes, length),
            PacketRanges::encode,
        ),
        Attachment::DftFacts => round_trip(bytes, DftFacts::decode, DftFacts::encode),
        Attachment::DftDamage => round_trip(bytes, DftDamage::decode, DftDamage::encode),
        Attachment::LeafFacts => round_trip(bytes, LeafFacts::decode, LeafFacts::encode),
        Attachment::FileStamp => round_trip(bytes, FileStamp::decode, FileStamp::encode),
        Attachment::ChromeUnpaired => {
            round_trip(bytes, ChromeUnpaired::decode, ChromeUnpaired::encode)
        }
        Attachment::DftNames => {
            let encode = |names: &DftNames<'_>| {
                let names: Vec<DftName<'_>> = names.iter().collect();
                encode_dft_names(&names, |_| false)
            };
            let Ok(names) = DftNames::decode(bytes) else {
                return false;
            };
            // Text of hexadecimal digits has two forms, of which only one is written.
            let written = encode(&names);
            let again = DftNames::decode(&written).map(|names| encode(&names));
            assert_eq!(again, Ok(written));
            true
        }
    }
}

fn round_trip<T: PartialEq + Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, AttachmentError>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> bool {
    let Ok(decoded) = decode(bytes) else {
        return false;
    };
    assert_eq!(decode(&encode(&decoded)).as_ref(), Ok(&decoded));
    true
}
