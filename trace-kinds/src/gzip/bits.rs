//! Deflate streams that begin and end inside a byte.
//!
//! Deflate fills bytes from their lowest bit. Every inflater accepts a stream that is shifted so
//! that its first bit is the lowest of a byte. A stored block before it contains the window that
//! the stream refers to, and an empty last block terminates it.

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

/// Appends the bits of `bytes`, starting at bit `skip` (below 8) of the first byte.
pub(super) fn push_shifted(stream: &mut Vec<u8>, bytes: &[u8], skip: u32) {
    if skip == 0 {
        stream.extend_from_slice(bytes);
        return;
    }
    let Some((last, _)) = bytes.split_last() else {
        return;
    };
    let pairs = bytes.iter().zip(&bytes[1..]);
    stream.extend(pairs.map(|(low, high)| (low >> skip) | (high << (8 - skip))));
    stream.push(last >> skip);
}

/// Terminates the stream of `bits` bits that starts at byte `start` of `stream` with an empty last
/// block.
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
