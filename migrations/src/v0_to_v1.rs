//! Version 1: a data folder with the folders of agents and storages.

use std::path::Path;

use storage_format::paths::{AGENTS_FOLDER, STORAGES_FOLDER, UNPUBLISHED_ENDING};

use crate::MigrationError;

/// Names that a folder may contain before it becomes a data folder: those that an interrupted run
/// of this step leaves, and those that file systems create in their root.
const IGNORED: [&str; 4] = [AGENTS_FOLDER, STORAGES_FOLDER, "lost+found", "lock"];

/// Turns an empty folder into a data folder.
pub(crate) fn apply(folder: &Path) -> Result<(), MigrationError> {
    let names = std::fs::read_dir(folder).map_err(MigrationError::io("list", folder))?;
    for name in names {
        let name = name
            .map_err(MigrationError::io("list", folder))?
            .file_name();
        let name = name.to_string_lossy();
        if !IGNORED.contains(&&*name) && !name.ends_with(UNPUBLISHED_ENDING) {
            let found = name.into_owned();
            return Err(MigrationError::Foreign {
                path: folder.to_owned(),
                found,
            });
        }
    }
    for name in [AGENTS_FOLDER, STORAGES_FOLDER] {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).map_err(MigrationError::io("create", path))?;
    }
    Ok(())
}
