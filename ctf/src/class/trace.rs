//! The trace class.

use super::{
    Attributes, ByteOrder, ClockClass, ClockId, FieldClass, FieldId, Identity, Scope, StreamClass,
    StreamClassIndex,
};
use crate::integer::usize_from;
use uuid::Uuid;

/// Major version of the metadata of a trace class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MajorVersion {
    /// CTF 1.8 (TSDL).
    V1,
    /// CTF 2 (JSON).
    V2,
}

/// Value of an entry of the trace environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// Integer.
    Integer(i64),
    /// Text.
    String(Box<str>),
}

/// The content of metadata. Immutable; readers share it by reference or `Arc`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceClass {
    pub(super) version: MajorVersion,
    pub(super) identity: Identity,
    pub(super) uuid: Option<Uuid>,
    pub(super) byte_order: Option<ByteOrder>,
    pub(super) environment: Vec<(Box<str>, EnvironmentValue)>,
    pub(super) attributes: Attributes,
    pub(super) clocks: Vec<ClockClass>,
    pub(super) packet_header: Option<FieldId>,
    pub(super) streams: Vec<StreamClass>,
    pub(super) fields: Vec<FieldClass>,
    pub(super) slot_count: u32,
    pub(super) depth: u32,
}

impl TraceClass {
    /// Major version of the metadata.
    pub fn version(&self) -> MajorVersion {
        self.version
    }

    /// Names of the trace.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// UUID that packets contain, if any.
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// Native byte order (TSDL only).
    pub fn byte_order(&self) -> Option<ByteOrder> {
        self.byte_order
    }

    /// Environment, in metadata order.
    pub fn environment(&self) -> &[(Box<str>, EnvironmentValue)] {
        &self.environment
    }

    /// The environment entry `key`.
    pub fn environment_entry(&self, key: &str) -> Option<&EnvironmentValue> {
        self.environment
            .iter()
            .find(|(name, _)| &**name == key)
            .map(|(_, value)| value)
    }

    /// Attributes of the trace.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The clock class `id`.
    pub fn clock_class(&self, id: ClockId) -> &ClockClass {
        &self.clocks[usize_from(id.0)]
    }

    /// Structure of the packet header.
    pub fn packet_header(&self) -> Option<FieldId> {
        self.packet_header
    }

    /// Stream classes, sorted by id.
    pub fn stream_classes(&self) -> &[StreamClass] {
        &self.streams
    }

    /// The stream class at `index`.
    pub fn stream_class(&self, index: StreamClassIndex) -> &StreamClass {
        &self.streams[usize_from(index.0)]
    }

    /// The stream class whose numeric id is `id`.
    pub fn find_stream_class(&self, id: u64) -> Option<StreamClassIndex> {
        let index = self
            .streams
            .binary_search_by_key(&id, |stream| stream.id)
            .ok()?;
        u32::try_from(index).ok().map(StreamClassIndex)
    }

    /// All field classes; a child always comes before its parent.
    pub fn fields(&self) -> &[FieldClass] {
        &self.fields
    }

    /// The field class `id`.
    #[inline]
    pub fn field(&self, id: FieldId) -> &FieldClass {
        &self.fields[id.index()]
    }

    /// Number of values that a decoder must be able to save: slots are `0..slot_count`.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Levels of field classes.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// The clock of a stream class.
    pub fn default_clock(&self, stream: StreamClassIndex) -> Option<&ClockClass> {
        self.stream_class(stream)
            .default_clock
            .map(|id| self.clock_class(id))
    }

    /// The root structure of a scope, for an event class where the scope belongs to one.
    pub fn scope(
        &self,
        scope: Scope,
        stream: Option<&StreamClass>,
        event: Option<&super::EventClass>,
    ) -> Option<FieldId> {
        match scope {
            Scope::PacketHeader => self.packet_header,
            Scope::PacketContext => stream?.packet_context,
            Scope::EventHeader => stream?.event_header,
            Scope::EventCommonContext => stream?.event_common_context,
            Scope::EventSpecificContext => event?.specific_context,
            Scope::EventPayload => event?.payload,
        }
    }
}
