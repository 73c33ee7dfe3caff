//! Member headers (RFC 1952, section 2.3).

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const FIXED_BYTES: usize = 10;
/// CRC32 and length of the text, each 32 bits.
pub(super) const TRAILER_BYTES: usize = 8;
/// The smallest member: header, an empty deflate block, trailer.
pub(super) const MEMBER_BYTES_MIN: usize = FIXED_BYTES + 2 + TRAILER_BYTES;

const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0xe0;

/// Whether a file that starts with `bytes` is gzip.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// What the bytes at a place are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// A header of this length.
    Complete(usize),
    /// The start of a header.
    Incomplete,
    /// No header.
    Invalid,
}

/// The header at the start of `bytes`.
pub(super) fn header_of(bytes: &[u8]) -> Header {
    let magic = &MAGIC[..MAGIC.len().min(bytes.len())];
    if !bytes.starts_with(magic)
        || bytes
            .get(3)
            .is_some_and(|flags| flags & FLAGS_RESERVED != 0)
    {
        return Header::Invalid;
    }
    match header_len(bytes) {
        Some(len) => Header::Complete(len),
        None => Header::Incomplete,
    }
}

/// Length of the header at the start of `bytes`; `None` if it is incomplete or invalid.
pub(super) fn header_len(bytes: &[u8]) -> Option<usize> {
    let fixed = bytes.get(..FIXED_BYTES)?;
    let flags = fixed[3];
    if !is_gzip(fixed) || flags & FLAGS_RESERVED != 0 {
        return None;
    }
    let mut len = FIXED_BYTES;
    if flags & FLAG_EXTRA != 0 {
        let extra = bytes.get(len..len + 2)?;
        len += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    for text in [FLAG_NAME, FLAG_COMMENT] {
        if flags & text != 0 {
            len += memchr::memchr(0, bytes.get(len..)?)? + 1;
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        len += 2;
    }
    (len <= bytes.len()).then_some(len)
}

/// The next offset at or after `from` with bytes like a member header. Compressed data may look the
/// same.
pub(super) fn find_header(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    memchr::memmem::find_iter(rest, &MAGIC)
        .map(|found| from + found)
        // Operating systems are numbered to 13, 255 is unknown.
        .find(|at| header_len(&bytes[*at..]).is_some() && matches!(bytes[*at + 9], 0..=13 | 255))
}

/// The length of the text, modulo 2^32, in the trailer that ends at `end`.
pub(super) fn trailer_text_len(bytes: &[u8], end: usize) -> Option<usize> {
    let len = bytes.get(end.checked_sub(4)?..end)?;
    usize::try_from(u32::from_le_bytes(len.try_into().ok()?)).ok()
}
