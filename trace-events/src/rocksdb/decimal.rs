//! Decimal numbers into a byte buffer, without the machinery of `fmt`.

/// "00" to "99".
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// The most digits a u64 has.
const DIGITS_MAX: usize = 20;

/// Appends `value` to `out`, and returns how many digits it has.
#[inline]
pub(super) fn put_decimal(out: &mut Vec<u8>, value: u64) -> usize {
    if value < 10 {
        out.push(b'0' + value as u8);
        return 1;
    }
    let mut digits = [0; DIGITS_MAX];
    let start = fill(&mut digits, value);
    out.extend_from_slice(&digits[start..]);
    DIGITS_MAX - start
}

/// Appends `value` and a comma to `out`.
#[inline]
pub(super) fn put_column(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        out.extend_from_slice(&[b'0' + value as u8, b',']);
        return;
    }
    let mut cell = [b','; DIGITS_MAX + 1];
    let digits = cell
        .first_chunk_mut()
        .expect("the cell is longer than the digits");
    let start = fill(digits, value);
    out.extend_from_slice(&cell[start..]);
}

/// Writes `value` at the end of `digits`; where it starts.
#[inline]
fn fill(digits: &mut [u8; DIGITS_MAX], value: u64) -> usize {
    let mut start = DIGITS_MAX;
    let mut rest = value;
    while rest >= 100 {
        let pair = 2 * (rest % 100) as usize;
        rest /= 100;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = 2 * rest as usize;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        digits[start] = b'0' + rest as u8;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_as_fmt() {
        let mut value = 1u64;
        for _ in 0..65 {
            for near in [value.wrapping_sub(1), value, value.wrapping_add(1)] {
                let mut out = Vec::new();
                assert_eq!(put_decimal(&mut out, near), out.len());
                assert_eq!(out, near.to_string().into_bytes());
                put_column(&mut out, near);
                assert_eq!(out, format!("{near}{near},").into_bytes());
            }
            value = value.wrapping_mul(2);
        }
        for exponent in 0..20 {
            let mut out = Vec::new();
            put_decimal(&mut out, 10u64.pow(exponent));
            assert_eq!(out, 10u64.pow(exponent).to_string().into_bytes());
        }
    }
}
