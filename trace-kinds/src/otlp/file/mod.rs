//! Files of requests: JSON, one after another, or protobuf.
//!
//! | form | contents |
//! | --- | --- |
//! | [`FileForm::Json`] | JSON documents, on one line each or on several |
//! | [`FileForm::Lengths`] | requests in protobuf, each after its length (4 bytes, the most significant first) |
//! | [`FileForm::Request`] | one request in protobuf, or several one after another |
//!
//! The last form is cut between resources: each with its key and length is a request, too.

mod json;
mod reader;
mod shape;

#[cfg(test)]
mod tests;

pub use reader::{Packet, PacketReader, ReadError};

use json::begins_request;
use shape::{begins_with_lengths, begins_with_spans};

/// Bytes of one request, or of one resource of a request without lengths.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;

/// How requests are written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// JSON documents.
    Json,
    /// Protobuf, each request after its length.
    Lengths,
    /// Protobuf without lengths.
    Request,
}

/// The form of a file that begins with `prefix`; `is_whole` says that the file has no more bytes.
/// `None` if it does not begin with requests. A request in protobuf is recognized by a span.
pub(crate) fn recognize(prefix: &[u8], is_whole: bool) -> Option<FileForm> {
    if begins_request(prefix.trim_ascii_start()) == Some(true) {
        Some(FileForm::Json)
    } else if begins_with_lengths(prefix, is_whole) {
        Some(FileForm::Lengths)
    } else if begins_with_spans(prefix, is_whole) {
        Some(FileForm::Request)
    } else {
        None
    }
}
