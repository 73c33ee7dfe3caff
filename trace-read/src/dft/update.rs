//! Bringing the sidecar of a file up to date, with the least work.

use std::path::Path;

use trace_index::{ChunkSummary, Index, IndexConfig, Sidecar, Work};

use super::build::{BuildOptions, Built, pass};
use super::columns::{columns_of, remove_columns};
use super::sidecar::{identity, sidecar_path, write_sidecar};
use crate::ReadError;

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
    /// Lines that were no records; `None` when the file was not read.
    pub broken: Option<u64>,
    /// Bytes of text.
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

/// Makes the sidecar of the DFTracer file at `path` have what `options` ask for: not at all when it
/// has that, by adding dimensions when only those are missing, or anew. A sidecar that is damaged
/// or another file's is made anew.
///
/// # Errors
///
/// When the file cannot be read or the sidecar not written.
pub fn update_sidecar(
    path: &Path,
    options: &BuildOptions,
    anew: bool,
) -> Result<Indexed, ReadError> {
    let old = if anew { None } else { usable(path) };
    let Some((index, sidecar_bytes)) = old else {
        return built(path, options);
    };
    let columns_bytes = match options.columns {
        false => None,
        true => match columns_of(path, &index, &options.config) {
            Some(bytes) => Some(bytes),
            None => return built(path, options),
        },
    };
    match options
        .config
        .work(index.config_hash(), &index.dimensions())
    {
        Work::Nothing => Ok(Indexed {
            columns_bytes,
            ..summary(Update::Fresh, &index, sidecar_bytes)
        }),
        Work::Everything => built(path, options),
        Work::Dimensions(missing) => extended(path, options, index, &missing),
    }
}

/// The index in the sidecar of `path`, whole, when it belongs to the file.
fn usable(path: &Path) -> Option<(Index, u64)> {
    let bytes = std::fs::read(sidecar_path(path)).ok()?;
    let index = Sidecar::read(&bytes).ok()?;
    let same = |with_checksum| {
        let found = identity(path, with_checksum);
        found.is_ok_and(|found| index.identity().check(&found).is_ok())
    };
    (same(false) || same(true)).then_some((index, bytes.len() as u64))
}

fn summary(update: Update, index: &Index, sidecar_bytes: u64) -> Indexed {
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

fn built(path: &Path, options: &BuildOptions) -> Result<Indexed, ReadError> {
    let Built {
        index,
        decoded,
        fault,
        columns,
        ..
    } = super::build::build(path, options)?;
    let columns_bytes = match columns {
        Some(columns) => Some(columns.keep(path)?),
        None => {
            remove_columns(path)?;
            None
        }
    };
    let sidecar_bytes = write_sidecar(path, &index)?;
    Ok(Indexed {
        broken: Some(decoded.broken),
        columns_bytes,
        fault,
        ..summary(Update::Built, &index, sidecar_bytes)
    })
}

fn extended(
    path: &Path,
    options: &BuildOptions,
    mut index: Index,
    missing: &[trace_query::FieldPath],
) -> Result<Indexed, ReadError> {
    let mut config = IndexConfig::new(missing.iter().map(|field| field.as_str()));
    config.expected_entries = options.config.expected_entries;
    config.false_positive_rate = options.config.false_positive_rate;
    config.dictionary_bytes_max = options.config.dictionary_bytes_max;
    let pass = pass(
        path,
        &BuildOptions {
            config: config.clone(),
            columns: false,
            ..options.clone()
        },
    )?;
    let place = |chunk: &trace_index::Chunk| (chunk.raw_offset, chunk.raw_length);
    let same = pass
        .chunks
        .iter()
        .map(|(chunk, _)| place(chunk))
        .eq(index.chunks().iter().map(place));
    let summaries: Vec<ChunkSummary> = pass
        .chunks
        .into_iter()
        .map(|(_, summary)| summary)
        .collect();
    if !same || index.extend(&config, &summaries).is_err() {
        // Cut into chunks in another way.
        return built(path, options);
    }
    let sidecar_bytes = write_sidecar(path, &index)?;
    let names = missing
        .iter()
        .map(|field| field.as_str().to_owned())
        .collect();
    Ok(Indexed {
        broken: Some(pass.decoded.broken),
        fault: pass.fault,
        ..summary(Update::Extended(names), &index, sidecar_bytes)
    })
}
