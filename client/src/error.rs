use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::http::Problem;

/// Why an operation of the client failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server answered and said no.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The server could not be reached, or the connection broke.
    #[error("{method} {url}: {what}")]
    Transport {
        /// Request method.
        method: String,
        /// Request address.
        url: String,
        /// What went wrong, with all its causes.
        what: String,
    },
    /// An answer ended before it was complete.
    #[error("{url}: the answer ends early, {place}")]
    Cut {
        /// Request address.
        url: String,
        /// Where it ended.
        place: String,
    },
    /// The server answered something that this client cannot make sense of.
    #[error("{url}: {what}")]
    Answer {
        /// Request address.
        url: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// What the caller asked for is not possible as asked.
    #[error("{what}")]
    Input {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A local file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that are not what they have to be: a damaged trace file or a damaged download.
    #[error("{place}: {what}")]
    Damaged {
        /// File and, where known, offset.
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

    /// A wrong wish of the caller.
    pub fn input(what: impl Into<String>) -> Self {
        Self::Input { what: what.into() }
    }

    /// Bytes that are not what they have to be.
    pub fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged {
            place: place.into(),
            what: what.into(),
        }
    }

    /// The server's problem document, when that is what failed.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// True when the server refused with the stable code `code`.
    pub fn is_refused_as(&self, code: &str) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }
}
