//! What the chunk index of a leaf keeps of the leaf itself, so that it is not taken for another's.
//!
//! ```text
//! version u8 (1) | storage 16 bytes | leaf u64 | unit of times u8 | CRC32C of the metadata u32 |
//! metadata records u64 | broken records u64
//! ```
//!
//! Integers are little-endian. The unit is that of DFTracer streams: 0 ns, 1 µs, 2 ms, 3 s.

use storage_format::{LeafId, StorageId};
use trace_kinds::Decoded;
use trace_kinds::dft::TimeUnit;

use crate::dft::attachment::{code_of_unit, unit_of_code};

/// Under which name the index keeps the facts.
pub(crate) const FACTS: &str = "leaf.facts";
const VERSION: u8 = 1;
const BYTES: usize = 1 + 16 + 8 + 1 + 4 + 8 + 8;

/// What an index says about its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafFacts {
    pub(crate) storage: StorageId,
    pub(crate) leaf: LeafId,
    pub(crate) unit: TimeUnit,
    /// [`super::AgentTrace::checksum`]
    pub(crate) metadata_checksum: u32,
    /// Metadata and broken records; events are counted by the chunks.
    pub(crate) decoded: Decoded,
}

pub(crate) fn encode(facts: &LeafFacts) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(facts.storage.as_bytes());
    out.extend(facts.leaf.0.to_le_bytes());
    out.push(code_of_unit(facts.unit));
    out.extend(facts.metadata_checksum.to_le_bytes());
    out.extend(facts.decoded.metadata.to_le_bytes());
    out.extend(facts.decoded.broken.to_le_bytes());
    out
}

/// Reads what [`encode`] wrote; `None` where it is damaged or of another version.
pub(crate) fn decode(bytes: &[u8]) -> Option<LeafFacts> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let long = |at: usize| {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let word = bytes.get(26..30)?.try_into().ok()?;
    (bytes[0] == VERSION).then_some(LeafFacts {
        storage: StorageId::from_bytes(bytes.get(1..17)?.try_into().ok()?),
        leaf: LeafId(long(17)?),
        unit: unit_of_code(bytes[25])?,
        metadata_checksum: u32::from_le_bytes(word),
        decoded: Decoded {
            events: 0,
            metadata: long(30)?,
            broken: long(38)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back() {
        let facts = LeafFacts {
            storage: StorageId::from_bytes(*b"0123456789abcdef"),
            leaf: LeafId(0x1234_5678_9abc_def0),
            unit: TimeUnit::Second,
            metadata_checksum: 0xdead_beef,
            decoded: Decoded {
                events: 0,
                metadata: 7,
                broken: u64::MAX,
            },
        };
        let bytes = encode(&facts);
        assert_eq!(decode(&bytes), Some(facts));
        assert_eq!(decode(&bytes[1..]), None);
        let newer = [&[VERSION + 1], &bytes[1..]].concat();
        assert_eq!(decode(&newer), None);
    }
}
