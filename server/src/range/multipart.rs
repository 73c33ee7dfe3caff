//! The format of a `multipart/byteranges` body (RFC 9110 section 14.6).

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

use super::header::ByteRange;

/// Maximum length of the text before a part: delimiter, media type of at most 64 bytes, three
/// numbers.
pub(super) const PART_HEAD_BYTES_MAX: usize = 240;

/// Random keys of this process: the author of a file must not be able to predict boundaries.
static KEYS: LazyLock<(RandomState, RandomState)> =
    LazyLock::new(|| (RandomState::new(), RandomState::new()));
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A multipart body without the bytes of the file.
#[derive(Debug)]
pub(super) struct Multipart {
    boundary: [u8; BOUNDARY_BYTES],
    content_type: &'static str,
    complete_length: u64,
}

const BOUNDARY_BYTES: usize = 32;

impl Multipart {
    pub(super) fn new(content_type: &'static str, complete_length: u64) -> Self {
        assert!(content_type.len() <= 64, "media types are short");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let halves = [KEYS.0.hash_one(number), KEYS.1.hash_one(number)];
        let mut boundary = [0; BOUNDARY_BYTES];
        for (digits, half) in boundary.chunks_exact_mut(16).zip(halves) {
            for (at, digit) in digits.iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[usize::from((half >> (4 * at)).to_le_bytes()[0] & 15)];
            }
        }
        Self {
            boundary,
            content_type,
            complete_length,
        }
    }

    /// The `Content-Type` of the response; the boundary needs no quotes.
    pub(super) fn media_type(&self) -> HeaderValue {
        let prefix = b"multipart/byteranges; boundary=";
        let mut text = Vec::with_capacity(prefix.len() + BOUNDARY_BYTES);
        text.extend_from_slice(prefix);
        text.extend_from_slice(&self.boundary);
        HeaderValue::from_maybe_shared(bytes::Bytes::from(text))
            .expect("hexadecimal digits are valid in a header field")
    }

    /// Writes the text before a part and returns its length. `text` has space for
    /// `PART_HEAD_BYTES_MAX`.
    pub(super) fn part_head(&self, is_first: bool, range: ByteRange, text: &mut [u8]) -> usize {
        let mut left: &mut [u8] = text;
        let capacity = left.len();
        let delimiter = if is_first { "--" } else { "\r\n--" };
        left.write_all(delimiter.as_bytes())
            .and_then(|()| left.write_all(&self.boundary))
            .and_then(|()| {
                write!(
                    left,
                    "\r\nContent-Type: {}\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
                    self.content_type, range.first, range.last, self.complete_length
                )
            })
            .expect("PART_HEAD_BYTES_MAX is large enough");
        capacity - left.len()
    }

    /// The text after the last part.
    pub(super) fn tail(&self) -> [u8; BOUNDARY_BYTES + 8] {
        let mut text = *b"\r\n--                                --\r\n";
        text[4..4 + BOUNDARY_BYTES].copy_from_slice(&self.boundary);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Multipart, PART_HEAD_BYTES_MAX};
    use crate::range::header::ByteRange;

    #[test]
    fn the_longest_head_has_room() {
        let media_type: &str = Box::leak("x".repeat(64).into_boxed_str());
        let multipart = Multipart::new(media_type, u64::MAX);
        let mut text = [0; PART_HEAD_BYTES_MAX];
        let range = ByteRange {
            first: u64::MAX - 1,
            last: u64::MAX - 1,
        };
        let length = multipart.part_head(false, range, &mut text);
        let head = std::str::from_utf8(&text[..length]).unwrap();
        let boundary = multipart.media_type().to_str().unwrap()[31..].to_owned();
        assert!(
            head.starts_with(&format!("\r\n--{boundary}\r\nContent-Type: x")),
            "{head}"
        );
        assert!(head.ends_with(&format!("/{}\r\n\r\n", u64::MAX)), "{head}");
        assert_eq!(
            multipart.tail(),
            *format!("\r\n--{boundary}--\r\n").as_bytes()
        );
        assert_ne!(Multipart::new("x", 1).media_type(), multipart.media_type());
    }
}
