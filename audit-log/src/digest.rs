//! SHA-256, and digests as text.

use ring::digest::{SHA256, digest};

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut sum = Digest::default();
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

pub(crate) fn to_hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest from 64 lower-case digits.
pub(crate) fn from_hex(text: &str) -> Option<Digest> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 64 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut digest = Digest::default();
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(digest)
}
