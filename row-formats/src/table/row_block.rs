//! Rows that pass from one thread to another together.

use std::io;

/// Rows in order, each after its length.
#[derive(Debug, Default)]
pub(super) struct RowBlock(Vec<u8>);

impl RowBlock {
    /// An empty block with space for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn push(&mut self, row: &[u8]) -> io::Result<()> {
        let length = u32::try_from(row.len()).map_err(io::Error::other)?;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(row);
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Calls `add` with each row.
    pub(super) fn each_row(&self, mut add: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut left = &self.0[..];
        while let Some((length, rest)) = left.split_first_chunk() {
            let (row, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            add(row)?;
            left = rest;
        }
        Ok(())
    }
}
