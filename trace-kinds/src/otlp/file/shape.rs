//! Whether bytes are spans in protobuf, judged by the numbers and types of their fields.

use storage_format::read_varint;

use super::super::field::{request, span, spans};

/// Spans that are examined.
const SPANS_EXAMINED: u32 = 16;
/// The field of messages that older exporters send in `ResourceSpans`.
const OLDER_SCOPES: u64 = 1000;
const TRACE_ID_BYTES: usize = 16;
const SPAN_ID_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    ResourceSpans,
    ScopeSpans,
    Span,
}

/// What the value of a field has to be.
enum Expected {
    Message(Message),
    /// Bytes of this length, or none.
    Id(usize),
    Bytes,
    Varint,
    Fixed64,
    Fixed32,
}

fn expected(message: Message, number: u64) -> Option<Expected> {
    let is = |field: u32| u64::from(field) == number;
    Some(match message {
        Message::Request if is(request::RESOURCE_SPANS) => {
            Expected::Message(Message::ResourceSpans)
        }
        Message::ResourceSpans if is(spans::PARTS) => Expected::Message(Message::ScopeSpans),
        Message::ScopeSpans if is(spans::PARTS) => Expected::Message(Message::Span),
        Message::ResourceSpans if number == OLDER_SCOPES => Expected::Bytes,
        Message::ResourceSpans | Message::ScopeSpans
            if is(spans::EMITTER) || is(spans::SCHEMA_URL) =>
        {
            Expected::Bytes
        }
        Message::Span if is(span::TRACE_ID) => Expected::Id(TRACE_ID_BYTES),
        Message::Span if is(span::SPAN_ID) || is(span::PARENT_SPAN_ID) => {
            Expected::Id(SPAN_ID_BYTES)
        }
        Message::Span if is(span::START_TIME) || is(span::END_TIME) => Expected::Fixed64,
        Message::Span if is(span::FLAGS) => Expected::Fixed32,
        Message::Span
            if is(span::KIND)
                || is(span::DROPPED_ATTRIBUTES_COUNT)
                || is(span::DROPPED_EVENTS_COUNT)
                || is(span::DROPPED_LINKS_COUNT) =>
        {
            Expected::Varint
        }
        Message::Span if (1..=u64::from(span::FLAGS)).contains(&number) => Expected::Bytes,
        _ => return None,
    })
}

/// Reads messages as far as they are there.
struct Examination {
    spans: u32,
}

impl Examination {
    /// Whether the fields of `bytes` are those of `message`; with `is_cut`, `bytes` are its start.
    fn message(&mut self, message: Message, mut bytes: &[u8], is_cut: bool) -> bool {
        while !bytes.is_empty() && self.spans < SPANS_EXAMINED {
            let Ok((key, read)) = read_varint(bytes) else {
                return is_cut;
            };
            let rest = bytes.get(read..).unwrap_or_default();
            let Some(expected) = expected(message, key >> 3) else {
                return false;
            };
            let fixed = match (key & 7, &expected) {
                (0, Expected::Varint) => match read_varint(rest) {
                    Ok((_, read)) => read,
                    Err(_) => return is_cut,
                },
                (1, Expected::Fixed64) => 8,
                (5, Expected::Fixed32) => 4,
                (2, Expected::Message(_) | Expected::Id(_) | Expected::Bytes) => {
                    match self.part(&expected, rest, is_cut) {
                        Some(next) => bytes = next,
                        None => return false,
                    }
                    continue;
                }
                _ => return false,
            };
            bytes = match rest.get(fixed..) {
                Some(rest) => rest,
                None => return is_cut,
            };
        }
        true
    }

    /// The bytes after a field with a length; `None` if the field is not what is expected.
    fn part<'b>(&mut self, expected: &Expected, bytes: &'b [u8], is_cut: bool) -> Option<&'b [u8]> {
        let Ok((length, read)) = read_varint(bytes) else {
            return is_cut.then_some(&[]);
        };
        let rest = bytes.get(read..).unwrap_or_default();
        let length = usize::try_from(length).ok()?;
        let (value, next) = match rest.split_at_checked(length) {
            Some(parts) => parts,
            None if is_cut => (rest, &rest[rest.len()..]),
            None => return None,
        };
        let is_cut = value.len() < length;
        match expected {
            Expected::Message(message) => {
                if !self.message(*message, value, is_cut) {
                    return None;
                }
            }
            Expected::Id(bytes) => {
                if length != 0 && length != *bytes {
                    return None;
                }
                if length == TRACE_ID_BYTES && !is_cut {
                    self.spans += 1;
                }
            }
            Expected::Bytes | Expected::Varint | Expected::Fixed64 | Expected::Fixed32 => {}
        }
        Some(next)
    }
}

/// Whether `prefix` begins with requests in protobuf and has a span with a trace id.
pub(super) fn begins_with_spans(prefix: &[u8], is_whole: bool) -> bool {
    let mut examination = Examination { spans: 0 };
    examination.message(Message::Request, prefix, !is_whole) && examination.spans > 0
}

/// As [`begins_with_spans`], each request after its length in four bytes.
pub(super) fn begins_with_lengths(prefix: &[u8], is_whole: bool) -> bool {
    let mut examination = Examination { spans: 0 };
    let mut rest = prefix;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Ok(length) = usize::try_from(u32::from_be_bytes(*length)) else {
            return false;
        };
        let (request, next) = after
            .split_at_checked(length)
            .unwrap_or((after, &after[after.len()..]));
        let is_cut = request.len() < length;
        if is_cut && is_whole && examination.spans > 0 {
            // The last request of a file that was cut.
            return true;
        }
        if !examination.message(Message::Request, request, is_cut) {
            return false;
        }
        if examination.spans >= SPANS_EXAMINED {
            return true;
        }
        rest = next;
    }
    examination.spans > 0
}
