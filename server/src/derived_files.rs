//! Derived files of imported archives: used when they match their data files, like those built
//! here, and removed otherwise.

use std::collections::BTreeMap;

use chunk_index::{Provenance, Sidecar, SidecarError};
use io_trace::Cause;
use query_engine::StorageSet;
use storage_core::{Engine, StorageError};
use storage_format::StorageId;
use storage_format::paths::FileName;
use trace_kinds::has_events;

use crate::provenance;
use crate::stored_leaves::stored_leaves;

/// Compares the bytes of a derived file with the checksums in it, before it is sent or exported.
///
/// # Errors
/// The offset of the damage.
pub(crate) fn check_bytes(name: &FileName, bytes: &[u8]) -> Result<(), u64> {
    let checked = match name {
        FileName::ChunkIndex(_) => Sidecar::check(bytes),
        FileName::Provenance(_) => Provenance::read(bytes).map(drop),
        _ => Ok(()),
    };
    match checked {
        // Another version is not damage.
        Ok(()) | Err(SidecarError::Version { .. }) => Ok(()),
        Err(SidecarError::Damaged { offset, .. }) => Err(offset),
        Err(_) => Err(0),
    }
}

/// A derived file that does not match its data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RejectedFile {
    pub(crate) name: FileName,
    pub(crate) reason: String,
}

/// Compares the derived files of an imported storage with its data files and removes those that do
/// not match. A missing chunk index is then rebuilt like any other.
///
/// # Errors
/// When the storage was deleted or cannot be read.
pub(crate) async fn check_derived(
    engine: &Engine,
    id: StorageId,
) -> Result<Vec<RejectedFile>, StorageError> {
    let stored = stored_leaves(engine, id, Cause::Import).await?;
    let found = engine.reading().leaves(id).await?;
    let check = move || {
        let mut unfit: BTreeMap<FileName, String> = BTreeMap::new();
        for leaf in &stored {
            if leaf.sidecar.is_some() && !has_events(leaf.leaf.path.kind) {
                let reason = "packets of this kind have no chunk index".to_owned();
                unfit.insert(FileName::ChunkIndex(leaf.leaf.leaf), reason);
            }
        }
        // A leaf that cannot be read is reported by its readers, which check the index again.
        if let Ok(set) = StorageSet::open(stored, None) {
            for (leaf, reason) in set.unused_indexes() {
                unfit.insert(FileName::ChunkIndex(leaf), reason.to_owned());
            }
        }
        for leaf in &found.leaves {
            if let Err(reason) = provenance::check(id, leaf) {
                unfit.insert(FileName::Provenance(leaf.leaf), reason);
            }
        }
        unfit
    };
    let unfit = tokio::task::spawn_blocking(check).await;
    let unfit = unfit.map_err(|_| StorageError::Stopping)?;
    let mut not_taken = Vec::new();
    for (name, reason) in unfit {
        tracing::warn!(
            storage = %id,
            file = %name,
            %reason,
            "a derived file of an imported archive does not match its data file; it was removed \
             and will be rebuilt where possible"
        );
        engine.derived_files().remove(id, name.clone()).await?;
        not_taken.push(RejectedFile { name, reason });
    }
    Ok(not_taken)
}
