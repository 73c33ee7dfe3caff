//! A JSON reader that records the position of each value.

use crate::class::{BuildError, Subject, Value};
use std::collections::HashSet;

/// Levels of JSON values of a level of field classes: a structure, the list of its members, and a
/// member.
const CLASS_LEVELS: u32 = 3;
/// Levels of JSON values around and inside of field classes, at most.
const OTHER_LEVELS: u32 = 16;
/// Maximum nesting of values without positions. They are kept with the trace class, and released on
/// any stack.
const PLAIN_VALUE_DEPTH_MAX: u32 = 400;

/// A value and the offset of its first byte.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Json {
    pub(super) at: u32,
    pub(super) value: JsonValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum JsonValue {
    Null,
    Bool(bool),
    /// An integer; negative numbers fit `i64`, others `u64`.
    Integer(i128),
    Real(f64),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

pub(super) fn fault<T>(at: u32, message: impl Into<String>) -> Result<T, BuildError> {
    Err(BuildError::new(Subject::Origin(at), message))
}

impl Json {
    /// The same value without positions.
    ///
    /// # Errors
    /// When it nests too deeply.
    pub(super) fn to_value(&self) -> Result<Value, BuildError> {
        self.to_value_within(PLAIN_VALUE_DEPTH_MAX)
    }

    fn to_value_within(&self, depth_max: u32) -> Result<Value, BuildError> {
        let Some(inside) = depth_max.checked_sub(1) else {
            let message =
                format!("values of attributes nest deeper than {PLAIN_VALUE_DEPTH_MAX} levels");
            return fault(self.at, message);
        };
        Ok(match &self.value {
            JsonValue::Null => Value::Null,
            JsonValue::Bool(value) => Value::Bool(*value),
            JsonValue::Integer(value) => match u64::try_from(*value) {
                Ok(value) => Value::Unsigned(value),
                Err(_) => Value::Signed(i64::try_from(*value).unwrap_or(i64::MIN)),
            },
            JsonValue::Real(value) => Value::Real(*value),
            JsonValue::String(value) => Value::String(value.as_str().into()),
            JsonValue::Array(values) => {
                let values = values.iter().map(|value| value.to_value_within(inside));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            JsonValue::Object(entries) => {
                let entry = |(key, value): &(String, Self)| {
                    Ok((key.as_str().into(), value.to_value_within(inside)?))
                };
                Value::Object(entries.iter().map(entry).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// Reads the one value in `text[start..end]`, with field classes that nest up to `classes_max`
/// levels.
pub(super) fn read(
    text: &[u8],
    start: usize,
    end: usize,
    classes_max: u32,
) -> Result<Json, BuildError> {
    let mut reader = Reader {
        text: &text[..end],
        at: start,
        depth: 0,
        depth_max: classes_max * CLASS_LEVELS + OTHER_LEVELS,
    };
    let value = reader.value()?;
    reader.skip();
    if reader.at < end {
        return fault(reader.offset(), "unexpected data after the JSON value");
    }
    Ok(value)
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    depth: u32,
    depth_max: u32,
}

impl Reader<'_> {
    fn offset(&self) -> u32 {
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }

    fn skip(&mut self) {
        let blank = |byte: &&u8| b" \t\n\r".contains(byte);
        self.at += self.text[self.at..].iter().take_while(blank).count();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), BuildError> {
        if self.take(token) {
            return Ok(());
        }
        fault(self.offset(), format!("expecting `{token}`"))
    }

    fn value(&mut self) -> Result<Json, BuildError> {
        self.skip();
        let at = self.offset();
        if self.depth == self.depth_max {
            let message = format!("JSON values nest deeper than {} levels", self.depth_max);
            return Err(BuildError {
                is_too_deep: true,
                ..BuildError::new(Subject::Origin(at), message)
            });
        }
        self.depth += 1;
        let value = self.any(at)?;
        self.depth -= 1;
        Ok(Json { at, value })
    }

    fn any(&mut self, at: u32) -> Result<JsonValue, BuildError> {
        match self.text.get(self.at) {
            Some(b'n') if self.take("null") => Ok(JsonValue::Null),
            Some(b't') if self.take("true") => Ok(JsonValue::Bool(true)),
            Some(b'f') if self.take("false") => Ok(JsonValue::Bool(false)),
            Some(b'"') => self.string().map(JsonValue::String),
            Some(b'[') => self.array(),
            Some(b'{') => self.object(),
            Some(b'-' | b'0'..=b'9') => match self.number() {
                Some(value) => Ok(value),
                None => fault(at, "the number is malformed or exceeds 64 bits"),
            },
            _ => fault(at, "expecting a JSON value"),
        }
    }

    fn number(&mut self) -> Option<JsonValue> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = rest.iter().take_while(is_part).count();
        let text = std::str::from_utf8(&rest[..length]).ok()?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let whole = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let leading_zero = whole > 1 && digits.starts_with('0');
        if whole == 0 || leading_zero {
            return None;
        }
        let value = if whole == digits.len() {
            let value: i128 = text.parse().ok()?;
            let fits = value >= i128::from(i64::MIN) && value <= i128::from(u64::MAX);
            JsonValue::Integer(Some(value).filter(|_| fits)?)
        } else {
            let fraction_lacks_digits = digits.ends_with('.') || digits.contains(".e");
            let real: f64 = text.parse().ok()?;
            JsonValue::Real(Some(real).filter(|r| r.is_finite() && !fraction_lacks_digits)?)
        };
        self.at += length;
        Some(value)
    }

    fn array(&mut self) -> Result<JsonValue, BuildError> {
        self.expect("[")?;
        let mut values = Vec::new();
        if self.take("]") {
            return Ok(JsonValue::Array(values));
        }
        loop {
            values.push(self.value()?);
            if !self.take(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(JsonValue::Array(values))
    }

    fn object(&mut self) -> Result<JsonValue, BuildError> {
        self.expect("{")?;
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut keys = HashSet::new();
        if self.take("}") {
            return Ok(JsonValue::Object(entries));
        }
        loop {
            self.skip();
            let at = self.offset();
            if self.text.get(self.at) != Some(&b'"') {
                return fault(at, "expecting a key (a string)");
            }
            let key = self.string()?;
            if !keys.insert(key.clone()) {
                return fault(at, format!("duplicate key `{key}`"));
            }
            self.expect(":")?;
            let value = self.value()?;
            entries.push((key, value));
            if !self.take(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(JsonValue::Object(entries))
    }

    /// A string; the position is at its opening quote.
    fn string(&mut self) -> Result<String, BuildError> {
        let start = self.offset();
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.text.get(self.at) {
                None => return fault(start, "the string is not terminated"),
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut bytes)?,
                Some(0..=0x1f) => return fault(self.offset(), "a control character in the string"),
                Some(byte) => {
                    bytes.push(*byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        String::from_utf8(bytes).or_else(|_| fault(start, "the string is not valid UTF-8"))
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), BuildError> {
        let at = self.offset();
        let simple = match self.text.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(at, bytes),
            _ => return fault(at, "unknown escape sequence"),
        };
        bytes.push(simple);
        self.at += 2;
        Ok(())
    }

    fn unicode(&mut self, at: u32, bytes: &mut Vec<u8>) -> Result<(), BuildError> {
        let first = self.code_unit();
        let code = match first {
            Some(high @ 0xd800..=0xdbff) => match self.code_unit() {
                Some(low @ 0xdc00..=0xdfff) => {
                    Some(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                }
                _ => None,
            },
            other => other,
        };
        match code.and_then(char::from_u32) {
            Some(c) => {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                Ok(())
            }
            None => fault(at, "malformed `\\u` escape sequence"),
        }
    }

    /// `\uXXXX`
    fn code_unit(&mut self) -> Option<u32> {
        let sequence = self.text.get(self.at..self.at + 6)?;
        let digits = std::str::from_utf8(sequence.strip_prefix(b"\\u")?).ok()?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 6;
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{Json, JsonValue, read};
    use crate::class::Subject;

    fn check(text: &str, expected: Result<JsonValue, u32>) {
        let result = read(text.as_bytes(), 0, text.len(), 128);
        let found = result
            .map(|json| json.value)
            .map_err(|error| match error.frames[0].subject {
                Subject::Origin(at) => at,
                Subject::Whole => u32::MAX,
            });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn scalars() {
        check(" null ", Ok(JsonValue::Null));
        check(
            "18446744073709551615",
            Ok(JsonValue::Integer(i128::from(u64::MAX))),
        );
        check(
            "-9223372036854775808",
            Ok(JsonValue::Integer(i128::from(i64::MIN))),
        );
        check("18446744073709551616", Err(0));
        check("1.5e1", Ok(JsonValue::Real(15.0)));
        check("1.", Err(0));
        check("01", Err(0));
        check("- 1", Err(0));
        check("nul", Err(0));
        check("", Err(0));
        check("1 2", Err(2));
    }

    #[test]
    fn strings() {
        check(
            r#""a\u00e9\ud83d\ude00\n""#,
            Ok(JsonValue::String("aé😀\n".to_owned())),
        );
        check(r#""\ud83d""#, Err(1));
        check(r#""\q""#, Err(1));
        check("\"open", Err(0));
        check("\"a\nb\"", Err(2));
    }

    #[test]
    fn containers_know_where_their_values_are() {
        let one = Json {
            at: 1,
            value: JsonValue::Integer(1),
        };
        check("[1]", Ok(JsonValue::Array(vec![one])));
        let two = Json {
            at: 7,
            value: JsonValue::Bool(true),
        };
        check(
            " {\"k\": true}",
            Ok(JsonValue::Object(vec![("k".to_owned(), two)])),
        );
        check("{\"k\": 1, \"k\": 2}", Err(9));
        check("{\"k\" 1}", Err(5));
        check("[1", Err(2));
        check("[1,]", Err(3));
        check(&"[".repeat(100_000), Err(400));
    }
}
