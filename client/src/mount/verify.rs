//! Verifies a storage in a folder, without its server.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use chunk_index::{Bundle, BundleError, BundleOwner, Provenance, Sidecar};
use query_engine::{Fetch, LocalFile};
use storage_format::checksum_file::{ChecksumFile, FileChecksums, PIECE_BYTES, PieceSums};
use storage_format::local_file::LocalFile as FetchedFiles;
use storage_format::paths::{FileName, FileRole};
use storage_format::storage_file::{FileEntry, StorageFile};
use storage_format::{DataFileId, LeafId, StorageId};

use super::leaves::names_in;
use crate::ClientError;
use crate::http::{Damage, VerifyReport};

const READ_BYTES: usize = 1 << 20;
/// Places of damage in one file that are reported.
const PLACES_MAX: usize = 64;
/// Longer files of one leaf are not written.
const LEAF_FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads all files of the storage in a folder that `mount` or `download` wrote, and compares them
/// with the storage file. A mount has no data files, and is not damaged because of that.
///
/// # Errors
/// If the folder contains no complete storage, or cannot be read.
pub fn verify_folder(folder: &Path) -> Result<VerifyReport, ClientError> {
    let storage = storage_file(folder)?;
    let id = storage.id;
    let mut report = VerifyReport::default();
    let local = local_file(folder, id, &mut report)?;
    let is_expected = |name: &str| match &local {
        Some(local) => local.complete.iter().any(|complete| complete == name),
        None => true,
    };
    let name = FileName::Checksums(id).to_string();
    let pieces = fs::read(folder.join(&name)).ok();
    let pieces = pieces.and_then(|bytes| ChecksumFile::decode(&bytes).ok());
    for entry in &storage.files {
        let of_file = match entry.name.parse() {
            Ok(FileName::Data(file)) => pieces.as_ref().and_then(|pieces| pieces.of(file)),
            _ => None,
        };
        verify_file(
            folder,
            entry,
            of_file,
            is_expected(&entry.name),
            &mut report,
        )?;
    }
    let fetched = local.map(|local| local.complete).unwrap_or_default();
    verify_derived(folder, id, &fetched, &mut report)?;
    if report.damage.is_empty() {
        report.packets = storage.totals.packets;
    }
    Ok(report)
}

fn storage_file(folder: &Path) -> Result<StorageFile, ClientError> {
    let failed = |error| ClientError::file(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(FileName::Storage(_)) = name.parse() {
            let bytes = fs::read(&path).map_err(|error| ClientError::file(&path, error))?;
            return StorageFile::decode(&bytes).map_err(|error| {
                ClientError::damaged(path.display().to_string(), error.to_string())
            });
        }
    }
    Err(ClientError::input(format!(
        "{} is not a complete download; run: tracehold download STORAGE-URL {}",
        folder.display(),
        folder.display()
    )))
}

/// The local file, which lists what was fetched.
fn local_file(
    folder: &Path,
    id: StorageId,
    report: &mut VerifyReport,
) -> Result<Option<FetchedFiles>, ClientError> {
    let name = FileName::Local(id).to_string();
    let path = folder.join(&name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ClientError::file(&path, error)),
    };
    match FetchedFiles::decode(&bytes) {
        Ok(local) => Ok(Some(local)),
        Err(error) => {
            report.damage.push(damage(&name, None, error.to_string()));
            Ok(None)
        }
    }
}

fn damage(file: &str, offset: Option<u64>, what: String) -> Damage {
    Damage {
        file: file.to_owned(),
        offset,
        what,
    }
}

fn verify_file(
    folder: &Path,
    entry: &FileEntry,
    pieces: Option<&FileChecksums>,
    is_expected: bool,
    report: &mut VerifyReport,
) -> Result<(), ClientError> {
    let path = folder.join(&entry.name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if is_expected && entry.role != FileRole::StorageCopy {
                report
                    .damage
                    .push(damage(&entry.name, None, "it is missing".to_owned()));
            }
            return Ok(());
        }
        Err(error) => return Err(ClientError::file(&path, error)),
    };
    let sums = sum(file).map_err(|error| ClientError::file(&path, error))?;
    report.files += 1;
    report.bytes += sums.length();
    let (length, checksum) = (sums.length(), sums.checksum());
    if length != entry.length {
        let what = format!("it has {length} bytes, expected {}", entry.length);
        report.damage.push(damage(&entry.name, None, what));
    } else if checksum != entry.checksum {
        let what = || "the checksum does not match".to_owned();
        let places = match (entry.name.parse(), pieces) {
            (Ok(FileName::Data(file)), Some(pieces)) => {
                different(&sums.finish(file).pieces, &pieces.pieces)
            }
            _ => Vec::new(),
        };
        let mut places = places.into_iter().take(PLACES_MAX).peekable();
        if places.peek().is_none() {
            report.damage.push(damage(&entry.name, None, what()));
        }
        for offset in places {
            report
                .damage
                .push(damage(&entry.name, Some(offset), what()));
        }
    }
    Ok(())
}

/// The checksums of a file, from its beginning.
pub(super) fn sum(mut file: File) -> std::io::Result<PieceSums> {
    let mut sums = PieceSums::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sums),
            read => sums.extend(&buffer[..read]),
        }
    }
}

/// The offsets of the pieces that differ.
pub(super) fn different(found: &[u32], expected: &[u32]) -> Vec<u64> {
    let pairs = found.iter().zip(expected);
    let numbered = (0..).zip(pairs);
    let differing = numbered.filter(|(_, (found, expected))| found != expected);
    differing
        .map(|(number, _): (u64, _)| number * PIECE_BYTES)
        .collect()
}

/// The storage file does not list chunk indexes and provenance, so only their own checksums and
/// owners tell, and the local file which of them were fetched.
fn verify_derived(
    folder: &Path,
    id: StorageId,
    fetched: &[String],
    report: &mut VerifyReport,
) -> Result<(), ClientError> {
    let names = names_in(folder)?;
    for name in fetched.iter().filter_map(|name| name.parse().ok()) {
        let is_derived =
            |name: &FileName| matches!(name.role(), FileRole::ChunkIndex | FileRole::Provenance);
        if is_derived(&name) && !names.contains(&name) {
            let what = "it is missing".to_owned();
            report.damage.push(damage(&name.to_string(), None, what));
        }
    }
    for name in names {
        let path = folder.join(name.to_string());
        let problem = match &name {
            FileName::Provenance(leaf) => {
                let bytes = LocalFile::open(&path).and_then(|file| read_up_to(&file));
                let bytes = bytes.map_err(|error| ClientError::file(&path, error))?;
                report.bytes += bytes.len() as u64;
                fault_of(&bytes, (id, *leaf)).map(|what| (None, what))
            }
            FileName::ChunkIndex(_) => {
                let bytes = LocalFile::open(&path).and_then(|file| read_up_to(&file));
                let bytes = bytes.map_err(|error| ClientError::file(&path, error))?;
                report.bytes += bytes.len() as u64;
                let fault = Sidecar::check(&bytes).err();
                fault.map(|error| (None, error.to_string()))
            }
            FileName::Provenances(file) | FileName::ChunkIndexes(file) => {
                let bundle = LocalFile::open(&path);
                let bundle = bundle.map_err(|error| ClientError::file(&path, error))?;
                let length = bundle.file().metadata();
                let length = length
                    .map_err(|error| ClientError::file(&path, error))?
                    .len();
                report.bytes += length;
                let fault = match name.role() {
                    FileRole::ChunkIndex => fault_of_indexes(&bundle, length, (id, *file)),
                    _ => fault_of_bundle(&bundle, length, (id, *file)),
                };
                fault.map_err(|error| ClientError::file(&path, error))?
            }
            _ => continue,
        };
        report.files += 1;
        if let Some((offset, what)) = problem {
            report.damage.push(damage(&name.to_string(), offset, what));
        }
    }
    Ok(())
}

fn read_up_to(file: &LocalFile) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut limited = file.file().take(LEAF_FILE_BYTES_MAX);
    limited.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is wrong with the provenance of a leaf.
fn fault_of(bytes: &[u8], (id, leaf): (StorageId, LeafId)) -> Option<String> {
    match Provenance::read(bytes) {
        Ok(known) if known.owner == format!("{id}/{leaf}") => None,
        Ok(_) => Some("it belongs to another storage".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// What is wrong with the chunk indexes in a bundle.
fn fault_of_indexes(
    file: &LocalFile,
    length: u64,
    (storage, of): (StorageId, DataFileId),
) -> std::io::Result<Option<(Option<u64>, String)>> {
    let mut read = |range| file.fetch_one(range);
    let owner = BundleOwner { storage, file: of };
    let checked = Bundle::check(length, &mut read).and_then(|()| Bundle::load(length, &mut read));
    match checked {
        Ok(bundle) if bundle.owner() == owner => Ok(None),
        Ok(_) => Ok(Some((None, "it belongs to another storage".to_owned()))),
        Err(BundleError::Sidecar(error)) => Ok(Some((None, error.to_string()))),
        Err(BundleError::Io(error)) => Err(error),
    }
}

/// What is wrong with the provenance in a bundle, and where.
fn fault_of_bundle(
    file: &LocalFile,
    length: u64,
    (storage, of): (StorageId, DataFileId),
) -> std::io::Result<Option<(Option<u64>, String)>> {
    let owner = BundleOwner { storage, file: of };
    let bundle = match Bundle::load(length, &mut |range| file.fetch_one(range)) {
        Ok(bundle) if bundle.owner() == owner => bundle,
        Ok(_) => return Ok(Some((None, "it belongs to another storage".to_owned()))),
        Err(BundleError::Sidecar(error)) => return Ok(Some((None, error.to_string()))),
        Err(BundleError::Io(error)) => return Err(error),
    };
    for section in bundle.sections() {
        let at = Some(section.offset);
        if section.length > LEAF_FILE_BYTES_MAX {
            let what = format!("the provenance of leaf {} is too long", section.leaf);
            return Ok(Some((at, what)));
        }
        let bytes = file.fetch_one(section.range())?;
        if let Some(what) = fault_of(&bytes, (storage, section.leaf)) {
            return Ok(Some((at, what)));
        }
    }
    // What is in no section.
    match Bundle::check(length, &mut |range| file.fetch_one(range)) {
        Ok(()) => Ok(None),
        Err(BundleError::Sidecar(error)) => Ok(Some((None, error.to_string()))),
        Err(BundleError::Io(error)) => Err(error),
    }
}
