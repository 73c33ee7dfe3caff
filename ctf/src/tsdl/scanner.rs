//! Tokens of TSDL, scanned on demand.
//!
//! What follows a name depends on its meaning, so there is no token stream: the parser tries each
//! token that it can accept. A scan that fails leaves the position at the next token, after blanks
//! and comments; faults are reported there.

use crate::integer::low_u8;

/// Position in the text; a copy allows to return to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Byte offset of the position. Longer metadata than 4 GiB was rejected before.
    pub(super) fn offset(&self) -> u32 {
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.text.len()
    }

    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    /// Skips blanks and comments.
    pub(super) fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest
                .iter()
                .take_while(|byte| b" \t\x0b\n\r".contains(byte))
                .count();
            self.at += blanks;
            let rest = &rest[blanks..];
            let comment = if rest.starts_with(b"//") {
                rest.iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(rest.len())
            } else if rest.starts_with(b"/*") {
                let end = rest[2..].windows(2).position(|pair| pair == b"*/");
                end.map_or(rest.len(), |index| index + 4)
            } else {
                return;
            };
            self.at += comment;
        }
    }

    /// Skips blanks, comments and semicolons.
    pub(super) fn skip_semicolons(&mut self) {
        while self.punctuation(";") {}
    }

    /// Consumes the punctuation `token`; false when it is not next.
    pub(super) fn punctuation(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    /// Consumes the identifier `word`; false when it is not next.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let found = self.peek_identifier() == Some(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Consumes the next identifier.
    pub(super) fn identifier(&mut self) -> Option<&'t str> {
        let name = self.peek_identifier()?;
        self.at += name.len();
        Some(name)
    }

    /// True at a type that can be named.
    pub(super) fn is_at_nameable(mut self) -> bool {
        matches!(self.peek_identifier(), Some("enum" | "struct" | "variant"))
    }

    /// The next identifier, which is not consumed.
    pub(super) fn peek_identifier(&mut self) -> Option<&'t str> {
        self.skip();
        let rest = self.rest();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        if length == 0 || rest[0].is_ascii_digit() {
            return None;
        }
        std::str::from_utf8(&rest[..length]).ok()
    }

    /// A string between quotes, with escapes resolved; `None` when the closing quote is missing.
    /// The inner error is a control character in the string.
    pub(super) fn string(&mut self) -> Option<Result<String, u8>> {
        self.skip();
        let body = self.rest().strip_prefix(b"\"")?;
        let mut value = Vec::new();
        let mut control = None;
        let mut index = 0;
        while let Some(&byte) = body.get(index) {
            match byte {
                b'"' => {
                    self.at += index + 2;
                    let value = String::from_utf8_lossy(&value).into_owned();
                    return Some(control.map_or(Ok(value), Err));
                }
                b'\\' if index + 1 < body.len() => {
                    index += 1 + escape(&body[index + 1..], &mut value);
                    continue;
                }
                0..=8 | 14..=31 | 127 => {
                    control.get_or_insert(byte);
                }
                _ => {}
            }
            value.push(byte);
            index += 1;
        }
        None
    }

    /// A character constant: one byte or one escape sequence between apostrophes.
    pub(super) fn character(&mut self) -> Option<u64> {
        self.skip();
        let body = self.rest().strip_prefix(b"'")?;
        let mut value = Vec::new();
        let length = match body {
            [b'\\', rest @ ..] if !rest.is_empty() => 1 + escape(rest, &mut value),
            [byte, ..] => {
                value.push(*byte);
                1
            }
            [] => return None,
        };
        if body.get(length) != Some(&b'\'') {
            return None;
        }
        self.at += length + 2;
        value.first().map(|byte| u64::from(*byte))
    }

    /// An integer constant: decimal, octal, hexadecimal or binary, with a sign when `signed`.
    /// `None` when it exceeds 64 bits.
    fn integer(&mut self, signed: bool) -> Option<(bool, u64)> {
        self.skip();
        let rest = self.rest();
        let (negative, sign) = match rest.first()? {
            b'-' if signed => (true, 1),
            b'+' => (false, 1),
            _ => (false, 0),
        };
        let digits = &rest[sign..];
        let (radix, prefix) = match digits {
            [b'0', b'x' | b'X', ..] => (16, 2),
            [b'0', b'b' | b'B', ..] => (2, 2),
            [b'0', b'1'..=b'9', ..] => (8, 0),
            _ => (10, 0),
        };
        let body = &digits[prefix..];
        let length = body
            .iter()
            .take_while(|byte| char::from(**byte).is_digit(radix))
            .count();
        let text = std::str::from_utf8(&body[..length]).ok()?;
        let value = u64::from_str_radix(text, radix).ok()?;
        let suffix = body[length..]
            .iter()
            .take_while(|byte| b"uUlL".contains(byte))
            .count();
        let after = body.get(length + suffix);
        let is_suffix = !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        self.at += sign + prefix + length + if is_suffix { suffix } else { 0 };
        Some((negative, value))
    }

    /// An unsigned constant.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.integer(false).map(|(_, value)| value)
    }

    /// The 64 bits of a signed or unsigned constant.
    pub(super) fn bits(&mut self) -> Option<u64> {
        let sign = |(is_negative, value): (bool, u64)| {
            if is_negative {
                value.wrapping_neg()
            } else {
                value
            }
        };
        self.integer(true).map(sign)
    }

    /// A signed constant.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let before = *self;
        let value = self.integer(true).and_then(|(negative, value)| {
            let value = i128::from(value) * if negative { -1 } else { 1 };
            i64::try_from(value).ok()
        });
        if value.is_none() {
            *self = before;
            self.skip();
        }
        value
    }
}

/// Appends the value of the escape sequence after a backslash; returns its length. An unknown
/// sequence is copied.
fn escape(body: &[u8], value: &mut Vec<u8>) -> usize {
    let simple = match body[0] {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        byte @ (b'"' | b'\\' | b'\'' | b'?') => byte,
        b'0'..=b'7' => return numeric(body, 0, 8, 3, value),
        b'x' => return numeric(body, 1, 16, 2, value),
        _ => {
            value.push(b'\\');
            return 0;
        }
    };
    value.push(simple);
    1
}

fn numeric(body: &[u8], skip: usize, radix: u32, max: usize, value: &mut Vec<u8>) -> usize {
    let digits = body[skip..]
        .iter()
        .take(max)
        .take_while(|b| char::from(**b).is_digit(radix));
    let mut length = 0;
    let mut code = 0_u32;
    for digit in digits {
        code = code * radix + char::from(*digit).to_digit(radix).unwrap_or(0);
        length += 1;
    }
    if length == 0 {
        value.push(b'\\');
        return 0;
    }
    value.push(low_u8(code.into()));
    skip + length
}

#[cfg(test)]
mod tests {
    use super::Scanner;

    #[test]
    fn integers_in_every_radix() {
        let check = |text: &str, unsigned: Option<u64>, signed: Option<i64>| {
            assert_eq!(Scanner::new(text.as_bytes()).unsigned(), unsigned, "{text}");
            assert_eq!(Scanner::new(text.as_bytes()).signed(), signed, "{text}");
        };
        check("0", Some(0), Some(0));
        check("0x1F", Some(31), Some(31));
        check("0b101;", Some(5), Some(5));
        check("017", Some(15), Some(15));
        check("-9223372036854775808", None, Some(i64::MIN));
        check("9223372036854775808", Some(1 << 63), None);
        check("18446744073709551616", None, None);
        check("12ULL;", Some(12), Some(12));
        check("x", None, None);
        check("", None, None);
    }

    #[test]
    fn strings_resolve_escapes() {
        let check = |text: &str, expected: Option<Result<&str, u8>>| {
            let scanned = Scanner::new(text.as_bytes()).string();
            assert_eq!(
                scanned,
                expected.map(|value| value.map(str::to_owned)),
                "{text}"
            );
        };
        check(r#""a\n\"\\\x41\101\q""#, Some(Ok("a\n\"\\AA\\q")));
        check("\"open", None);
        check("\"a\u{1}\"", Some(Err(1)));
        check("plain", None);
    }

    #[test]
    fn characters() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(
                Scanner::new(text.as_bytes()).character(),
                expected,
                "{text}"
            );
        };
        check(r"'a'", Some(97));
        check(r"'\n'", Some(10));
        check(r"'\x20';", Some(32));
        check("'ab'", None);
        check("'", None);
        check("'\\", None);
    }

    #[test]
    fn blanks_and_comments_are_skipped() {
        let mut scanner = Scanner::new(b" // one\n/* two */ ;; name-");
        scanner.skip_semicolons();
        assert_eq!(scanner.identifier(), Some("name"));
        assert!(scanner.punctuation("-"));
        assert!(scanner.is_done());
        let mut open = Scanner::new(b"/* never closed");
        open.skip();
        assert!(open.is_done());
    }
}
