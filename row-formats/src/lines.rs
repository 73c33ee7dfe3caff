//! Rows that are the lines of the result.

use std::io;

use crate::{Known, Out, RowSink};

/// Writes a header, then rows unchanged.
#[derive(Debug, Default)]
pub(super) struct Lines {
    header: Vec<u8>,
}

impl Lines {
    /// Rows that follow this header.
    pub(super) fn with_header(header: Vec<u8>) -> Lines {
        Lines { header }
    }
}

impl RowSink for Lines {
    fn begin(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        if self.header.is_empty() {
            Ok(())
        } else {
            out(&self.header)
        }
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        out(row)
    }

    fn end(&mut self, _: Known<'_>, _: &mut Out<'_>) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
