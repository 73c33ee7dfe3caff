//! Sidecars beside files of any kind: which files there are behind a path, and bringing their
//! sidecars up to date with the least work.

use std::path::{Path, PathBuf};

use query_language::FieldPath;

use super::dft_file::BuildOptions;
use super::dft_sidecar::update_sidecar;
use super::leaf::LeafIndexOptions;
use super::packet_file::{PacketInput, inputs, update_packets};
use super::update::Indexed;
use crate::ReadError;
use crate::source::Scratch;

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
