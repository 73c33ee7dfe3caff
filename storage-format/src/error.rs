//! What is wrong with bytes that should be one of our files.

use std::fmt;

/// Bytes that are not what they should be: where, and in what way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}: {kind}")]
pub struct FormatError {
    /// The layout that was being read, such as `frame header`.
    pub what: &'static str,
    /// Byte offset of the fault from the start of the file or slice that was given.
    pub offset: u64,
    /// What is wrong.
    pub kind: FormatErrorKind,
}

/// The ways in which bytes can be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// The bytes end before the layout does.
    Truncated {
        /// Bytes that the layout needs.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// Another file type, or none.
    Magic,
    /// A version that this program does not know.
    Version {
        /// The version found.
        found: u16,
    },
    /// The checksum does not match: damage, or a block in the wrong place.
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes that are there.
        computed: u32,
    },
    /// A field holds what no writer of ours produces.
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
    /// The file belongs to another storage or leaf.
    Foreign,
}

impl fmt::Display for FormatErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, available } => {
                write!(f, "{needed} bytes are needed, {available} are there")
            }
            Self::Magic => f.write_str("the magic number of this layout is not there"),
            Self::Version { found } => write!(
                f,
                "format version {found} is not known here (newest known: {})",
                crate::FORMAT_VERSION
            ),
            Self::Checksum { stored, computed } => {
                write!(
                    f,
                    "checksum {computed:#010x} does not match the stored {stored:#010x}"
                )
            }
            Self::Field { name } => write!(f, "field `{name}` holds an impossible value"),
            Self::Limit { name, found, max } => {
                write!(f, "`{name}` is {found}, the limit is {max}")
            }
            Self::Foreign => f.write_str("this belongs to another storage or leaf"),
        }
    }
}

impl FormatError {
    pub(crate) fn new(what: &'static str, offset: u64, kind: FormatErrorKind) -> Self {
        Self { what, offset, kind }
    }

    pub(crate) fn truncated(what: &'static str, needed: usize, available: usize) -> Self {
        let kind = FormatErrorKind::Truncated {
            needed: needed as u64,
            available: available as u64,
        };
        Self::new(what, available as u64, kind)
    }

    /// The same fault in a file in which the slice that was read begins at `start`.
    #[must_use]
    pub fn shifted(mut self, start: u64) -> Self {
        self.offset = self.offset.saturating_add(start);
        self
    }
}
