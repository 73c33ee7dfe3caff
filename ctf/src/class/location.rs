//! Locations of lengths and selectors.

/// The root structures of a packet and of an event record, in decoding order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Packet header, shared by all streams of a trace.
    PacketHeader,
    /// Packet context.
    PacketContext,
    /// Event record header.
    EventHeader,
    /// Event record common context, with the same fields for all events of a stream.
    EventCommonContext,
    /// Event record specific context.
    EventSpecificContext,
    /// Event record payload.
    EventPayload,
}

impl Scope {
    /// All scopes in decoding order.
    pub const ALL: [Self; 6] = [
        Self::PacketHeader,
        Self::PacketContext,
        Self::EventHeader,
        Self::EventCommonContext,
        Self::EventSpecificContext,
        Self::EventPayload,
    ];

    /// 0 to 5 in decoding order.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketHeader => "packet header",
            Self::PacketContext => "packet context",
            Self::EventHeader => "event record header",
            Self::EventCommonContext => "event record common context",
            Self::EventSpecificContext => "event record specific context",
            Self::EventPayload => "event record payload",
        }
    }
}

/// An index in the decoder's table of saved values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// One step of a location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathStep {
    /// Into the structure member of this name.
    Member(Box<str>),
    /// Up to the nearest enclosing structure (relative CTF 2 locations only).
    Parent,
    /// Up to the nearest enclosing structure that has the member of the next step before the field
    /// with this location. Only the first step of a relative location.
    Search,
}

/// The location of a length or selector field, as written in metadata.
///
/// Steps name members of structures; arrays, optionals and variants on the path have no step (every
/// option of a variant is searched for the rest of the path).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The root structure, or `None` when the path starts at the structure that contains the field
    /// with this location. Always set in a trace class.
    pub scope: Option<Scope>,
    /// Steps from there. Only members in a trace class.
    pub path: Vec<PathStep>,
}

impl Location {
    /// An absolute location.
    pub fn absolute<'n>(scope: Scope, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self {
            scope: Some(scope),
            path: members(names),
        }
    }

    /// A location relative to the structure that contains the field.
    pub fn relative<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self {
            scope: None,
            path: members(names),
        }
    }
}

fn members<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<PathStep> {
    names
        .into_iter()
        .map(|name| PathStep::Member(name.into()))
        .collect()
}

/// The dependency of a field on the value of an earlier field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The location of the earlier field.
    pub location: Location,
    /// The slot of its value during decoding; set by the builder.
    pub slot: SlotId,
}

impl Dependency {
    /// A dependency that the builder will resolve.
    pub fn new(location: Location) -> Self {
        Self {
            location,
            slot: SlotId(u32::MAX),
        }
    }
}
