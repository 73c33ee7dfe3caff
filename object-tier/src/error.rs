//! Why the object store did not do what was asked.

/// An error of the object store, or of what it holds.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The configuration of the object store cannot be used.
    #[error("the object store cannot be used: {0}")]
    Settings(String),
    /// A request failed, and whether it took effect is not known.
    #[error("cannot {doing} `{key}` in the object store: {reason}")]
    Store {
        /// What was tried: `get`, `put`, …
        doing: &'static str,
        /// The key of the object.
        key: String,
        /// What the store, or the connection to it, said.
        reason: String,
        /// Whether the same request may succeed later.
        is_passing: bool,
    },
    /// An object that must be there is not.
    #[error("the object store has no `{0}`")]
    Gone(String),
    /// An object is not what was stored.
    #[error("`{key}` in the object store is damaged: {problem}")]
    Damaged {
        /// The key of the object.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// Another node has the storage.
    #[error("storage {storage} belongs to another node now: {reason}")]
    Superseded {
        /// The storage.
        storage: String,
        /// Which node, and since when.
        reason: String,
    },
    /// An append ended without an answer; its record may still arrive.
    #[error(
        "it is not known whether record {number} of the chain of storage {storage} was written: \
         send it again before anything else is appended"
    )]
    InDoubt {
        /// The storage.
        storage: String,
        /// The number of the record.
        number: u64,
    },
    /// A record would be empty, or longer than any reader accepts.
    #[error("a record of a chain has 1 to {max} bytes, not {length}: split the append")]
    RecordLength {
        /// Its length.
        length: u64,
        /// The largest length.
        max: u64,
    },
    /// The chain is closed: the storage accepts nothing more.
    #[error("the chain of storage {0} is closed: seal it")]
    Closed(String),
    /// What needs a seal was asked of a storage without one.
    #[error("storage {0} has no seal: seal it before its chain is collected")]
    NotSealed(String),
    /// A local file cannot be read or written.
    #[error("cannot {doing} {path}: {source}")]
    Local {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl TierError {
    /// Whether the same request may succeed later without a change.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Store { is_passing, .. } => *is_passing,
            _ => false,
        }
    }

    pub(crate) fn store(doing: &'static str, key: &str, error: &object_store::Error) -> Self {
        use object_store::Error;
        Self::Store {
            doing,
            key: key.to_owned(),
            reason: error.to_string(),
            is_passing: !matches!(
                error,
                Error::InvalidPath { .. }
                    | Error::NotSupported { .. }
                    | Error::NotImplemented { .. }
                    | Error::PermissionDenied { .. }
                    | Error::Unauthenticated { .. }
                    | Error::UnknownConfigurationKey { .. }
            ),
        }
    }

    pub(crate) fn damaged(key: &str, problem: impl Into<String>) -> Self {
        Self::Damaged {
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn local(
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Local {
            doing,
            path,
            source,
        }
    }
}
