//! Spans and their events.

use super::attribute::{Attribute, each_attribute};
use super::field::{event, span, status};
use super::wire::{Part, Wire};
use crate::DecodeError;

/// A span, borrowed from its packet: the fields that every reader needs, and the rest on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<'a> {
    part: Part<'a>,
    /// 16 bytes in a valid span.
    pub trace_id: &'a [u8],
    /// 8 bytes in a valid span.
    pub span_id: &'a [u8],
    /// 8 bytes; empty in the root of a trace.
    pub parent_span_id: &'a [u8],
    /// Name of the operation.
    pub name: &'a [u8],
    /// Code of the span kind.
    pub kind: u64,
    /// Nanoseconds since the epoch; 0 if unknown.
    pub start: u64,
    /// Nanoseconds since the epoch; 0 if unknown.
    pub end: u64,
    /// Code of the status: 0 unset, 1 ok, 2 error.
    pub status: u64,
    /// Message of the status.
    pub status_message: &'a [u8],
    /// Bits of the W3C trace flags, and whether the parent is remote.
    pub flags: u32,
    /// Whether the span has attributes, events or links.
    pub(super) has_details: bool,
}

/// Bits of [`Span::flags`]: whether the next one is known, and whether the parent is remote.
const PARENT_REMOTE_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

impl<'a> Span<'a> {
    /// Reads a span message.
    ///
    /// # Errors
    ///
    /// When its fields cannot be separated. Attributes, events and links are not examined.
    pub fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        Self::from_part(Part::whole(message))
    }

    #[inline]
    pub(super) fn from_part(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut read = Span {
            part,
            trace_id: &[],
            span_id: &[],
            parent_span_id: &[],
            name: &[],
            kind: 0,
            start: 0,
            end: 0,
            status: 0,
            status_message: &[],
            flags: 0,
            has_details: false,
        };
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (span::ATTRIBUTES | span::EVENTS | span::LINKS, Wire::Bytes(_)) => {
                    read.has_details = true;
                }
                (span::TRACE_ID, Wire::Bytes(id)) => read.trace_id = id.bytes,
                (span::SPAN_ID, Wire::Bytes(id)) => read.span_id = id.bytes,
                (span::PARENT_SPAN_ID, Wire::Bytes(id)) => read.parent_span_id = id.bytes,
                (span::NAME, Wire::Bytes(name)) => read.name = name.bytes,
                (span::KIND, Wire::Varint(kind)) => read.kind = kind,
                (span::START_TIME, Wire::Fixed64(start)) => read.start = start,
                (span::END_TIME, Wire::Fixed64(end)) => read.end = end,
                (span::STATUS, Wire::Bytes(status)) => read.read_status(status)?,
                (span::FLAGS, Wire::Fixed32(flags)) => read.flags = flags,
                _ => {}
            }
        }
        Ok(read)
    }

    fn read_status(&mut self, part: Part<'a>) -> Result<(), DecodeError> {
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (status::MESSAGE, Wire::Bytes(text)) => self.status_message = text.bytes,
                (status::CODE, Wire::Varint(code)) => self.status = code,
                _ => {}
            }
        }
        Ok(())
    }

    /// The message, as it was sent.
    #[inline]
    pub fn message(&self) -> &'a [u8] {
        self.part.bytes
    }

    /// Start, ns since the epoch; `None` if unknown.
    #[inline]
    pub fn ts(&self) -> Option<i64> {
        i64::try_from(self.start).ok().filter(|start| *start != 0)
    }

    /// Nanoseconds from start to end; `None` if either is unknown or the end is before the start.
    #[inline]
    pub fn dur(&self) -> Option<u64> {
        if self.start == 0 || self.end == 0 {
            return None;
        }
        self.end.checked_sub(self.start)
    }

    /// Whether both ids are valid by the specification: of the right length, and not all zero.
    #[inline]
    pub fn has_valid_ids(&self) -> bool {
        let valid = |id: &[u8], length| id.len() == length && id.iter().any(|byte| *byte != 0);
        valid(self.trace_id, 16) && valid(self.span_id, 8)
    }

    /// Whether the span is a local root by its fields: it has no parent, or a remote one.
    #[inline]
    pub fn is_local_root(&self) -> bool {
        let remote = PARENT_REMOTE_KNOWN | PARENT_REMOTE;
        self.parent_span_id.is_empty() || self.flags & remote == remote
    }

    /// Calls `each` for the attributes in their order.
    ///
    /// # Errors
    ///
    /// When one of them is damaged.
    pub fn each_attribute(&self, each: &mut dyn FnMut(Attribute<'a>)) -> Result<(), DecodeError> {
        each_attribute(self.part, span::ATTRIBUTES, each)
    }

    /// Calls `each` for the events of the span in their order.
    ///
    /// # Errors
    ///
    /// When one of them is damaged.
    pub fn each_event(&self, each: &mut dyn FnMut(SpanEvent<'a>)) -> Result<(), DecodeError> {
        let mut fields = self.part.fields();
        while let Some((number, value)) = fields.next()? {
            if let (span::EVENTS, Wire::Bytes(part)) = (number, value) {
                each(SpanEvent::read(part)?);
            }
        }
        Ok(())
    }

    /// Numbers of events and of links.
    pub(super) fn counts(&self) -> Result<(u64, u64), DecodeError> {
        let (mut events, mut links) = (0, 0);
        let mut fields = self.part.fields();
        while let Some((number, _)) = fields.next()? {
            match number {
                span::EVENTS => events += 1,
                span::LINKS => links += 1,
                _ => {}
            }
        }
        Ok((events, links))
    }
}

/// Something that happened at one time within a span, such as an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanEvent<'a> {
    part: Part<'a>,
    /// Nanoseconds since the epoch.
    pub time: u64,
    /// What happened.
    pub name: &'a [u8],
}

impl<'a> SpanEvent<'a> {
    fn read(part: Part<'a>) -> Result<Self, DecodeError> {
        let (mut time, mut name) = (0, &b""[..]);
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (event::TIME, Wire::Fixed64(nanos)) => time = nanos,
                (event::NAME, Wire::Bytes(text)) => name = text.bytes,
                _ => {}
            }
        }
        Ok(SpanEvent { part, time, name })
    }

    /// Whether it is an exception, by the name that OpenTelemetry prescribes.
    pub fn is_exception(&self) -> bool {
        self.name == b"exception"
    }

    /// Calls `each` for the attributes in their order.
    ///
    /// # Errors
    ///
    /// When one of them is damaged.
    pub fn each_attribute(&self, each: &mut dyn FnMut(Attribute<'a>)) -> Result<(), DecodeError> {
        each_attribute(self.part, event::ATTRIBUTES, each)
    }
}
