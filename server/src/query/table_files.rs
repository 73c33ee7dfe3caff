//! All events of one kind of a storage, as a file of a Delta Lake table.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use query_engine::{ReadError, Report, Skipped, temporary_file};
use row_formats::{Columns, PlainColumn, Table, TableFacts, TableKind};
use storage_core::StorageError;
use storage_format::{Kind, StorageId};

use super::events::{EventsError, Making, event_columns};
use super::queries::Queries;
use super::splits::Waiting;

/// A file of a table, which nothing is left of when it is closed.
pub(crate) struct TableFile {
    pub(crate) file: File,
    /// What its footer says.
    pub(crate) facts: TableFacts,
    /// What could not be read, and is in none of its rows.
    pub(crate) skipped: Vec<Skipped>,
}

/// The columns of the files of a kind.
pub(crate) fn table_columns(kind: Kind) -> Vec<PlainColumn> {
    Table::plain_columns(&Columns::First(event_columns(kind)))
}

fn write(making: Making) -> Result<(File, TableFacts, Report), EventsError> {
    let failed = |error| EventsError::Answer(ReadError::Spill(error).into());
    let mut file = temporary_file().map_err(failed)?;
    let table = Table::new(TableKind::Parquet)
        .with_filters()
        .with_plain_columns();
    let report = making.write(table, |bytes| file.write_all(bytes).map_err(failed))?;
    let facts = TableFacts::read(&file).map_err(failed)?;
    Ok((file, facts, report))
}

impl Queries {
    /// The kinds of which a storage has streams that are not derived.
    ///
    /// # Errors
    /// When there is no such storage, or its leaves cannot be read.
    pub(crate) async fn kinds(&self, id: StorageId) -> Result<BTreeSet<Kind>, StorageError> {
        let found = self.engine.reading().leaves_among(id, |_, _| true).await?;
        Ok(found.leaves.iter().map(|leaf| leaf.path.kind).collect())
    }

    /// Makes the file with all events of a kind of a finalized storage, in order of time, with the
    /// columns of [`table_columns`]. What cannot be read is skipped.
    ///
    /// # Errors
    /// When the storage has none, its bytes cannot be fetched, or the file cannot be written or
    /// would have more than `bytes_max` bytes.
    pub(crate) async fn make_table_file(
        &self,
        (id, kind): (StorageId, Kind),
        bytes_max: u64,
    ) -> Result<TableFile, EventsError> {
        let making = self.making((id, kind), bytes_max).await?;
        let _waiting = Waiting(making.request.cancel.clone());
        let lost_count = making.request.missing.len();
        let metrics = Arc::clone(&self.metrics);
        let make = move || {
            let _running = metrics.queries.began();
            let made = write(making)?;
            metrics.queries.ended(&made.2);
            Ok::<_, EventsError>(made)
        };
        let made = tokio::task::spawn_blocking(make).await;
        let (file, facts, report) = made.map_err(|_| StorageError::Stopping)??;
        let read = report.skipped.len().saturating_sub(lost_count);
        self.unreadable
            .found(report.skipped.get(..read).unwrap_or_default());
        if !report.damaged.is_empty() {
            self.indexes.rebuild(id);
        }
        Ok(TableFile {
            file,
            facts,
            skipped: report.skipped,
        })
    }
}
