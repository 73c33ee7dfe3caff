//! `packets.places`: where the packets of a file are.
//!
//! ```text
//! version u8 (1) | packets u32 | bytes between the previous packet and this one, u64 each
//! | bytes of the packet, u64 each | what is added to its offset in the file to get its offset in
//! the trace, i64 each
//! ```

use std::ops::Range;

use super::AttachmentError;
use super::fields::{FieldReader, put_length};

const VERSION: u8 = 1;

/// Where a packet is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketRange {
    /// Its bytes in the file.
    pub range: Range<u64>,
    /// What is added to the start of `range` to get the offset in the trace.
    pub shift: i64,
}

impl PacketRange {
    /// A packet of a file that is a trace of its own.
    pub fn new(range: Range<u64>) -> PacketRange {
        PacketRange { range, shift: 0 }
    }

    /// Bytes of the packet.
    pub fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

/// The packets of a file, in the order of their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketRanges(pub Vec<PacketRange>);

impl PacketRanges {
    /// Name of the attachment.
    pub const NAME: &str = "packets.places";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_length(&mut out, self.0.len());
        let mut end = 0;
        for packet in &self.0 {
            assert!(
                end <= packet.range.start && packet.range.start < packet.range.end,
                "packets have bytes and are in the order of their file"
            );
            let gap = packet.range.start - end;
            out.extend_from_slice(&gap.to_le_bytes());
            end = packet.range.end;
        }
        for packet in &self.0 {
            out.extend_from_slice(&packet.length().to_le_bytes());
        }
        for packet in &self.0 {
            out.extend_from_slice(&packet.shift.to_le_bytes());
        }
        out
    }

    /// Reads what [`PacketRanges::encode`] wrote about a file of `file_length` bytes.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged, or a packet is empty or not in the file.
    pub fn decode(bytes: &[u8], file_length: u64) -> Result<PacketRanges, AttachmentError> {
        let mut reader = FieldReader::open(PacketRanges::NAME, VERSION, bytes)?;
        let count = reader.length()?;
        let columns = [
            reader.column(count, 8)?,
            reader.column(count, 8)?,
            reader.column(count, 8)?,
        ];
        let [gaps, lengths, shifts] = columns.map(|bytes| bytes.as_chunks::<8>().0);
        let mut packets = Vec::with_capacity(count);
        let mut end = 0_u64;
        for ((gap, length), shift) in gaps.iter().zip(lengths).zip(shifts) {
            let start = end.checked_add(u64::from_le_bytes(*gap));
            let range = start.and_then(|start| {
                let end = start.checked_add(u64::from_le_bytes(*length))?;
                (start < end && end <= file_length).then_some(start..end)
            });
            let range = range.ok_or_else(|| reader.damaged("a packet is outside of its file"))?;
            end = range.end;
            packets.push(PacketRange {
                range,
                shift: i64::from_le_bytes(*shift),
            });
        }
        reader.end()?;
        Ok(PacketRanges(packets))
    }
}
