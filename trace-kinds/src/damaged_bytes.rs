//! Bytes of a file that cannot be read, as a packet of any kind.
//!
//! A push stores them, so that an export gives the file back, in a form that no decoder takes for
//! records: a piece of a gzip member that ends before it begins. The text before the piece says
//! what is wrong. A packet without bytes says that something is missing.

use crate::DecodeError;
use crate::gzip::{Entry, Piece, PieceEnd, PiecePacket, is_piece};

/// Bytes of a reason; what is longer is cut.
const REASON_BYTES_MAX: usize = 1024;

/// A packet of bytes that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedBytes<'p> {
    reason: &'p [u8],
    bytes: &'p [u8],
}

impl<'p> DamagedBytes<'p> {
    /// The packet of these bytes.
    pub fn encode(reason: &str, bytes: &[u8]) -> Vec<u8> {
        let entry = Entry {
            bit_offset: 0,
            text_offset: 0,
            window: None,
        };
        let piece = Piece {
            entry: &entry,
            end: PieceEnd::Block { bit_offset: 0 },
            text_len: 1,
        };
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        PiecePacket::of(&piece, bytes, reason.as_bytes(), 1).encode()
    }

    /// `None` if the packet is another one.
    pub fn decode(packet: &'p [u8]) -> Option<Self> {
        if !is_piece(packet) {
            return None;
        }
        let piece = PiecePacket::decode(packet).ok()?;
        let (reason, bytes) = piece.backwards()?;
        Some(Self { reason, bytes })
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &'p [u8] {
        self.bytes
    }

    /// What is wrong with them.
    pub fn reason(&self) -> String {
        let known = self.reason.len().min(REASON_BYTES_MAX);
        let text = String::from_utf8_lossy(self.reason.get(..known).unwrap_or_default());
        if text.is_empty() {
            return format!("{} bytes of the file cannot be read", self.bytes.len());
        }
        text.replace(char::is_control, " ")
    }

    /// Refuses a packet of such bytes.
    pub(crate) fn refuse(packet: &[u8], format: &'static str) -> Result<(), DecodeError> {
        match DamagedBytes::decode(packet) {
            None => Ok(()),
            Some(damaged) => Err(DecodeError::Damaged {
                format,
                offset: 0,
                reason: damaged.reason(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use query_language::FieldTable;
    use storage_format::Kind;

    use super::*;
    use crate::{StreamContext, decoder_for};

    /// What a decoder says of a packet.
    fn told(kind: Kind, packet: &[u8]) -> Option<String> {
        let made = decoder_for(kind, &StreamContext::default(), &FieldTable::new());
        let mut decoder = made.unwrap().unwrap();
        let mut events = 0;
        let decoded = decoder.decode(packet, &mut |_| {
            events += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(events, 0, "{kind}");
        decoded.err().map(|error| error.to_string())
    }

    #[test]
    fn no_decoder_reads_them_and_each_says_why() {
        let intact = [
            &b""[..],
            b"{\"name\":\"r\",\"ph\":\"X\",\"ts\":1,\"dur\":2}\n",
            b"[{\"name\":\"r\",\"ph\":\"X\",\"ts\":1,\"dur\":2}]",
            b"{\"resourceSpans\":[]}",
            &[0; 100],
        ];
        for bytes in intact {
            let packet = DamagedBytes::encode("bytes 3 to 9 are damaged", bytes);
            let damaged = DamagedBytes::decode(&packet).unwrap();
            assert_eq!(damaged.bytes(), bytes);
            for kind in [
                Kind::Dft,
                Kind::Chrome,
                Kind::Otlp,
                Kind::RocksdbIo,
                Kind::RocksdbBlockCache,
            ] {
                let told = told(kind, &packet).unwrap_or_default();
                assert!(told.contains("bytes 3 to 9 are damaged"), "{kind}: {told}");
            }
            assert_eq!(DamagedBytes::decode(bytes), None);
        }
    }

    #[test]
    fn reasons_are_short_and_of_one_line() {
        let packet = DamagedBytes::encode("", b"abc");
        let reason = DamagedBytes::decode(&packet).unwrap().reason();
        assert_eq!(reason, "3 bytes of the file cannot be read");
        let packet = DamagedBytes::encode("a\u{1b}[1m\nb", b"");
        assert_eq!(DamagedBytes::decode(&packet).unwrap().reason(), "a [1m b");
        let packet = DamagedBytes::encode(&"\u{e9}".repeat(REASON_BYTES_MAX), b"");
        let reason = DamagedBytes::decode(&packet).unwrap().reason();
        assert_eq!(reason, "\u{e9}".repeat(REASON_BYTES_MAX / 2));
    }

    #[test]
    fn a_piece_that_can_be_inflated_is_none() {
        let entry = Entry {
            bit_offset: 0,
            text_offset: 0,
            window: None,
        };
        for (end, text_len) in [
            (PieceEnd::Member { byte_offset: 0 }, 0),
            (PieceEnd::Block { bit_offset: 80 }, 1),
        ] {
            let piece = Piece {
                entry: &entry,
                end,
                text_len,
            };
            let packet = PiecePacket::of(&piece, b"", b"text", 4).encode();
            assert_eq!(DamagedBytes::decode(&packet), None);
        }
    }
}
