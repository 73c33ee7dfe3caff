//! The label file: which types of labels there are beyond the predefined ones, and which values are
//! suggested for them.
//!
//! The labels themselves are in the storage file of each storage. There a type with several values
//! has them one behind the other, with [`VALUE_SEPARATOR`] between two.

use serde::{Deserialize, Serialize};

use crate::{FormatError, envelope};

const MAGIC: [u8; 8] = *b"THLABELS";
const WHAT: &str = "label file";

/// Stands between two values of one label; no value has it in itself.
pub const VALUE_SEPARATOR: char = '\u{1f}';

/// What the values of a label are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    /// `true` or `false`.
    Boolean,
    /// A decimal number.
    Number,
    /// An instant, RFC 3339.
    Date,
    /// Any text.
    String,
    /// Two instants with `/` between them.
    TimeFrame,
}

/// A type of labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelType {
    /// Its name, the key of a label.
    pub name: String,
    /// What its values are.
    pub value_type: ValueType,
    /// Whether one storage may have several values of it.
    pub several: bool,
    /// Values that are suggested although no storage may have them, sorted.
    pub values: Vec<String>,
}

/// The content of a label file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LabelFile {
    /// The types, sorted by name; also predefined ones that have suggested values.
    pub types: Vec<LabelType>,
}

impl LabelFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        envelope::encode(WHAT, MAGIC, self)
    }

    /// Reads a whole label file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        envelope::decode(WHAT, MAGIC, bytes)
    }
}
