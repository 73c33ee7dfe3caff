//! How much one request may contain.

use std::fmt;

use thiserror::Error;

use super::attribute::VALUE_DEPTH_MAX;
use crate::DecodeError;

/// What a request has many of. An empty one takes two bytes on the wire, and more in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// `ResourceSpans`.
    Resources,
    /// `ScopeSpans`.
    Scopes,
    /// Spans.
    Spans,
    /// Events and links of spans.
    Events,
    /// Attributes of all of these, entries of maps and elements of arrays.
    Attributes,
    /// Maps and arrays in each other.
    Depth,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resources => "resources",
            Self::Scopes => "scopes",
            Self::Spans => "spans",
            Self::Events => "events and links of spans",
            Self::Attributes => "attributes, with the entries of maps and arrays",
            Self::Depth => "levels of maps and arrays in an attribute",
        })
    }
}

/// The greatest number of each in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// `ResourceSpans`.
    pub resources: u32,
    /// `ScopeSpans`, of all resources together.
    pub scopes: u32,
    /// Spans, of all scopes together.
    pub spans: u32,
    /// Events and links, of all spans together.
    pub events: u32,
    /// Attributes of the whole request.
    pub attributes: u32,
    /// Levels of maps and arrays in an attribute; readers go 32 deep.
    pub value_depth: u32,
}

impl RequestLimits {
    /// All that readers can read.
    pub const READABLE: Self = Self {
        resources: u32::MAX,
        scopes: u32::MAX,
        spans: u32::MAX,
        events: u32::MAX,
        attributes: u32::MAX,
        #[expect(clippy::cast_possible_truncation, reason = "it is 32")]
        value_depth: VALUE_DEPTH_MAX as u32,
    };

    /// The limit on one of them.
    pub fn of(&self, counted: Counted) -> u32 {
        match counted {
            Counted::Resources => self.resources,
            Counted::Scopes => self.scopes,
            Counted::Spans => self.spans,
            Counted::Events => self.events,
            Counted::Attributes => self.attributes,
            Counted::Depth => self.value_depth,
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// It violates the format.
    #[error("{}{error}", .field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
    Malformed {
        /// The field with the violation, as JSON names it; `None` if that is not known.
        field: Option<String>,
        /// The violation.
        error: DecodeError,
    },
    /// It contains too much.
    #[error("it has more than {max} {counted}")]
    Exceeded {
        /// What it has too many of.
        counted: Counted,
        /// How many it may have.
        max: u32,
    },
}

impl From<DecodeError> for RequestError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed { field: None, error }
    }
}
