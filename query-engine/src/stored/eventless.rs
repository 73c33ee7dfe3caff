//! Streams without events, where no other stream is: a query finds nothing in them and says why.

use query_language::{BareUnit, FieldTable, Filter};
use trace_kinds::{EachEvent, Origin};

use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::{Evidence, ReadError};

/// Streams of bytes.
pub(super) struct EventlessStreams {
    origin: Origin,
    count: usize,
}

impl EventlessStreams {
    /// So many streams.
    pub(super) fn new(count: usize) -> EventlessStreams {
        EventlessStreams {
            origin: Origin {
                kind: "raw",
                ..Origin::default()
            },
            count,
        }
    }
}

impl ChunkSource for EventlessStreams {
    fn place(&self) -> String {
        "streams of kind raw".to_owned()
    }

    fn unit(&self) -> Option<BareUnit> {
        None
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn notes(&self) -> Vec<String> {
        let streams = match self.count {
            1 => "the only stream is".to_owned(),
            count => format!("all {count} streams are"),
        };
        vec![format!(
            "{streams} of kind raw, whose bytes have no events: `tracehold export` returns them"
        )]
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        let filter = self.origin.answer(filter);
        LocalFilter {
            evaluate: filter.clone(),
            prune: filter,
        }
    }

    fn tasks(&self, _chunks: Option<&[usize]>) -> Vec<Task> {
        Vec::new()
    }

    fn read(
        &self,
        _task: &Task,
        _fields: &FieldTable,
        _scratch: &mut Scratch,
        _each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        Ok(Counters::default())
    }
}
