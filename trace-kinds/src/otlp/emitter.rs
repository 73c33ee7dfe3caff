//! Emitters of spans: resources and the scopes within them.

use std::borrow::Cow;

use super::attribute::{Attribute, each_attribute};
use super::field::{resource, scope, spans};
use super::wire::{Part, Wire};
use crate::DecodeError;

/// What emitted spans: a resource, or an instrumentation scope within it.
#[derive(Debug, Clone, Default)]
pub struct Emitter<'a> {
    /// The message `Resource` or `InstrumentationScope`; empty when it is missing.
    pub message: Cow<'a, [u8]>,
    /// URL of the schema of what is in it; empty when it is missing.
    pub schema_url: &'a [u8],
}

impl<'a> Emitter<'a> {
    /// An emitter with this message, which may be empty.
    pub fn new(message: impl Into<Cow<'a, [u8]>>, schema_url: &'a [u8]) -> Self {
        Emitter {
            message: message.into(),
            schema_url,
        }
    }

    /// The emitter in a message `ResourceSpans` or `ScopeSpans`, where its fields may be anywhere.
    pub(super) fn read(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut emitter = Emitter::default();
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (spans::EMITTER, Wire::Bytes(message)) if emitter.message.is_empty() => {
                    emitter.message = Cow::Borrowed(message.bytes);
                }
                // Two messages in a field that takes one are merged.
                (spans::EMITTER, Wire::Bytes(more)) => {
                    emitter.message.to_mut().extend_from_slice(more.bytes)
                }
                (spans::SCHEMA_URL, Wire::Bytes(url)) => emitter.schema_url = url.bytes,
                _ => {}
            }
        }
        Ok(emitter)
    }
}

/// Calls `each` for the attributes of a message `Resource`.
///
/// # Errors
///
/// When one of them is damaged.
pub fn each_resource_attribute<'a>(
    message: &'a [u8],
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(), DecodeError> {
    each_attribute(Part::whole(message), resource::ATTRIBUTES, each)
}

/// Name, version and attributes of a message `InstrumentationScope`.
pub(super) fn read_scope<'a>(
    message: &'a [u8],
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let (mut name, mut version) = (&b""[..], &b""[..]);
    let part = Part::whole(message);
    let mut fields = part.fields();
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (scope::NAME, Wire::Bytes(text)) => name = text.bytes,
            (scope::VERSION, Wire::Bytes(text)) => version = text.bytes,
            _ => {}
        }
    }
    each_attribute(part, scope::ATTRIBUTES, each)?;
    Ok((name, version))
}
