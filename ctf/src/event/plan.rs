//! A procedure, lowered for what a reader wants of event records.

use std::sync::Arc;

use super::lower::Lowering;
use super::op::Op;
use super::token::{Item, Packing};
use crate::class::{EventClass, Scope, StreamClass};
use crate::procedure::{NodeId, Procedure, SelectorTable};

/// A field that a projection may want.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'p> {
    /// The class of the stream.
    pub stream: &'p StreamClass,
    /// The class of the event record; none for the event header and the common context.
    pub event: Option<&'p EventClass>,
    /// Which root structure.
    pub scope: Scope,
    /// Names from the root structure to the field, those for people. Never empty.
    pub path: &'p [&'p str],
    /// The node of the field in the procedure.
    pub node: NodeId,
}

/// Where the operations of a stream class lie.
#[derive(Clone, Debug)]
pub(super) struct StreamPlan {
    pub(super) packet: u32,
    pub(super) record: u32,
    pub(super) alignment: u32,
    pub(super) events: Box<[u32]>,
}

/// What to decode of event records, compiled for one trace class. Cheap to clone; readers share it
/// without locks.
#[derive(Clone, Debug)]
pub struct Plan(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) procedure: Procedure,
    pub(super) ops: Box<[Op]>,
    pub(super) items: Box<[Item]>,
    pub(super) tables: Box<[SelectorTable]>,
    pub(super) packings: Box<[Packing]>,
    pub(super) header: u32,
    pub(super) dynamic_stream: bool,
    pub(super) streams: Box<[StreamPlan]>,
}

impl Plan {
    /// Decodes every field.
    pub fn everything(procedure: &Procedure) -> Self {
        Self::new(procedure, |_| true)
    }

    /// Decodes time and event class, and no field.
    pub fn nothing(procedure: &Procedure) -> Self {
        Self::new(procedure, |_| false)
    }

    /// Decodes the fields that `wanted` wants.
    ///
    /// It is asked once for each member of each root structure, and for the members of structures
    /// that it did not want as a whole. A wanted field is decoded with all that is inside. Packet
    /// headers and contexts are always decoded.
    pub fn new(procedure: &Procedure, wanted: impl FnMut(&Candidate<'_>) -> bool) -> Self {
        Self(Arc::new(Lowering::new(procedure, wanted).plan()))
    }

    /// The procedure it was made from.
    pub fn procedure(&self) -> &Procedure {
        &self.0.procedure
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }
}
