//! The contents of a plan.

use super::op::Op;
use super::token::{Item, Packing};
use crate::procedure::{Procedure, SelectorTable};

/// The addresses of the operations of a stream class.
#[derive(Clone, Debug)]
pub(super) struct StreamPlan {
    pub(super) packet: u32,
    pub(super) record: u32,
    pub(super) alignment: u32,
    pub(super) events: Box<[u32]>,
}

/// The contents of a plan, shared by all its clones.
#[derive(Debug)]
pub(super) struct CompiledPlan {
    pub(super) procedure: Procedure,
    pub(super) ops: Box<[Op]>,
    pub(super) items: Box<[Item]>,
    pub(super) tables: Box<[SelectorTable]>,
    pub(super) packings: Box<[Packing]>,
    pub(super) header: u32,
    pub(super) dynamic_stream: bool,
    pub(super) streams: Box<[StreamPlan]>,
}
