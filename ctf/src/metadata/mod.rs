//! Entry points for the three forms of metadata: TSDL text, packetized TSDL, and CTF 2 (a JSON text
//! sequence).

pub(crate) mod error;
pub(crate) mod leniency;
mod packets;
#[cfg(test)]
mod tests;

pub use error::{MetadataError, MetadataErrorKind, MetadataFrame, MetadataWarning, TextLocation};
pub use leniency::Leniency;
pub use packets::{PacketizedMetadata, is_packetized, metadata_text, metadata_text_with};

use crate::class::{BuildError, Subject, TraceClass};
use crate::integer::usize_from;

/// A trace class, and warnings about entries that were skipped.
#[derive(Clone, Debug)]
pub struct ParsedMetadata {
    /// The trace class.
    pub trace: TraceClass,
    /// Entries that were skipped.
    pub warnings: Vec<MetadataWarning>,
}

/// Parses metadata of any of the three forms, strictly.
///
/// # Errors
/// The first fault, with line, column, byte offset and contexts.
///
/// ```
/// let text = b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";
/// let trace = ctf::parse_metadata(text)?;
/// assert!(trace.stream_classes().is_empty());
/// let error = ctf::parse_metadata(b"trace { major = 1; minor = 7; };").unwrap_err();
/// assert_eq!((error.location().line, error.location().column), (1, 28));
/// # Ok::<(), ctf::MetadataError>(())
/// ```
pub fn parse_metadata(bytes: &[u8]) -> Result<TraceClass, MetadataError> {
    parse_metadata_with(bytes, Leniency::Strict).map(|parsed| parsed.trace)
}

/// Parses metadata of any of the three forms.
///
/// # Errors
/// As [`parse_metadata`].
pub fn parse_metadata_with(
    bytes: &[u8],
    leniency: Leniency,
) -> Result<ParsedMetadata, MetadataError> {
    if u32::try_from(bytes.len()).is_err() {
        let error = BuildError::new(
            Subject::Whole,
            "the metadata has 4 GiB or more, which is not supported",
        );
        return Err(MetadataError::in_text(&[], error));
    }
    if is_packetized(bytes) {
        let stream = metadata_text_with(bytes, leniency)?;
        return parse_text(&stream.text, leniency);
    }
    parse_text(bytes, leniency)
}

/// Parses the text of metadata of either version.
fn parse_text(text: &[u8], leniency: Leniency) -> Result<ParsedMetadata, MetadataError> {
    let parsed = if text.first() == Some(&error::RECORD_SEPARATOR) {
        crate::ctf2::parse(text)
    } else {
        crate::tsdl::parse(text, leniency)
    };
    let (trace, warnings) = parsed.map_err(|error| MetadataError::in_text(text, error))?;
    let warning = |(offset, message): (u32, String)| MetadataWarning {
        location: TextLocation::of(text, usize_from(offset)),
        message,
    };
    Ok(ParsedMetadata {
        trace,
        warnings: warnings.into_iter().map(warning).collect(),
    })
}
