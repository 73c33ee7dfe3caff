//! Reading records of a chain.

use object_tier::TierError;
use object_tier::chain::{Record, record_key};
use storage_format::chain_payload::{ChainSection, ChainSections};
use storage_format::{FormatError, StorageId};

/// The error of a record that has another content than the nodes of this version write.
pub(super) fn damaged(storage: StorageId, number: u64, error: &FormatError) -> TierError {
    TierError::Damaged {
        key: record_key(storage, number),
        problem: format!(
            "{error}; restore the object, or remove it: the node that wrote it appends its packets \
             again when it starts"
        ),
    }
}

/// The sections of a record.
pub(crate) fn sections(
    storage: StorageId,
    record: &Record,
) -> impl Iterator<Item = Result<ChainSection, TierError>> {
    let number = record.number;
    let sections = ChainSections::of(&record.payload);
    sections.map(move |section| section.map_err(|error| damaged(storage, number, &error)))
}
