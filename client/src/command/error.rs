use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use thiserror::Error;
use trace_kinds::{Content, Recognized};

use crate::ClientError;
use crate::file_content::refusal;

/// Exit codes of the program. They are a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: success.
    Done,
    /// 1: nothing matched, nothing was found, or damage was found.
    NoMatchOrDamage,
    /// 2: usage error.
    Usage,
    /// 3: refused by the server.
    Refused,
    /// 4: I/O error, on disk or in the connection to the server.
    Io,
}

impl Exit {
    /// Success if something matched.
    pub fn of_match(any: bool) -> Self {
        if any {
            Self::Done
        } else {
            Self::NoMatchOrDamage
        }
    }

    /// Success if the input is intact.
    pub fn of_integrity(is_intact: bool) -> Self {
        Self::of_match(is_intact)
    }
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

/// Why a subcommand failed.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The arguments are invalid; says which are valid.
    #[error("{0}")]
    Usage(String),
    /// An operation of the client failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The input is damaged or empty.
    #[error("{place}: {what}")]
    Damage {
        /// File, and offset or line if known.
        place: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{place}: {source}")]
    Io {
        /// Path of the file.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// Writing to the standard output failed.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// A usage error.
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

    /// The exit code for this error.
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

    /// Whether output failed because the reader of the pipe went away (`tracehold … | head`).
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The server's problem document, or a local error in the same shape.
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

/// Refuses a file of a kind that the subcommand does not accept. An empty file is not wrong use:
/// there is nothing in it.
pub(super) fn refuse(path: &Path, found: &Recognized, accepted: &str) -> CommandError {
    let reason = refusal(found, accepted);
    if found.content == Content::Empty {
        CommandError::damage(path.display(), reason)
    } else {
        CommandError::usage(format!("{}: {reason}", path.display()))
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
