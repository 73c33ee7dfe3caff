//! Base64.

/// Decodes base64 of either alphabet, with or without padding.
pub(super) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |last| last + 1);
    let mut out = Vec::with_capacity(end * 3 / 4);
    for group in text[..end].chunks(4) {
        let mut bits = 0_u32;
        for &byte in group {
            let sextet = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(sextet);
        }
        bits <<= 6 * (4 - group.len());
        match group.len() {
            4 => out.extend_from_slice(&bits.to_be_bytes()[1..]),
            3 => out.extend_from_slice(&bits.to_be_bytes()[1..3]),
            2 => out.push(bits.to_be_bytes()[1]),
            _ => return None,
        }
    }
    Some(out)
}

/// Encodes bytes in the standard alphabet, with padding.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place) & 0x3f) as usize;
            let digit = if place > group.len() {
                b'='
            } else {
                DIGITS[sextet]
            };
            text.push(char::from(digit));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{base64, to_base64};

    #[test]
    fn base64_is_encoded() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"M", "TQ=="),
            (b"Ma", "TWE="),
            (b"Man", "TWFu"),
            (&[0xfb, 0xff, 0xbf, 0], "+/+/AA=="),
        ] {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(base64(text.as_bytes()).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn base64_is_decoded() {
        let check = |text: &str, wanted: Option<&[u8]>| {
            assert_eq!(base64(text.as_bytes()).as_deref(), wanted, "{text}");
        };
        check("", Some(b""));
        check("TQ==", Some(b"M"));
        check("TWE", Some(b"Ma"));
        check("TWFu", Some(b"Man"));
        check("-_+/", Some(&[0xfb, 0xff, 0xbf]));
        check("T", None);
        check("T*==", None);
    }
}
