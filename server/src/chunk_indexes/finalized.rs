//! Indexes of finalized storages: for each data file, one bundle with those of all leaves that
//! begin in it.
//!
//! A bundle is replaced as a whole. Of a long data file it is published several times while it is
//! made, each time when the indexed bytes have doubled: a server that stops in between does not
//! begin again, and queries use what is there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chunk_index::{BundleContent, Sidecar};
use io_trace::Cause;
use query_engine::{Request, StorageSet};
use storage_core::{LeafInfo, LeafKey, StorageError};
use storage_format::{DataFileId, LeafId, StorageId, StreamNames};
use tokio::runtime::Handle;
use trace_kinds::has_events;

use super::counts::EventCount;
use super::growing;
use super::maker::{Ending, IndexError, IndexMaker, StreamLeaves, blocking, leaves_of};
use crate::bundling::{Sections, write_bundle};
use crate::leaf_sidecars::LeafSidecars;

/// Leaves that are open at once.
const LEAVES_AT_ONCE: usize = 256;
/// A bundle is published when as many bytes were indexed as are covered, and at least this many
/// times those after which an index of a growing leaf is written: each time, all that is there is
/// written again.
const GROWTH_FACTOR: u64 = 16;

/// Brings the indexes of a finalized storage up to date.
pub(super) async fn complete(
    maker: &IndexMaker,
    id: StorageId,
    ending: &Ending,
) -> Result<(), IndexError> {
    let is_damaged = maker.indexes.known.lock().damaged.remove(&id);
    let completed = complete_storage(maker, id, is_damaged, ending).await;
    if is_damaged && completed.is_err() {
        maker.indexes.known.lock().damaged.insert(id);
    }
    if matches!(completed, Err(IndexError::Stopping)) {
        return completed;
    }
    if maker.provenances.bundle(&maker.engine, id).await? {
        maker.open_files.close(id);
    }
    completed
}

async fn complete_storage(
    maker: &IndexMaker,
    id: StorageId,
    is_damaged: bool,
    ending: &Ending,
) -> Result<(), IndexError> {
    loop {
        let plan = Arc::new(Plan::new(maker, id, is_damaged, ending).await?);
        if plan.groups.is_empty() && plan.single.is_empty() {
            let count = EventCount {
                events: plan.events,
                uncounted_packets: Some(plan.undecodable_packets),
            };
            maker.indexes.known.lock().finalized(id, count);
            return plan.remove_leftovers(maker).await;
        }
        let (mut has_progress, mut failed) = (false, None);
        for file in plan.groups.keys() {
            let made = make_bundle(maker, &plan, *file, ending).await?;
            has_progress |= made.is_published || !made.damaged.is_empty();
            failed = failed.or(made.failed);
        }
        for batch in plan.single.chunks(LEAVES_AT_ONCE) {
            let leaves = (&plan.sidecars, &plan.streams, batch);
            match growing::complete(maker, id, leaves, ending).await {
                Ok(()) => has_progress = true,
                Err(IndexError::Stopping) => return Err(IndexError::Stopping),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // What failed is tried again as long as something else succeeds.
        if let (false, Some(error)) = (has_progress, failed) {
            return Err(error);
        }
        if !has_progress {
            return Ok(());
        }
    }
}

/// Where the usable index of a leaf is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Bundled,
    Loose,
    Lacking,
}

/// What is to be done for one data file.
#[derive(Default)]
struct Group {
    /// Leaves without a usable index, or with one that does not cover them.
    lacking: Vec<LeafKey>,
    /// Leaves with a complete index in a file of their own.
    loose: Vec<LeafKey>,
    /// Leaves with a complete index in the bundle that is there.
    kept: Vec<LeafKey>,
}

/// What is to be done for a storage.
struct Plan {
    id: StorageId,
    sidecars: LeafSidecars,
    streams: StreamLeaves,
    groups: BTreeMap<DataFileId, Group>,
    /// Leaves without an index whose data file is that of one leaf, as in version 1.
    single: Vec<LeafKey>,
    /// Leaves with an index in a bundle and a file of their own.
    leftovers: Vec<LeafId>,
    /// Events in the usable indexes, without those of derived streams.
    events: u64,
    /// Packets without readable metadata, without those of derived streams.
    undecodable_packets: u64,
}

impl Plan {
    async fn new(
        maker: &IndexMaker,
        id: StorageId,
        is_damaged: bool,
        ending: &Ending,
    ) -> Result<Self, IndexError> {
        let content = BundleContent::Indexes;
        let sidecars = LeafSidecars::open(&maker.engine, id, content, Cause::Index).await?;
        let (_, mut keys) = maker.engine.reading().leaf_keys(id).await?;
        keys.retain(|key| has_events(key.path.kind));
        keys.sort_by_key(|key| key.first_number);
        let streams = StreamLeaves::of(&keys);
        let mut plan = Self {
            id,
            sidecars,
            streams,
            groups: BTreeMap::new(),
            single: Vec::new(),
            leftovers: Vec::new(),
            events: 0,
            undecodable_packets: 0,
        };
        let names: StreamNames = keys.iter().map(|key| &key.path).collect();
        let mut bundled: HashMap<LeafId, LeafKey> = HashMap::new();
        for batch in keys.chunks(LEAVES_AT_ONCE) {
            let found = plan.conditions(maker, batch, is_damaged, ending).await?;
            let mut moving = Vec::new();
            for key in batch {
                let found = found.get(&key.leaf);
                match found.map(|(condition, _)| condition) {
                    Some(Condition::Bundled) => {
                        bundled.insert(key.leaf, key.clone());
                        if plan.sidecars.is_loose(key.leaf) {
                            plan.leftovers.push(key.leaf);
                        }
                    }
                    Some(condition) => moving.push((key.clone(), *condition)),
                    // Its packets cannot be decoded without metadata.
                    None => {}
                }
                let (agent, stream) = (&key.path.agent, &key.path.stream);
                if names.has_source_of(key.path.kind, agent, stream) {
                    continue;
                }
                let (sum, added) = match found {
                    Some((_, events)) => (&mut plan.events, *events),
                    None => (&mut plan.undecodable_packets, key.packets),
                };
                *sum = sum.saturating_add(added);
            }
            plan.assign(maker, moving).await?;
        }
        for (file, group) in &mut plan.groups {
            let kept = plan.sidecars.bundles().leaves_in(*file);
            group
                .kept
                .extend(kept.filter_map(|leaf| bundled.remove(&leaf)));
        }
        Ok(plan)
    }

    /// Where the usable indexes of leaves are, and their events. Of a storage with damaged indexes,
    /// all their bytes are read.
    async fn conditions(
        &self,
        maker: &IndexMaker,
        batch: &[LeafKey],
        is_damaged: bool,
        ending: &Ending,
    ) -> Result<HashMap<LeafId, (Condition, u64)>, IndexError> {
        let leaves =
            leaves_of(&maker.engine, self.id, &self.sidecars, &self.streams, batch).await?;
        let bundles = self.sidecars.bundles();
        let bundled: HashSet<LeafId> = batch
            .iter()
            .map(|key| key.leaf)
            .filter(|leaf| bundles.find(*leaf).is_some())
            .collect();
        let of_damage = maker.indexes.known.lock().of_damage(self.id);
        let ending = Arc::clone(ending);
        let found = blocking(move || {
            let sidecars: HashMap<LeafId, _> = leaves
                .iter()
                .filter_map(|stored| Some((stored.leaf.leaf, stored.sidecar.clone()?)))
                .collect();
            let is_whole = |leaf: LeafId| {
                let Some((fetch, length)) = sidecars.get(&leaf).filter(|_| is_damaged) else {
                    return true;
                };
                let bytes = fetch.fetch_one(0..*length);
                bytes.is_ok_and(|bytes| Sidecar::read(&bytes).is_ok())
            };
            let mut set = StorageSet::open(leaves, None)?;
            let request = Request {
                cancel: ending.into(),
                ..Request::default()
            };
            set.drop_outdated(&request)?;
            // The data may have been restored since.
            let is_old = |position: usize, leaf: LeafId| {
                set.is_index_of_damage(position) && !of_damage.contains(&leaf)
            };
            let leaves = set.leaves().enumerate();
            let conditions = leaves.map(|(position, (leaf, uncovered))| {
                let leaf = leaf.leaf;
                let is_usable = uncovered == 0 && is_whole(leaf) && !is_old(position, leaf);
                let condition = match (is_usable, bundled.contains(&leaf)) {
                    (true, true) => Condition::Bundled,
                    (true, false) => Condition::Loose,
                    (false, _) => Condition::Lacking,
                };
                (leaf, (condition, set.indexed_events(position)))
            });
            Ok(conditions.collect())
        });
        found.await
    }

    /// Finds the data files in which leaves begin.
    async fn assign(
        &mut self,
        maker: &IndexMaker,
        moving: Vec<(LeafKey, Condition)>,
    ) -> Result<(), IndexError> {
        if moving.is_empty() {
            return Ok(());
        }
        let wanted: HashSet<LeafId> = moving.iter().map(|(key, _)| key.leaf).collect();
        let is_wanted = |leaf, _: &_| wanted.contains(&leaf);
        let found = maker
            .engine
            .reading()
            .leaves_among(self.id, is_wanted)
            .await?;
        let files = blocking(move || {
            let place = |info: &LeafInfo| Ok::<_, StorageError>((info.leaf, info.first_file()?));
            let places = found.leaves.iter().map(place);
            Ok(places.collect::<Result<HashMap<_, _>, _>>()?)
        });
        let files = files.await?;
        for (key, condition) in moving {
            let file = files.get(&key.leaf).filter(|file| file.is_numbered());
            match (file, condition) {
                (Some(file), Condition::Loose) => {
                    self.groups.entry(*file).or_default().loose.push(key);
                }
                (Some(file), _) => self.groups.entry(*file).or_default().lacking.push(key),
                (None, Condition::Loose) => {}
                (None, _) => self.single.push(key),
            }
        }
        Ok(())
    }

    /// Removes what a crash left beside a bundle, and bundles that no data file needs.
    async fn remove_leftovers(&self, maker: &IndexMaker) -> Result<(), IndexError> {
        let derived = maker.engine.derived_files();
        for leaf in &self.leftovers {
            derived
                .remove(self.id, self.sidecars.loose_name(*leaf))
                .await?;
        }
        for refused in self.sidecars.bundles().refused() {
            tracing::warn!(
                storage = %self.id,
                file = %refused.place,
                reason = %refused.reason,
                "a file of chunk indexes cannot be used and describes no leaf; it was removed"
            );
            let name = self.sidecars.bundle_name(refused.file);
            derived.remove(self.id, name).await?;
        }
        Ok(())
    }
}

/// What became of a bundle.
#[derive(Default)]
struct Made {
    is_published: bool,
    /// Leaves that have a section in it.
    leaves: Vec<LeafId>,
    /// Leaves whose own index is damaged.
    damaged: Vec<LeafId>,
    /// Number of sections that the bundle did not have before.
    new: usize,
    /// Why a leaf has no index.
    failed: Option<IndexError>,
}

/// Writes the bundle of a data file: new indexes, and those that are there. It is published before
/// it is complete when it has grown enough.
async fn make_bundle(
    maker: &IndexMaker,
    plan: &Arc<Plan>,
    file: DataFileId,
    ending: &Ending,
) -> Result<Made, IndexError> {
    let id = plan.id;
    let (making, planned, ending) = (maker.clone(), Arc::clone(plan), Arc::clone(ending));
    let runtime = Handle::current();
    let make = move |sections: &mut Sections<'_>| {
        let mut writing = Writing {
            maker: &making,
            plan: &planned,
            sections,
            made: Made::default(),
        };
        if let Some(group) = planned.groups.get(&file) {
            writing.index(group, &runtime, &ending)?;
            writing.copy(group)?;
        }
        let Writing { mut made, .. } = writing;
        made.is_published = made.new > 0;
        Ok((made.is_published, made))
    };
    let content = BundleContent::Indexes;
    let made = match write_bundle(&maker.engine, content, (id, file), make).await {
        Err(IndexError::Stopping) => return Err(IndexError::Stopping),
        // Other data files may have space, or can be read.
        Err(failed) => Made {
            failed: Some(failed),
            ..Made::default()
        },
        Ok(made) => made,
    };
    let mut removable = made.damaged.clone();
    if made.is_published {
        removable.extend(&made.leaves);
    }
    for leaf in removable {
        if plan.sidecars.is_loose(leaf) {
            let name = plan.sidecars.loose_name(leaf);
            maker.engine.derived_files().remove(id, name).await?;
        }
    }
    // A reader may have cached the previous files.
    maker.open_files.close(id);
    Ok(made)
}

/// A bundle of chunk indexes that is being written.
struct Writing<'w, 's> {
    maker: &'w IndexMaker,
    plan: &'w Plan,
    sections: &'w mut Sections<'s>,
    made: Made,
}

impl Writing<'_, '_> {
    /// Makes the indexes of leaves until enough is there to be published.
    fn index(
        &mut self,
        group: &Group,
        runtime: &Handle,
        ending: &Ending,
    ) -> Result<(), IndexError> {
        let covered: u64 = group
            .kept
            .iter()
            .chain(&group.loose)
            .map(|key| key.length)
            .sum();
        let growth_bytes_min = self.maker.indexes.growth_bytes_min;
        let enough = growth_bytes_min.saturating_mul(GROWTH_FACTOR).max(covered);
        let mut indexed_bytes: u64 = 0;
        for batch in group.lacking.chunks(LEAVES_AT_ONCE) {
            let Plan {
                id,
                sidecars,
                streams,
                ..
            } = self.plan;
            let leaves = leaves_of(&self.maker.engine, *id, sidecars, streams, batch);
            let set = StorageSet::open(runtime.block_on(leaves)?, None)?;
            set.end_with(&Arc::clone(ending).into());
            let wanted: HashSet<LeafId> = batch.iter().map(|key| key.leaf).collect();
            let places: Vec<(usize, LeafId, u64)> = set
                .leaves()
                .enumerate()
                .map(|(position, (leaf, _))| (position, leaf.leaf, leaf.length))
                .filter(|(_, leaf, _)| wanted.contains(leaf))
                .collect();
            for (position, leaf, length) in places {
                if ending.load(Ordering::Relaxed) {
                    return Err(IndexError::Stopping);
                }
                match self.maker.index(&set, position, ending) {
                    Ok(Some(made)) => {
                        self.sections.add::<IndexError>(leaf, &made.bytes)?;
                        self.made.leaves.push(leaf);
                        self.made.new += 1;
                    }
                    Ok(None) => {}
                    Err(IndexError::Stopping) => return Err(IndexError::Stopping),
                    // The others do not depend on it.
                    Err(error) => self.made.failed = self.made.failed.take().or(Some(error)),
                }
                indexed_bytes = indexed_bytes.saturating_add(length);
                if indexed_bytes >= enough {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Copies the indexes that are there. One that is damaged is skipped, and made by the next
    /// pass.
    fn copy(&mut self, group: &Group) -> Result<(), IndexError> {
        for key in &group.kept {
            if let Ok(Some(bytes)) = self.plan.sidecars.read(key.leaf) {
                self.sections.add::<IndexError>(key.leaf, &bytes)?;
                self.made.leaves.push(key.leaf);
            }
        }
        for key in &group.loose {
            match self.plan.sidecars.read_loose(key.leaf) {
                Ok(Some(bytes)) if Sidecar::check(&bytes).is_ok() => {
                    self.sections.add::<IndexError>(key.leaf, &bytes)?;
                    self.made.leaves.push(key.leaf);
                    self.made.new += 1;
                }
                _ => self.made.damaged.push(key.leaf),
            }
        }
        Ok(())
    }
}
