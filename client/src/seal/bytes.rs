use std::fs::File;
use std::io::Read;
use std::path::Path;

use storage_format::seal::{FileHasher, FileHashes, Seal, SealedFile};

use super::{SealReport, Trust};
use crate::ClientError;

const READ_BYTES: usize = 1 << 20;

/// The hashes of all bytes of `source`.
pub(super) fn hashes_of(mut source: impl Read, group_bytes: u64) -> std::io::Result<FileHashes> {
    let mut hasher = FileHasher::new(group_bytes);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => hasher.extend(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn sealed<'s>(seal: &'s Seal, name: &str) -> Result<&'s SealedFile, ClientError> {
    seal.file(name).ok_or_else(|| {
        ClientError::input(format!(
            "the seal has no file {name:?}: name one of the sealed files with --name; \
             `tracehold inspect` lists them"
        ))
    })
}

/// Compares the file at `path` with the one that is called `name` in the seal.
///
/// # Errors
/// If the seal has no such file, or the file cannot be read.
pub fn verify_file(
    seal: &Seal,
    name: &str,
    path: &Path,
    trust: &Trust,
) -> Result<SealReport, ClientError> {
    let expected = sealed(seal, name)?;
    let mut report = SealReport::new(seal, "the seal", trust);
    let failed = |error| ClientError::file(path, error);
    let file = File::open(path).map_err(failed)?;
    let found = hashes_of(file, seal.group_bytes).map_err(failed)?;
    report.compare_file(seal.group_bytes, expected, &found);
    Ok(report)
}

/// Compares the bytes in the file at `path` with those of the file `name` in the seal from `offset`
/// on, without the rest of that file.
///
/// # Errors
/// If the seal has no such file, the bytes are no whole groups of it, or cannot be read.
pub fn verify_range(
    seal: &Seal,
    name: &str,
    offset: u64,
    path: &Path,
    trust: &Trust,
) -> Result<SealReport, ClientError> {
    let expected = sealed(seal, name)?;
    let mut report = SealReport::new(seal, "the seal", trust);
    let failed = |error| ClientError::file(path, error);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let group = seal.group_bytes;
    let end = offset.saturating_add(length);
    let is_end = end.is_multiple_of(group) || end == expected.hashes.length;
    let is_inside = end <= expected.hashes.length && length > 0;
    if !offset.is_multiple_of(group) || !is_end || !is_inside {
        let last = end.min(expected.hashes.length).max(1) - 1;
        let first = offset.min(last) / group * group;
        let last = (last / group * group).saturating_add(group - 1);
        let last = last.min(expected.hashes.length.saturating_sub(1));
        return Err(ClientError::input(format!(
            "bytes {offset} to {} of {name} are not whole groups of {group} bytes, which are what \
             the seal proves: fetch bytes={first}-{last} and give them with --at {first}",
            end.saturating_sub(1)
        )));
    }
    let (mut at, mut bytes) = (offset, Vec::new());
    while at < end {
        bytes.clear();
        let part = group.min(end - at);
        (&mut file)
            .take(part)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if seal.proves(expected, at, &bytes) != Some(true) {
            report.add(name, Some(at), "it is not what was sealed");
        }
        report.bytes += bytes.len() as u64;
        at = at.saturating_add(part);
    }
    report.files = 1;
    Ok(report)
}
