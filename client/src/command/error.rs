use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use thiserror::Error;

use crate::ClientError;

/// How the program ends; the codes are a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: found damage, or nothing.
    NoMatchOrDamage,
    /// 2: wrong use.
    Usage,
    /// 3: the server refused.
    Refused,
    /// 4: I/O, on disk or on the way to the server.
    Io,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::NoMatchOrDamage => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Io => 4,
        })
    }
}

/// Why a verb did not do what it was asked for.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The arguments make no sense together; says what would.
    #[error("{0}")]
    Usage(String),
    /// The client could not do it.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The input is damaged or not of the kind it should be.
    #[error("{place}: {what}")]
    Damage {
        /// File, and offset or line where known.
        place: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{place}: {source}")]
    Io {
        /// Path of the file.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// The standard output could not be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Wrong use.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }

    /// Damaged input at `place`.
    pub fn damage(place: impl Display, what: impl Display) -> Self {
        Self::Damage {
            place: place.to_string(),
            what: what.to_string(),
        }
    }

    /// A failed file operation at `place` (`path.display()`).
    pub fn io(place: impl Display, source: io::Error) -> Self {
        Self::Io {
            place: place.to_string(),
            source,
        }
    }

    /// The exit code that belongs to this error.
    pub fn exit(&self) -> Exit {
        match self {
            _ if self.is_closed_pipe() => Exit::Done,
            Self::Usage(_) | Self::Client(ClientError::Input { .. }) => Exit::Usage,
            Self::Client(ClientError::Refused(_)) => Exit::Refused,
            Self::Damage { .. } | Self::Client(ClientError::Damaged { .. }) => {
                Exit::NoMatchOrDamage
            }
            Self::Client(_) | Self::Io { .. } | Self::Output(_) => Exit::Io,
        }
    }

    /// True when output failed because nobody reads it any more (`tracehold … | head`).
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// For programs: the server's problem document, or what happened here in the same shape.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Client(ClientError::Refused(problem)) => json!({ "error": problem }),
            _ => {
                let code = match self.exit() {
                    Exit::Usage => "wrong_use",
                    Exit::NoMatchOrDamage => "damaged",
                    _ => "io",
                };
                json!({ "error": { "code": code, "detail": self.to_string() } })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Problem;

    #[test]
    fn each_error_has_its_exit_code() {
        let refused = ClientError::Refused(Box::new(Problem::from_answer(404, None, b"")));
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        for (error, expected) in [
            (CommandError::usage("x"), Exit::Usage),
            (ClientError::input("x").into(), Exit::Usage),
            (refused.into(), Exit::Refused),
            (CommandError::damage("f", "x"), Exit::NoMatchOrDamage),
            (ClientError::damaged("f", "x").into(), Exit::NoMatchOrDamage),
            (CommandError::io("f", full()), Exit::Io),
            (CommandError::Output(full()), Exit::Io),
            (CommandError::Output(broken), Exit::Done),
        ] {
            assert_eq!(error.exit(), expected, "{error}");
        }
    }
}
