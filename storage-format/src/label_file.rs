//! The label file: the label types that users declared, and the values that are suggested for them.
//!
//! The labels themselves are in the storage file of each storage. Several values of one type are
//! joined there by [`VALUE_SEPARATOR`].

use serde::{Deserialize, Serialize};

use crate::{FormatError, envelope};

const MAGIC: [u8; 8] = *b"THLABELS";
const WHAT: &str = "label file";

/// Separates two values of one label; no value contains it.
pub const VALUE_SEPARATOR: char = '\u{1f}';

/// Type of the values of a label.
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

/// A label type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelType {
    /// Its name, the key of a label.
    pub name: String,
    /// Type of its values.
    pub value_type: ValueType,
    /// Whether one storage may have several values of it.
    pub several: bool,
    /// Suggested values, sorted; no storage needs to have them.
    pub values: Vec<String>,
}

/// The content of a label file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LabelFile {
    /// The types, sorted by name; predefined types are included if they have suggested values.
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

    /// Decodes a label file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        envelope::decode(WHAT, MAGIC, bytes)
    }
}
