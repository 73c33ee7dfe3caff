//! A leaf whose packets cannot be decoded. It has no events, and a query that does not exclude it
//! reports it.

use query_language::{BareUnit, FieldTable, Filter};
use storage_format::{Kind, StorageId};
use trace_kinds::{EachEvent, Origin};

use super::StoredLeaf;
use super::leaf_source::{origin_of, place_of};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::{Evidence, ReadError};

/// A leaf whose packets cannot be decoded.
pub(crate) struct UndecodableLeaf {
    pub(super) stored: StoredLeaf,
    origin: Origin,
    reason: String,
}

impl UndecodableLeaf {
    /// `None` if the packets can be decoded.
    pub(super) fn new(stored: &StoredLeaf) -> Option<UndecodableLeaf> {
        if stored.leaf.path.kind != Kind::Ctf || stored.trace.procedure.is_some() {
            return None;
        }
        let reason = match &stored.trace.fault {
            Some(fault) => format!("the trace metadata of its agent is invalid: {fault}"),
            None => "its agent sent no trace metadata".to_owned(),
        };
        Some(UndecodableLeaf {
            stored: stored.clone(),
            origin: origin_of(&stored.leaf),
            reason,
        })
    }

    /// Whether the filter passes no event of the stream.
    pub(super) fn is_excluded(&self, filter: Option<&Filter>) -> bool {
        filter.is_some_and(|filter| self.localize(filter).evaluate.passes_none())
    }

    /// Which leaf, and why.
    pub(super) fn reason(&self) -> String {
        format!("{} is skipped: {}", self.place(), self.reason)
    }
}

impl ChunkSource for UndecodableLeaf {
    fn place(&self) -> String {
        place_of(&self.origin)
    }

    fn unit(&self) -> Option<BareUnit> {
        None
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn faults(&self) -> Vec<String> {
        vec![self.reason()]
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn storage(&self) -> Option<StorageId> {
        Some(self.stored.leaf.storage)
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
