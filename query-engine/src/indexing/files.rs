//! Indexing files of any kind: which files a path has, and bringing their sidecars up to date with
//! the least work.

use std::path::{Path, PathBuf};

use query_language::FieldPath;

use super::dft_file::BuildOptions;
use super::dft_sidecar::update_sidecar;
use super::leaf::LeafIndexOptions;
use super::packet_file::{PacketInput, inputs, inputs_of_trace, update_packets};
use super::update::Indexed;
use crate::ReadError;
use crate::file_content::regular_file;
use crate::packet_files::folder::FolderContents;
use crate::packet_files::unreadable_file::UnreadableFile;
use crate::source::Scratch;

/// Bytes of packets per chunk: fewer than of text, because reading can start at any packet.
const PACKET_CHUNK_BYTES: u64 = 512 << 10;
/// Chunks of a file by default. Their summaries are in memory until the index is written, so those
/// of a long file are longer.
const PACKET_CHUNKS: u64 = 512;

/// How files are indexed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Fields to index in addition to those of the kind.
    pub fields: Vec<String>,
    /// Approximate bytes of a chunk; by default what suits the kind.
    pub chunk_bytes: Option<u64>,
    /// Least bytes of text between two checkpoints in a gzip file; by default what suits the kind.
    pub spacing_bytes: Option<u64>,
    /// Whether to also write columns: the times and values of every event.
    pub columns: bool,
    /// Whether to rebuild existing indexes.
    pub rebuild: bool,
}

/// A file that can be indexed.
pub struct IndexFile {
    path: PathBuf,
    /// `None` for DFTracer files.
    packets: Option<PacketInput>,
}

/// The files of `path`: the file itself, or all traces in a folder and below it. Of CTF traces
/// these are the stream files. Why others cannot be read is added to `skipped`.
///
/// # Errors
///
/// When something cannot be read or is not a trace.
pub fn index_files(path: &Path, skipped: &mut Vec<String>) -> Result<Vec<IndexFile>, ReadError> {
    let mut files = Vec::new();
    let of_packets = |(path, input)| IndexFile {
        path,
        packets: Some(input),
    };
    let mut damaged = Vec::new();
    let is_folder = path.is_dir();
    let single = if is_folder {
        let contents = FolderContents::of(path)?;
        for trace in contents.traces {
            files.extend(inputs_of_trace(&trace)?.into_iter().map(of_packets));
        }
        damaged = contents.damaged;
        skipped.extend(contents.unreadable.iter().map(UnreadableFile::said));
        contents.files
    } else {
        vec![path.to_owned()]
    };
    for path in single {
        match inputs(&path) {
            // Queries of the folder read it without an index.
            Err(ReadError::NoIndex { .. }) if is_folder => {}
            inputs => match inputs? {
                Some(inputs) => files.extend(inputs.into_iter().map(of_packets)),
                None => files.push(IndexFile {
                    path,
                    packets: None,
                }),
            },
        }
    }
    let of_lines = |path| IndexFile {
        path,
        packets: None,
    };
    files.extend(damaged.into_iter().map(of_lines));
    Ok(files)
}

impl IndexFile {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings its sidecar up to date with `options`: does nothing if it is, adds dimensions if only
    /// these are missing, and rebuilds it otherwise. A sidecar that is damaged or belongs to
    /// another file is rebuilt.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or the sidecar cannot be written, or columns are requested for
    /// a kind without columns.
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
            return update_sidecar(&self.path, &build, options.rebuild, scratch);
        };
        if options.columns {
            return Err(ReadError::NoColumns {
                path: self.path.clone(),
            });
        }
        let build = LeafIndexOptions {
            chunk_bytes: match options.chunk_bytes {
                Some(bytes) => bytes,
                None => packet_chunk_bytes(regular_file(&self.path)?.len()),
            },
            fields: options.fields.clone(),
        };
        update_packets(
            &self.path,
            input,
            &build,
            (options.rebuild, &scratch.progress),
        )
    }
}

/// Bytes of a chunk of a file of packets of this length.
fn packet_chunk_bytes(length: u64) -> u64 {
    PACKET_CHUNK_BYTES.max(length.div_ceil(PACKET_CHUNKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_have_long_chunks() {
        for (length, expected) in [
            (0, 512 << 10),
            (256 << 20, 512 << 10),
            (10_000_000_000, 19_531_250),
            (u64::MAX, 1 << 55),
        ] {
            assert_eq!(packet_chunk_bytes(length), expected, "{length}");
        }
    }
}
