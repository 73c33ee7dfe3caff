//! The checksum of a whole file as header fields, so that a reader can check what it has put
//! together from ranges.

use http::{HeaderName, HeaderValue};

use crate::base64::base64;

/// CRC32C in hexadecimal digits, as the list of files has it.
const X_CHECKSUM: HeaderName = HeaderName::from_static("x-checksum-crc32c");
/// The same as RFC 9530 has it.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The fields of a file with this CRC32C.
pub(super) fn fields(checksum: u32) -> [(HeaderName, HeaderValue); 2] {
    let value = |text: String| HeaderValue::try_from(text).expect("digits are visible ASCII");
    // Four bytes are six digits, and two of padding.
    let digest = format!("crc32c=:{}==:", base64(&checksum.to_be_bytes()));
    [
        (X_CHECKSUM, value(format!("{checksum:08x}"))),
        (REPR_DIGEST, value(digest)),
    ]
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn digests_are_those_of_the_standard() {
        for (checksum, hexadecimal, digest) in [
            (0xe306_9283, "e3069283", "crc32c=:4waSgw==:"),
            (0, "00000000", "crc32c=:AAAAAA==:"),
            (u32::MAX, "ffffffff", "crc32c=://///w==:"),
        ] {
            let [(_, first), (_, second)] = fields(checksum);
            assert_eq!(first, hexadecimal);
            assert_eq!(second, digest);
        }
    }
}
