//! The name of a node: in keys, in records of chains, and in messages.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TierError;

/// The longest name of a node.
pub(crate) const NODE_NAME_BYTES_MAX: usize = 64;

/// The name of a node: 1 to 64 ASCII letters, digits, `-`, `_` and `.`; the first is no `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it could not be a part of a key; the message says what is possible.
    pub fn new(name: &str) -> Result<Self, TierError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_long = name.len() > NODE_NAME_BYTES_MAX;
        if is_long || name.is_empty() || name.starts_with('.') || !name.bytes().all(is_part) {
            return Err(TierError::Settings(format!(
                "the node name {name:?} is not 1 to {NODE_NAME_BYTES_MAX} letters, digits, \
                 `-`, `_` and `.`, the first of them no `.`"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = TierError;

    fn try_from(name: String) -> Result<Self, TierError> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::NodeName;

    #[test]
    fn only_parts_of_keys_are_names() {
        for name in ["a", "node-3.rack_7", &"n".repeat(64)] {
            assert_eq!(NodeName::new(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            ".",
            "..",
            ".a",
            "a/b",
            "a b",
            "ä",
            "a\n",
            &"n".repeat(65),
        ] {
            NodeName::new(name).unwrap_err();
        }
    }
}
