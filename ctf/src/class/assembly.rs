//! Assembly of a trace class from collected classes.

use super::builder::Draft;
use super::children::for_each_child;
use super::resolution::resolve;
use super::rules::verify_trace;
use super::{BuildError, FieldId, TraceClass, TraceClassBuilder};
use std::collections::BTreeMap;

impl TraceClassBuilder {
    /// Checks all rules, resolves the locations of lengths and selectors, and returns the trace
    /// class.
    ///
    /// # Errors
    /// The first violation of a rule of CTF, with its origin.
    pub fn build(mut self) -> Result<TraceClass, BuildError> {
        self.compact();
        verify_trace(&self)?;
        resolve(&mut self)?;
        let depth = self.drafts.iter().map(|draft| draft.depth).max();
        let streams = std::mem::take(&mut self.streams);
        let mut events = std::mem::take(&mut self.events);
        let finished = streams.into_values().map(|mut stream| {
            let events = events.remove(&stream.id).unwrap_or_default();
            stream.set_events(events.into_values().map(|draft| draft.class).collect());
            stream
        });
        Ok(TraceClass {
            streams: finished.collect(),
            version: self.version,
            identity: self.identity,
            uuid: self.uuid,
            byte_order: self.byte_order,
            environment: self.environment,
            attributes: self.attributes,
            clocks: self.clocks,
            packet_header: self.packet_header,
            fields: self.drafts.into_iter().map(|draft| draft.class).collect(),
            slot_count: self.slot_count,
            depth: depth.unwrap_or(0),
        })
    }

    /// Removes field classes that no scope reaches, and sorts children before their parents.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.drafts);
        let mut compaction = Compaction {
            ids: vec![None; old.len()],
            old,
            new: Vec::new(),
        };
        compaction.root(&mut self.packet_header);
        for stream in self.streams.values_mut() {
            compaction.root(&mut stream.packet_context);
            compaction.root(&mut stream.event_header);
            compaction.root(&mut stream.event_common_context);
        }
        for event in self.events.values_mut().flat_map(BTreeMap::values_mut) {
            compaction.root(&mut event.class.specific_context);
            compaction.root(&mut event.class.payload);
        }
        self.drafts = compaction.new;
    }
}

/// A move of the reachable drafts from the old table to a new one.
struct Compaction {
    old: Vec<Draft>,
    ids: Vec<Option<FieldId>>,
    new: Vec<Draft>,
}

impl Compaction {
    fn root(&mut self, root: &mut Option<FieldId>) {
        if let Some(id) = root {
            *id = self.moved(*id);
        }
    }

    fn moved(&mut self, id: FieldId) -> FieldId {
        if let Some(moved) = self.ids[id.index()] {
            return moved;
        }
        let mut draft = self.old[id.index()].clone();
        for_each_child(&mut draft.class.kind, &mut |child| {
            *child = self.moved(*child)
        });
        let moved = FieldId(u32::try_from(self.new.len()).unwrap_or(u32::MAX));
        self.new.push(draft);
        self.ids[id.index()] = Some(moved);
        moved
    }
}
