//! Bringing the sidecar of a DFTracer file up to date, with the least work.

use std::path::Path;

use chunk_index::{ChunkSummary, DftDamage, DftFacts, Index, IndexConfig, Work};
use trace_kinds::gzip::GzipDamage;

use super::columns::remove_columns;
use super::dft_file::{BuildOptions, Built, build, pass};
use super::dft_growth;
use super::sidecar_writer::{remove_derived, write_sidecar};
use super::update::{Indexed, Update, summary};
use crate::dft::{columns_of, damage_of, damage_text, head_of};
use crate::sidecar_file::{found, is_of, refresh_stamp, sidecar_path};
use crate::source::Scratch;
use crate::{LocalFile, ReadError};

/// Brings the sidecar of the DFTracer file at `path` up to date with `options`: does nothing if it
/// is, adds dimensions if only these are missing, adds what was appended to the file, and rebuilds
/// it otherwise or if `rebuild` is set. A sidecar that is damaged or belongs to another file is
/// rebuilt.
///
/// # Errors
///
/// When the file cannot be read or the sidecar cannot be written.
pub fn update_sidecar(
    path: &Path,
    options: &BuildOptions,
    rebuild: bool,
    scratch: &mut Scratch,
) -> Result<Indexed, ReadError> {
    let old = if rebuild { None } else { found(path) };
    let old = old.filter(|(index, _)| !index.chunks().is_empty());
    let Some((mut index, mut sidecar_bytes)) = old else {
        return built(path, options, scratch);
    };
    if !is_of(path, &index) {
        return grown(path, options, index, scratch);
    }
    let mut columns_bytes = None;
    if options.columns {
        columns_bytes = columns_of(path, &index, &options.config);
        if columns_bytes.is_none() {
            return built(path, options, scratch);
        }
    }
    match options
        .config
        .work(index.config_hash(), &index.dimensions())
    {
        Work::Nothing => {
            // A copy was compared by its checksum, which takes long.
            if refresh_stamp(path, &mut index) {
                sidecar_bytes = write_sidecar(path, &index)?;
            }
            Ok(Indexed {
                broken: index
                    .attachment(DftFacts::NAME)
                    .and_then(|bytes| DftFacts::decode(bytes).ok())
                    .map(|facts| facts.broken),
                columns_bytes,
                fault: fault_of(path, &damage_of(index.attachment(DftDamage::NAME)), scratch)?,
                ..summary(Update::Fresh, &index, sidecar_bytes)
            })
        }
        Work::Everything => built(path, options, scratch),
        Work::Dimensions(missing) => extended(path, options, (index, &missing), scratch),
    }
}

/// One message about all damage of a file, as its queries give it.
fn fault_of(
    path: &Path,
    damage: &[GzipDamage],
    scratch: &mut Scratch,
) -> Result<Option<String>, ReadError> {
    if damage.is_empty() {
        return Ok(None);
    }
    let place = path.display().to_string();
    let failed = |error| ReadError::fetch(&*place, error);
    let local = LocalFile::open(path).map_err(failed)?;
    let length = local.file().metadata().map_err(failed)?.len();
    let head = head_of(&local, length, &mut scratch.scanner)?;
    Ok(damage_text(&place, damage, head.is_declared))
}

fn built(path: &Path, options: &BuildOptions, scratch: &mut Scratch) -> Result<Indexed, ReadError> {
    let Built {
        index,
        decoded,
        damage,
        columns,
        ..
    } = build(path, options, scratch)?;
    if index.chunks().is_empty() && damage.is_empty() {
        remove_columns(path)?;
        remove_derived(&sidecar_path(path))?;
        return Ok(summary(Update::Empty, &index, 0));
    }
    let columns_bytes = match columns {
        Some(columns) => Some(columns.install(path)?),
        None => {
            remove_columns(path)?;
            None
        }
    };
    let sidecar_bytes = write_sidecar(path, &index)?;
    Ok(Indexed {
        broken: Some(decoded.broken),
        columns_bytes,
        fault: fault_of(path, &damage, scratch)?,
        ..summary(Update::Built, &index, sidecar_bytes)
    })
}

/// Extends the index of a file that has grown, and rebuilds that of any other.
fn grown(
    path: &Path,
    options: &BuildOptions,
    index: Index,
    scratch: &mut Scratch,
) -> Result<Indexed, ReadError> {
    let config = &options.config;
    let is_current = config.work(index.config_hash(), &index.dimensions()) == Work::Nothing;
    let extended = if is_current && !options.columns {
        dft_growth::extended(path, options, index, scratch)?
    } else {
        None
    };
    let Some((index, broken)) = extended else {
        return built(path, options, scratch);
    };
    // They are of the shorter file.
    remove_columns(path)?;
    let sidecar_bytes = write_sidecar(path, &index)?;
    Ok(Indexed {
        broken: Some(broken),
        ..summary(Update::Grown, &index, sidecar_bytes)
    })
}

fn extended(
    path: &Path,
    options: &BuildOptions,
    (mut index, missing): (Index, &[query_language::FieldPath]),
    scratch: &mut Scratch,
) -> Result<Indexed, ReadError> {
    let mut config = IndexConfig::new(missing.iter().map(|field| field.as_str()));
    config.expected_entries = options.config.expected_entries;
    config.false_positive_rate = options.config.false_positive_rate;
    config.dictionary_bytes_max = options.config.dictionary_bytes_max;
    let mut pass = pass(
        path,
        &BuildOptions {
            config: config.clone(),
            columns: false,
            ..options.clone()
        },
        scratch,
    )?;
    // The stored names do not refer to a dictionary for these dimensions.
    pass.build_filters(&config, None);
    let range = |chunk: &chunk_index::Chunk| (chunk.raw_offset, chunk.raw_length);
    let same = pass
        .chunks
        .iter()
        .map(|(chunk, _)| range(chunk))
        .eq(index.chunks().iter().map(range));
    let summaries: Vec<ChunkSummary> = pass
        .chunks
        .into_iter()
        .map(|(_, summary)| summary)
        .collect();
    if !same || index.extend(&config, &summaries).is_err() {
        // The chunks have other boundaries.
        return built(path, options, scratch);
    }
    let sidecar_bytes = write_sidecar(path, &index)?;
    let names = missing
        .iter()
        .map(|field| field.as_str().to_owned())
        .collect();
    Ok(Indexed {
        broken: Some(pass.decoded.broken),
        fault: fault_of(path, &pass.damage, scratch)?,
        ..summary(Update::Extended(names), &index, sidecar_bytes)
    })
}
