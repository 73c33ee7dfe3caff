//! State shared by all queries.

use std::sync::Arc;

use chunk_index::FilterCache;
use io_trace::Cause;
use query_engine::{LeafRanges, Limits, ReadError, Request, StorageSet};
use storage_core::{Engine, LeafBases};
use storage_format::StorageId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::question::AnswerError;
use super::unreadable::UnreadableData;
use crate::chunk_indexes::ChunkIndexes;
use crate::config::QueryConfig;
use crate::metrics::Metrics;
use crate::stored_leaves::stored_leaves;

/// Allows that one query runs, until all copies of it are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Permit(#[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

/// State shared by all queries.
pub(crate) struct Queries {
    pub(super) engine: Engine,
    pub(super) metrics: Arc<Metrics>,
    pub(super) indexes: Arc<ChunkIndexes>,
    pub(super) unreadable: Arc<UnreadableData>,
    permits: Arc<Semaphore>,
    cache: Arc<FilterCache>,
    pub(super) limits: Limits,
    concurrent_max: u32,
}

impl Queries {
    pub(crate) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        (indexes, unreadable): (Arc<ChunkIndexes>, Arc<UnreadableData>),
        config: &QueryConfig,
    ) -> Self {
        let defaults = Limits::default();
        let threads = match usize::try_from(config.threads) {
            Ok(threads @ 1..) => threads,
            _ => defaults.threads,
        };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            engine,
            metrics,
            indexes,
            unreadable,
            permits: Arc::new(Semaphore::new(config.concurrent_max as usize)),
            cache: Arc::new(FilterCache::new(bytes(config.filter_cache_bytes_max))),
            limits: Limits {
                threads,
                waiting_bytes_max: bytes(config.waiting_bytes_max),
                row_group_bytes: bytes(config.row_group_bytes_max),
            },
            concurrent_max: config.concurrent_max,
        }
    }

    /// Waits for nothing.
    ///
    /// # Errors
    /// When the maximum number of queries is running.
    pub(crate) fn permit(&self) -> Result<Permit, AnswerError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| AnswerError::Busy {
            max: self.concurrent_max,
        })?;
        Ok(Permit(Arc::new(permit)))
    }

    /// The ranges of the storage's data files that can contain matching events, and the time bases
    /// of its leaves.
    ///
    /// # Errors
    /// When the storage does not exist, the query is invalid, or an index cannot be read.
    pub(crate) async fn candidates(
        &self,
        storage: StorageId,
        request: Request,
    ) -> Result<(Vec<LeafRanges>, LeafBases), AnswerError> {
        let leaves = stored_leaves(&self.engine, storage, Cause::Query).await?;
        let cache = self.filter_cache();
        let find = move || {
            let set = StorageSet::open(leaves, Some(cache))?;
            let bases = set.time_bases().collect();
            Ok::<_, ReadError>((set.candidates(&request)?, bases))
        };
        let found = tokio::task::spawn_blocking(find).await;
        Ok(found.map_err(|_| storage_core::StorageError::Stopping)??)
    }

    /// The Bloom filters shared by all queries.
    pub(crate) fn filter_cache(&self) -> Arc<FilterCache> {
        Arc::clone(&self.cache)
    }
}
