//! Strings of fields.

use super::number::push_byte;
use crate::class::Encoding;

/// Bytes that must be escaped.
const SPECIAL: [bool; 256] = special();

const fn special() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[0x7f] = true;
    table[b'\\' as usize] = true;
    table[b'\'' as usize] = true;
    table[b'"' as usize] = true;
    table[b'?' as usize] = true;
    table
}

/// Appends `text` with the escape sequences of C.
#[inline]
pub fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = find_special(rest) {
        out.extend_from_slice(&rest[..at]);
        push_special(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// The index of the first byte that must be escaped.
#[inline]
fn find_special(text: &[u8]) -> Option<usize> {
    let mut start = 0;
    // Check sixteen bytes at a time without branches until one of them must be escaped.
    while let Some(chunk) = text[start..].first_chunk::<16>() {
        let is_special = chunk.iter().fold(false, |any, &byte| {
            any | (byte < 0x20)
                | (byte == 0x7f)
                | (byte == b'\\')
                | (byte == b'\'')
                | (byte == b'"')
                | (byte == b'?')
        });
        if is_special {
            break;
        }
        start += 16;
    }
    let rest = &text[start..];
    let at = rest.iter().position(|byte| SPECIAL[usize::from(*byte)])?;
    Some(start + at)
}

fn push_special(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'\\' | b'\'' | b'"' | b'?' => byte,
        0x07 => b'a',
        0x08 => b'b',
        0x1b => b'e',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x0b => b'v',
        _ => {
            out.extend_from_slice(b"\\x");
            push_byte(out, byte);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// `bytes` up to the first null code unit.
#[inline]
pub fn until_null(bytes: &[u8], encoding: Encoding) -> &[u8] {
    let unit = encoding.unit_bytes();
    if unit == 1 {
        return &bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())];
    }
    let units = bytes.chunks_exact(unit);
    let whole = units
        .take_while(|unit| unit.iter().any(|byte| *byte != 0))
        .count();
    &bytes[..whole * unit]
}

/// `bytes` as UTF-8; malformed code units become U+FFFD.
pub fn to_utf8(bytes: &[u8], encoding: Encoding) -> Vec<u8> {
    let text: String = match encoding {
        Encoding::Utf8 => return bytes.to_vec(),
        Encoding::Utf16Be | Encoding::Utf16Le => {
            let units = bytes.chunks_exact(2).map(|pair| {
                let pair = [pair[0], pair[1]];
                match encoding {
                    Encoding::Utf16Be => u16::from_be_bytes(pair),
                    _ => u16::from_le_bytes(pair),
                }
            });
            char::decode_utf16(units)
                .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        Encoding::Utf32Be | Encoding::Utf32Le => {
            let units = bytes.chunks_exact(4).map(|unit| {
                let unit = [unit[0], unit[1], unit[2], unit[3]];
                let code = match encoding {
                    Encoding::Utf32Be => u32::from_be_bytes(unit),
                    _ => u32::from_le_bytes(unit),
                };
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            });
            units.collect()
        }
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_in_c() {
        let mut out = Vec::new();
        push_escaped(&mut out, b"a'b\"c?d\\e\n\x01\x7f\x1b\xc3\xa9");
        assert_eq!(out, b"a\\'b\\\"c\\?d\\\\e\\n\\x01\\x7f\\e\xc3\xa9");
    }

    #[test]
    fn the_search_agrees_with_the_table() {
        for byte in 0..=u8::MAX {
            let mut text = [b'a'; 40];
            for at in [0, 15, 16, 31, 39] {
                text[at] = byte;
                let expected = SPECIAL[usize::from(byte)].then_some(at);
                assert_eq!(find_special(&text), expected);
                text[at] = b'a';
            }
        }
    }

    #[test]
    fn every_encoding_is_converted_to_utf8() {
        let check = |bytes: &[u8], encoding, expected: &str| {
            let text = to_utf8(until_null(bytes, encoding), encoding);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        };
        check(b"ab\0c", Encoding::Utf8, "ab");
        check(b"\0a\0b\0\0\0c", Encoding::Utf16Be, "ab");
        check(b"a\0b\0", Encoding::Utf16Le, "ab");
        check(b"\x3d\xd8\x00\xde", Encoding::Utf16Le, "😀");
        check(b"\0\xd8", Encoding::Utf16Le, "\u{fffd}");
        check(b"a\0\0\0\0\0\0\0", Encoding::Utf32Le, "a");
        check(b"\0\x01\xf6\0", Encoding::Utf32Be, "😀");
    }
}
