//! LTTng's packet index: `index/STREAM.idx` in the folder of the file `STREAM`.
//!
//! ```text
//! all integers big-endian
//! offset size field
//!      0    4 magic          0xC1F1DCC1
//!      4    4 major version  1
//!      8    4 minor version  0 or 1
//!     12    4 length of an entry in bytes
//! entry:
//!      0    8 offset of the packet in the file, bytes
//!      8    8 total length, bits
//!     16    8 content length, bits
//!     24    8 clock at the beginning, cycles
//!     32    8 clock at the end, cycles
//!     40    8 counter of discarded events
//!     48    8 id of the stream class
//!     56    8 id of the stream             (minor version 1)
//!     64    8 sequence number of the packet (minor version 1)
//! ```

const MAGIC: u32 = 0xc1f1_dcc1;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES_MIN: usize = 56;
const ENTRY_BYTES_MAX: usize = 4096;

/// An entry of a packet index. Lengths are in bits, times in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketIndexEntry {
    /// Offset of the packet in the file, in bytes.
    pub offset: u64,
    /// Length of the packet.
    pub total_length: u64,
    /// Length of its content.
    pub content_length: u64,
    /// Clock at its beginning.
    pub begin_clock: u64,
    /// Clock at its end.
    pub end_clock: u64,
    /// Counter of discarded events of the stream.
    pub discarded_events: u64,
    /// Id of the stream class.
    pub stream_class: u64,
    /// Id of the stream.
    pub stream: Option<u64>,
    /// Sequence number of the packet in its stream.
    pub sequence: Option<u64>,
}

/// Reads a packet index; `None` when it is malformed or does not match a stream file of
/// `file_length` bytes: the packets must cover the file from beginning to end without gaps.
pub fn read_packet_index(bytes: &[u8], file_length: u64) -> Option<Vec<PacketIndexEntry>> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (magic, major, length) = (word(0)?, word(4)?, word(12)?);
    let length = usize::try_from(length).ok()?;
    let is_known = magic == MAGIC && major == 1;
    if !is_known || !(ENTRY_BYTES_MIN..=ENTRY_BYTES_MAX).contains(&length) {
        return None;
    }
    let entries = bytes.get(HEADER_BYTES..)?;
    if !entries.len().is_multiple_of(length) {
        return None;
    }
    let mut next = 0_u64;
    let mut found = Vec::with_capacity(entries.len() / length);
    for entry in entries.chunks_exact(length) {
        let field = |index: usize| {
            let bytes = entry.get(index * 8..index * 8 + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let entry = PacketIndexEntry {
            offset: field(0)?,
            total_length: field(1)?,
            content_length: field(2)?,
            begin_clock: field(3)?,
            end_clock: field(4)?,
            discarded_events: field(5)?,
            stream_class: field(6)?,
            stream: field(7),
            sequence: field(8),
        };
        let is_valid = entry.offset == next
            && entry.total_length > 0
            && entry.total_length.is_multiple_of(8)
            && entry.content_length <= entry.total_length
            && entry.begin_clock <= entry.end_clock;
        if !is_valid {
            return None;
        }
        next = entry.offset.checked_add(entry.total_length / 8)?;
        found.push(entry);
    }
    (next == file_length).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[[u64; 9]]) -> Vec<u8> {
        let header = [MAGIC, 1, 1, 72].into_iter().flat_map(u32::to_be_bytes);
        header
            .chain(
                entries
                    .iter()
                    .flatten()
                    .flat_map(|field| field.to_be_bytes()),
            )
            .collect()
    }

    #[test]
    fn packets_cover_the_file_without_gaps() {
        let first = [0, 800, 700, 1, 5, 0, 7, 8, 9];
        let second = [100, 80, 80, 5, 6, 2, 7, 8, 10];
        let entries = read_packet_index(&index(&[first, second]), 110).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[1].offset, entries[1].sequence), (100, Some(10)));
        assert_eq!(read_packet_index(&index(&[first, second]), 111), None);
        assert_eq!(read_packet_index(&index(&[second]), 10), None);
        assert_eq!(read_packet_index(&index(&[first])[..40], 100), None);
        assert_eq!(read_packet_index(b"no index", 0), None);
    }
}
