//! Derived files of imported archives: used when they match their data files, like those built
//! here, and removed otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use chunk_index::{Bundle, BundleContent, BundleError, Provenance, Sidecar, SidecarError};
use io_trace::Cause;
use query_engine::{StorageSet, StoredLeaf};
use storage_core::{DerivedFault, Engine, ReadDerived, StorageError, StorageLeaves};
use storage_format::paths::{FileName, FileRole};
use storage_format::{DataFileId, LeafId, StorageId};
use trace_kinds::has_events;

use crate::bundling::{Sections, write_bundle};
use crate::leaf_sidecars::LeafSidecars;
use crate::provenance::{self, Provenances};
use crate::stored_leaves::leaves_with;

/// Compares a derived file with the checksums in it, before it is sent or exported.
///
/// # Errors
/// When it is damaged, or cannot be read.
pub(crate) fn check_file(
    name: &FileName,
    length: u64,
    read: &mut ReadDerived<'_>,
) -> Result<(), DerivedFault> {
    match check_content(name, length, read) {
        // Another version is not damage.
        Ok(()) | Err(BundleError::Sidecar(SidecarError::Version { .. })) => Ok(()),
        Err(BundleError::Sidecar(SidecarError::Damaged { offset, .. })) => {
            Err(DerivedFault::Damaged(offset))
        }
        Err(BundleError::Sidecar(_)) => Err(DerivedFault::Damaged(0)),
        Err(BundleError::Io(error)) => Err(DerivedFault::Io(error)),
    }
}

fn check_content(
    name: &FileName,
    length: u64,
    read: &mut ReadDerived<'_>,
) -> Result<(), BundleError> {
    match name.role() {
        _ if matches!(name, FileName::ChunkIndexes(_) | FileName::Provenances(_)) => {
            Bundle::check(length, read)
        }
        FileRole::ChunkIndex => Ok(Sidecar::check(&read(0..length)?)?),
        FileRole::Provenance => Ok(Provenance::read(&read(0..length)?).map(drop)?),
        _ => Ok(()),
    }
}

/// A derived file that does not match its data file, or matches it only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RejectedFile {
    pub(crate) name: FileName,
    pub(crate) reason: String,
}

/// Leaves with a sidecar that does not match, and why.
type Unfit = BTreeMap<LeafId, String>;

/// Compares the derived files of an imported storage with its data files and removes those that do
/// not match; of a bundle, only the sections that do not. A missing chunk index is then rebuilt
/// like any other.
///
/// # Errors
/// When the storage was deleted or cannot be read.
pub(crate) async fn check_derived(
    engine: &Engine,
    provenances: &Provenances,
    id: StorageId,
) -> Result<Vec<RejectedFile>, StorageError> {
    let _unchanged = provenances.unchanged().await;
    let open = |content| LeafSidecars::open(engine, id, content, Cause::Import);
    let indexes = Arc::new(open(BundleContent::Indexes).await?);
    let provenance = Arc::new(open(BundleContent::Provenance).await?);
    let stored = leaves_with(engine, (id, Cause::Import), &indexes, |_, _| true).await?;
    let found = engine.reading().leaves(id).await?;
    let known = Arc::clone(&provenance);
    let check = move || {
        let unfit_indexes = unfit_indexes(stored);
        let unfit_provenance = unfit_provenance(&known, &found);
        (unfit_indexes, unfit_provenance)
    };
    let checked = tokio::task::spawn_blocking(check).await;
    let (unfit_indexes, unfit_provenance) = checked.map_err(|_| StorageError::Stopping)?;
    let mut rejected = Vec::new();
    for (sidecars, unfit) in [(indexes, unfit_indexes), (provenance, unfit_provenance)] {
        rejected.extend(reject(engine, id, &sidecars, &unfit).await?);
    }
    for file in &rejected {
        tracing::warn!(
            storage = %id,
            file = %file.name,
            reason = %file.reason,
            "a derived file of an imported archive does not match its data file; it was removed \
             and will be rebuilt where possible"
        );
    }
    Ok(rejected)
}

fn unfit_indexes(stored: Vec<StoredLeaf>) -> Unfit {
    let mut unfit = Unfit::new();
    for leaf in &stored {
        if leaf.sidecar.is_some() && !has_events(leaf.leaf.path.kind) {
            let reason = "packets of this kind have no chunk index".to_owned();
            unfit.insert(leaf.leaf.leaf, reason);
        }
    }
    // A leaf that cannot be read is reported by its readers, which check the index again.
    if let Ok(set) = StorageSet::open(stored, None) {
        for (leaf, reason) in set.unused_indexes() {
            unfit.insert(leaf, reason.to_owned());
        }
    }
    unfit
}

fn unfit_provenance(sidecars: &LeafSidecars, found: &StorageLeaves) -> Unfit {
    let mut unfit = Unfit::new();
    for leaf in &found.leaves {
        if let Err(reason) = provenance::check(sidecars, found.storage.id, leaf) {
            unfit.insert(leaf.leaf, reason);
        }
    }
    unfit
}

/// Removes the sidecars that do not fit.
async fn reject(
    engine: &Engine,
    id: StorageId,
    sidecars: &Arc<LeafSidecars>,
    unfit: &Unfit,
) -> Result<Vec<RejectedFile>, StorageError> {
    let mut rejected = Vec::new();
    // Nothing is known against a bundle that cannot be read now.
    let refused = sidecars.bundles().refused().iter();
    for refused in refused.filter(|bundle| !bundle.is_unread) {
        rejected.push(RejectedFile {
            name: sidecars.bundle_name(refused.file),
            reason: refused.reason.clone(),
        });
    }
    for (leaf, reason) in unfit.iter().filter(|(leaf, _)| sidecars.is_loose(**leaf)) {
        rejected.push(RejectedFile {
            name: sidecars.loose_name(*leaf),
            reason: reason.clone(),
        });
    }
    for file in &rejected {
        engine.derived_files().remove(id, file.name.clone()).await?;
    }
    for file in sidecars.bundles().files() {
        let leaves = sidecars.bundles().leaves_in(file);
        let (lost, kept): (Vec<LeafId>, Vec<LeafId>) =
            leaves.partition(|leaf| unfit.contains_key(leaf));
        let Some(first) = lost.first() else { continue };
        let reason = unfit.get(first).map_or("", String::as_str);
        let others = lost.len() - 1;
        rejected.push(RejectedFile {
            name: sidecars.bundle_name(file),
            reason: match others {
                0 => format!("leaf {first}: {reason}"),
                _ => format!("leaf {first}: {reason}; {others} other leaves do not match, either"),
            },
        });
        keep(engine, (id, file), sidecars, kept).await?;
    }
    Ok(rejected)
}

/// Replaces a bundle by one that has only the sections of some leaves; removes it if there are
/// none.
async fn keep(
    engine: &Engine,
    (id, file): (StorageId, DataFileId),
    sidecars: &Arc<LeafSidecars>,
    leaves: Vec<LeafId>,
) -> Result<(), StorageError> {
    let kept = Arc::clone(sidecars);
    let make = move |sections: &mut Sections<'_>| -> Result<(bool, usize), KeepError> {
        let mut count = 0;
        for leaf in leaves {
            let section = kept.bundles().read_to_keep(leaf);
            if let Some(bytes) = section.map_err(KeepError::Unread)? {
                sections.add::<KeepError>(leaf, &bytes)?;
                count += 1;
            }
        }
        Ok((count > 0, count))
    };
    let written = write_bundle(engine, sidecars.content(), (id, file), make).await;
    match written {
        Ok(0) => {
            let name = sidecars.bundle_name(file);
            engine.derived_files().remove(id, name).await
        }
        Ok(_) => Ok(()),
        Err(KeepError::Storage(error)) => Err(error),
        // The sections were in a bundle before, so they fit.
        Err(KeepError::Sidecar(_)) => Ok(()),
        Err(KeepError::Unread(source)) => Err(StorageError::Io {
            operation: "read the sections of",
            path: sidecars.bundle_name(file).to_string().into(),
            source,
        }),
    }
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    #[error(transparent)]
    Unread(std::io::Error),
}
