//! What a query skips because it cannot be read.

use storage_format::StorageId;

use crate::ReadError;
use crate::source::ChunkSource;

/// Reasons that are retained for one source.
pub(crate) const REASONS_MAX: usize = 16;

/// What a query skipped of one source because it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The storage, if the source is a part of one.
    pub storage: Option<StorageId>,
    /// Number of records, packets and other parts.
    pub parts: u64,
    /// What was skipped, and why; at least one reason, and not always all.
    pub reasons: Vec<String>,
}

/// What is known of the unreadable parts of one source.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// As its index counts them.
    indexed: u64,
    /// As reading counted them.
    read: u64,
    reasons: Vec<String>,
}

impl Unreadable {
    /// What the index of `source` says.
    pub(crate) fn of_index(source: &dyn ChunkSource) -> Unreadable {
        Unreadable {
            indexed: source.unreadable().unwrap_or(0),
            read: 0,
            reasons: source.faults(),
        }
    }

    /// Adds what one task found.
    pub(crate) fn add(&mut self, records: u64, reasons: Vec<String>) {
        self.read = self.read.saturating_add(records);
        let free = REASONS_MAX.saturating_sub(self.reasons.len());
        self.reasons.extend(reasons.into_iter().take(free));
    }

    /// How many there are at least: both may have counted the same.
    fn records(&self) -> u64 {
        self.indexed.max(self.read)
    }

    /// # Errors
    ///
    /// When something cannot be read: a strict query does not skip it.
    pub(crate) fn refuse(&self, source: &dyn ChunkSource) -> Result<(), ReadError> {
        let reason = match (self.reasons.first(), self.records()) {
            (Some(reason), _) => reason.clone(),
            (None, 0) => return Ok(()),
            (None, records) => unreadable_records(&source.place(), records),
        };
        Err(ReadError::Incomplete { reason })
    }

    /// The result, if something was skipped.
    pub(crate) fn skipped(self, source: &dyn ChunkSource) -> Option<Skipped> {
        let records = self.records();
        let mut reasons = self.reasons;
        let named = u64::try_from(reasons.len()).unwrap_or(u64::MAX);
        let counted = unreadable_records(&source.place(), records);
        if records > named && !reasons.iter().any(|reason| reason.starts_with(&counted)) {
            reasons.push(counted);
        }
        (!reasons.is_empty()).then(|| Skipped {
            storage: source.storage(),
            parts: records.max(named),
            reasons,
        })
    }
}

/// Why records of a source are skipped, if their decoder gives no reason.
pub(crate) fn unreadable_records(place: &str, records: u64) -> String {
    let what = if records == 1 { "record" } else { "records" };
    format!("{place}: {records} {what} cannot be read")
}
