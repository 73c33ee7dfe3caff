//! What the sidecar of a file of packets keeps beside the index: what the file is, and where its
//! packets lie.
//!
//! ```text
//! facts    version u8 (1), kind u8, CRC32C of the trace metadata u32, checksum of the folder u32,
//!          place among the files of the folder u32, metadata records u64, broken records u64,
//!          length u8 and bytes of the header that RocksDB records are entered with (0: none),
//!          length u32 and bytes of the fault that ends the file (0: none)
//! packets  version u8 (1), count u32; then in columns: bytes between the packet before and this
//!          one u64 each, bytes of the packet u64 each, what is to be added to its place to have
//!          its offset in the trace i64 each
//! ```
//!
//! Integers are little-endian. Columns lie side by side because that is what makes them compress.

use std::ops::Range;

use storage_format::Kind;
use trace_kinds::Decoded;
use trace_kinds::rocksdb::TraceHeader;

/// Under which name the sidecar keeps the facts.
pub(crate) const FACTS: &str = "packets.facts";
/// Under which name the sidecar keeps where the packets lie.
pub(crate) const PACKETS: &str = "packets.places";
const VERSION: u8 = 1;
/// Bytes of a fault that are kept.
const FAULT_BYTES_MAX: usize = 1 << 10;

/// Of which trace a file is a part. Where these are the same, so are the packets that are read of
/// it, if it is the same itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// CRC32C of the metadata of its folder; 0 for a file alone.
    pub(crate) metadata: u32,
    /// [`ctf_folder::FolderParts::checksum`]; 0 for a file alone.
    pub(crate) folder: u32,
    /// Where it stands among the sources of its folder.
    pub(crate) place: u32,
}

/// What an index says about its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) stamp: Stamp,
    /// Metadata and broken records; events are counted by the chunks.
    pub(crate) decoded: Decoded,
    /// The header in front of RocksDB's records that are read from the middle of their file.
    pub(crate) entry: Option<TraceHeader>,
    /// Why the file cannot be read to its end.
    pub(crate) fault: Option<String>,
}

/// Where a packet lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PacketAt {
    /// Its bytes in the file.
    pub(crate) range: Range<u64>,
    /// What is to be added to their begin to have the offset in the trace.
    pub(crate) shift: i64,
}

impl PacketAt {
    /// A packet whose file is its trace.
    pub(crate) fn of(range: Range<u64>) -> PacketAt {
        PacketAt { range, shift: 0 }
    }

    pub(crate) fn length(&self) -> u64 {
        self.range.end - self.range.start
    }
}

pub(crate) fn encode_facts(facts: &Facts) -> Vec<u8> {
    let mut out = vec![VERSION, facts.kind.code()];
    for word in [facts.stamp.metadata, facts.stamp.folder, facts.stamp.place] {
        out.extend(word.to_le_bytes());
    }
    out.extend(facts.decoded.metadata.to_le_bytes());
    out.extend(facts.decoded.broken.to_le_bytes());
    let mut entry = Vec::new();
    if let Some(header) = &facts.entry {
        header.put(&mut entry);
    }
    // 54 bytes.
    out.push(entry.len() as u8);
    out.extend(entry);
    let fault = facts.fault.as_deref().unwrap_or_default();
    let fault = &fault[..fault.floor_char_boundary(FAULT_BYTES_MAX)];
    out.extend((fault.len() as u32).to_le_bytes());
    out.extend_from_slice(fault.as_bytes());
    out
}

/// Reads what [`encode_facts`] wrote; `None` where it is damaged or of another version.
pub(crate) fn decode_facts(bytes: &[u8]) -> Option<Facts> {
    let mut reader = Reader(bytes);
    let [VERSION, kind] = *reader.take(2)? else {
        return None;
    };
    let stamp = Stamp {
        metadata: reader.word()?,
        folder: reader.word()?,
        place: reader.word()?,
    };
    let decoded = Decoded {
        events: 0,
        metadata: reader.long()?,
        broken: reader.long()?,
    };
    let length = reader.take(1)?[0];
    let entry = match reader.take(usize::from(length))? {
        [] => None,
        bytes => match TraceHeader::read(bytes) {
            Ok((header, used)) if used == bytes.len() => Some(header),
            _ => return None,
        },
    };
    let length = usize::try_from(reader.word()?).ok()?;
    if length > FAULT_BYTES_MAX {
        return None;
    }
    let fault = reader.take(length)?;
    let fault = std::str::from_utf8(fault).ok()?;
    reader.0.is_empty().then_some(Facts {
        kind: Kind::from_code(kind)?,
        stamp,
        decoded,
        entry,
        fault: (!fault.is_empty()).then(|| fault.to_owned()),
    })
}

pub(crate) fn encode_packets(packets: &[PacketAt]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend((packets.len() as u32).to_le_bytes());
    let mut end = 0;
    for packet in packets {
        out.extend((packet.range.start - end).to_le_bytes());
        end = packet.range.end;
    }
    for packet in packets {
        out.extend(packet.length().to_le_bytes());
    }
    for packet in packets {
        out.extend(packet.shift.to_le_bytes());
    }
    out
}

/// Reads what [`encode_packets`] wrote about a file of `length` bytes; `None` where it is damaged,
/// of another version, or of another file.
pub(crate) fn decode_packets(bytes: &[u8], length: u64) -> Option<Vec<PacketAt>> {
    let mut reader = Reader(bytes);
    if reader.take(1)? != [VERSION] {
        return None;
    }
    let count = usize::try_from(reader.word()?).ok()?;
    let column = count.checked_mul(8)?;
    let columns = [
        reader.take(column)?,
        reader.take(column)?,
        reader.take(column)?,
    ];
    let [gaps, lengths, shifts] = columns.map(|bytes| bytes.as_chunks::<8>().0);
    let mut packets = Vec::with_capacity(count);
    let mut end = 0_u64;
    for ((gap, bytes), shift) in gaps.iter().zip(lengths).zip(shifts) {
        let start = end.checked_add(u64::from_le_bytes(*gap))?;
        end = start.checked_add(u64::from_le_bytes(*bytes))?;
        if end > length || start == end {
            return None;
        }
        packets.push(PacketAt {
            range: start..end,
            shift: i64::from_le_bytes(*shift),
        });
    }
    reader.0.is_empty().then_some(packets)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trace_kinds::rocksdb::Continuation;

    use super::*;

    fn facts() -> impl Strategy<Value = Facts> {
        let numbers = any::<(u32, u32, u32, u64, u64)>();
        let entry = proptest::option::of(any::<(u64, u32, u32, u64)>());
        let fault = proptest::option::of("[a-zé ]{1,40}");
        (0..Kind::ALL.len(), numbers, entry, fault).prop_map(|(kind, numbers, entry, fault)| {
            Facts {
                kind: Kind::ALL[kind],
                stamp: Stamp {
                    metadata: numbers.0,
                    folder: numbers.1,
                    place: numbers.2,
                },
                decoded: Decoded {
                    events: 0,
                    metadata: numbers.3,
                    broken: numbers.4,
                },
                entry: entry.map(|(start_us, major, minor, first_time)| TraceHeader {
                    start_us,
                    major,
                    minor,
                    continuation: Some(Continuation {
                        first_time,
                        offset: 0,
                    }),
                }),
                fault,
            }
        })
    }

    proptest! {
        #[test]
        fn facts_come_back(facts in facts(), cut in any::<prop::sample::Index>()) {
            let bytes = encode_facts(&facts);
            prop_assert_eq!(decode_facts(&bytes), Some(facts));
            prop_assert_eq!(decode_facts(&bytes[..cut.index(bytes.len())]), None);
        }

        #[test]
        fn packets_come_back(
            packets in proptest::collection::vec((0_u64..9, 1_u64..9, any::<i64>()), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut end = 0;
            let mut place = |(gap, length, shift)| {
                let start = end + gap;
                end = start + length;
                PacketAt { range: start..end, shift }
            };
            let packets: Vec<PacketAt> = packets.into_iter().map(&mut place).collect();
            let bytes = encode_packets(&packets);
            prop_assert_eq!(decode_packets(&bytes, end), Some(packets.clone()));
            prop_assert_eq!(decode_packets(&bytes[..cut.index(bytes.len())], end), None);
            if !packets.is_empty() {
                prop_assert_eq!(decode_packets(&bytes, end - 1), None);
            }
        }

        #[test]
        fn random_bytes_are_never_fatal(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            decode_facts(&bytes);
            decode_packets(&bytes, 50);
            decode_packets(&[&[VERSION, 1, 0, 0, 0][..], &bytes].concat(), u64::MAX);
        }
    }

    #[test]
    fn a_long_fault_is_cut() {
        let long = Facts {
            kind: Kind::Ctf,
            stamp: Stamp::default(),
            decoded: Decoded::default(),
            entry: None,
            fault: Some("é".repeat(FAULT_BYTES_MAX)),
        };
        let bytes = encode_facts(&long);
        let decoded = decode_facts(&bytes).unwrap();
        assert_eq!(decoded.fault.unwrap().len(), FAULT_BYTES_MAX);
        // Nobody wrote a longer one.
        let at = bytes.len() - FAULT_BYTES_MAX - 4;
        let length = (FAULT_BYTES_MAX as u32 + 2).to_le_bytes();
        let longer = [&bytes[..at], &length, &bytes[at + 4..], "é".as_bytes()].concat();
        assert_eq!(decode_facts(&longer), None);
    }

    #[test]
    fn a_header_fills_its_place() {
        let header = TraceHeader {
            start_us: 1,
            major: 7,
            minor: 8,
            continuation: None,
        };
        let facts = Facts {
            kind: Kind::RocksdbIo,
            stamp: Stamp::default(),
            decoded: Decoded::default(),
            entry: Some(header),
            fault: None,
        };
        let bytes = encode_facts(&facts);
        assert_eq!(decode_facts(&bytes), Some(facts));
        let (front, end) = bytes.split_at(bytes.len() - 4);
        let at = 2 + 3 * 4 + 2 * 8;
        let mut longer = [front, &[0], end].concat();
        longer[at] += 1;
        assert_eq!(decode_facts(&longer), None);
    }
}
