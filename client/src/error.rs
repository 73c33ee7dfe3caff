use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::http::Problem;

/// Why an operation of the client failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused the request.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The server is unreachable, or the connection broke.
    #[error("{method} {url}: {what}")]
    Transport {
        /// Request method.
        method: String,
        /// Request address.
        url: String,
        /// The error and its causes.
        what: String,
    },
    /// A response ended before it was complete.
    #[error("{url}: the response ended early, {place}")]
    Cut {
        /// Request address.
        url: String,
        /// Where it ended.
        place: String,
    },
    /// The server's response is not what this client expects.
    #[error("{url}: {what}")]
    Answer {
        /// Request address.
        url: String,
        /// What is wrong with the response.
        what: String,
    },
    /// The caller's input is invalid.
    #[error("{what}")]
    Input {
        /// What is wrong, and what is valid.
        what: String,
    },
    /// A local file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Bytes do not match their format or checksum: a damaged trace file or download.
    #[error("{place}: {what}")]
    Damaged {
        /// File and, if known, offset.
        place: String,
        /// What is wrong with the bytes.
        what: String,
    },
}

impl ClientError {
    /// A failed operation on a local file.
    pub fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    /// Invalid input of the caller.
    pub fn input(what: impl Into<String>) -> Self {
        Self::Input { what: what.into() }
    }

    /// Damaged bytes at `place`.
    pub fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged {
            place: place.into(),
            what: what.into(),
        }
    }

    /// The server's problem document, if the server refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// Whether the server refused the request with the stable code `code`.
    pub fn is_refused_as(&self, code: &str) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }
}
