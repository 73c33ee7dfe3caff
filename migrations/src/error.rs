//! Errors of migrations.

use std::{io, path::PathBuf};

use crate::version::{CURRENT_VERSION, DataVersion};

/// Why a data folder cannot be migrated to the current version.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer server wrote it.
    #[error(
        "{path} has data of version {found}, but this server supports versions up to {}: \
         use a newer server or another data folder",
        CURRENT_VERSION
    )]
    Newer {
        /// The data folder.
        path: PathBuf,
        /// Its version.
        found: DataVersion,
    },
    /// The folder contains something else.
    #[error(
        "{path} is not a data folder and not empty (it contains `{found}`): use another folder"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// A name that it contains.
        found: String,
    },
    /// The version file is invalid.
    #[error(
        "{path} does not contain a version: restore it from a backup, or use another data folder"
    )]
    Unreadable {
        /// The version file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl MigrationError {
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}
