//! Splits of a query: parts that several workers ask for.

use io_trace::Cause;
use query_engine::{Cancel, ReadError, Split, SplitPlan, StorageSet, StoredLeaf, without_derived};
use storage_core::{Engine, StorageError};
use storage_format::{Kind, StorageId};

use super::queries::Queries;
use super::question::{AnswerError, Question};
use crate::leaf_sidecars::LeafSidecars;
use crate::stored_leaves::{leaves_among, leaves_with, stored_leaves};

/// Cancels what nobody waits for any more.
pub(super) struct Waiting(pub(super) Cancel);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Queries {
    /// Cuts a question into about `count` splits.
    ///
    /// # Errors
    /// When too many queries are running, a storage does not exist, the query is invalid, or an
    /// index cannot be read.
    pub(crate) async fn split(
        &self,
        question: Question,
        count: u64,
    ) -> Result<SplitPlan, AnswerError> {
        let permit = self.permit()?;
        let mut leaves = Vec::new();
        for storage in &question.storages {
            leaves.extend(stored_leaves(&self.engine, *storage, Cause::Query).await?);
        }
        if !question.derived {
            (leaves, _) = without_derived(leaves);
        }
        let cache = self.filter_cache();
        let _waiting = Waiting(question.request.cancel.clone());
        let plan = move || {
            let _running = permit;
            let set = StorageSet::open(leaves, Some(cache))?;
            set.split(&question.request, question.checksum(), count)
        };
        let planned: Result<Result<SplitPlan, ReadError>, _> =
            tokio::task::spawn_blocking(plan).await;
        Ok(planned.map_err(|_| StorageError::Stopping)??)
    }
}

/// The leaves that a split reads, and those that they may refer to.
pub(super) async fn leaves_of(
    engine: &Engine,
    storages: &[StorageId],
    split: &Split,
) -> Result<Vec<StoredLeaf>, AnswerError> {
    let mut leaves = Vec::new();
    for part in &split.storages {
        let id = part.storage;
        if !storages.contains(&id) {
            return Err(ReadError::SplitOutdated {
                place: format!("storage {id}"),
                why: "it is not among the storages of the query",
            }
            .into());
        }
        let wanted: std::collections::HashSet<_> =
            part.leaves.iter().map(|leaf| leaf.leaf).collect();
        let content = chunk_index::BundleContent::Indexes;
        let sidecars = LeafSidecars::open(engine, id, content, Cause::Query).await?;
        // Slices end in other packets of their stream.
        let found = leaves_with(engine, (id, Cause::Query), &sidecars, |leaf, path| {
            wanted.contains(&leaf) || matches!(path.kind, Kind::Dft | Kind::Chrome)
        });
        leaves.extend(found.await?);
    }
    // Texts of hashes and units of times may be declared anywhere.
    let is_dft = |stored: &StoredLeaf| stored.leaf.path.kind == Kind::Dft;
    if leaves.iter().any(is_dft) {
        let others = storages
            .iter()
            .filter(|id| split.of_storage(**id).is_none());
        for other in others {
            let of_kind = leaves_among(engine, *other, Cause::Query, |path| path.kind == Kind::Dft);
            leaves.extend(of_kind.await?);
        }
    }
    Ok(leaves)
}
