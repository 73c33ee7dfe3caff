//! Version 2: storages have a log.
//!
//! Nothing is rewritten. The data files and index parts of version 1 carry their own version and
//! are read as they are; new packets go to new files. Only the version of the folder changes, so
//! that a server of version 1 refuses the folder: it would take a file of a log for one that was
//! torn while it was created, and remove it.

use std::path::Path;

use crate::MigrationError;

/// Changes nothing but the version.
#[expect(
    clippy::unnecessary_wraps,
    reason = "every step has the same signature"
)]
pub(crate) fn apply(_folder: &Path) -> Result<(), MigrationError> {
    Ok(())
}
