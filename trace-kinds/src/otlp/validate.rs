//! The validation of a request: every message can be read, every text is UTF-8, and nothing is more
//! than its limit. It allocates nothing as long as nothing is wrong.

use std::fmt::Write as _;

use super::attribute::check_text;
use super::limits::{Counted, RequestError, RequestLimits};
use super::schema::{ARRAY, Field, Form, MAP, Message, REQUEST};
use super::wire::{Part, Wire};
use crate::DecodeError;

/// Validates a request in protobuf.
///
/// # Errors
///
/// When a message or a text in it is damaged, or it has more of something than `limits` allow.
pub(super) fn validate(request: &[u8], limits: &RequestLimits) -> Result<(), RequestError> {
    let mut validator = Validator {
        limits,
        counts: [0; 5],
    };
    let whole = Part::whole(request);
    validator
        .message(whole, &REQUEST, 0)
        .map_err(|refused| match refused {
            RequestError::Malformed { error, .. } => {
                let (DecodeError::Damaged { offset, .. } | DecodeError::Truncated { offset, .. }) =
                    &error
                else {
                    return error.into();
                };
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                let field = path_of(whole, offset);
                RequestError::Malformed { field, error }
            }
            exceeded @ RequestError::Exceeded { .. } => exceeded,
        })
}

struct Validator<'l> {
    limits: &'l RequestLimits,
    counts: [u32; 5],
}

impl Validator<'_> {
    fn message(
        &mut self,
        part: Part<'_>,
        message: &'static Message,
        depth: u32,
    ) -> Result<(), RequestError> {
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            let Wire::Bytes(inner) = value else {
                continue;
            };
            match form_of(message, number) {
                Some(Form::Text) => check_text(inner.bytes, inner)?,
                Some(Form::List(element, counted)) => {
                    self.count(*counted)?;
                    self.message(inner, element, depth)?;
                }
                Some(Form::One(one)) if std::ptr::eq(*one, &ARRAY) || std::ptr::eq(*one, &MAP) => {
                    if depth >= self.limits.value_depth {
                        return Err(self.exceeded(Counted::Depth));
                    }
                    self.message(inner, one, depth + 1)?;
                }
                Some(Form::One(one)) => self.message(inner, one, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn count(&mut self, counted: Counted) -> Result<(), RequestError> {
        let Some(count) = self.counts.get_mut(counted as usize) else {
            return Ok(());
        };
        if *count >= self.limits.of(counted) {
            return Err(self.exceeded(counted));
        }
        *count += 1;
        Ok(())
    }

    #[cold]
    fn exceeded(&self, counted: Counted) -> RequestError {
        RequestError::Exceeded {
            counted,
            max: self.limits.of(counted),
        }
    }
}

fn field_of(message: &'static Message, number: u32) -> Option<&'static Field> {
    message.0.iter().find(|field| field.0 == number)
}

#[inline]
fn form_of(message: &'static Message, number: u32) -> Option<&'static Form> {
    field_of(message, number).map(|field| &field.2)
}

/// The path to the innermost field that contains the byte at `offset`, with the names of JSON.
fn path_of(request: Part<'_>, offset: usize) -> Option<String> {
    let mut path = String::new();
    let mut within = Some((request, &REQUEST));
    while let Some((part, message)) = within.take() {
        let Some((field, inner, index)) = field_at(part, message, offset) else {
            break;
        };
        let separator = if path.is_empty() { "" } else { "." };
        let Field(_, name, form) = field;
        // Writing to a string does not fail.
        let _ = match form {
            Form::List(..) => write!(path, "{separator}{name}[{index}]"),
            _ => write!(path, "{separator}{name}"),
        };
        within = match form {
            Form::List(message, _) | Form::One(message) => Some((inner, *message)),
            _ => None,
        };
    }
    (!path.is_empty()).then_some(path)
}

/// The known field of a message that contains the byte at `offset`, its contents, and its place
/// among those of the same number.
fn field_at<'a>(
    part: Part<'a>,
    message: &'static Message,
    offset: usize,
) -> Option<(&'static Field, Part<'a>, usize)> {
    let mut fields = part.fields();
    // What follows the damage cannot be read.
    while let Ok(Some((number, value))) = fields.next() {
        let (Wire::Bytes(inner), Some(field)) = (value, field_of(message, number)) else {
            continue;
        };
        let end = inner.base + inner.bytes.len();
        // A message that is cut is damaged at its end, where the next field begins, too.
        let contains = (inner.base..end).contains(&offset)
            || (offset == end && message_of(field).is_some_and(|of| is_cut(inner, of)));
        if contains {
            return Some((field, inner, index_of(part, number, inner.base)));
        }
    }
    None
}

/// The message that a field contains.
fn message_of(field: &'static Field) -> Option<&'static Message> {
    match &field.2 {
        Form::List(message, _) | Form::One(message) => Some(*message),
        _ => None,
    }
}

/// Whether a message, or the last one in it, ends in the middle of a field. It is as deep as what
/// was validated.
fn is_cut(part: Part<'_>, message: &'static Message) -> bool {
    let mut last = None;
    let mut fields = part.fields();
    loop {
        match fields.next() {
            Ok(Some(field)) => last = Some(field),
            Ok(None) => break,
            Err(_) => return true,
        }
    }
    let Some((number, Wire::Bytes(inner))) = last else {
        return false;
    };
    let inside = field_of(message, number).and_then(message_of);
    inside.is_some_and(|inside| is_cut(inner, inside))
}

/// The place of the field whose contents begin at `begin` among those of the same number.
fn index_of(part: Part<'_>, number: u32, begin: usize) -> usize {
    let mut index = 0;
    let mut fields = part.fields();
    while let Ok(Some((other, value))) = fields.next() {
        match value {
            Wire::Bytes(inner) if other == number && inner.base < begin => index += 1,
            _ => {}
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::to_protobuf;
    use crate::protobuf::put_bytes;

    const UNLIMITED: RequestLimits = RequestLimits::READABLE;

    /// The bytes of messages in each other, by field numbers from the outside in.
    fn nested(numbers: &[u32], innermost: &[u8]) -> Vec<u8> {
        numbers
            .iter()
            .rev()
            .fold(innermost.to_vec(), |inner, number| {
                let mut outer = Vec::new();
                put_bytes(&mut outer, *number, &inner);
                outer
            })
    }

    #[test]
    fn a_violation_is_reported_with_the_path_of_its_field() {
        let mut second = nested(&[2, 2], b"");
        second.extend(nested(&[2, 2, 3], b"a=\xff"));
        for (request, wanted) in [
            (
                nested(&[1, 2, 2, 3], b"\xff"),
                "resourceSpans[0].scopeSpans[0].spans[0].traceState",
            ),
            (
                nested(&[1], &second),
                "resourceSpans[0].scopeSpans[1].spans[0].traceState",
            ),
            (
                nested(&[1, 2, 2, 5], b"\xff"),
                "resourceSpans[0].scopeSpans[0].spans[0].name",
            ),
            (
                nested(&[1, 2, 2, 13, 3], b"\xff"),
                "resourceSpans[0].scopeSpans[0].spans[0].links[0].traceState",
            ),
            (
                nested(&[1, 2, 2, 11, 2], b"\xff"),
                "resourceSpans[0].scopeSpans[0].spans[0].events[0].name",
            ),
            (nested(&[1, 3], b"\xff"), "resourceSpans[0].schemaUrl"),
            (
                nested(&[1, 1, 1, 2, 6, 1, 2, 1], b"\xff"),
                "resourceSpans[0].resource.attributes[0].value.kvlistValue.values[0].value.stringValue",
            ),
            // A message that ends in the middle of a number.
            (nested(&[1, 2], b"\x80"), "resourceSpans[0].scopeSpans[0]"),
            (nested(&[1, 2], b"\x12"), "resourceSpans[0].scopeSpans[0]"),
            (
                nested(&[1, 2], b"\x12\x09"),
                "resourceSpans[0].scopeSpans[0]",
            ),
        ] {
            let refused = validate(&request, &UNLIMITED).unwrap_err();
            let RequestError::Malformed { field, .. } = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(field.as_deref(), Some(wanted), "{request:x?}");
        }
        let damaged = validate(b"\x80", &UNLIMITED).unwrap_err();
        assert!(
            matches!(damaged, RequestError::Malformed { field: None, .. }),
            "{damaged}"
        );
    }

    #[test]
    fn each_limit_admits_its_number_and_no_more() {
        let limits = RequestLimits {
            resources: 2,
            scopes: 3,
            spans: 4,
            events: 5,
            attributes: 6,
            value_depth: 3,
        };
        let attribute = nested(&[9, 2, 6, 1], b"");
        for (counted, path, each, max) in [
            (Counted::Resources, &[][..], nested(&[1], b""), 2),
            (Counted::Scopes, &[1], nested(&[2], b""), 3),
            (Counted::Spans, &[1, 2], nested(&[2], b""), 4),
            (Counted::Events, &[1, 2, 2], nested(&[11], b""), 5),
            (Counted::Events, &[1, 2, 2], nested(&[13], b""), 5),
            (Counted::Attributes, &[1, 1], nested(&[1], b""), 6),
            (Counted::Attributes, &[1, 2, 1], nested(&[3], b""), 6),
            (Counted::Attributes, &[1, 2, 2, 11], nested(&[3], b""), 6),
            (
                Counted::Attributes,
                &[1, 2, 2, 9, 2, 5],
                nested(&[1], b""),
                5,
            ),
            // An attribute and its entry.
            (Counted::Attributes, &[1, 2, 2], attribute, 3),
        ] {
            let request = |count: usize| nested(path, &each.repeat(count));
            assert_eq!(
                validate(&request(max), &limits),
                Ok(()),
                "{counted:?} {path:?}"
            );
            let refused = validate(&request(max + 1), &limits);
            let max = limits.of(counted);
            assert_eq!(
                refused,
                Err(RequestError::Exceeded { counted, max }),
                "{path:?}"
            );
        }
        let arrays = |levels: usize| nested(&[1, 1, 1, 2], &nested(&[5, 1].repeat(levels), b""));
        assert_eq!(validate(&arrays(3), &limits), Ok(()));
        let refused = validate(&arrays(4), &limits).unwrap_err();
        assert!(matches!(
            refused,
            RequestError::Exceeded {
                counted: Counted::Depth,
                max: 3
            }
        ));
        // All of a request counts together.
        let both = nested(&[1], &[nested(&[2], b""), nested(&[2], b"")].concat()).repeat(2);
        assert!(validate(&both, &limits).is_err());
    }

    #[test]
    fn what_json_says_is_valid_in_protobuf() {
        let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceState":"a=b"}]}]}]}"#;
        let request = to_protobuf(json.as_bytes()).unwrap();
        assert_eq!(validate(&request, &UNLIMITED), Ok(()));
    }
}
