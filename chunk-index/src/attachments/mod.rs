//! Attachments: versioned sections of a sidecar that describe its file or leaf.
//!
//! An attachment is stored under its name in a block of its own, compressed and checksummed like
//! every block of the [index](crate::Index). These modules own the bytes inside; what the numbers
//! mean to a kind of trace is the reader's business.
//!
//! | name | in | contents | version |
//! | --- | --- | --- | --- |
//! | `dft.facts` | indexes of DFTracer files | [`DftFacts`] | 2 |
//! | `dft.damage` | indexes of damaged DFTracer files | [`DftDamage`] | 1 |
//! | `dft.names` | indexes of DFTracer files, and of leaves with DFTracer packets | [`DftNames`] | 3 |
//! | `packets.facts` | indexes of files of packets | [`PacketFileFacts`] | 1 |
//! | `packets.places` | indexes of files of packets | [`PacketRanges`] | 1 |
//! | `chrome.unpaired` | indexes of Chrome traces, and of leaves with their packets | [`ChromeUnpaired`] | 1 |
//! | `file.stamp` | indexes of files | [`FileStamp`] | 1 |
//! | `leaf.facts` | indexes of leaves | [`LeafFacts`] | 3 |
//!
//! Encoding and decoding are pure functions. Integers are little-endian. Columns are stored one
//! after another because equal kinds of values compress better together. All attachments are
//! derived: one of another version, or a damaged one, means that the file is indexed again.

mod chrome_unpaired;
mod dft_damage;
mod dft_facts;
mod dft_names;
mod error;
mod fields;
mod file_stamp;
pub(crate) mod fuzzing;
mod leaf_facts;
mod packet_file_facts;
mod packet_ranges;
mod unit;

#[cfg(test)]
mod tests;

pub use chrome_unpaired::{ChromeUnpaired, StoredMark};
pub use dft_damage::{DamagedPart, DftDamage};
pub use dft_facts::{DftFacts, HASH_KINDS};
pub use dft_names::{DftName, DftNames, StoredHash, encode_dft_names, sort_dft_names};
pub use error::AttachmentError;
pub use file_stamp::FileStamp;
pub use leaf_facts::LeafFacts;
pub use packet_file_facts::{PacketFileFacts, TraceStamp};
pub use packet_ranges::{PacketRange, PacketRanges};
pub use unit::StoredUnit;
