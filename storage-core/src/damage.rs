//! Damage of files.

use serde::Serialize;

/// Bytes that are not as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Offset of the damage in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}
