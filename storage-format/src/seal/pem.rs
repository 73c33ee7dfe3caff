//! Keys as PEM (RFC 7468), as OpenSSL reads and writes them.

const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line.
const LINE_CHARS: usize = 64;

/// The bytes as PEM with this label.
pub(super) fn encode(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut column = 0_usize;
    for three in der.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(three.get(at).copied().unwrap_or_default());
        }
        for at in 0..4_usize {
            let shift = 18_usize.saturating_sub(at.saturating_mul(6));
            let symbol = usize::try_from(bits >> shift & 63).unwrap_or_default();
            let is_there = at <= three.len();
            text.push(if is_there {
                char::from(SYMBOLS[symbol])
            } else {
                '='
            });
        }
        column = column.saturating_add(4);
        if column == LINE_CHARS {
            text.push('\n');
            column = 0;
        }
    }
    if column > 0 {
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// The bytes of the first block with this label.
pub(super) fn decode(label: &str, text: &str) -> Option<Vec<u8>> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let (_, rest) = text.split_once(&begin)?;
    let (body, _) = rest.split_once(&end)?;
    let symbols: Vec<u8> = body
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let mut der = Vec::new();
    for four in symbols.chunks(4) {
        let padding = four.iter().rev().take_while(|&&byte| byte == b'=').count();
        if four.len() != 4 || padding > 2 {
            return None;
        }
        let mut bits = 0_u32;
        for &byte in &four[..4_usize.saturating_sub(padding)] {
            let value = SYMBOLS.iter().position(|&symbol| symbol == byte)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= u32::try_from(padding).ok()?.saturating_mul(6);
        let [_, three @ ..] = bits.to_be_bytes();
        der.extend_from_slice(&three[..3_usize.saturating_sub(padding)]);
    }
    Some(der)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 0..200_u8 {
            let der: Vec<u8> = (0..length).map(|at| at.wrapping_mul(37)).collect();
            let text = encode("A KEY", &der);
            assert!(text.lines().all(|line| line.len() <= LINE_CHARS));
            assert_eq!(decode("A KEY", &text), Some(der));
            assert_eq!(decode("A", &text), None);
        }
        assert_eq!(
            encode("X", b"any"),
            "-----BEGIN X-----\nYW55\n-----END X-----\n"
        );
        for wrong in ["YW5", "YW5?", "Y===", "====", "YW55Y"] {
            let text = format!("-----BEGIN X-----\n{wrong}\n-----END X-----");
            assert_eq!(decode("X", &text), None, "{wrong}");
        }
    }
}
