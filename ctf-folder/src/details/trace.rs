//! What the messages of a trace have in common.

use std::sync::Arc;

use ctf::class::{Scope, StreamClassIndex, TraceClass};
use ctf::{Plan, Procedure};

use super::layout::{Layout, StreamRoots};
use crate::text::{BabeltraceClock, TextPlan};

/// The compiled metadata of a trace, and which of its fields are printed.
#[derive(Debug)]
pub(super) struct TraceText {
    plan: Arc<TextPlan>,
    layout: Layout,
    events: Plan,
}

impl TraceText {
    pub(super) fn new(plan: Arc<TextPlan>) -> Self {
        let layout = Layout::new(plan.procedure());
        let events = Plan::new(plan.procedure(), |field| {
            let is_header = matches!(field.scope, Scope::PacketHeader | Scope::EventHeader);
            !is_header && layout.is_visible(field.node)
        });
        Self {
            plan,
            layout,
            events,
        }
    }

    pub(super) fn procedure(&self) -> &Procedure {
        self.plan.procedure()
    }

    pub(super) fn class(&self) -> &TraceClass {
        self.plan.procedure().trace_class()
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Decodes the fields that are printed.
    pub(super) fn events(&self) -> &Plan {
        &self.events
    }

    pub(super) fn clock(&self, class: Option<StreamClassIndex>) -> Option<BabeltraceClock> {
        self.plan.clock(class)
    }

    /// The root structures of a stream class.
    pub(super) fn roots(&self, class: Option<StreamClassIndex>) -> &StreamRoots {
        let index = class.and_then(|class| usize::try_from(class.0).ok());
        self.layout.stream(index.unwrap_or_default())
    }
}
