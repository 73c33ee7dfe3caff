//! The requested part of the rows.

use std::ops::ControlFlow;

use row_formats::{Out, RowFormat, RowSink};

use crate::engine::TaskRef;
use crate::hints::Requested;
use crate::plan::Planned;
use crate::{ReadError, ResultOrder};

/// Sources, and the tasks that read them.
pub(crate) type PlanRef<'p, 's> = (&'p [Planned<'s>], &'p [TaskRef<'p>]);

/// What makes rows of events, and notes which requested fields these have.
pub(crate) type RowMaker<'r> = (&'r dyn RowFormat, &'r Requested);

/// Passes the requested part of the rows to a sink.
pub(crate) struct Window<'w, 'o> {
    sink: &'w mut dyn RowSink,
    out: &'w mut Out<'o>,
    skip: u64,
    left: u64,
    /// Rows that the sink accepted.
    pub(crate) written: u64,
}

impl<'w, 'o> Window<'w, 'o> {
    pub(crate) fn new(
        order: &ResultOrder,
        sink: &'w mut dyn RowSink,
        out: &'w mut Out<'o>,
    ) -> Self {
        Window {
            sink,
            out,
            skip: order.offset,
            left: order.limit.unwrap_or(u64::MAX),
            written: 0,
        }
    }

    /// Accepts the next row. Breaks once no further row is in the result.
    pub(crate) fn row(&mut self, row: &[u8]) -> Result<ControlFlow<()>, ReadError> {
        if self.left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.sink.row(row, self.out).map_err(ReadError::Output)?;
        self.written += 1;
        self.left -= 1;
        Ok(if self.left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}
