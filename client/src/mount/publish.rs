use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use storage_format::paths::UNPUBLISHED_ENDING;

use crate::ClientError;

/// Writes a small file atomically.
pub(super) fn publish(path: &Path, bytes: &[u8]) -> Result<(), ClientError> {
    let unpublished = unpublished(path);
    let written = File::create(&unpublished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unpublished, path)
    });
    written.map_err(|error| ClientError::file(path, error))
}

pub(super) fn unpublished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNPUBLISHED_ENDING);
    PathBuf::from(name)
}
