//! Elements of arrays, with precomputed texts.

use ctf::text::push_unsigned;

/// A short text and, in the last byte, its length.
type ShortText<const BYTES: usize> = [u8; BYTES];

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// `, [255] = ` for every index below 256; the first one has no comma.
static INDEXES: [ShortText<16>; 256] = indexes();
/// `0xFF` for every byte.
static HEXADECIMAL: [ShortText<8>; 256] = hexadecimal();
/// `255` for every byte.
static DECIMAL: [ShortText<4>; 256] = decimal();

const fn append<const BYTES: usize>(text: &mut ShortText<BYTES>, more: &[u8]) {
    let mut at = 0;
    while at < more.len() {
        text[text[BYTES - 1] as usize] = more[at];
        text[BYTES - 1] += 1;
        at += 1;
    }
}

const fn append_decimal<const BYTES: usize>(text: &mut ShortText<BYTES>, value: usize) {
    let digits = [
        DIGITS[value / 100],
        DIGITS[value / 10 % 10],
        DIGITS[value % 10],
    ];
    let leading = if value < 10 {
        2
    } else if value < 100 {
        1
    } else {
        0
    };
    append(text, digits.split_at(leading).1);
}

const fn indexes() -> [ShortText<16>; 256] {
    let mut table = [[0; 16]; 256];
    let mut index = 0;
    while index < 256 {
        append(&mut table[index], if index == 0 { b" [" } else { b", [" });
        append_decimal(&mut table[index], index);
        append(&mut table[index], b"] = ");
        index += 1;
    }
    table
}

const fn hexadecimal() -> [ShortText<8>; 256] {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        append(&mut table[byte], b"0x");
        if byte >= 16 {
            append(&mut table[byte], &[DIGITS[byte / 16]]);
        }
        append(&mut table[byte], &[DIGITS[byte % 16]]);
        byte += 1;
    }
    table
}

const fn decimal() -> [ShortText<4>; 256] {
    let mut table = [[0; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        append_decimal(&mut table[byte], byte);
        byte += 1;
    }
    table
}

#[inline]
fn push_short<const BYTES: usize>(out: &mut Vec<u8>, text: &ShortText<BYTES>) {
    let end = out.len() + usize::from(text[BYTES - 1]);
    out.extend_from_slice(text);
    out.truncate(end);
}

/// Appends the text before the element `index` of an array.
#[inline]
pub(super) fn push_index(out: &mut Vec<u8>, index: u64) {
    let ready = usize::try_from(index)
        .ok()
        .and_then(|index| INDEXES.get(index));
    match ready {
        Some(text) => push_short(out, text),
        None => {
            out.extend_from_slice(b", [");
            push_unsigned(out, index);
            out.extend_from_slice(b"] = ");
        }
    }
}

/// Appends all elements of an array of bytes in hexadecimal.
pub(super) fn push_hexadecimal_octets(out: &mut Vec<u8>, octets: &[u8]) {
    push_octets(out, octets, &HEXADECIMAL);
}

/// Appends all elements of an array of bytes in decimal.
pub(super) fn push_decimal_octets(out: &mut Vec<u8>, octets: &[u8]) {
    push_octets(out, octets, &DECIMAL);
}

#[inline(always)]
fn push_octets<const BYTES: usize>(
    out: &mut Vec<u8>,
    octets: &[u8],
    values: &[ShortText<BYTES>; 256],
) {
    let (ready, rest) = octets.split_at(octets.len().min(INDEXES.len()));
    out.reserve(ready.len() * 24 + 24);
    for (index, &octet) in INDEXES.iter().zip(ready) {
        push_short(out, index);
        push_short(out, &values[usize::from(octet)]);
    }
    for (index, &octet) in (256..).zip(rest) {
        push_index(out, index);
        push_short(out, &values[usize::from(octet)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_printed_like_other_elements() {
        let octets: Vec<u8> = (0..=u8::MAX).cycle().take(600).collect();
        let (mut hexadecimal, mut decimal) = (Vec::new(), Vec::new());
        push_hexadecimal_octets(&mut hexadecimal, &octets);
        push_decimal_octets(&mut decimal, &octets);
        let text = |of: &dyn Fn(u8) -> String| -> String {
            let each = |(index, octet): (usize, &u8)| {
                let comma = if index == 0 { "" } else { "," };
                format!("{comma} [{index}] = {}", of(*octet))
            };
            octets.iter().enumerate().map(each).collect()
        };
        let hexadecimal = String::from_utf8(hexadecimal).unwrap();
        assert_eq!(hexadecimal, text(&|octet| format!("0x{octet:X}")));
        let decimal = String::from_utf8(decimal).unwrap();
        assert_eq!(decimal, text(&|octet| octet.to_string()));
    }
}
