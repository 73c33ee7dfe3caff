//! Indexes of storages that are being written: leaf by leaf, in files of their own.

use bytes::Bytes;
use chunk_index::BundleContent;
use io_trace::Cause;
use query_engine::StorageSet;
use std::collections::HashSet;
use std::sync::Arc;
use storage_core::LeafKey;
use storage_format::paths::FileName;
use storage_format::{LeafId, StorageId};

use super::maker::{Ending, IndexError, IndexMaker, MadeIndex, StreamLeaves, blocking, leaves_of};
use crate::leaf_sidecars::LeafSidecars;

/// Extends the indexes of the leaves that have grown enough.
pub(super) async fn extend(
    maker: &IndexMaker,
    id: StorageId,
    ending: &Ending,
) -> Result<(), IndexError> {
    maker.indexes.look(&maker.engine, id, u64::MAX).await?;
    let growth_bytes_min = maker.indexes.growth_bytes_min;
    // Most leaves of a storage with many are too short, and are not opened.
    let is_long = |key: &LeafKey| key.length >= growth_bytes_min;
    let Some(set) = open(maker, id, is_long, ending).await? else {
        return Ok(());
    };
    // Every update rewrites the complete index, so an update waits until the data has grown by a
    // fraction of what is indexed.
    let has_grown =
        |length: u64, uncovered: u64| uncovered >= growth_bytes_min.max((length - uncovered) / 4);
    let wanted: Vec<(usize, LeafId)> = set
        .leaves()
        .enumerate()
        .filter(|(_, (leaf, uncovered))| has_grown(leaf.length, *uncovered))
        .map(|(index, (leaf, _))| (index, leaf.leaf))
        .collect();
    for (position, leaf) in wanted {
        index_leaf(maker, &set, id, (position, leaf), ending).await?;
    }
    Ok(())
}

/// Counts the packets that were not counted when they arrived. The indexes that are made for it are
/// not published: queries that read the packets say more of those that are damaged.
pub(super) async fn count(
    maker: &IndexMaker,
    id: StorageId,
    ending: &Ending,
) -> Result<(), IndexError> {
    maker.indexes.look(&maker.engine, id, u64::MAX).await?;
    let due = maker.indexes.due(id);
    let is_due = |key: &LeafKey| due.contains_key(&key.leaf);
    let Some(set) = open(maker, id, is_due, ending).await? else {
        return Ok(());
    };
    let uncounted: Vec<(usize, LeafId)> = set
        .leaves()
        .enumerate()
        .filter(|(_, (leaf, uncovered))| *uncovered > 0 && due.contains_key(&leaf.leaf))
        .map(|(index, (leaf, _))| (index, leaf.leaf))
        .collect();
    let mut counted = Ok(());
    for place in uncounted {
        match make_index(maker, &set, id, place, ending).await {
            Err(IndexError::Stopping) => return Err(IndexError::Stopping),
            made => counted = made.map(drop).and(counted),
        }
    }
    // Whoever looks in between waits for the rest of them.
    maker.indexes.tried(id, &due);
    counted
}

/// Opens leaves of a storage that is being written, with those without which they are not decoded,
/// and notes how many events their indexes have; `None` if none is wanted.
async fn open(
    maker: &IndexMaker,
    id: StorageId,
    is_wanted: impl Fn(&LeafKey) -> bool,
    ending: &Ending,
) -> Result<Option<Arc<StorageSet>>, IndexError> {
    let content = BundleContent::Indexes;
    let sidecars = LeafSidecars::open(&maker.engine, id, content, Cause::Index).await?;
    let (_, mut keys) = maker.engine.reading().leaf_keys(id).await?;
    let streams = StreamLeaves::of(&keys);
    keys.retain(is_wanted);
    if keys.is_empty() {
        return Ok(None);
    }
    let leaves = leaves_of(&maker.engine, id, &sidecars, &streams, &keys).await?;
    let (indexes, ending) = (Arc::clone(&maker.indexes), Arc::clone(ending));
    let opened = blocking(move || {
        let set = StorageSet::open(leaves, None)?;
        set.end_with(&ending.into());
        let leaves = set.leaves().zip(set.time_bases()).enumerate();
        for (position, ((leaf, uncovered), (_, basis))) in leaves {
            let packets = (set.packet_times(position), basis);
            let count = (leaf.length - uncovered, set.indexed_events(position));
            indexes.indexed(id, leaf.leaf, packets, count);
        }
        Ok(set)
    });
    opened.await.map(|set| Some(Arc::new(set)))
}

/// Makes complete indexes of leaves whose data file has no bundle.
pub(super) async fn complete(
    maker: &IndexMaker,
    id: StorageId,
    (sidecars, streams, keys): (&LeafSidecars, &StreamLeaves, &[LeafKey]),
    ending: &Ending,
) -> Result<(), IndexError> {
    let leaves = leaves_of(&maker.engine, id, sidecars, streams, keys).await?;
    let set = Arc::new(blocking(move || Ok(StorageSet::open(leaves, None)?)).await?);
    set.end_with(&Arc::clone(ending).into());
    let wanted: HashSet<LeafId> = keys.iter().map(|key| key.leaf).collect();
    let positions = set.leaves().enumerate();
    let positions: Vec<(usize, LeafId)> = positions
        .map(|(position, (leaf, _))| (position, leaf.leaf))
        .filter(|(_, leaf)| wanted.contains(leaf))
        .collect();
    let mut failed = None;
    for place in positions {
        match index_leaf(maker, &set, id, place, ending).await {
            Ok(()) => {}
            Err(IndexError::Stopping) => return Err(IndexError::Stopping),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Makes the index of a leaf, and notes how many events it has.
async fn make_index(
    maker: &IndexMaker,
    set: &Arc<StorageSet>,
    id: StorageId,
    (position, leaf): (usize, LeafId),
    ending: &Ending,
) -> Result<Option<MadeIndex>, IndexError> {
    let (set, indexing, ending) = (Arc::clone(set), maker.clone(), Arc::clone(ending));
    let indexed = blocking(move || {
        let made = indexing.index(&set, position, &ending)?;
        let mut leaves = set.leaves().zip(set.time_bases());
        if let (Some(made), Some(((indexed, _), (_, basis)))) = (&made, leaves.nth(position)) {
            let packets = (set.packet_times(position), basis);
            let count = (indexed.length, made.events);
            indexing.indexes.indexed(id, leaf, packets, count);
        }
        Ok(made)
    });
    indexed.await
}

async fn index_leaf(
    maker: &IndexMaker,
    set: &Arc<StorageSet>,
    id: StorageId,
    (position, leaf): (usize, LeafId),
    ending: &Ending,
) -> Result<(), IndexError> {
    let made = make_index(maker, set, id, (position, leaf), ending).await?;
    let Some(MadeIndex { bytes, .. }) = made else {
        return Ok(());
    };
    let name = FileName::ChunkIndex(leaf);
    let published = maker
        .engine
        .derived_files()
        .publish(id, name, Bytes::from(bytes));
    published.await?;
    // A reader may have cached the previous file.
    maker.open_files.close(id);
    Ok(())
}
