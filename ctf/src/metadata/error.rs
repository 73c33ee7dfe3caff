//! Errors and warnings in metadata, with their locations.

use crate::class::{BuildError, Subject};
use crate::integer::usize_from;
use std::fmt;

/// Begins each JSON text of a sequence (RFC 7464).
pub(crate) const RECORD_SEPARATOR: u8 = 0x1e;

/// A location in metadata text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextLocation {
    /// Byte offset from the beginning of the text (of the file for packetized metadata).
    pub offset: usize,
    /// Line, from 1. In CTF 2 metadata, each JSON text of the sequence begins with line 1.
    pub line: usize,
    /// Byte in the line, from 1.
    pub column: usize,
}

impl TextLocation {
    /// The location of the byte at `offset` in `text`.
    pub fn of(text: &[u8], offset: usize) -> Self {
        let before = &text[..offset.min(text.len())];
        let text_start = before.iter().rposition(|byte| *byte == RECORD_SEPARATOR);
        let before = &before[text_start.map_or(0, |index| index + 1)..];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |index| index + 1);
        Self {
            offset,
            line,
            column: before.len() - start + 1,
        }
    }
}

impl fmt::Display for TextLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One level of the explanation of a [`MetadataError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataFrame {
    /// The location.
    pub location: TextLocation,
    /// The message.
    pub message: String,
}

/// The kind of input that contains the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataErrorKind {
    /// The text of the metadata: line and column are valid.
    Text,
    /// The packets of packetized metadata: only the byte offset is valid.
    Packet,
}

/// Why metadata is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataError {
    kind: MetadataErrorKind,
    /// Outermost first; never empty.
    frames: Vec<MetadataFrame>,
}

impl MetadataError {
    pub(crate) fn in_text(text: &[u8], error: BuildError) -> Self {
        let frame = |frame: crate::class::BuildFrame| {
            let offset = match frame.subject {
                Subject::Whole => 0,
                Subject::Origin(origin) => usize_from(origin),
            };
            MetadataFrame {
                location: TextLocation::of(text, offset),
                message: frame.message,
            }
        };
        let frames = error.frames.into_iter().rev().map(frame).collect();
        Self {
            kind: MetadataErrorKind::Text,
            frames,
        }
    }

    pub(crate) fn in_packet(offset: usize, message: impl Into<String>) -> Self {
        let location = TextLocation {
            offset,
            line: 1,
            column: 1,
        };
        let frames = vec![MetadataFrame {
            location,
            message: message.into(),
        }];
        Self {
            kind: MetadataErrorKind::Packet,
            frames,
        }
    }

    /// Whether the fault is in the text or in the packets around it.
    pub fn kind(&self) -> MetadataErrorKind {
        self.kind
    }

    /// The contexts, outermost first, and the fault last.
    pub fn frames(&self) -> &[MetadataFrame] {
        &self.frames
    }

    /// The location of the fault.
    pub fn location(&self) -> TextLocation {
        self.frames
            .last()
            .map(|frame| frame.location)
            .unwrap_or_default()
    }

    /// The fault, without its contexts.
    pub fn message(&self) -> &str {
        self.frames.last().map_or("", |frame| &frame.message)
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == MetadataErrorKind::Packet {
            return write!(f, "byte {}: {}", self.location().offset, self.message());
        }
        for (index, frame) in self.frames.iter().enumerate() {
            let separator = if index == 0 { "" } else { ": " };
            write!(f, "{separator}[{}] {}", frame.location, frame.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for MetadataError {}

/// An entry of metadata that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataWarning {
    /// The location.
    pub location: TextLocation,
    /// The message, which says what was done.
    pub message: String,
}
