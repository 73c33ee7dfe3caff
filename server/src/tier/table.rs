//! The events of chosen storages as Delta Lake tables in the bucket: one for each kind of events,
//! at `tables/<kind>`.
//!
//! A storage is published by the node that uploaded it. What was published is known from the log
//! of the table alone, and so is what has to be removed from it: the storages of a table that are
//! not here and have the mark of removed storages in the store. So nothing is noted here, whoever
//! deletes a storage need not know of tables, and a crash at any time delays only.
//!
//! A deletion may come while a storage is published: the mark of removed storages is there before
//! anybody removes it from a table, and each round of every node looks for it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_tier::{
    Addition, ColumnStatistics, DataFile, DeltaColumn, DeltaSchema, DeltaTable, DeltaType,
    FileStatistics, TierError, is_gone,
};
use row_formats::{Limit, PlainType, TableFacts, write_delta_checkpoint};
use storage_core::{LabelFilter, StorageError, StorageFilter, StorageInfo};
use storage_format::storage_file::StorageState;
use storage_format::{Kind, StorageId};

use super::Tier;
use crate::app_state::AppState;
use crate::query::{EventsError, TableFile, table_columns};

/// A storage that could not be published is tried again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// The column with all other fields: its limits are of no use.
const REST: &str = "rest";

/// Why a storage was not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Events(#[from] EventsError),
    #[error(transparent)]
    Store(#[from] TierError),
}

/// Why a checkpoint was not made.
#[derive(Debug, thiserror::Error)]
enum CheckpointError {
    #[error(transparent)]
    Store(#[from] TierError),
    #[error("its file cannot be written: {0}")]
    File(#[from] io::Error),
}

/// Publishes storages, and removes deleted ones, until the server stops.
pub(super) async fn maintain(app: &Arc<AppState>, tier: &Tier) {
    if tier.config.table_label.is_empty() {
        return std::future::pending().await;
    }
    let mut wake = tier.wake.subscribe();
    let interval = Duration::from_secs(tier.config.check_seconds);
    let mut tables = Tables::default();
    loop {
        let done = tables.round(app, tier).await;
        tier.note("table", done);
        // Without a sender there is no server.
        let _ = tokio::time::timeout(interval, wake.changed()).await;
    }
}

/// The tables, as far as they are known.
#[derive(Default)]
struct Tables {
    opened: BTreeMap<Kind, DeltaTable>,
    /// Kinds for which there was no table when it was looked for.
    absent: HashSet<Kind>,
    /// Storages of which nothing has to be published any more.
    done: HashSet<StorageId>,
    /// Storages that could not be published, and when.
    failed: HashMap<StorageId, Instant>,
}

impl Tables {
    async fn round(&mut self, app: &Arc<AppState>, tier: &Tier) -> Result<(), TierError> {
        self.look(tier).await?;
        self.remove(app, tier).await?;
        self.checkpoint().await;
        for info in wanted(app, tier) {
            let failed = self.failed.get(&info.id);
            let is_waiting = failed.is_some_and(|since| since.elapsed() < AGAIN_AFTER);
            if is_waiting || self.done.contains(&info.id) {
                continue;
            }
            match self.publish(app, tier, &info).await {
                Ok(()) => {
                    self.failed.remove(&info.id);
                    self.done.insert(info.id);
                }
                Err(PublishError::Store(error)) if error.is_passing() => return Err(error),
                // It was deleted meanwhile.
                Err(_) if app.engine.storages().get(info.id).is_err() => {}
                Err(error) => {
                    tracing::warn!(
                        %error, storage = %info.id,
                        "the events of a storage are not in the table; the next try is in 10 minutes"
                    );
                    self.failed.insert(info.id, Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Opens the tables that are there, and reads what others have done.
    async fn look(&mut self, tier: &Tier) -> Result<(), TierError> {
        for &kind in Kind::ALL {
            if let Some(table) = self.opened.get_mut(&kind) {
                table.refresh().await?;
            } else if !self.absent.contains(&kind) {
                let (bucket, prefix) = (tier.bucket.clone(), prefix(kind));
                match DeltaTable::open(bucket, &prefix, &schema(kind)).await? {
                    Some(table) => {
                        self.opened.insert(kind, table);
                    }
                    None => {
                        self.absent.insert(kind);
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes deleted storages from the tables, and, later, their files.
    async fn remove(&mut self, app: &AppState, tier: &Tier) -> Result<(), TierError> {
        for (kind, table) in &mut self.opened {
            for id in table.storages() {
                let is_here = app.engine.storages().get(id).is_ok();
                if is_here || !is_gone(&tier.bucket, id).await? {
                    continue;
                }
                if !table.remove_storage(id).await?.is_empty() {
                    tracing::info!(storage = %id, %kind, "a deleted storage is not in the table");
                }
                self.done.remove(&id);
            }
            let grace = Duration::from_secs(tier.config.grace_seconds);
            let deleted = table.delete_removed(grace).await?;
            if deleted > 0 {
                tracing::info!(%kind, deleted, "files of deleted storages of the table are deleted");
            }
        }
        Ok(())
    }

    /// Makes the checkpoints that are due. Without one, readers read more commits.
    async fn checkpoint(&mut self) {
        for (kind, table) in &mut self.opened {
            if let Err(error) = checkpoint(table).await {
                tracing::warn!(%error, %kind, "the table has no new checkpoint; it is tried again");
            }
        }
    }

    /// Puts all events of a storage into the tables of their kinds that do not have it.
    async fn publish(
        &mut self,
        app: &AppState,
        tier: &Tier,
        info: &StorageInfo,
    ) -> Result<(), PublishError> {
        for kind in app.queries.kinds(info.id).await? {
            let table = self.opened.get(&kind);
            if table.is_some_and(|table| table.was_added(info.id)) {
                continue;
            }
            let made = app.queries.make_table_file((info.id, kind), bytes_max(app));
            let made = match made.await {
                Ok(made) if made.facts.rows == 0 => continue,
                Err(EventsError::NoStream(_)) => continue,
                made => made?,
            };
            if is_gone(&tier.bucket, info.id).await? {
                return Ok(());
            }
            self.add(tier, (info, kind), made).await?;
        }
        Ok(())
    }

    async fn add(
        &mut self,
        tier: &Tier,
        (info, kind): (&StorageInfo, Kind),
        made: TableFile,
    ) -> Result<(), TierError> {
        let table = match self.opened.remove(&kind) {
            Some(table) => table,
            None => {
                let bucket = tier.bucket.clone();
                DeltaTable::open_or_create(bucket, &prefix(kind), &schema(kind)).await?
            }
        };
        let table = self.opened.entry(kind).or_insert(table);
        let (rows, id) = (made.facts.rows, info.id);
        let (path, length) = table.store_file(id, made.file).await?;
        let file = DataFile {
            path,
            length,
            statistics: statistics(made.facts),
        };
        let added = table.add_storage(id, &[file]).await?;
        // Also what was just stored, if it was not added.
        table.delete_leftovers(id).await?;
        if let Addition::Added(version) = added {
            tracing::info!(
                storage = %id, name = info.name, %kind, rows, bytes = length, version,
                "the events of a storage are in the table"
            );
            let parts: u64 = made.skipped.iter().map(|skipped| skipped.parts).sum();
            if parts > 0 {
                let reasons = made.skipped.iter().flat_map(|skipped| &skipped.reasons);
                let reason = reasons.map(String::as_str).next().unwrap_or_default();
                tracing::warn!(
                    storage = %id, name = info.name, %kind, parts, reason,
                    "the table lacks the events of parts of a storage that cannot be read"
                );
            }
        }
        Ok(())
    }
}

async fn checkpoint(table: &mut DeltaTable) -> Result<(), CheckpointError> {
    let Some(checkpoint) = table.due_checkpoint().await? else {
        return Ok(());
    };
    let made = tokio::task::spawn_blocking(move || {
        let file = write_delta_checkpoint(&checkpoint.actions);
        file.map(|file| (checkpoint, file))
    });
    let (checkpoint, file) = made.await.map_err(io::Error::other)??;
    table.store_checkpoint(&checkpoint, file).await?;
    tracing::debug!(
        version = checkpoint.version,
        "the table has a new checkpoint"
    );
    Ok(())
}

/// The storages whose events have to be in the tables: what was uploaded here and has the label.
fn wanted(app: &AppState, tier: &Tier) -> Vec<StorageInfo> {
    let filter = StorageFilter {
        state: Some(StorageState::Finalized),
        labels: vec![LabelFilter::parse(&tier.config.table_label)],
        ..StorageFilter::default()
    };
    let mut storages = app.engine.storages().list(&filter);
    let is_own = |info: &StorageInfo| {
        let known = app.engine.tiering().known(info.id);
        matches!(known, Ok(Some(known)) if known.is_own)
    };
    storages.retain(is_own);
    storages
}

/// The longest file that may be made: another one of its length has to fit on the disk, too, before
/// ingest stops.
fn bytes_max(app: &AppState) -> u64 {
    let free = app.engine.counters().disk_free_bytes.get();
    let spare = free.saturating_sub(app.config.storage.disk_stop_free_bytes);
    app.config.query.event_files_bytes_max.min(spare / 2)
}

/// The folder of the table with the events of a kind.
fn prefix(kind: Kind) -> String {
    format!("tables/{kind}")
}

fn schema(kind: Kind) -> DeltaSchema {
    let columns = table_columns(kind).into_iter().map(|column| DeltaColumn {
        name: column.name,
        kind: match column.kind {
            PlainType::Integer => DeltaType::Long,
            PlainType::Fraction => DeltaType::Double,
            PlainType::Flag => DeltaType::Boolean,
            PlainType::Text => DeltaType::String,
        },
    });
    DeltaSchema(columns.collect())
}

/// What readers choose a file by.
fn statistics(facts: TableFacts) -> FileStatistics {
    let value = |limit: Limit| match limit {
        Limit::Integer(value) => value.into(),
        Limit::Text(text) => text.into(),
    };
    let columns = facts.columns.into_iter();
    let columns = columns.filter(|column| column.name != REST).map(|column| {
        let (min, max) = column.limits.unzip();
        let statistics = ColumnStatistics {
            min: min.map(value),
            max: max.map(value),
            nulls: column.nulls,
        };
        (column.name, statistics)
    });
    FileStatistics {
        rows: facts.rows,
        columns: columns.collect(),
    }
}
