//! Errors in bytes that should have one of the formats.

use std::fmt;

use crate::integer::u64_of;

/// Bytes that do not match their format: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}: {kind}")]
pub struct FormatError {
    /// The layout that was decoded, such as `frame header`.
    pub what: &'static str,
    /// Byte offset of the error from the start of the file or slice.
    pub offset: u64,
    /// What is wrong.
    pub kind: FormatErrorKind,
}

/// What can be wrong with bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// The bytes end before the layout does.
    Truncated {
        /// Bytes that the layout needs.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// Another file type.
    Magic,
    /// A version that this program does not support.
    Version {
        /// The version found.
        found: u16,
        /// The newest version that this program supports.
        newest: u16,
    },
    /// The checksum does not match: the bytes are damaged, or belong to another location.
    Checksum {
        /// The stored checksum.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A field has a value that no writer produces.
    Field {
        /// Name of the field.
        name: &'static str,
    },
    /// A length exceeds its limit (see [`crate::limits`]).
    Limit {
        /// Name of the length.
        name: &'static str,
        /// The value found.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// A packet that does not follow the packet before it.
    Order {
        /// Name of the field that does not grow as it must.
        name: &'static str,
    },
    /// The file belongs to another storage, leaf or agent.
    Foreign,
}

impl fmt::Display for FormatErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, available } => {
                write!(f, "{needed} bytes are needed, {available} are there")
            }
            Self::Magic => f.write_str("the magic number is wrong"),
            Self::Version { found, newest } => write!(
                f,
                "format version {found} is not supported (newest supported: {newest})"
            ),
            Self::Checksum { stored, computed } => {
                write!(
                    f,
                    "checksum {computed:#010x} does not match the stored {stored:#010x}"
                )
            }
            Self::Field { name } => write!(f, "field `{name}` has an invalid value"),
            Self::Limit { name, found, max } => {
                write!(f, "`{name}` is {found}, the limit is {max}")
            }
            Self::Order { name } => write!(f, "`{name}` does not follow the packet before"),
            Self::Foreign => f.write_str("the file belongs to another storage, leaf or agent"),
        }
    }
}

impl FormatError {
    pub(crate) fn new(what: &'static str, offset: u64, kind: FormatErrorKind) -> Self {
        Self { what, offset, kind }
    }

    pub(crate) fn truncated(what: &'static str, needed: usize, available: usize) -> Self {
        let kind = FormatErrorKind::Truncated {
            needed: u64_of(needed),
            available: u64_of(available),
        };
        Self::new(what, u64_of(available), kind)
    }

    /// The same error in a file in which the slice begins at `start`.
    #[must_use]
    pub fn shifted(mut self, start: u64) -> Self {
        self.offset = self.offset.saturating_add(start);
        self
    }
}
