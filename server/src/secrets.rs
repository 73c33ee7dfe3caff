//! Random secrets and their digests. ring and subtle are used by this module only.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;
use thiserror::Error;

/// A SHA-256 digest.
pub(crate) type Digest = [u8; 32];

/// The kernel gives no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the kernel gives no random numbers; retry, and look at its log")]
pub struct NoRandomness;

/// Random bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| NoRandomness)
}

/// The SHA-256 digest of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut result = Digest::default();
    result.copy_from_slice(digest(&SHA256, bytes).as_ref());
    result
}

/// Whether two digests are equal, in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &Digest, other: &Digest) -> bool {
    one.ct_eq(other).into()
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    let pairs = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    pairs.map(digit).collect()
}

/// The bytes of lower-case hexadecimal digits; `None` for any other text.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        let secret: [u8; 32] = random().unwrap();
        assert_eq!(from_hex(&to_hex(&secret)), Some(secret));
        assert_ne!(random::<32>().unwrap(), secret);
        assert_eq!(to_hex(&[0, 0x9f, 0xff]), "009fff");
        for text in ["", "0", "00", "0000000", "00000g", "00000F", "é0000"] {
            assert_eq!(from_hex::<3>(text), None, "{text:?}");
        }
    }

    #[test]
    fn digests_are_those_of_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(to_hex(&sha256(b"")), empty);
        let other = sha256(b"a");
        assert!(is_same(&other, &sha256(b"a")) && !is_same(&other, &sha256(b"")));
    }
}
