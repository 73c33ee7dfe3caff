//! Why a job failed.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of every job.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a job failed; printed once, by `main`.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid.
    Usage(String),
    /// A program could not be started or waited for.
    Start {
        program: String,
        source: std::io::Error,
    },
    /// A program exited with a status other than 0.
    Exit { command: String, status: String },
    /// A file could not be read or written.
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A program printed something unexpected.
    Answer { command: String, why: String },
    /// A job found faults, which are already printed.
    Found { what: &'static str, count: usize },
    /// A run against the real server failed.
    Run(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Run(text) => f.write_str(text),
            Self::Start { program, source } => write!(f, "cannot run {program}: {source}"),
            Self::Exit { command, status } => write!(f, "`{command}` exited with {status}"),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Answer { command, why } => {
                write!(f, "`{command}` printed something unexpected: {why}")
            }
            Self::Found { what, count } => write!(f, "{what}: {count} found"),
        }
    }
}

/// Converts I/O errors at `path`.
pub(crate) fn file_failed(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |source| Failure::File {
        path: path.to_owned(),
        source,
    }
}
