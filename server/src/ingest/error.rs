//! Errors of packet bodies. `crate::error` maps each to a status and a remedy.

use storage_core::StorageError;
use storage_format::AgentId;
use thiserror::Error;
use trace_kinds::otlp::{Counted, RequestError};

use crate::access::Ended;
use crate::request_body::BodyError;

/// Why a body, or a record in it, is refused.
#[derive(Debug, Error)]
pub(crate) enum IngestError {
    /// The media type is of neither kind of push.
    #[error("the media type {0:?} is not one for packets")]
    MediaTypeUnsupported(String),
    /// Neither gzip nor zstd, or several encodings.
    #[error("the content encoding is not supported")]
    EncodingUnsupported,
    /// The encoded bytes are invalid or incomplete.
    #[error("the encoded body is damaged: {0}")]
    EncodingDamaged(String),
    /// A header field of a single packet is missing or not a number.
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
    /// A record that violates the media type.
    #[error("record {index} at byte {offset} of the decoded body: {what}")]
    Record {
        index: u64,
        offset: u64,
        what: String,
    },
    /// The spans are of an agent that is not in the scope of the token.
    #[error("the request has spans of agent `{0}`")]
    AgentOutOfScope(AgentId),
    /// The request is not valid OTLP.
    #[error("the request cannot be read: {what}")]
    Request {
        what: String,
        /// The field in which that is, as JSON names it.
        field: Option<String>,
    },
    /// The request contains more than is accepted at once.
    #[error("the request has more than {max} {counted} ({} = {max})", limit_key(*counted))]
    TooMany { counted: Counted, max: u32 },
    /// There is no memory for what arrives.
    #[error(transparent)]
    NoRoom(#[from] StorageError),
    /// The body is incomplete.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The caller was admitted when the request began, and no longer is.
    #[error(transparent)]
    NotAdmitted(#[from] Ended),
    /// The body is incomplete, as the framework reports.
    #[error("the body is incomplete: {0}")]
    Broken(String),
}

/// The setting of a limit.
fn limit_key(counted: Counted) -> &'static str {
    match counted {
        Counted::Resources => "otlp.resources_max",
        Counted::Scopes => "otlp.scopes_max",
        Counted::Spans => "otlp.spans_max",
        Counted::Events => "otlp.events_max",
        Counted::Attributes => "otlp.attributes_max",
        Counted::Depth => "otlp.value_depth_max",
    }
}

impl From<RequestError> for IngestError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Exceeded { counted, max } => Self::TooMany { counted, max },
            RequestError::Malformed { ref field, .. } => Self::Request {
                what: error.to_string(),
                field: field.clone(),
            },
        }
    }
}

impl IngestError {
    pub(super) fn damaged(error: impl std::fmt::Display) -> Self {
        Self::EncodingDamaged(error.to_string())
    }

    /// Unwraps the error that the framework returned.
    pub(crate) fn of_body(error: axum::Error) -> Self {
        let mut error = error.into_inner();
        // A body in a body has an error in an error.
        while error.is::<axum::Error>() {
            error = match error.downcast::<axum::Error>() {
                Ok(inner) => inner.into_inner(),
                Err(same) => return Self::Broken(same.to_string()),
            };
        }
        match error.downcast::<BodyError>() {
            Ok(error) => Self::Body(*error),
            Err(other) => match other.downcast::<Ended>() {
                Ok(ended) => Self::NotAdmitted(*ended),
                Err(other) => Self::Broken(other.to_string()),
            },
        }
    }
}
