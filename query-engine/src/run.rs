//! Rows of one task, sorted by time before they are merged with those of other tasks.

/// Sort key of a row. Rows without a time come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// Start in nanoseconds; `i64::MIN` without one.
    pub ts: i64,
    /// Number of the task that read it, in the order of sources and their bytes.
    pub task: u32,
    /// Number of the row in the task.
    pub row: u32,
}

/// Rows of one task, sorted before they are delivered.
#[derive(Debug, Default)]
pub(crate) struct Run {
    rows: Vec<(RowKey, u32, u32)>,
    bytes: Vec<u8>,
}

/// Approximate size at which a run is delivered, far below the limit of its offsets.
pub(crate) const RUN_BYTES: usize = 256 << 10;

impl Run {
    /// Appends a row whose bytes `write` appends.
    pub(crate) fn push(&mut self, key: RowKey, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let narrow = |value: usize| u32::try_from(value).expect("a run is far shorter than 4 GiB");
        self.rows
            .push((key, narrow(start), narrow(self.bytes.len() - start)));
    }

    /// Bytes of memory that the run takes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Run>() + self.bytes.len() + self.rows.len() * size_of::<(RowKey, u32, u32)>()
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sorts the rows, after the last one was added.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.0);
        // Runs are buffered, so unused capacity would be buffered too.
        self.rows.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    pub(crate) fn row(&self, index: usize) -> Option<(RowKey, &[u8])> {
        let (key, start, len) = *self.rows.get(index)?;
        let (start, len) = (start as usize, len as usize);
        Some((key, &self.bytes[start..start + len]))
    }
}
