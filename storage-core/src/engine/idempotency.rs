//! Keys that make the creation of a storage repeatable.

use storage_format::{checksum::crc32c, limits::LABEL_BYTES_MAX};

use super::texts::check_length;
use crate::StorageError;

/// Separates the key from the checksum in the storage file. A key has no control characters.
const SEPARATOR: char = '\u{1f}';

/// The key that a client gave to a creation, and the checksum of the request that had it first.
/// Another request with the same key is a mistake of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    key: String,
    /// Unknown in storages of earlier versions.
    request: Option<u32>,
}

impl IdempotencyKey {
    /// The `key` of a request with these bytes.
    #[must_use]
    pub fn new(key: &str, request: &[u8]) -> Self {
        Self {
            key: key.to_owned(),
            request: Some(crc32c(request)),
        }
    }

    /// The key as [`text`](Self::text) wrote it.
    pub(super) fn of_text(text: &str) -> Self {
        let (key, request) = text.split_once(SEPARATOR).unwrap_or((text, ""));
        Self {
            key: key.to_owned(),
            request: u32::from_str_radix(request, 16).ok(),
        }
    }

    /// The key as the storage file contains it.
    pub(super) fn text(&self) -> String {
        match self.request {
            Some(request) => format!("{}{SEPARATOR}{request:08x}", self.key),
            None => self.key.clone(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.key
    }

    /// Refuses a key that cannot be stored.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        check_length("idempotency key", &self.key, LABEL_BYTES_MAX)
    }

    /// Whether both may belong to the same request.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.request.is_none() || other.request.is_none() || self.request == other.request
    }
}

#[cfg(test)]
mod tests {
    use super::IdempotencyKey;

    #[test]
    fn stored_keys_detect_another_request() {
        let first = IdempotencyKey::new("key", b"one");
        assert_eq!(IdempotencyKey::of_text(&first.text()), first);
        assert!(first.matches(&IdempotencyKey::new("key", b"one")));
        assert!(!first.matches(&IdempotencyKey::new("key", b"two")));
        let old = IdempotencyKey::of_text("key");
        assert_eq!((old.name(), old.text().as_str()), ("key", "key"));
        assert!(old.matches(&first) && first.matches(&old));
    }
}
