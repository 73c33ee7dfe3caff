//! Lists come in parts.

use serde::{Deserialize, Serialize};

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items of this part.
    pub items: Vec<T>,
    /// Where the next part begins; `None` at the end.
    #[serde(default = "Option::default")]
    pub next: Option<String>,
}
