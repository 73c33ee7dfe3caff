//! The file in a data folder that contains its version.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use crate::{DataVersion, MigrationError};

const NAME: &str = "VERSION";
const PREFIX: &str = "tracehold data folder, version ";
/// A version file is one short line.
const BYTES_MAX: u64 = 256;

/// The version of `folder`; 0 when it has no version file.
pub(crate) fn read(folder: &Path) -> Result<DataVersion, MigrationError> {
    let path = folder.join(NAME);
    let text = match std::fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DataVersion(0)),
        Err(error) => return Err(MigrationError::io("get the length of", path)(error)),
        // Who opens a pipe waits for a writer, and a device may have no end.
        Ok(metadata) if !metadata.is_file() || metadata.len() > BYTES_MAX => None,
        Ok(_) => Some(std::fs::read_to_string(&path).map_err(MigrationError::io("read", &path))?),
    };
    let number = text
        .as_deref()
        .and_then(|text| text.trim_end().strip_prefix(PREFIX));
    match number.and_then(|number| number.parse().ok()) {
        Some(number) if number > 0 => Ok(DataVersion(number)),
        _ => Err(MigrationError::Unreadable { path }),
    }
}

/// Writes the version of `folder`, durably: a crash leaves the old file or the new one.
pub(crate) fn write(folder: &Path, version: DataVersion) -> Result<(), MigrationError> {
    let (path, unpublished) = (folder.join(NAME), folder.join("VERSION.tmp"));
    let write = || {
        let mut file = File::create(&unpublished)?;
        writeln!(file, "{PREFIX}{version}")?;
        file.sync_all()?;
        std::fs::rename(&unpublished, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(MigrationError::io("write", &path))
}
