//! Tests of whole folders.

use std::path::{Path, PathBuf};

pub(crate) mod corpus;
mod damaged;
mod details;
mod generated;
mod json;
mod lenient;
mod order;

/// The folders with a file `metadata` at and below `path`, sorted.
pub(crate) fn trace_folders(path: &Path) -> Vec<PathBuf> {
    if path.join("metadata").is_file() {
        return vec![path.to_owned()];
    }
    let entries = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|entry| entry.is_dir()).collect();
    folders.sort();
    folders
        .iter()
        .flat_map(|folder| trace_folders(folder))
        .collect()
}
