//! A procedure, lowered for the fields that a reader selects.

use std::sync::Arc;

use super::compiled_plan::CompiledPlan;
use super::lowering::{Candidate, Lowering};
use crate::procedure::Procedure;

/// The fields to decode of event records, compiled for one trace class. Cheap to clone; readers
/// share it without locks.
#[derive(Clone, Debug)]
pub struct Plan(Arc<CompiledPlan>);

impl Plan {
    /// Decodes every field.
    pub fn everything(procedure: &Procedure) -> Self {
        Self::new(procedure, |_| true)
    }

    /// Decodes time and event class, and no field.
    pub fn nothing(procedure: &Procedure) -> Self {
        Self::new(procedure, |_| false)
    }

    /// Decodes the fields for which `selected` returns true.
    ///
    /// It is called for each member of each root structure, and for the members of structures that
    /// it did not select completely. A selected field is decoded with everything that it contains.
    /// Packet headers and contexts are always decoded.
    pub fn new(procedure: &Procedure, selected: impl FnMut(&Candidate<'_>) -> bool) -> Self {
        Self(Arc::new(Lowering::new(procedure, selected).plan()))
    }

    /// The procedure that the plan was compiled from.
    pub fn procedure(&self) -> &Procedure {
        &self.0.procedure
    }

    pub(super) fn inner(&self) -> &CompiledPlan {
        &self.0
    }
}
