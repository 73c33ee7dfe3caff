//! JSON values of an event, as slices of its bytes.

use query_language::Value;

/// How deep the values of an event may be nested; the scanner reports deeper events.
const DEPTH_MAX: usize = 130;

/// A value; strings and nested values are slices of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Json<'a> {
    /// The body of a string; the flag says that it has escapes.
    Text(&'a [u8], bool),
    Number(&'a [u8]),
    Bool(bool),
    Null,
    Object(&'a [u8]),
    List(&'a [u8]),
}

impl<'a> Json<'a> {
    /// The value of a field; `None` for null. Objects and lists are their text. `text` receives
    /// strings with escapes, and [`Known::Range`] refers to it.
    pub(super) fn known(self, text: &mut Vec<u8>) -> Option<Known<'a>> {
        Some(Known::Value(match self {
            Json::Text(body, false) => Value::Str(body),
            Json::Text(body, true) => {
                let start = text.len();
                unescape(body, text);
                return Some(Known::Range(start, text.len()));
            }
            Json::Number(number) => number_value(number),
            Json::Bool(value) => Value::Bool(value),
            Json::Null => return None,
            Json::Object(text) | Json::List(text) => Value::Str(text),
        }))
    }
}

/// The value of a field of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Known<'a> {
    Value(Value<'a>),
    /// Text, as a range in the text of the event.
    Range(usize, usize),
}

/// The value of a number that is spelled as JSON requires, or of a word for a number that is none.
fn number_value(number: &[u8]) -> Value<'_> {
    let text = std::str::from_utf8(number).unwrap_or_default();
    if let Ok(value) = text.parse() {
        return Value::Uint(value);
    }
    if let Ok(value) = text.parse() {
        return Value::Int(value);
    }
    Value::Float(text.parse().unwrap_or(f64::NAN))
}

/// Appends a string without its escapes. A surrogate without its other half becomes U+FFFD.
pub(super) fn unescape(body: &[u8], text: &mut Vec<u8>) {
    let mut rest = body;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        text.extend_from_slice(plain);
        let (kind, tail) = match escape {
            [_, kind, tail @ ..] => (*kind, tail),
            _ => return,
        };
        rest = tail;
        match kind {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'u' => {
                let (character, tail) = unicode(tail);
                let mut buffer = [0; 4];
                text.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                rest = tail;
            }
            other => text.push(other),
        }
    }
    text.extend_from_slice(rest);
}

/// The character of the digits after `\u`, and of the escape after them if both are one character.
fn unicode(rest: &[u8]) -> (char, &[u8]) {
    let unit = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let tail = rest.get(4..).unwrap_or_default();
    let Some(first) = unit(rest) else {
        return (char::REPLACEMENT_CHARACTER, tail);
    };
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = tail.strip_prefix(b"\\u").and_then(unit)
        && (0xdc00..0xe000).contains(&second)
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        return (character, tail.get(6..).unwrap_or_default());
    }
    (
        char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER),
        tail,
    )
}

/// Reads JSON. Every method returns `None` where the text is not JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Whether only spaces are left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Reads an object; calls `each` with every key and value.
    pub(super) fn object(
        &mut self,
        depth: usize,
        each: &mut dyn FnMut(&'a [u8], bool, Json<'a>),
    ) -> Option<()> {
        if !self.eat(b'{') {
            return None;
        }
        if self.eat(b'}') {
            return Some(());
        }
        loop {
            let Json::Text(key, escaped) = self.text()? else {
                return None;
            };
            if !self.eat(b':') {
                return None;
            }
            let value = self.value(depth)?;
            each(key, escaped, value);
            if self.eat(b'}') {
                return Some(());
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        if self.eat(b']') {
            return Some(());
        }
        loop {
            self.value(depth)?;
            if self.eat(b']') {
                return Some(());
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    /// Reads any value.
    pub(super) fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.text(),
            b'{' | b'[' => {
                let depth = depth + 1;
                if depth > DEPTH_MAX {
                    return None;
                }
                if first == b'{' {
                    self.object(depth, &mut |_, _, _| {})?;
                    return Some(Json::Object(self.bytes.get(start..self.at)?));
                }
                self.list(depth)?;
                Some(Json::List(self.bytes.get(start..self.at)?))
            }
            _ => self.word(),
        }
    }

    fn text(&mut self) -> Option<Json<'a>> {
        if !self.eat(b'"') {
            return None;
        }
        let start = self.at;
        let mut escaped = false;
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => {
                    let body = self.bytes.get(start..self.at)?;
                    self.at += 1;
                    return Some(Json::Text(body, escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let length = match self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' => {
                let digits = self.bytes.get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                6
            }
            _ => return None,
        };
        self.at += length;
        Some(())
    }

    /// Reads a number, `true`, `false` or `null`, or a number that is none as Python spells it.
    fn word(&mut self) -> Option<Json<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let is_end = |byte: &u8| {
            matches!(
                byte,
                b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r'
            )
        };
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        let word = rest.get(..length)?;
        self.at += length;
        Some(match word {
            b"true" => Json::Bool(true),
            b"false" => Json::Bool(false),
            b"null" => Json::Null,
            b"NaN" | b"Infinity" | b"-Infinity" => Json::Number(word),
            _ if is_number(word) => Json::Number(word),
            _ => return None,
        })
    }
}

/// Whether a word is a number as JSON spells it.
fn is_number(word: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (length > 0).then(|| text.get(length..)).flatten()
    }
    fn after_sign(text: &[u8]) -> &[u8] {
        match text {
            [b'+' | b'-', rest @ ..] => rest,
            _ => text,
        }
    }
    let magnitude = word.strip_prefix(b"-").unwrap_or(word);
    let whole = match magnitude {
        [b'0', rest @ ..] => Some(rest),
        _ => digits(magnitude),
    };
    let fraction = whole.and_then(|rest| match rest {
        [b'.', rest @ ..] => digits(rest),
        _ => Some(rest),
    });
    let exponent = fraction.and_then(|rest| match rest {
        [b'e' | b'E', rest @ ..] => digits(after_sign(rest)),
        _ => Some(rest),
    });
    exponent.is_some_and(<[u8]>::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_serde_json() {
        let texts = [
            "0",
            "01",
            "1.",
            "1.5",
            "-1.5e+3",
            "1e",
            "+1",
            "true",
            "nul",
            "\"a\"",
            "\"\\u00e4\\ud83d\\ude00\\n\\/\"",
            "\"\\x\"",
            "\"\\u12\"",
            "{}",
            "[]",
            "[1,]",
            "[,1]",
            "{\"a\":1,}",
            "{\"a\" : [1, {\"b\":null}] }",
            "{\"a\"}",
            "\"open",
            "18446744073709551615",
            "-9223372036854775808",
            "1e400",
            "\"\u{1}\"",
            "{1:2}",
            "[1 2]",
            "",
        ];
        for text in texts {
            let mut cursor = Cursor::new(text.as_bytes());
            let found = cursor.value(0).filter(|_| cursor.is_at_end());
            let expected: Option<serde_json::Value> = serde_json::from_str(text).ok();
            // A number too large for serde_json is infinite.
            if text != "1e400" {
                assert_eq!(found.is_some(), expected.is_some(), "{text}");
            }
            let (Some(found), Some(expected)) = (found, expected) else {
                continue;
            };
            let mut decoded = Vec::new();
            let matches = match (found.known(&mut decoded), &expected) {
                (None, serde_json::Value::Null) => true,
                (Some(Known::Value(Value::Bool(found))), value) => Some(found) == value.as_bool(),
                (Some(Known::Value(Value::Uint(found))), value) => Some(found) == value.as_u64(),
                (Some(Known::Value(Value::Int(found))), value) => Some(found) == value.as_i64(),
                (Some(Known::Value(Value::Float(found))), value) => Some(found) == value.as_f64(),
                (Some(Known::Range(from, to)), serde_json::Value::String(value)) => {
                    decoded[from..to] == *value.as_bytes()
                }
                (Some(Known::Value(Value::Str(found))), serde_json::Value::String(value)) => {
                    found == value.as_bytes()
                }
                (Some(Known::Value(Value::Str(found))), value) => {
                    serde_json::from_slice::<serde_json::Value>(found).unwrap() == *value
                }
                _ => false,
            };
            assert!(matches, "{text}: {found:?}, {expected:?}");
        }
    }

    #[test]
    fn lone_surrogates_and_words_for_numbers_are_accepted() {
        let mut text = Vec::new();
        unescape(br"a\ud83dz\udc00\ud83d\u0041", &mut text);
        assert_eq!(text, "a\u{fffd}z\u{fffd}\u{fffd}A".as_bytes());
        let mut cursor = Cursor::new(b"-Infinity");
        let value = cursor
            .value(0)
            .and_then(|value| value.known(&mut Vec::new()));
        assert_eq!(value, Some(Known::Value(Value::Float(f64::NEG_INFINITY))));
        assert!(
            Cursor::new("[".repeat(200_000).as_bytes())
                .value(0)
                .is_none()
        );
    }
}
