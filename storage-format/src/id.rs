//! Ids of storages, agents, streams and leaves.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::{DATA_FILE_COUNT_MAX, ID_BYTES_MAX};

/// A text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not an agent or stream id.
    #[error(
        "`{0}` is not a valid id: use 1 to 128 of the characters A-Z a-z 0-9 . _ - \
         and begin with a letter, a digit or _"
    )]
    Name(String),
    /// Not a storage id.
    #[error("`{0}` is not a storage id: use a UUID in lower case")]
    Storage(String),
    /// Not a leaf id.
    #[error("`{0}` is not a leaf id: use 16 lower-case hexadecimal digits")]
    Leaf(String),
    /// Not the id of a data file.
    #[error("`{0}` is not the id of a data file: use 16 lower-case hexadecimal digits")]
    DataFile(String),
}

/// An untrusted text as error messages show it: bounded, and without control characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(64)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn is_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let mut bytes = text.bytes();
    text.len() <= ID_BYTES_MAX
        && bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && bytes.all(allowed)
}

macro_rules! name_id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// One to 128 characters of `A-Z a-z 0-9 . _ -`, the first a letter, a digit or `_`, so
        /// that it is safe as a file name.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// Ids are ordered and hashed as their texts.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if is_name(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(IdError::Name(shown(text)))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_id!(AgentId, "Id of an agent, chosen by the agent.");
name_id!(StreamId, "Id of a stream, unique within its agent.");

/// Id of a storage: a UUID of version 7, so that ids sort by time of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StorageId(Uuid);

impl StorageId {
    /// The id with these 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The 16 bytes of the id, as they are stored in files.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id for a storage created at `unix_millis`, made unique by `random`.
    #[must_use]
    pub fn new(unix_millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_millis, &random).into_uuid())
    }

    /// When the storage was created, in milliseconds since the epoch.
    #[must_use]
    pub fn unix_millis(&self) -> u64 {
        let [a, b, c, d, e, f, ..] = *self.as_bytes();
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StorageId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // Only the one spelling: an id is also the name of a folder.
        let refuse = || IdError::Storage(shown(text));
        let id = Self(Uuid::try_parse(text).map_err(|_| refuse())?);
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(refuse())
        }
    }
}

/// Defines an id of 64 bits that is written as 16 hexadecimal digits.
macro_rules! hex_id {
    ($name:ident, $error:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let digit = |b| matches!(b, b'0'..=b'9' | b'a'..=b'f');
                let is_spelled_right = text.len() == 16 && text.bytes().all(digit);
                match u64::from_str_radix(text, 16) {
                    Ok(id) if is_spelled_right => Ok(Self(id)),
                    _ => Err(IdError::$error(shown(text))),
                }
            }
        }
    };
}

hex_id!(
    LeafId,
    Leaf,
    "Id of a leaf of the index tree: random, and not one that a file of a log can have."
);

impl LeafId {
    /// The id with this random number; `None` if a file of a log can have it.
    #[must_use]
    pub fn of_random(number: u64) -> Option<Self> {
        let id = Self(number);
        (!DataFileId::of_leaf(id).is_numbered()).then_some(id)
    }
}

hex_id!(
    DataFileId,
    DataFile,
    "Id of a data file within its storage. The files of a log are numbered from 0; a data file of \
     format version 1 has the id of its leaf."
);

impl DataFileId {
    /// The data file of a leaf in format version 1.
    #[must_use]
    pub fn of_leaf(leaf: LeafId) -> Self {
        Self(leaf.0)
    }

    /// Whether files of a log have such ids; the ids of leaves are random.
    #[must_use]
    pub fn is_of_log(self) -> bool {
        self.0 < u64::from(DATA_FILE_COUNT_MAX)
    }

    /// Whether files of a log, or arranged files, have such ids.
    #[must_use]
    pub fn is_numbered(self) -> bool {
        self.is_of_log() || self.replaced().is_some()
    }

    /// The id of the file of a log that the arranged file with this id replaces.
    #[must_use]
    pub fn replaced(self) -> Option<Self> {
        let file = Self(self.0.checked_sub(u64::from(DATA_FILE_COUNT_MAX))?);
        file.is_of_log().then_some(file)
    }

    /// The id of the arranged file that replaces this file of a log; `None` for other files.
    #[must_use]
    pub fn replacement(self) -> Option<Self> {
        let id = self.0.saturating_add(u64::from(DATA_FILE_COUNT_MAX));
        self.is_of_log().then_some(Self(id))
    }
}
