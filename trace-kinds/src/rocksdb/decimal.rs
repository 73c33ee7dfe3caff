//! Decimal numbers, written without the overhead of `fmt`.

/// "00" to "99".
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0_u8;
    while n < 100 {
        pairs[2 * n as usize] = b'0' + n / 10;
        pairs[2 * n as usize + 1] = b'0' + n % 10;
        n += 1;
    }
    pairs
};

/// A number below 256 as a byte.
#[inline]
fn small(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// Appends `value` to `out`, and returns how many digits it has.
#[inline]
pub(super) fn put_decimal(out: &mut Vec<u8>, value: u64) -> usize {
    if value < 10 {
        out.push(b'0' + small(value));
        return 1;
    }
    let mut digits = [0; DIGITS_MAX];
    let start = fill(&mut digits, value);
    out.extend_from_slice(&digits[start..]);
    DIGITS_MAX - start
}

/// Columns of numbers on the stack, to be appended in one copy: a copy per column would cost more
/// than its digits.
pub(super) struct Columns {
    bytes: [u8; Self::BYTES],
    length: usize,
}

impl Columns {
    /// Space for 16 columns with their commas.
    const BYTES: usize = 16 * (DIGITS_MAX + 1);

    /// No columns yet.
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; Self::BYTES],
            length: 0,
        }
    }

    /// Appends `value` and a comma; at most 16 of them.
    #[inline]
    pub(super) fn put(&mut self, value: u64) {
        let digits = match value {
            0..10 => 1,
            value => value.ilog10() as usize + 1,
        };
        let end = self.length + digits;
        let cell = &mut self.bytes[self.length..=end];
        cell[digits] = b',';
        let (mut at, mut rest) = (digits, value);
        while rest >= 100 {
            let pair = 2 * usize::from(small(rest % 100));
            rest /= 100;
            at -= 2;
            cell[at] = PAIRS[pair];
            cell[at + 1] = PAIRS[pair + 1];
        }
        if rest >= 10 {
            let pair = 2 * usize::from(small(rest));
            cell[0] = PAIRS[pair];
            cell[1] = PAIRS[pair + 1];
        } else {
            cell[0] = b'0' + small(rest);
        }
        self.length = end + 1;
    }

    /// The columns so far.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Writes `value` at the end of `digits`; where it starts.
#[inline]
fn fill(digits: &mut [u8; DIGITS_MAX], value: u64) -> usize {
    let mut start = DIGITS_MAX;
    let mut rest = value;
    while rest >= 100 {
        let pair = 2 * usize::from(small(rest % 100));
        rest /= 100;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = 2 * usize::from(small(rest));
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        digits[start] = b'0' + small(rest);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_fmt_writes_them() {
        let mut value = 1u64;
        for _ in 0..65 {
            for near in [value.wrapping_sub(1), value, value.wrapping_add(1)] {
                let mut out = Vec::new();
                assert_eq!(put_decimal(&mut out, near), out.len());
                assert_eq!(out, near.to_string().into_bytes());
                let mut columns = Columns::new();
                (0..16).for_each(|_| columns.put(near));
                assert_eq!(columns.as_bytes(), format!("{near},").repeat(16).as_bytes());
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
