//! Bundles of provenance: once a storage is finalized, one file for all leaves that begin in a data
//! file. What is reported later is in a file of the leaf until it is moved to the bundle, too.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chunk_index::BundleContent;
use storage_core::{Engine, StorageError};
use storage_format::{DataFileId, LeafId, StorageId};

use super::{ProvenanceError, Provenances, decode, open, owner, unread};
use crate::bundling::{Sections, write_bundle};
use crate::leaf_sidecars::LeafSidecars;

impl Provenances {
    /// Moves the provenance of the leaves of a finalized storage to bundles. Returns whether there
    /// was any to move.
    ///
    /// # Errors
    /// When the storage was deleted, or cannot be read or written. What was not read stays where
    /// it is.
    pub(crate) async fn bundle(
        &self,
        engine: &Engine,
        id: StorageId,
    ) -> Result<bool, ProvenanceError> {
        let _one_at_a_time = self.0.lock().await;
        let sidecars = Arc::new(open(engine, id).await?);
        sidecars.bundles().all_read().map_err(unread)?;
        let groups = groups(engine, id, &sidecars).await?;
        let mut has_moved = false;
        for (file, leaves) in groups {
            let moved = bundle_file(engine, (id, file), &sidecars, leaves).await?;
            has_moved |= !moved.is_empty();
            // The bundle is durable now.
            for leaf in moved {
                let name = sidecars.loose_name(leaf);
                engine.derived_files().remove(id, name).await?;
            }
        }
        Ok(has_moved)
    }
}

/// The leaves with files of their own, by the data file in which they begin. A leaf with a data
/// file of its own, as in version 1, keeps its file.
async fn groups(
    engine: &Engine,
    id: StorageId,
    sidecars: &LeafSidecars,
) -> Result<BTreeMap<DataFileId, Vec<LeafId>>, StorageError> {
    let loose: HashSet<LeafId> = sidecars.loose().collect();
    if loose.is_empty() {
        return Ok(BTreeMap::new());
    }
    let is_loose = |leaf, _: &_| loose.contains(&leaf);
    let found = engine.reading().leaves_among(id, is_loose).await?;
    let group = move || {
        let mut groups: BTreeMap<DataFileId, Vec<LeafId>> = BTreeMap::new();
        for leaf in &found.leaves {
            let file = leaf.first_file()?;
            if file.is_numbered() {
                groups.entry(file).or_default().push(leaf.leaf);
            }
        }
        Ok(groups)
    };
    let grouped = tokio::task::spawn_blocking(group).await;
    grouped.map_err(|_| StorageError::Stopping)?
}

/// Writes a bundle with the provenance of `leaves` and what the one before has; returns those that
/// are in it now. A file that is damaged or belongs elsewhere stays where it is.
async fn bundle_file(
    engine: &Engine,
    (id, file): (StorageId, DataFileId),
    sidecars: &Arc<LeafSidecars>,
    leaves: Vec<LeafId>,
) -> Result<Vec<LeafId>, ProvenanceError> {
    let sidecars = Arc::clone(sidecars);
    let make = move |sections: &mut Sections<'_>| {
        let mut moved = HashSet::new();
        for leaf in leaves {
            let Ok(Some(bytes)) = sidecars.read_loose(leaf) else {
                continue;
            };
            if decode(&bytes, &owner(id, leaf)).is_ok() {
                sections.add::<ProvenanceError>(leaf, &bytes)?;
                moved.insert(leaf);
            }
        }
        if moved.is_empty() {
            return Ok((false, Vec::new()));
        }
        for leaf in sidecars.bundles().leaves_in(file) {
            if moved.contains(&leaf) {
                continue;
            }
            // A damaged section is of no use to anybody. If one cannot be read now, the bundle
            // stays as it is.
            let kept = sidecars.bundles().read_to_keep(leaf);
            if let Some(bytes) = kept.map_err(unread)? {
                sections.add::<ProvenanceError>(leaf, &bytes)?;
            }
        }
        Ok((true, moved.into_iter().collect()))
    };
    write_bundle(engine, BundleContent::Provenance, (id, file), make).await
}
