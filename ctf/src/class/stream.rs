//! Stream classes and event classes.

use super::{Attributes, FieldId};
use crate::integer::{u32_saturating, usize_from, usize_saturating};

/// Namespace, name and unique id, all optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Namespace of the name.
    pub namespace: Option<Box<str>>,
    /// Name.
    pub name: Option<Box<str>>,
    /// Unique id.
    pub uid: Option<Box<str>>,
}

/// A clock class of the trace class: an index into `TraceClass::clock_classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockId(pub u32);

/// A stream class of the trace class: an index into `TraceClass::stream_classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamClassIndex(pub u32);

/// An event class of a stream class: an index into `StreamClass::event_classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventClassIndex(pub u32);

/// Names of the severities, as spelled by LTTng and by Babeltrace's attribute; the index is the log
/// level of an event class.
pub const LOG_LEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// The class of an event record.
#[derive(Clone, Debug, PartialEq)]
pub struct EventClass {
    /// Numeric id, unique in its stream class.
    pub id: u64,
    /// Names.
    pub identity: Identity,
    /// Severity: 0 (emergency) to 14 (debug) as LTTng numbers them, see [`LOG_LEVELS`]; other
    /// values are defined by the producer.
    pub log_level: Option<i64>,
    /// URI of an Eclipse Modeling Framework model.
    pub emf_uri: Option<Box<str>>,
    /// Structure of the specific context.
    pub specific_context: Option<FieldId>,
    /// Structure of the payload.
    pub payload: Option<FieldId>,
    /// Attributes.
    pub attributes: Attributes,
}

impl EventClass {
    /// Name of the severity, when LTTng defines it.
    pub fn severity(&self) -> Option<&'static str> {
        let level = usize::try_from(self.log_level?).ok()?;
        LOG_LEVELS.get(level).copied()
    }

    /// A class without fields.
    pub fn new(id: u64, name: Option<&str>) -> Self {
        let identity = Identity {
            name: name.map(Into::into),
            ..Identity::default()
        };
        Self {
            id,
            identity,
            log_level: None,
            emf_uri: None,
            specific_context: None,
            payload: None,
            attributes: Attributes::default(),
        }
    }
}

/// The class of a stream ("data stream class"): the common properties of its packets.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamClass {
    /// Numeric id, unique in the trace class.
    pub id: u64,
    /// Names.
    pub identity: Identity,
    /// The clock of timestamp fields.
    pub default_clock: Option<ClockId>,
    /// Structure of the packet context.
    pub packet_context: Option<FieldId>,
    /// Structure of the event record header.
    pub event_header: Option<FieldId>,
    /// Structure of the event record common context.
    pub event_common_context: Option<FieldId>,
    /// Attributes.
    pub attributes: Attributes,
    /// Sorted by id.
    events: Vec<EventClass>,
    /// `dense[id]` is the index + 1 of the event class with the small id `id`, 0 for none.
    dense: Vec<u32>,
}

/// Event class ids below this are found in a table.
const DENSE_EVENT_IDS_MAX: u64 = 1 << 16;

impl StreamClass {
    /// A class without fields and event classes.
    pub fn new(id: u64) -> Self {
        Self {
            id,
            identity: Identity::default(),
            default_clock: None,
            packet_context: None,
            event_header: None,
            event_common_context: None,
            attributes: Attributes::default(),
            events: Vec::new(),
            dense: Vec::new(),
        }
    }

    /// Event classes, sorted by id.
    pub fn event_classes(&self) -> &[EventClass] {
        &self.events
    }

    /// The event class at `index`.
    pub fn event_class(&self, index: EventClassIndex) -> &EventClass {
        &self.events[usize_from(index.0)]
    }

    /// The event class whose numeric id is `id`.
    #[inline]
    pub fn find_event_class(&self, id: u64) -> Option<EventClassIndex> {
        if let Ok(small) = usize::try_from(id)
            && let Some(&entry) = self.dense.get(small)
        {
            return entry.checked_sub(1).map(EventClassIndex);
        }
        let index = self
            .events
            .binary_search_by_key(&id, |event| event.id)
            .ok()?;
        u32::try_from(index).ok().map(EventClassIndex)
    }

    /// Sets the event classes, in any order.
    pub(super) fn set_events(&mut self, mut events: Vec<EventClass>) {
        events.sort_by_key(|event| event.id);
        let small = events
            .iter()
            .map(|event| event.id)
            .filter(|id| *id < DENSE_EVENT_IDS_MAX);
        let length = small.max().map_or(0, |id| usize_saturating(id) + 1);
        self.dense = vec![0; length];
        for (index, event) in events.iter().enumerate() {
            if event.id < DENSE_EVENT_IDS_MAX {
                self.dense[usize_saturating(event.id)] = u32_saturating(index) + 1;
            }
        }
        self.events = events;
    }
}
