//! Files that cannot be used and stay for somebody who may want to look at them.

use std::path::{Path, PathBuf};

use crate::{StorageError, clock::now_ns, io::rename};

/// Renames what is at `path`, a file or a folder, and returns where it is now; blocks.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf, StorageError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{}", now_ns()));
    let aside = PathBuf::from(name);
    rename(path, &aside).map_err(StorageError::io("rename", path))?;
    Ok(aside)
}
