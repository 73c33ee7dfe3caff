//! What can be wrong with a body of packets. `crate::error` gives each its status and remedy.

use thiserror::Error;

use crate::request_body::BodyError;

/// Why a body, or a record of it, was not taken.
#[derive(Debug, Error)]
pub(crate) enum IngestError {
    /// Media type of neither push.
    #[error("the media type {0:?} is not one of packets")]
    MediaTypeUnsupported(String),
    /// Not gzip, zstd or nothing.
    #[error("the content encoding is not supported")]
    EncodingUnsupported,
    /// The encoded bytes are wrong, or end too early.
    #[error("the encoded body is damaged: {0}")]
    EncodingDamaged(String),
    /// A field of a single packet's push is missing or no number.
    #[error("the field {name} {what}")]
    Header {
        name: &'static str,
        what: &'static str,
    },
    /// More decoded bytes than allowed.
    #[error("the {what} has more than {max} bytes")]
    TooLarge { what: &'static str, max: u64 },
    /// More packets than allowed.
    #[error("the body has more than {max} packets")]
    TooManyPackets { max: u64 },
    /// A packet without bytes.
    #[error("the body is empty")]
    Empty,
    /// A record that is not as the media type says.
    #[error("record {index} at byte {offset} of the decoded body: {what}")]
    Record {
        index: u64,
        offset: u64,
        what: String,
    },
    /// Not what OTLP sends.
    #[error("the request cannot be read: {0}")]
    Request(String),
    /// The body did not come whole.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body did not come whole, for a reason of the framework.
    #[error("the body broke off: {0}")]
    Broken(String),
}

impl IngestError {
    pub(super) fn damaged(error: impl std::fmt::Display) -> Self {
        Self::EncodingDamaged(error.to_string())
    }

    /// Takes the reason out of what the framework wrapped it in.
    pub(crate) fn of_body(error: axum::Error) -> Self {
        match error.into_inner().downcast::<BodyError>() {
            Ok(error) => Self::Body(*error),
            Err(other) => Self::Broken(other.to_string()),
        }
    }
}
