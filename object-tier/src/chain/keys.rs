//! Where the objects of a chain are.

use storage_format::StorageId;

/// What the keys of all records of a chain begin with, without the `/` behind it.
#[must_use]
pub fn chain_folder(storage: StorageId) -> String {
    format!("s/{storage}/chain")
}

/// The key of a record: 20 digits, so that a list has the order of the numbers.
#[must_use]
pub fn record_key(storage: StorageId, number: u64) -> String {
    format!("s/{storage}/chain/{number:020}")
}

/// The key of the seal of a storage.
#[must_use]
pub fn seal_key(storage: StorageId) -> String {
    format!("s/{storage}/seal")
}

/// The number of the record with this key.
pub(super) fn number_of(key: &str) -> Option<u64> {
    let (_, digits) = key.rsplit_once('/')?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{StorageId, number_of, record_key};

    #[test]
    fn keys_sort_as_numbers() {
        let storage = StorageId::from_bytes([7; 16]);
        let keys: Vec<_> = [0, 9, 10, 99, u64::MAX]
            .map(|number| record_key(storage, number))
            .into();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(number_of(&keys[2]), Some(10));
        assert_eq!(number_of(&keys[4]), Some(u64::MAX));
        assert_eq!(number_of("s/x/chain/7"), None);
        assert_eq!(number_of("s/x/chain/99999999999999999999"), None);
    }
}
