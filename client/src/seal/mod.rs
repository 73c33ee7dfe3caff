//! Seals: proves offline that a storage, or a part of it, is what its server finalized.

mod archive;
mod bytes;
mod folder;
mod keys;
mod report;

pub use archive::verify_archive;
pub use bytes::{verify_file, verify_range};
pub use folder::verify_sealed_folder;
pub use keys::{generate_key, read_public_key};
pub use report::{SealReport, Trust};

use std::path::Path;

use storage_format::seal::{SEAL_BYTES_MAX, Seal};

use crate::ClientError;

/// Reads a seal.
///
/// # Errors
/// If the file cannot be read, or is no intact seal.
pub fn read_seal(path: &Path) -> Result<Seal, ClientError> {
    let failed = |error| ClientError::file(path, error);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > SEAL_BYTES_MAX {
        return Err(ClientError::damaged(
            path.display().to_string(),
            "it is too long for a seal",
        ));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    Seal::decode(&bytes)
        .map_err(|error| ClientError::damaged(path.display().to_string(), error.to_string()))
}
