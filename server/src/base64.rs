//! Base64 without padding (RFC 4648 section 3.2), also for URLs (section 5).

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The digits of `bytes`.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=group.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.extend(DIGITS.get(index as usize).map(|digit| char::from(*digit)));
        }
    }
    text
}

/// The digits of `bytes` that need no escape in a URL or a file name.
pub(crate) fn base64_url(bytes: &[u8]) -> String {
    let for_url = |digit| match digit {
        '+' => '-',
        '/' => '_',
        digit => digit,
    };
    base64(bytes).chars().map(for_url).collect()
}

/// The bytes with these digits for URLs; `None` if these are no digits of whole bytes.
pub(crate) fn from_base64_url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | u32::from(value_of(*digit)?);
        }
        let (length, unused) = match group.len() {
            2 => (1, 4),
            3 => (2, 2),
            4 => (3, 0),
            _ => return None,
        };
        if bits & ((1 << unused) - 1) != 0 {
            return None;
        }
        let whole = (bits >> unused).to_be_bytes();
        bytes.extend(whole.get(4 - length..)?);
    }
    Some(bytes)
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{base64, base64_url, from_base64_url};

    #[test]
    fn bytes_of_every_length_are_encoded() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"\xff\xef\xbf", "/++/"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn digits_for_urls_are_read_back() {
        for length in 0..40_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(89)).collect();
            let text = base64_url(&bytes);
            assert!(!text.contains(['+', '/']), "{text}");
            assert_eq!(from_base64_url(&text), Some(bytes));
        }
        assert_eq!(base64_url(b"\xff\xef\xbf"), "_--_");
        for text in ["A", "Zh", "Zm8=", "AAAA=", "Z+8", "Zm 8", "\u{e9}A"] {
            assert_eq!(from_base64_url(text), None, "{text}");
        }
    }
}
