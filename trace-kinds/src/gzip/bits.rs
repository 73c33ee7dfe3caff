//! Deflate streams that begin and end inside a byte.
//!
//! Deflate fills bytes from their lowest bit. A stored block before a stream contains the window
//! that it refers to, empty blocks fill the byte up to its first bit, and an empty last block
//! terminates it. Its bits stay where they are in their bytes: the content of a stored block begins
//! at the next byte, wherever its header is.

use std::sync::LazyLock;

use super::WINDOW_BYTES;

const STORED_HEADER_BYTES: usize = 5;
const _: () = assert!(
    WINDOW_BYTES <= u16::MAX as usize,
    "a stored block can contain a window"
);

/// Appends a stored block that is not the last one.
pub(super) fn push_window(stream: &mut Vec<u8>, window: &[u8]) {
    assert!(
        window.len() <= WINDOW_BYTES,
        "a window is no longer than deflate can refer back"
    );
    if window.is_empty() {
        return;
    }
    let len = u16::try_from(window.len()).expect("a window is shorter than 64 KiB");
    let mut header = [0; STORED_HEADER_BYTES];
    header[1..3].copy_from_slice(&len.to_le_bytes());
    header[3..5].copy_from_slice(&(!len).to_le_bytes());
    stream.extend_from_slice(&header);
    stream.extend_from_slice(window);
}

/// Empty blocks that end at a bit of a byte.
#[derive(Debug, Default)]
struct Filler {
    /// Its complete bytes.
    bytes: Vec<u8>,
    /// The lowest bits of the next byte.
    partial: u8,
    /// Number of these.
    bits: u32,
}

impl Filler {
    fn put(&mut self, value: u8, bits: u32) {
        for bit in 0..bits {
            self.partial |= ((value >> bit) & 1) << self.bits;
            self.bits += 1;
            if self.bits == 8 {
                self.bytes.push(self.partial);
                (self.partial, self.bits) = (0, 0);
            }
        }
    }

    /// An empty block of fixed codes, which has ten bits.
    fn put_fixed_block(&mut self) {
        self.put(0b010, 3);
        self.put(0, 7);
    }

    /// An empty block of dynamic codes, which has 95 bits (RFC 1951, section 3.2.7): literal 0 and
    /// the end of the block have codes of one bit, and so have two distances.
    fn put_dynamic_block(&mut self) {
        /// Code lengths in the order of the RFC: 16, 17, 18, 0, …, 1, 15. Used are 18 (zeros) and
        /// 1, with the codes 1 and 0.
        const LENGTHS: [u8; 19] = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        self.put(0b100, 3);
        // 257 literals and lengths, 2 distances, 19 code lengths.
        for (value, bits) in [(0, 5), (1, 5), (15, 4)] {
            self.put(value, bits);
        }
        LENGTHS.iter().for_each(|length| self.put(*length, 3));
        // Literal 0 has length 1, the next 138 + 117 have none, the end and the distances have 1.
        self.put(0, 1);
        for zeros in [138, 117] {
            self.put(1, 1);
            self.put(zeros - 11, 7);
        }
        self.put(0, 3);
        // The end of the block.
        self.put(1, 1);
    }

    /// Empty blocks that end before this bit of a byte.
    fn up_to(bit: u32) -> Filler {
        let mut filler = Filler::default();
        if bit % 2 == 1 {
            filler.put_dynamic_block();
        }
        while filler.bits != bit {
            filler.put_fixed_block();
        }
        filler
    }
}

/// Those for each bit.
static FILLERS: LazyLock<[Filler; 8]> =
    LazyLock::new(|| [0, 1, 2, 3, 4, 5, 6, 7].map(Filler::up_to));

/// Appends the stream that starts at bit `skip` (below 8) of the first of `bytes`. Returns where
/// this byte is in `stream`.
pub(super) fn push_from(stream: &mut Vec<u8>, bytes: &[u8], skip: u32) -> usize {
    let filler = &FILLERS[skip as usize];
    let Some((first, rest)) = bytes.split_first() else {
        return stream.len();
    };
    stream.extend_from_slice(&filler.bytes);
    let start = stream.len();
    stream.push((first >> skip << skip) | filler.partial);
    stream.extend_from_slice(rest);
    start
}

/// Terminates the stream with an empty last block, `bits` bits after the start of its byte `start`.
pub(super) fn push_end(stream: &mut Vec<u8>, start: usize, bits: u64) {
    // A block of fixed codes: last, type 1, end of block; lowest bit first.
    const EMPTY_LAST_BLOCK: u16 = 0b011;
    let whole = start + usize::try_from(bits / 8).expect("the stream is in memory");
    let used = bits % 8;
    let partial = stream.get(whole).copied().unwrap_or(0) & ((1_u8 << used) - 1);
    stream.truncate(whole);
    let end = u16::from(partial) | (EMPTY_LAST_BLOCK << used);
    stream.extend_from_slice(&end.to_le_bytes());
    // Ten bits after seven used ones extend into a third byte, where they are all zero.
    stream.push(0);
}
