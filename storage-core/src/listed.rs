//! Files of a storage compared with what is written about them: by a verification, and by the
//! scrub.

use std::{path::Path, sync::Arc};

use storage_format::{
    agent_file::AgentFile,
    checksum_file::{ChecksumFile, PIECE_BYTES, PieceSums},
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use crate::{StorageError, damage::Damage, read::read_whole, storage::Storage};

fn damage(file: &str, offset: u64, what: impl ToString) -> Damage {
    Damage {
        file: file.to_owned(),
        offset,
        what: what.to_string(),
    }
}

/// What is damaged in a file of a finalized storage whose bytes have the checksums `sums`; blocks
/// the thread if something is.
pub(crate) fn differences(
    storage: &Storage,
    entry: &FileEntry,
    sums: PieceSums,
    known: Option<&ChecksumFile>,
) -> Vec<Damage> {
    if sums.length() != entry.length {
        let what = format!(
            "the file has {} bytes, but {} were written",
            sums.length(),
            entry.length
        );
        let offset = sums.length().min(entry.length);
        return vec![damage(&entry.name, offset, what)];
    }
    let is_intact = sums.checksum() == entry.checksum;
    let mut found = pieces(&entry.name, sums, known);
    let is_located = found.iter().any(|damage| damage.what != UNDESCRIBED);
    if !is_intact && !is_located {
        let (offset, what) = locate(storage, entry);
        found.push(damage(&entry.name, offset, what));
    }
    found
}

/// What is wrong with a checksum file that lacks a data file.
const UNDESCRIBED: &str = "the checksum file does not describe this data file";

/// Compares a data file with the checksums of its pieces.
fn pieces(name: &str, sums: PieceSums, known: Option<&ChecksumFile>) -> Vec<Damage> {
    let (Ok(FileName::Data(file)), Some(known)) = (name.parse(), known) else {
        return Vec::new();
    };
    let found = sums.finish(file);
    let length = found.length;
    let Some(known) = known.of(file).filter(|known| known.length == length) else {
        return vec![damage(name, 0, UNDESCRIBED)];
    };
    let pieces = known.pieces.iter().zip(&found.pieces).zip(0_u64..);
    let differing: Vec<u64> = pieces
        .filter(|((known, found), _)| known != found)
        .map(|(_, at)| at)
        .collect();
    let runs = differing.chunk_by(|before, at| before.saturating_add(1) == *at);
    let place = |run: &[u64]| {
        let (first, last) = (run.first(), run.last());
        let start = first.map_or(0, |at| at.saturating_mul(PIECE_BYTES));
        let end = last.map_or(0, |at| at.saturating_add(1).saturating_mul(PIECE_BYTES));
        let end = end.min(length);
        let what = format!("the checksums of bytes {start} to {end} do not match");
        damage(name, start, what)
    };
    runs.map(place).collect()
}

/// The location of the damage in a small file with a wrong checksum.
fn locate(storage: &Storage, entry: &FileEntry) -> (u64, String) {
    let path: &Path = &storage.folder.join(&entry.name);
    let found = match entry.role {
        FileRole::Index => match crate::tree::IndexPart::open(path, storage.id) {
            Err(StorageError::Damaged { source, .. }) => Some(source),
            Ok(part) => Arc::new(part)
                .blocks()
                .find_map(|block| match block.read() {
                    Err(StorageError::Damaged { source, .. }) => Some(source),
                    _ => None,
                }),
            Err(_) => None,
        },
        FileRole::Agent => read_whole(path)
            .ok()
            .and_then(|bytes| AgentFile::decode(&bytes).err()),
        _ => None,
    };
    match found {
        Some(error) => (error.offset, error.to_string()),
        None => (0, "the checksum of the file does not match".to_owned()),
    }
}

/// What is damaged in a data file of a storage that is not finalized, of which the first bytes,
/// those that are durable, have these checksums.
pub(crate) fn differences_of_log(
    name: &str,
    durable: crate::io_thread::Tail,
    sums: &PieceSums,
) -> Option<Damage> {
    if sums.length() < durable.length {
        let what = "the file ends before its last packet";
        return Some(damage(name, sums.length(), what));
    }
    let is_intact = sums.checksum() == durable.checksum;
    (!is_intact).then(|| damage(name, 0, "the checksum of the file does not match"))
}
