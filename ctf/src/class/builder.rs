//! Collection of the classes of a trace: fields first, then clocks, streams and events.

use super::children::{children, for_each_child};
use super::{
    Attributes, BuildError, ByteOrder, ClockClass, ClockId, Encoding, EnvironmentValue, EventClass,
    FieldClass, FieldId, FieldKind, Identity, MajorVersion, Roles, StreamClass,
};
use crate::integer::u32_saturating;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Maximum nesting of field classes of any kind; deeper than what Babeltrace's parser accepts.
pub const FIELD_DEPTH_MAX: u32 = 4096;

/// Nesting of field classes for which any stack is large enough. Recursive functions run on a
/// thread with a larger stack for deeper ones.
pub(crate) const PLAIN_DEPTH_MAX: u32 = 128;

/// Number of field classes that a trace class can have regardless of the length of its metadata.
/// Aliases multiply fields, so parsers allow more only in proportion to the length of their input.
pub const FIELD_COUNT_BASE: usize = 1 << 16;

/// A field class before it is part of a trace class.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) class: FieldClass,
    /// Offset of its beginning in the metadata text.
    pub(super) origin: u32,
    /// Clock that TSDL maps the integer to.
    pub(super) mapped_clock: Option<Box<str>>,
    /// Encoding that TSDL gives an integer: an array of such bytes is text.
    encoding: Option<Encoding>,
    /// Levels of field classes, this one included.
    pub(super) depth: u32,
}

/// An event class and the numeric id of its stream class.
#[derive(Clone, Debug)]
pub(super) struct EventDraft {
    pub(super) class: EventClass,
    pub(super) origin: u32,
}

/// Collects classes and builds a [`TraceClass`].
///
/// `origin` is the offset in the metadata text at which an item begins, for errors; 0 when there is
/// no text.
#[derive(Clone, Debug)]
pub struct TraceClassBuilder {
    /// Version whose rules apply.
    pub version: MajorVersion,
    /// Names of the trace.
    pub identity: Identity,
    /// UUID that packets contain.
    pub uuid: Option<Uuid>,
    /// Native byte order.
    pub byte_order: Option<ByteOrder>,
    /// Environment.
    pub environment: Vec<(Box<str>, EnvironmentValue)>,
    /// Attributes of the trace.
    pub attributes: Attributes,
    /// Structure of the packet header.
    pub packet_header: Option<FieldId>,
    pub(super) drafts: Vec<Draft>,
    pub(super) clocks: Vec<ClockClass>,
    pub(super) streams: BTreeMap<u64, StreamClass>,
    pub(super) events: BTreeMap<u64, BTreeMap<u64, EventDraft>>,
    pub(super) slot_count: u32,
    /// Steps and targets of the locations resolved so far.
    pub(super) location_steps: usize,
    /// Events without any data are accepted.
    pub allow_empty_events: bool,
    /// Maximum nesting of field classes.
    pub(crate) depth_max: u32,
    field_count_max: usize,
}

impl TraceClassBuilder {
    /// An empty builder.
    pub fn new(version: MajorVersion) -> Self {
        Self {
            version,
            identity: Identity::default(),
            uuid: None,
            byte_order: None,
            environment: Vec::new(),
            attributes: Attributes::default(),
            packet_header: None,
            drafts: Vec::new(),
            clocks: Vec::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            slot_count: 0,
            location_steps: 0,
            allow_empty_events: false,
            depth_max: PLAIN_DEPTH_MAX,
            field_count_max: FIELD_COUNT_BASE,
        }
    }

    /// Allows at most `count` field classes.
    pub fn limit_fields(&mut self, count: usize) {
        self.field_count_max = count;
    }

    /// Adds a field class, after the field classes that it contains.
    ///
    /// # Errors
    /// When there are too many field classes or they nest too deeply.
    pub fn add_field(&mut self, kind: FieldKind, origin: u32) -> Result<FieldId, BuildError> {
        let alignment = self.effective_alignment(&kind);
        let depth = children(&kind).map(|id| self.draft(id).depth).max();
        let class = FieldClass {
            kind,
            alignment,
            roles: Roles::NONE,
            slots: Box::default(),
            attributes: Attributes::default(),
        };
        self.push(Draft {
            class,
            origin,
            mapped_clock: None,
            encoding: None,
            depth: depth.unwrap_or(0) + 1,
        })
    }

    /// Adds a copy of `id` and of everything it contains, for a use of an alias.
    ///
    /// # Errors
    /// When there are too many field classes.
    pub fn copy_field(&mut self, id: FieldId) -> Result<FieldId, BuildError> {
        let mut draft = self.draft(id).clone();
        let mut copied = Ok(());
        for_each_child(&mut draft.class.kind, &mut |child| {
            if copied.is_ok() {
                match self.copy_field(*child) {
                    Ok(copy) => *child = copy,
                    Err(error) => copied = Err(error),
                }
            }
        });
        copied?;
        self.push(draft)
    }

    fn push(&mut self, draft: Draft) -> Result<FieldId, BuildError> {
        if draft.depth > self.depth_max {
            return Err(BuildError::too_deep(draft.origin, self.depth_max));
        }
        let next = u32::try_from(self.drafts.len()).ok().map(FieldId);
        match next {
            Some(id) if self.drafts.len() < self.field_count_max => {
                self.drafts.push(draft);
                Ok(id)
            }
            _ => {
                let message = format!("more than {} field classes", self.field_count_max);
                Err(BuildError::at(draft.origin, message))
            }
        }
    }

    fn effective_alignment(&self, kind: &FieldKind) -> u32 {
        let of = |id: FieldId| self.draft(id).class.alignment;
        match kind {
            FieldKind::BitArray(bits)
            | FieldKind::Unsigned(bits, _)
            | FieldKind::Signed(bits, _) => bits.alignment,
            FieldKind::BitMap(class) => class.bits.alignment,
            FieldKind::Bool(class) => class.bits.alignment,
            FieldKind::Float(class) => class.bits.alignment,
            FieldKind::VariableUnsigned(_)
            | FieldKind::VariableSigned(_)
            | FieldKind::NullTerminatedString(_)
            | FieldKind::String(_)
            | FieldKind::Blob(_) => 8,
            FieldKind::Array(class) => class.min_alignment.max(of(class.element)).max(1),
            FieldKind::Struct(class) => {
                let members = class.members.iter().map(|member| of(member.class));
                members.fold(class.min_alignment.max(1), u32::max)
            }
            FieldKind::Optional(_) | FieldKind::Variant(_) => 1,
        }
    }

    /// The current state of the field class `id`.
    pub fn field(&self, id: FieldId) -> &FieldClass {
        &self.draft(id).class
    }

    /// The field class `id`, to set roles or attributes. A change of alignment after the field
    /// class was added to a container has no effect on the container.
    pub fn field_mut(&mut self, id: FieldId) -> &mut FieldClass {
        &mut self.drafts[id.index()].class
    }

    /// The origin of the field class `id`.
    pub fn origin(&self, id: FieldId) -> u32 {
        self.draft(id).origin
    }

    /// Sets the origin of the field class `id`, for a use of an alias.
    pub fn set_origin(&mut self, id: FieldId, origin: u32) {
        self.drafts[id.index()].origin = origin;
    }

    /// Maps the integer `id` to the clock named `clock`.
    pub fn map_clock(&mut self, id: FieldId, clock: &str) {
        self.drafts[id.index()].mapped_clock = Some(clock.into());
    }

    /// The clock that metadata maps the integer `id` to.
    pub fn mapped_clock(&self, id: FieldId) -> Option<&str> {
        self.draft(id).mapped_clock.as_deref()
    }

    /// Sets the text encoding of the integer `id`.
    pub fn set_encoding(&mut self, id: FieldId, encoding: Option<Encoding>) {
        self.drafts[id.index()].encoding = encoding;
    }

    /// The text encoding of the integer `id`.
    pub fn encoding(&self, id: FieldId) -> Option<Encoding> {
        self.draft(id).encoding
    }

    pub(super) fn draft(&self, id: FieldId) -> &Draft {
        &self.drafts[id.index()]
    }

    /// Adds a clock class.
    pub fn add_clock(&mut self, clock: ClockClass) -> ClockId {
        self.clocks.push(clock);
        ClockId(u32_saturating(self.clocks.len()) - 1)
    }

    /// The clock class with the metadata id `id`.
    pub fn find_clock(&self, id: &str) -> Option<ClockId> {
        let index = self.clocks.iter().position(|clock| &*clock.id == id)?;
        u32::try_from(index).ok().map(ClockId)
    }

    /// The clock classes added so far.
    pub fn clocks(&self) -> &[ClockClass] {
        &self.clocks
    }

    /// Adds the stream class 0 when there are events for it and no stream classes.
    pub(crate) fn add_implicit_stream(&mut self) {
        if self.streams.is_empty() && self.events.contains_key(&0) {
            self.streams.insert(0, StreamClass::new(0));
        }
    }

    /// Removes and returns all stream classes, to be changed and returned with
    /// [`Self::put_streams`].
    pub(crate) fn take_streams(&mut self) -> BTreeMap<u64, StreamClass> {
        std::mem::take(&mut self.streams)
    }

    /// Sets the stream classes that [`Self::take_streams`] removed.
    pub(crate) fn put_streams(&mut self, streams: BTreeMap<u64, StreamClass>) {
        self.streams = streams;
    }

    /// Adds a stream class; false when its numeric id is in use.
    #[must_use]
    pub fn add_stream(&mut self, stream: StreamClass) -> bool {
        let free = !self.streams.contains_key(&stream.id);
        if free {
            self.streams.insert(stream.id, stream);
        }
        free
    }

    /// True when there is a stream class with this numeric id.
    pub fn has_stream(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    /// True when there is any stream class.
    pub fn has_any_stream(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Adds an event class to the stream class with the numeric id `stream`, which can be added
    /// later; false when its numeric id is in use in that stream class.
    #[must_use]
    pub fn add_event(&mut self, stream: u64, class: EventClass, origin: u32) -> bool {
        let events = self.events.entry(stream).or_default();
        let free = !events.contains_key(&class.id);
        if free {
            events.insert(class.id, EventDraft { class, origin });
        }
        free
    }

    /// Moves the event classes of stream class 0, which does not exist, to the only stream class.
    ///
    /// # Errors
    /// When the id of one is in use there.
    pub(crate) fn move_events_to_only_stream(&mut self) -> Result<(), BuildError> {
        let mut ids = self.streams.keys();
        let (Some(&only), None) = (ids.next(), ids.next()) else {
            return Ok(());
        };
        let moved = if only == 0 {
            None
        } else {
            self.events.remove(&0)
        };
        for draft in moved.into_iter().flat_map(BTreeMap::into_values) {
            let (id, origin) = (draft.class.id, draft.origin);
            if !self.add_event(only, draft.class, origin) {
                let message = format!("duplicate event class {id} in stream class {only}");
                return Err(BuildError::at(origin, message));
            }
        }
        Ok(())
    }
}
