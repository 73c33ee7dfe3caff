//! The result of bringing a sidecar up to date.

use chunk_index::Index;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The sidecar was up to date.
    Fresh,
    /// These dimensions were added.
    Extended(Vec<String>),
    /// The file has grown, and what was appended was added.
    Grown,
    /// The sidecar was built.
    Built,
    /// The file has no content, so it has no sidecar.
    Empty,
}

/// A file and the state of its sidecar.
#[derive(Debug)]
pub struct Indexed {
    /// What was done.
    pub update: Update,
    /// Chunks of the file.
    pub chunks: usize,
    /// Events of the file.
    pub events: u64,
    /// Lines and records that cannot be read; `None` if unknown.
    pub broken: Option<u64>,
    /// Bytes of text or of packets.
    pub text_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the sidecar.
    pub sidecar_bytes: u64,
    /// Bytes of the columns, if they were requested.
    pub columns_bytes: Option<u64>,
    /// Which parts of the file are damaged; they are not indexed.
    pub fault: Option<String>,
}

/// Summarizes the index of a file.
pub(super) fn summary(update: Update, index: &Index, sidecar_bytes: u64) -> Indexed {
    let chunks = index.chunks();
    Indexed {
        update,
        chunks: chunks.len(),
        events: chunks.iter().map(|chunk| chunk.events).sum(),
        broken: None,
        text_bytes: chunks
            .last()
            .map_or(0, |chunk| chunk.raw_offset + chunk.raw_length),
        file_bytes: index.identity().length,
        sidecar_bytes,
        columns_bytes: None,
        fault: None,
    }
}
