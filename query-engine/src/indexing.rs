//! Sidecars beside files of any kind: which files there are behind a path, and bringing their
//! sidecars up to date with the least work.

use std::path::{Path, PathBuf};

use chunk_index::Index;
use query_language::FieldPath;

use crate::ReadError;
use crate::dft::{BuildOptions, update_sidecar};
use crate::packet_files::{PacketInput, inputs, update_packets};
use crate::source::Scratch;
use crate::stored::LeafIndexOptions;

/// Bytes of packets of a chunk: finer than of text, because any packet can be entered.
const PACKET_CHUNK_BYTES: u64 = 512 << 10;

/// How files are indexed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Fields that are indexed besides those of the kind.
    pub fields: Vec<String>,
    /// Bytes of a chunk, about; what suits the kind without.
    pub chunk_bytes: Option<u64>,
    /// Bytes of text between two places where inflating can begin, at least; what suits without.
    pub spacing_bytes: Option<u64>,
    /// Whether the times and values of every event are kept, too.
    pub columns: bool,
    /// Whether what is there already is made anew.
    pub anew: bool,
}

/// A file that can be indexed.
pub struct IndexFile {
    path: PathBuf,
    /// `None` for DFTracer files.
    packets: Option<PacketInput>,
}

/// What was done for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The sidecar has all that is asked for.
    Fresh,
    /// These dimensions were added; the rest was kept.
    Extended(Vec<String>),
    /// The sidecar was made anew.
    Built,
}

/// A file whose sidecar is up to date.
#[derive(Debug)]
pub struct Indexed {
    /// What was done.
    pub update: Update,
    /// Chunks of the file.
    pub chunks: usize,
    /// Events of the file.
    pub events: u64,
    /// Lines and records that cannot be read; `None` when the file was not read.
    pub broken: Option<u64>,
    /// Bytes of text or of packets.
    pub text_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the sidecar.
    pub sidecar_bytes: u64,
    /// Bytes of the columns beside it, where they were asked for.
    pub columns_bytes: Option<u64>,
    /// Where and why the file cannot be read to its end, when it was read.
    pub fault: Option<String>,
}

/// The files behind `path`: the file itself, or of a folder the files of packets of all CTF traces
/// in and below it.
///
/// # Errors
///
/// When something cannot be read or is no trace.
pub fn index_files(path: &Path) -> Result<Vec<IndexFile>, ReadError> {
    let files = match inputs(path)? {
        Some(inputs) => inputs
            .into_iter()
            .map(|(path, input)| IndexFile {
                path,
                packets: Some(input),
            })
            .collect(),
        None => vec![IndexFile {
            path: path.to_owned(),
            packets: None,
        }],
    };
    Ok(files)
}

impl IndexFile {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes its sidecar have what `options` ask for: not at all when it has that, by adding
    /// dimensions when only those are missing, or anew. A sidecar that is damaged or another file's
    /// is made anew.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or the sidecar not written, or columns are asked of a kind that
    /// has none.
    pub fn update(
        &self,
        options: &IndexOptions,
        scratch: &mut Scratch,
    ) -> Result<Indexed, ReadError> {
        let Some(input) = &self.packets else {
            let defaults = BuildOptions::default();
            let mut build = BuildOptions {
                chunk_bytes: options.chunk_bytes.unwrap_or(defaults.chunk_bytes),
                spacing_bytes: options.spacing_bytes.unwrap_or(defaults.spacing_bytes),
                columns: options.columns,
                ..defaults
            };
            for field in &options.fields {
                build.config.add(FieldPath::new(field));
            }
            return update_sidecar(&self.path, &build, options.anew, scratch);
        };
        if options.columns {
            return Err(ReadError::NoColumns {
                path: self.path.clone(),
            });
        }
        let build = LeafIndexOptions {
            chunk_bytes: options.chunk_bytes.unwrap_or(PACKET_CHUNK_BYTES),
            fields: options.fields.clone(),
        };
        update_packets(&self.path, input, &build, options.anew)
    }
}

/// What an index tells of its file.
pub(crate) fn summary(update: Update, index: &Index, sidecar_bytes: u64) -> Indexed {
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
