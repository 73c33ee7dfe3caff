//! Reads an archive from its first byte to its last.

use std::{collections::HashSet, io::Read};

use super::{
    directory::Directory,
    entry::Local,
    fault::{damaged, refused},
    layout::{CENTRAL, END, END_64, LOCAL, LOCATOR_64},
    sink::ArchiveSink,
    source::Source,
};
use crate::StorageError;

/// Largest number of entries: a record of each remains in memory until the directory arrives.
const ENTRY_COUNT_MAX: usize = 256 << 10;

/// Passes every file of the ZIP archive from `source` to `sink`; a file that is a gzip member is
/// passed decompressed. Blocks as long as `source` does.
///
/// What `sink` received must not be trusted before this function returns `Ok`.
///
/// # Errors
/// When the bytes are not a complete ZIP archive, use an unsupported feature, or `sink` refuses.
pub(crate) fn read_archive(
    source: impl Read,
    sink: &mut impl ArchiveSink,
) -> Result<(), StorageError> {
    let source = &mut Source::new(source);
    let mut found = Vec::new();
    let mut names = HashSet::new();
    let mut folder = None;
    let mut directory = Directory::default();
    let mut is_after_entries = false;
    loop {
        let signature = source.array().map_err(|error| damaged(source, error))?;
        match u32::from_le_bytes(signature) {
            LOCAL if !is_after_entries => {
                if found.len() >= ENTRY_COUNT_MAX {
                    let what = format!("more than {ENTRY_COUNT_MAX} entries");
                    return Err(damaged(source, what));
                }
                let local = Local::read(source)?;
                let name = checked_name(&local.name, &mut folder)?;
                if !names.insert(local.name.clone()) {
                    return Err(refused(&local.name, "occurs twice"));
                }
                found.push(if local.is_folder() {
                    local.read_body(source, Some(0), &mut Nothing)?
                } else {
                    let expected = sink.begin(&name)?;
                    let entry = local.read_body(source, expected, sink)?;
                    sink.end()?;
                    entry
                });
            }
            CENTRAL if !found.is_empty() => {
                is_after_entries = true;
                directory.header(source, &found)?;
            }
            END_64 if is_after_entries => directory.end_64(source)?,
            LOCATOR_64 if is_after_entries => directory.locator_64(source)?,
            END => return directory.end(source, &found),
            _ if source.offset() == 4 => {
                return Err(damaged(source, "this is not a ZIP archive"));
            }
            _ => return Err(damaged(source, "this is not a record of a ZIP archive")),
        }
    }
}

/// The name of a file without the folder that all files may share.
fn checked_name(name: &str, folder: &mut Option<String>) -> Result<String, StorageError> {
    let is_escape = name.starts_with('/')
        || name.contains('\\')
        || name.contains(':')
        || name.chars().any(char::is_control)
        || name.split('/').any(|part| matches!(part, "." | ".."));
    if is_escape {
        return Err(refused(name, "points outside of the folder of the storage"));
    }
    let (found, file) = name.rsplit_once('/').unwrap_or(("", name));
    if found.contains('/') || folder.get_or_insert_with(|| found.to_owned()) != found {
        return Err(refused(name, "is in another folder than the first file"));
    }
    Ok(file.to_owned())
}

/// Checks that a folder has no bytes.
struct Nothing;

impl ArchiveSink for Nothing {
    fn begin(&mut self, _: &str) -> Result<Option<u64>, StorageError> {
        Ok(Some(0))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        match bytes {
            [] => Ok(()),
            _ => Err(refused("/", "is a folder with bytes")),
        }
    }

    fn end(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}
