//! Payloads that are computed from their names, so that a check needs no copy of them.

/// A small random number generator (SplitMix64, public domain): the same seed gives the same
/// numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1. The bias is below 2^-32 for ends below 2^32.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }
}

/// The bytes of packet `sequence` of a stream: as long as requested, and different for each packet.
///
/// Half of every 64 bytes repeats, so that they can be compressed.
pub fn payload(stream: u64, sequence: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(stream.wrapping_mul(0x1_0000_0001) ^ sequence.rotate_left(32));
    let mut bytes = Vec::with_capacity(length + 64);
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    while bytes.len() < length {
        for _ in 0..4 {
            bytes.extend_from_slice(&random.number().to_le_bytes());
        }
        bytes.extend_from_slice(b"an event of a trace, as it were..");
    }
    bytes.truncate(length);
    bytes
}

/// The longest packet of [`packet`], which spans several buffers of the server.
const PACKET_BYTES_MAX: u64 = 300_000;

/// The bytes of packet `sequence` of a stream, with a length that is also computed: most are small,
/// one in twenty is large.
pub fn packet(stream: u64, sequence: u64) -> Vec<u8> {
    let mut random = Random::new(stream ^ sequence.rotate_left(20));
    let limit = if random.below(20) == 0 {
        PACKET_BYTES_MAX
    } else {
        9_000
    };
    let length = 1 + random.below(limit);
    payload(
        stream,
        sequence,
        usize::try_from(length).expect("packets are small"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_computed_from_stream_and_sequence() {
        assert_eq!(payload(1, 2, 1000), payload(1, 2, 1000));
        assert_eq!(payload(1, 2, 1000).len(), 1000);
        assert_ne!(payload(1, 2, 16), payload(1, 3, 16));
        assert_ne!(payload(1, 2, 1000)[16..], payload(2, 1, 1000)[16..]);
        assert!(payload(1, 2, 0).is_empty());
    }
}
