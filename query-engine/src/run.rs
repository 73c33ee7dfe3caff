//! Rows in the order of a key, before they are merged with others.

use std::io::{self, Read, Write};

/// By what rows are sorted. It is written to temporary files with its row.
pub(crate) trait RunKey: Ord + Clone + Send {
    /// Bytes that it takes outside of itself.
    fn heap_bytes(&self) -> usize {
        0
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()>;

    fn read(input: &mut impl Read) -> io::Result<Self>;
}

/// Sort key of a row in order of time. Rows without a time come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// Start in nanoseconds; `i64::MIN` without one.
    pub ts: i64,
    /// Number of the task that read it, in the order of sources and their bytes.
    pub task: u32,
    /// Number of the row in the task.
    pub row: u32,
}

impl RunKey for RowKey {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.ts.to_le_bytes())?;
        out.write_all(&self.task.to_le_bytes())?;
        out.write_all(&self.row.to_le_bytes())
    }

    fn read(input: &mut impl Read) -> io::Result<RowKey> {
        let (mut ts, mut task, mut row) = ([0; 8], [0; 4], [0; 4]);
        input.read_exact(&mut ts)?;
        input.read_exact(&mut task)?;
        input.read_exact(&mut row)?;
        Ok(RowKey {
            ts: i64::from_le_bytes(ts),
            task: u32::from_le_bytes(task),
            row: u32::from_le_bytes(row),
        })
    }
}

/// Rows of one thread, sorted before they are delivered.
#[derive(Debug)]
pub(crate) struct Run<K> {
    rows: Vec<(K, u32, u32)>,
    bytes: Vec<u8>,
    key_bytes: usize,
}

/// Approximate size at which a run is delivered, far below the limit of its offsets.
pub(crate) const RUN_BYTES: usize = 256 << 10;

impl<K> Default for Run<K> {
    fn default() -> Self {
        Run {
            rows: Vec::new(),
            bytes: Vec::new(),
            key_bytes: 0,
        }
    }
}

impl<K: RunKey> Run<K> {
    /// Appends a row whose bytes `write` appends.
    pub(crate) fn push(&mut self, key: K, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let narrow = |value: usize| u32::try_from(value).expect("a run is far shorter than 4 GiB");
        self.key_bytes += key.heap_bytes();
        self.rows
            .push((key, narrow(start), narrow(self.bytes.len() - start)));
    }

    /// Bytes of memory that the run takes.
    pub(crate) fn size(&self) -> usize {
        let rows = self.rows.len() * size_of::<(K, u32, u32)>();
        size_of::<Run<K>>() + self.bytes.len() + self.key_bytes + rows
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sorts the rows, after the last one was added. Rows after the first `rows_max` are dropped.
    pub(crate) fn sort(&mut self, rows_max: usize) {
        self.rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if self.rows.len() > rows_max {
            self.truncate(rows_max);
        }
        // Runs are buffered, so unused capacity would be buffered too.
        self.rows.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    /// Drops the rows after the first `rows_max`, and their bytes.
    fn truncate(&mut self, rows_max: usize) {
        let all = std::mem::take(self);
        for (key, start, len) in all.rows.into_iter().take(rows_max) {
            let (start, len) = (start as usize, len as usize);
            self.push(key, |bytes| {
                bytes.extend_from_slice(&all.bytes[start..start + len]);
            });
        }
    }

    /// The key of the last row, once the run is sorted.
    pub(crate) fn last(&self) -> Option<&K> {
        self.rows.last().map(|(key, ..)| key)
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn row(&self, index: usize) -> Option<(K, &[u8])> {
        let (key, start, len) = self.rows.get(index)?;
        let (start, len) = (*start as usize, *len as usize);
        Some((key.clone(), &self.bytes[start..start + len]))
    }
}
