//! The fields that say where an event comes from: `agent`, `stream`, `storage`, `kind`.

use query_language::{FieldId, FieldPath, FieldSource, FieldTable, Value};

use crate::Event;

/// Where events come from. Every kind has these fields, no record contains them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Name of the agent.
    pub agent: Option<String>,
    /// Name of the stream.
    pub stream: Option<String>,
    /// Name of the storage.
    pub storage: Option<String>,
    /// Name of the kind.
    pub kind: &'static str,
}

impl Origin {
    /// The names of its fields.
    pub const FIELDS: [&str; 4] = ["agent", "stream", "storage", "kind"];

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "agent" => self.agent.as_deref(),
            "stream" => self.stream.as_deref(),
            "storage" => self.storage.as_deref(),
            "kind" => Some(self.kind),
            _ => None,
        }
    }
}

/// The fields of an [`Origin`] that a table contains.
#[derive(Debug, Clone)]
pub struct OriginFields {
    fields: Vec<(FieldId, String)>,
}

impl OriginFields {
    /// The fields of `origin` that `table` contains.
    pub fn new(origin: &Origin, table: &FieldTable) -> OriginFields {
        let known = Origin::FIELDS.map(|name| (name, origin.field(name)));
        let fields = known
            .into_iter()
            .filter_map(|(name, value)| {
                Some((table.get(&FieldPath::new(name))?, value?.to_owned()))
            })
            .collect();
        OriginFields { fields }
    }

    /// Whether the table contains none of them, so that events need no wrapper.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// `event` with the fields of its origin.
    pub fn with<'a>(&'a self, event: &'a dyn Event) -> EventWithOrigin<'a> {
        EventWithOrigin {
            event,
            origin: self,
        }
    }
}

/// An event together with the fields of its origin.
#[derive(Clone, Copy)]
pub struct EventWithOrigin<'a> {
    event: &'a dyn Event,
    origin: &'a OriginFields,
}

impl FieldSource for EventWithOrigin<'_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        let of_origin = self.origin.fields.iter().find(|(field, _)| *field == id);
        match of_origin {
            Some((_, value)) => Some(Value::from(value.as_str())),
            None => self.event.field(id),
        }
    }
}

impl Event for EventWithOrigin<'_> {
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
