//! A file in a folder of which nothing can be read. It has no events, and every query of the folder
//! tells it.

use std::path::PathBuf;

use query_language::{BareUnit, FieldTable, Filter};
use trace_kinds::EachEvent;

use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::{Evidence, ReadError};

/// A file that may be a trace, and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableFile {
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

impl UnreadableFile {
    /// What is said of it.
    pub(crate) fn said(&self) -> String {
        format!("{} is skipped: {}", self.path.display(), self.reason)
    }
}

impl ChunkSource for UnreadableFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> Option<BareUnit> {
        None
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn faults(&self) -> Vec<String> {
        vec![self.said()]
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        LocalFilter {
            evaluate: filter.clone(),
            prune: filter.clone(),
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
