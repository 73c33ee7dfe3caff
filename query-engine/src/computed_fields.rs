//! Fields that are computed from those of an event: columns, keys of orders and groups, and what
//! aggregates are made of. Filters compute theirs themselves.

use query_language::{Computed, FieldId, FieldSource, FieldTable, Value, arithmetic};
use trace_kinds::Event;

/// The computed fields of a table, by their ids.
#[derive(Debug)]
pub(crate) struct ComputedFields(Vec<Option<Computed>>);

impl ComputedFields {
    /// Compiles the computed fields of `table`, which gets the fields that they are computed from.
    pub(crate) fn new(table: &mut FieldTable) -> ComputedFields {
        let terms: Vec<_> = table.paths().iter().map(arithmetic).collect();
        if terms.iter().all(Option::is_none) {
            return ComputedFields(Vec::new());
        }
        let terms = terms.into_iter();
        ComputedFields(terms.map(|term| Some(term?.compile(table))).collect())
    }

    /// Calls `next` with the event and its computed fields.
    #[inline]
    pub(crate) fn pass<T>(&self, event: &dyn Event, next: impl FnOnce(&dyn Event) -> T) -> T {
        if self.0.is_empty() {
            next(event)
        } else {
            next(&ComputingEvent {
                event,
                computed: &self.0,
            })
        }
    }
}

/// An event with computed fields.
struct ComputingEvent<'e> {
    event: &'e dyn Event,
    computed: &'e [Option<Computed>],
}

impl FieldSource for ComputingEvent<'_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        match self.computed.get(id.index()) {
            Some(Some(computed)) => computed.value(self.event),
            _ => self.event.field(id),
        }
    }
}

impl Event for ComputingEvent<'_> {
    fn ts(&self) -> Option<i64> {
        self.event.ts()
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        self.event.each_field(visit);
    }

    fn each_nested(&self, visit: &mut dyn FnMut(&str)) {
        self.event.each_nested(visit);
    }
}
