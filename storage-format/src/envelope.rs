//! The envelope of files whose body is a record with optional fields.
//!
//! The body is bincode 2 (standard configuration, through serde). Nothing outside of this module
//! depends on that: the envelope has its own version, length and checksum, so a new version of the
//! envelope and a migration can replace the encoding.
//!
//! ```text
//! offset size field
//!      0    8 magic of the file type
//!      8    2 format version: 1, or as the file type says
//!     10    2 zero
//!     12    4 length of the body, bytes
//!     16    4 CRC32C of the body
//!     20    4 CRC32C of bytes 0 to 19
//!     24    n body
//! ```

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    FORMAT_VERSION, FormatError, FormatErrorKind,
    checksum::crc32c,
    integer::{u64_of, usize_of},
    layout::{check_checksum, check_version, get_u32, put},
    limits::ENVELOPE_BODY_BYTES_MAX,
};

const HEADER_BYTES: usize = 24;

/// Encodes `body` for a file of the type `magic` and format version 1.
pub(crate) fn encode<T: Serialize>(
    what: &'static str,
    magic: [u8; 8],
    body: &T,
) -> Result<Vec<u8>, FormatError> {
    encode_version(what, magic, FORMAT_VERSION, body)
}

/// Encodes `body` for a file of the type `magic` and this format version.
pub(crate) fn encode_version<T: Serialize>(
    what: &'static str,
    magic: [u8; 8],
    version: u16,
    body: &T,
) -> Result<Vec<u8>, FormatError> {
    let refuse = |name| FormatError::new(what, 0, FormatErrorKind::Field { name });
    let body = bincode::serde::encode_to_vec(body, bincode::config::standard())
        .map_err(|_| refuse("body"))?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if length > ENVELOPE_BODY_BYTES_MAX {
        return Err(limit(what, u64_of(body.len())));
    }
    let mut bytes = vec![0; HEADER_BYTES];
    put(&mut bytes, 0, magic);
    put(&mut bytes, 8, version.to_le_bytes());
    put(&mut bytes, 12, length.to_le_bytes());
    put(&mut bytes, 16, crc32c(&body).to_le_bytes());
    let checksum = crc32c(&bytes[..20]);
    put(&mut bytes, 20, checksum.to_le_bytes());
    bytes.extend_from_slice(&body);
    assert_eq!(
        bytes.len(),
        HEADER_BYTES.saturating_add(usize_of(length)),
        "the header says how long the file is"
    );
    Ok(bytes)
}

/// Decodes a whole file of the type `magic` and format version 1.
pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    magic: [u8; 8],
    bytes: &[u8],
) -> Result<T, FormatError> {
    decode_version(what, magic, FORMAT_VERSION, bytes)
}

/// Decodes a whole file of the type `magic` and a format version up to `newest`.
pub(crate) fn decode_version<T: DeserializeOwned>(
    what: &'static str,
    magic: [u8; 8],
    newest: u16,
    bytes: &[u8],
) -> Result<T, FormatError> {
    check_version(what, bytes, magic, HEADER_BYTES, FORMAT_VERSION..=newest)?;
    check_checksum(what, 20, get_u32(bytes, 20), crc32c(&bytes[..20]))?;
    let length = get_u32(bytes, 12);
    if length > ENVELOPE_BODY_BYTES_MAX {
        return Err(limit(what, u64::from(length)));
    }
    let end = HEADER_BYTES.saturating_add(usize_of(length));
    let fault =
        |name| FormatError::new(what, u64_of(HEADER_BYTES), FormatErrorKind::Field { name });
    let Some(body) = bytes.get(HEADER_BYTES..end) else {
        return Err(FormatError::truncated(what, end, bytes.len()));
    };
    if bytes.len() != end {
        return Err(fault("bytes after the body"));
    }
    check_checksum(what, u64_of(HEADER_BYTES), get_u32(bytes, 16), crc32c(body))?;
    // With the limit, a length inside of the body cannot request more memory than a body may have.
    let config = bincode::config::standard().with_limit::<{ usize_of(ENVELOPE_BODY_BYTES_MAX) }>();
    let (value, read) =
        bincode::serde::decode_from_slice(body, config).map_err(|_| fault("body"))?;
    if read != body.len() {
        return Err(fault("bytes after the record"));
    }
    Ok(value)
}

fn limit(what: &'static str, found: u64) -> FormatError {
    let max = u64::from(ENVELOPE_BODY_BYTES_MAX);
    FormatError::new(
        what,
        12,
        FormatErrorKind::Limit {
            name: "body length",
            found,
            max,
        },
    )
}
