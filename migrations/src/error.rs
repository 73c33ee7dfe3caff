//! Why a data folder cannot be used.

use std::{io, path::PathBuf};

use crate::version::{CURRENT_VERSION, DataVersion};

/// Why a data folder cannot be brought to the current version.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer server wrote it.
    #[error(
        "{path} has data of version {found}, this server knows versions up to {}: \
         use a newer server, or another folder",
        CURRENT_VERSION
    )]
    Newer {
        /// The data folder.
        path: PathBuf,
        /// Its version.
        found: DataVersion,
    },
    /// Something else lies there.
    #[error("{path} is no data folder and not empty (it holds `{found}`): use another folder")]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// A name found in it.
        found: String,
    },
    /// The version file is not one of ours.
    #[error("{path} does not say a version: restore it from a backup, or use another folder")]
    Unreadable {
        /// The version file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
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
