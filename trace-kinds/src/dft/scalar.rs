//! JSON values of a line, and the cursor that reads them without copying.

use query_language::Value;

/// A value; strings and nested values are slices of the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar<'a> {
    /// A string without escapes.
    Str(&'a [u8]),
    /// A non-negative integer.
    UInt(u64),
    /// A negative integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// `true` or `false`.
    // Two variants, because a truth value next to the tag would make every copy of the other
    // variants unaligned.
    True,
    False,
    /// `null`.
    Null,
    /// The text of an object or array with its brackets.
    Nested(&'a [u8]),
}

impl<'a> Scalar<'a> {
    /// The value of a field, none for null. The value of an object or array is its text.
    #[inline]
    pub(super) fn value(self) -> Option<Value<'a>> {
        Some(match self {
            Scalar::Str(text) | Scalar::Nested(text) => Value::Str(text),
            Scalar::UInt(value) => Value::Uint(value),
            Scalar::Int(value) => Value::Int(value),
            Scalar::Float(value) => Value::Float(value),
            Scalar::True => Value::Bool(true),
            Scalar::False => Value::Bool(false),
            Scalar::Null => return None,
        })
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const QUOTE: u64 = 0x22;
const BACKSLASH: u64 = 0x5c;
const ZERO: u64 = 0x30;

/// Sets the high bit of each byte of `word` that ends a plain string or does not belong in one: a
/// quote, a backslash, a control character or a byte that is not ASCII. Bits above the first set
/// one may be wrong.
#[inline(always)]
fn string_stops(word: u64) -> u64 {
    let quote = word ^ (ONES * QUOTE);
    let backslash = word ^ (ONES * BACKSLASH);
    let zero = |x: u64| x.wrapping_sub(ONES) & !x;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(quote) | zero(backslash) | control | word) & HIGHS
}

/// Bytes of the longest text that [`Cursor::short_text`] reads.
pub(super) const SHORT_TEXT_MAX: usize = 16;

const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Sets the high bit of each byte that is not a digit, of bytes combined with the digit zero by
/// XOR. Bits above the first set one may be wrong.
#[inline(always)]
fn digit_stops(digits: u64) -> u64 {
    (digits | digits.wrapping_add(ONES * (0x80 - 10))) & HIGHS
}

/// The number that eight digits represent, the first in the lowest byte. Folds pairs, then fours,
/// then eights, with one multiplication each.
#[inline(always)]
fn fold_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
}

/// Reads a text from a position. Every method returns `None` if the text is not what it reads; the
/// position is then undefined, and the caller parses the line as JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at }
    }

    /// The text.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Skips `len` bytes.
    pub(super) fn skip(&mut self, len: usize) {
        self.at += len;
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips `literal` if it is next.
    #[inline(always)]
    pub(super) fn eat(&mut self, literal: &[u8]) -> bool {
        let end = self.at + literal.len();
        let here = self.bytes.get(self.at..end) == Some(literal);
        if here {
            self.at = end;
        }
        here
    }

    /// Reads a string after its opening quote, including the closing quote.
    #[inline(always)]
    pub(super) fn string_body(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut at = start;
        while let Some(word) = self.bytes.get(at..at + 8) {
            let stops = string_stops(u64::from_le_bytes(word.try_into().ok()?));
            if stops != 0 {
                at += (stops.trailing_zeros() / 8) as usize;
                if self.bytes[at] == b'"' {
                    self.at = at + 1;
                    return Some(&self.bytes[start..at]);
                }
                break;
            }
            at += 8;
        }
        self.string_rest(start, at)
    }

    /// As [`Cursor::string_body`], for a string of `len` bytes, at most [`SHORT_TEXT_MAX`]. `None`
    /// if it has another length or is close to the end of the text; the cursor has not moved.
    #[inline(always)]
    pub(super) fn short_text(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at + len;
        let words = self.bytes.get(self.at..self.at + SHORT_TEXT_MAX)?;
        let text = self.bytes.get(self.at..end)?;
        let (first, second) = words.split_at(8);
        let stops = |word: &[u8]| match word.try_into() {
            Ok(word) => string_stops(u64::from_le_bytes(word)),
            Err(_) => HIGHS,
        };
        // Bytes after the text do not matter, and do not affect the bits before them.
        let stops = u128::from(stops(first)) | u128::from(stops(second)) << 64;
        #[expect(clippy::cast_possible_truncation, reason = "at most 128 bits")]
        let bits_after = 8 * (SHORT_TEXT_MAX - len) as u32;
        let mask = u128::MAX.checked_shr(bits_after);
        if stops & mask.unwrap_or(0) != 0 || self.bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        Some(text)
    }

    /// A string that is close to the end of the text or not all ASCII.
    #[cold]
    fn string_rest(&mut self, start: usize, mut at: usize) -> Option<&'a [u8]> {
        while !matches!(*self.bytes.get(at)?, b'"' | b'\\' | 0..0x20) {
            at += 1;
        }
        let body = &self.bytes[start..at];
        if self.bytes[at] != b'"' || std::str::from_utf8(body).is_err() {
            return None;
        }
        self.at = at + 1;
        Some(body)
    }

    /// Reads an integer without sign, in the form JSON allows, followed by anything but a digit.
    #[inline(always)]
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let start = self.at;
        let mut at = start;
        let mut value = 0u64;
        while let Some(word) = self.bytes.get(at..at + 8) {
            let digits = u64::from_le_bytes(word.try_into().ok()?) ^ (ONES * ZERO);
            let stops = digit_stops(digits);
            if stops == 0 {
                value = value
                    .checked_mul(100_000_000)?
                    .checked_add(fold_digits(digits))?;
                at += 8;
                continue;
            }
            let count = (stops.trailing_zeros() / 8) as usize;
            if count > 0 {
                // Shifts in zeros before the digits, and the bytes after them out.
                let digits = fold_digits(digits << (64 - 8 * count));
                value = value.checked_mul(POWERS[count])?.checked_add(digits)?;
            }
            return self.unsigned_end(start, at + count, value);
        }
        self.unsigned_tail(start, at, value)
    }

    /// Skips an integer that [`Cursor::unsigned`] reads, of any length.
    #[inline(always)]
    pub(super) fn digits(&mut self) -> Option<()> {
        let start = self.at;
        let mut at = start;
        while let Some(word) = self.bytes.get(at..at + 8) {
            let digits = u64::from_le_bytes(word.try_into().ok()?) ^ (ONES * ZERO);
            let stops = digit_stops(digits);
            if stops == 0 {
                at += 8;
                continue;
            }
            let end = at + (stops.trailing_zeros() / 8) as usize;
            return self.unsigned_end(start, end, 0).map(|_| ());
        }
        self.unsigned_tail(start, at, 0).map(|_| ())
    }

    /// Reads the last bytes of the text, fewer than a word.
    #[cold]
    fn unsigned_tail(&mut self, start: usize, mut at: usize, mut value: u64) -> Option<u64> {
        while let Some(digit) = self.bytes.get(at).map(|b| b.wrapping_sub(b'0'))
            && digit < 10
        {
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
            at += 1;
        }
        self.unsigned_end(start, at, value)
    }

    #[inline(always)]
    fn unsigned_end(&mut self, start: usize, end: usize, value: u64) -> Option<u64> {
        let leading_zero = end > start + 1 && self.bytes[start] == b'0';
        if end == start || leading_zero {
            return None;
        }
        self.at = end;
        Some(value)
    }

    /// Reads any value.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                self.string_body().map(Scalar::Str)
            }
            b'0'..=b'9' => {
                let start = self.at;
                match self.unsigned() {
                    Some(value) if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) => {
                        Some(Scalar::UInt(value))
                    }
                    _ => self.other_number(start),
                }
            }
            _ => self.rare_value(),
        }
    }

    #[cold]
    fn rare_value(&mut self) -> Option<Scalar<'a>> {
        match self.peek()? {
            b'-' => self.other_number(self.at),
            b'{' | b'[' => self.nested(),
            b't' => self.eat(b"true").then_some(Scalar::True),
            b'f' => self.eat(b"false").then_some(Scalar::False),
            b'n' => self.eat(b"null").then_some(Scalar::Null),
            _ => None,
        }
    }

    /// A number that is negative, too long or not an integer. A fraction is parsed by the standard
    /// library, which is faster than serde_json to the nearest one.
    #[cold]
    fn other_number(&mut self, start: usize) -> Option<Scalar<'a>> {
        let rest = &self.bytes[start..];
        let number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|b| !number(b)).unwrap_or(rest.len());
        let text = &rest[..len];
        if is_json_fraction(text) {
            let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            self.at = start + len;
            // JSON has no infinity.
            return value.is_finite().then_some(Scalar::Float(value));
        }
        let number: serde_json::Number = serde_json::from_slice(text).ok()?;
        self.at = start + len;
        if let Some(value) = number.as_u64() {
            Some(Scalar::UInt(value))
        } else if let Some(value) = number.as_i64() {
            Some(Scalar::Int(value))
        } else {
            number.as_f64().map(Scalar::Float)
        }
    }

    /// An object or array. serde_json finds its end and validates its form. JSON allows line ends
    /// between tokens, a trace does not.
    fn nested(&mut self) -> Option<Scalar<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        let mut values =
            serde_json::Deserializer::from_slice(line).into_iter::<serde_json::Value>();
        values.next()?.ok()?;
        let len = values.byte_offset();
        self.at += len;
        Some(Scalar::Nested(&line[..len]))
    }
}

/// Whether a text is a number of JSON with a fraction or an exponent.
fn is_json_fraction(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    let mut rest = &text[whole..];
    let is_whole = rest.is_empty();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = &fraction[length..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"-").unwrap_or_else(|| {
            let plus = exponent.strip_prefix(b"+");
            plus.unwrap_or(exponent)
        });
        let length = digits(exponent);
        if length == 0 {
            return false;
        }
        rest = &exponent[length..];
    }
    rest.is_empty() && !is_whole
}

#[cfg(test)]
mod tests {
    use super::{Cursor, Scalar};

    #[track_caller]
    fn check(text: &str, expected: Option<Scalar<'_>>) {
        // With and without more text, so that both the loop over words and the end are tested.
        for padding in ["", ",123456789012345678"] {
            let whole = format!("{text}{padding}");
            let mut cursor = Cursor::new(whole.as_bytes(), 0);
            let value = cursor.value();
            assert_eq!(value, expected, "of {whole}");
            if value.is_some() {
                assert_eq!(cursor.position(), text.len(), "end of {whole}");
            }
        }
    }

    #[test]
    fn values_are_read_as_json_spells_them() {
        check("0", Some(Scalar::UInt(0)));
        check("12345678", Some(Scalar::UInt(12_345_678)));
        check("123456789", Some(Scalar::UInt(123_456_789)));
        check(
            "1744611969649277",
            Some(Scalar::UInt(1_744_611_969_649_277)),
        );
        check(
            "9509357668201227806",
            Some(Scalar::UInt(9_509_357_668_201_227_806)),
        );
        check("18446744073709551615", Some(Scalar::UInt(u64::MAX)));
        check(
            "18446744073709551616",
            Some(Scalar::Float(18_446_744_073_709_551_616.0)),
        );
        check("-1", Some(Scalar::Int(-1)));
        check("1.5", Some(Scalar::Float(1.5)));
        check("12345678e2", Some(Scalar::Float(1_234_567_800.0)));
        check("01", None);
        check("1.", None);
        check("true", Some(Scalar::True));
        check("false", Some(Scalar::False));
        check("null", Some(Scalar::Null));
        check("\"\"", Some(Scalar::Str("".as_bytes())));
        check(
            "\"/p/lustre1/a-long-enough-path\"",
            Some(Scalar::Str("/p/lustre1/a-long-enough-path".as_bytes())),
        );
        check(
            "\"\u{e4}\u{1f600}\"",
            Some(Scalar::Str("\u{e4}\u{1f600}".as_bytes())),
        );
        check("\"a\\n\"", None);
        check("\"a\u{1}\"", None);
        check("\"open", None);
        check(
            "{\"a\":[1,{}]}",
            Some(Scalar::Nested("{\"a\":[1,{}]}".as_bytes())),
        );
        check("{\"a\":[1,{}}", None);
        check("nil", None);
    }

    #[test]
    fn fractions_are_those_of_serde_json() {
        let alphabet = b"0123456789012.-+eE";
        let mut state = 1_u64;
        let mut next = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        let (mut valid, mut invalid) = (0, 0);
        for _ in 0..200_000 {
            let length = 1 + next(9);
            let text: String = (0..length)
                .map(|_| char::from(alphabet[usize::try_from(next(18)).unwrap()]))
                .collect();
            let expected = serde_json::from_str::<serde_json::Number>(&text).ok();
            let mut cursor = Cursor::new(text.as_bytes(), 0);
            let found = cursor.value();
            let found = found.filter(|_| cursor.position() == text.len());
            let found = found.and_then(|value| match value {
                Scalar::UInt(value) => Some(value.into()),
                Scalar::Int(value) => Some(value.into()),
                Scalar::Float(value) => serde_json::Number::from_f64(value),
                _ => None,
            });
            assert_eq!(found, expected, "{text}");
            *if found.is_some() {
                &mut valid
            } else {
                &mut invalid
            } += 1;
        }
        assert!(valid > 20_000 && invalid > 20_000, "{valid} {invalid}");
    }

    #[test]
    fn every_byte_but_a_digit_ends_a_number() {
        for byte in 0..128u8 {
            for place in 0..10 {
                let mut bytes = *b"1234567890123";
                bytes[place + 1] = byte;
                let text = std::str::from_utf8(&bytes).unwrap();
                let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
                let mut cursor = Cursor::new(&bytes, 0);
                assert_eq!(
                    cursor.unsigned(),
                    text[..digits].parse().ok(),
                    "of {text:?}"
                );
            }
        }
    }
}
