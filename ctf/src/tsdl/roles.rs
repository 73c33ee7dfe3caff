//! Roles: in TSDL, the names of fields determine their meaning.

use super::attribute::fault;
use super::parser::context;
use crate::class::{
    BuildError, ClockClass, ClockId, ClockOrigin, FieldId, FieldKind, Length, Role, StreamClass,
    Subject, TraceClassBuilder,
};

/// Names of unsigned integers with a role in the packet context.
const PACKET_CONTEXT_ROLES: [(&str, Role); 4] = [
    ("packet_size", Role::PacketTotalLength),
    ("content_size", Role::PacketContentLength),
    ("events_discarded", Role::DiscardedEvents),
    ("packet_seq_num", Role::PacketSequenceNumber),
];

/// The same in the packet header.
const PACKET_HEADER_ROLES: [(&str, Role); 3] = [
    ("magic", Role::PacketMagicNumber),
    ("stream_id", Role::StreamClassId),
    ("stream_instance_id", Role::StreamId),
];

/// Assigns roles to the fields of all scopes, and default clocks to stream classes.
pub(super) fn assign(builder: &mut TraceClassBuilder) -> Result<(), BuildError> {
    builder.add_implicit_stream();
    let mut streams = builder.take_streams();
    for stream in streams.values() {
        map_implicitly(builder, stream.event_header, "timestamp");
        map_implicitly(builder, stream.packet_context, "timestamp_begin");
        map_implicitly(builder, stream.packet_context, "timestamp_end");
    }
    if let Some(header) = builder.packet_header {
        let fields = NamedField::all(builder, header);
        assign_roles(builder, &fields, &PACKET_HEADER_ROLES);
        for field in fields.iter().filter(|field| field.is("uuid")) {
            if is_uuid(builder, field.id) {
                add_role(builder, field.id, Role::MetadataUuid);
            }
        }
    }
    for stream in streams.values_mut() {
        assign_in_stream(builder, stream);
    }
    for stream in streams.values_mut() {
        let id = stream.id;
        stream.default_clock = default_clock(builder, stream)
            .map_err(|error| error.within(Subject::Whole, format!("in the stream class {id}")))?;
    }
    builder.put_streams(streams);
    Ok(())
}

fn assign_in_stream(builder: &mut TraceClassBuilder, stream: &StreamClass) {
    if let Some(root) = stream.packet_context {
        let fields = NamedField::all(builder, root);
        assign_roles(builder, &fields, &PACKET_CONTEXT_ROLES);
        for field in &fields {
            if builder.mapped_clock(field.id).is_some() {
                let is_end = field.is("timestamp_end");
                let role = if is_end {
                    Role::PacketEndTimestamp
                } else {
                    Role::ClockTimestamp
                };
                add_role(builder, field.id, role);
            }
        }
    }
    if let Some(root) = stream.event_header {
        let fields = NamedField::all(builder, root);
        assign_roles(builder, &fields, &[("id", Role::EventClassId)]);
        for field in &fields {
            if builder.mapped_clock(field.id).is_some() {
                add_role(builder, field.id, Role::ClockTimestamp);
            }
        }
    }
}

/// The clock of all mapped fields of a stream class; several clocks are a fault.
fn default_clock(
    builder: &TraceClassBuilder,
    stream: &StreamClass,
) -> Result<Option<ClockId>, BuildError> {
    let mut clock: Option<(ClockId, Box<str>)> = None;
    let scopes = [
        (stream.packet_context, "packet context"),
        (stream.event_header, "event header"),
    ];
    for (root, scope) in scopes {
        let Some(root) = root else { continue };
        let within = |e| context(e, builder.origin(root), format!("in the {scope}"));
        for field in NamedField::all(builder, root) {
            let Some(name) = builder.mapped_clock(field.id) else {
                continue;
            };
            let at = builder.origin(field.id);
            match (&clock, builder.find_clock(name)) {
                (Some((_, other)), _) if **other != *name => {
                    let message = format!("mapped to clock `{name}`, but others to `{other}`");
                    return fault(at, message).map_err(within);
                }
                (Some(_), _) => {}
                (None, Some(id)) => clock = Some((id, name.into())),
                (None, None) => {
                    return fault(at, format!("there is no clock `{name}`")).map_err(within);
                }
            }
        }
    }
    Ok(clock.map(|(id, _)| id))
}

/// Maps integers with the name of a timestamp to the only clock, or to a new one when there is
/// none.
fn map_implicitly(builder: &mut TraceClassBuilder, root: Option<FieldId>, name: &str) {
    let Some(root) = root else { return };
    for field in NamedField::all(builder, root) {
        let is_free = field.is(name) && builder.mapped_clock(field.id).is_none();
        if !is_free || !is_unsigned(builder, field.id) {
            continue;
        }
        let names: Vec<Box<str>> = builder
            .clocks()
            .iter()
            .map(|clock| clock.id.clone())
            .collect();
        match &names[..] {
            [] => {
                let mut clock = ClockClass::new("default");
                clock.origin = ClockOrigin::Unknown;
                builder.add_clock(clock);
                builder.map_clock(field.id, "default");
            }
            [only] => builder.map_clock(field.id, only),
            _ => {}
        }
    }
}

fn assign_roles(builder: &mut TraceClassBuilder, fields: &[NamedField], roles: &[(&str, Role)]) {
    for field in fields {
        let role = roles.iter().find(|(name, _)| field.is(name));
        if let (Some((_, role)), true) = (role, is_unsigned(builder, field.id)) {
            add_role(builder, field.id, *role);
        }
    }
}

fn add_role(builder: &mut TraceClassBuilder, id: FieldId, role: Role) {
    let class = builder.field_mut(id);
    class.roles = class.roles.with(role);
}

fn is_unsigned(builder: &TraceClassBuilder, id: FieldId) -> bool {
    matches!(builder.field(id).kind, FieldKind::Unsigned(..))
}

fn is_uuid(builder: &TraceClassBuilder, id: FieldId) -> bool {
    let FieldKind::Array(array) = &builder.field(id).kind else {
        return false;
    };
    let element = builder.field(array.element);
    let is_byte = element
        .fixed_bits()
        .is_some_and(|b| b.length == 8 && b.alignment == 8);
    array.length == Length::Static(16) && is_byte && is_unsigned(builder, array.element)
}

/// A field, and its member name when it is the direct member of a structure.
struct NamedField {
    id: FieldId,
    name: Option<Box<str>>,
}

impl NamedField {
    fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// All fields in `root`, in decoding order.
    fn all(builder: &TraceClassBuilder, root: FieldId) -> Vec<Self> {
        let mut found = Vec::new();
        let mut stack = vec![Self {
            id: root,
            name: None,
        }];
        while let Some(field) = stack.pop() {
            let start = stack.len();
            match &builder.field(field.id).kind {
                FieldKind::Struct(class) => stack.extend(class.members.iter().map(|m| Self {
                    id: m.class,
                    name: Some(m.name.clone()),
                })),
                FieldKind::Array(class) => stack.push(Self {
                    id: class.element,
                    name: None,
                }),
                FieldKind::Variant(class) => {
                    let fields = (0..class.options.len()).map(|o| class.options.field(o));
                    stack.extend(fields.map(|id| Self { id, name: None }));
                }
                _ => {}
            }
            stack[start..].reverse();
            found.push(field);
        }
        found
    }
}
