//! Keys of objects: only this module builds and parses them.
//!
//! ```text
//! s/<storage>/seal                  names everything that belongs to a finalized storage
//! s/<storage>/heads.<nonce>         its small files, and the checksums of its large ones
//! s/<storage>/f/<name>.<nonce>      a large file
//! s/<storage>/label/<n>             its name, description and labels since a change
//! s/<storage>/gone                  it was removed, and never comes back
//! s/<storage>/clock.<nonce>         empty: shows for a moment the time of the store
//! sealed/<hour>/<storage>           hint
//! changed/<hour>/<storage>.<n>      hint; `gone` in place of the number of the labels
//! ```
//!
//! The nonce makes a key unique: no key of data is used twice.

use storage_format::StorageId;

/// Digits of a nonce.
const NONCE_DIGITS: usize = 32;

/// Folder of the storages.
pub(crate) const STORAGES: &str = "s";

/// Folder of the hints to sealed storages.
pub(crate) const SEALED: &str = "sealed";
/// Folder of the hints to changed storages.
pub(crate) const CHANGED: &str = "changed";

/// Folder of everything that belongs to a storage.
pub(crate) fn storage(storage: StorageId) -> String {
    format!("{STORAGES}/{storage}")
}

/// The seal.
pub(crate) fn seal(storage: StorageId) -> String {
    format!("{STORAGES}/{storage}/seal")
}

/// The mark of a removed storage.
pub(crate) fn gone(storage: StorageId) -> String {
    format!("{STORAGES}/{storage}/gone")
}

/// Folder of the large files.
pub(crate) fn files(storage: StorageId) -> String {
    format!("{STORAGES}/{storage}/f")
}

/// A large file.
pub(crate) fn file(storage: StorageId, name: &str, nonce: &str) -> String {
    format!("{STORAGES}/{storage}/f/{name}.{nonce}")
}

/// Whether `key` is one of those that [`file`] makes for this file.
pub(crate) fn is_file(storage: StorageId, name: &str, key: &str) -> bool {
    let nonce = key
        .strip_prefix(&files(storage))
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix('.'));
    nonce.is_some_and(is_nonce)
}

/// The small files and checksums.
pub(crate) fn heads(storage: StorageId, nonce: &str) -> String {
    format!("{STORAGES}/{storage}/heads.{nonce}")
}

/// Labels with a number.
pub(crate) fn label(storage: StorageId, number: u64) -> String {
    format!("{}/{number}", labels(storage))
}

/// Folder of the labels.
pub(crate) fn labels(storage: StorageId) -> String {
    format!("{STORAGES}/{storage}/label")
}

/// An object that shows the time of the store.
pub(crate) fn clock(storage: StorageId, nonce: &str) -> String {
    format!("{STORAGES}/{storage}/clock.{nonce}")
}

/// Whether `key` is one of those that [`heads`] makes.
pub(crate) fn is_heads(storage: StorageId, key: &str) -> bool {
    let nonce = key
        .strip_prefix(&self::storage(storage))
        .and_then(|rest| rest.strip_prefix("/heads."));
    nonce.is_some_and(is_nonce)
}

/// Whether a text is a nonce as they are written here.
pub(crate) fn is_nonce(text: &str) -> bool {
    let is_digit = |b| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.len() == NONCE_DIGITS && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_with_a_nonce_are_recognized() {
        let id = StorageId::new(1, [7; 10]);
        let nonce = "0123456789abcdef0123456789abcdef";
        assert!(is_heads(id, &heads(id, nonce)));
        assert!(is_file(id, "a.agent", &file(id, "a.agent", nonce)));
        assert!(!is_file(id, "b.agent", &file(id, "a.agent", nonce)));
        assert!(!is_heads(id, &heads(id, "0123")));
        assert!(!is_heads(id, &heads(id, &nonce.to_uppercase())));
        assert!(!is_heads(StorageId::new(2, [7; 10]), &heads(id, nonce)));
        assert!(!is_file(id, "a.agent", &format!("s/{id}/f/a.agent")));
    }
}
