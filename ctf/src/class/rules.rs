//! Rules of CTF for complete classes: roles in their scopes, ids, and emptiness.

use super::builder::EventDraft;
use super::children::children;
use super::{
    BuildError, FieldId, FieldKind, Length, Role, Scope, StreamClass, Subject, TraceClassBuilder,
};

/// Checks the packet header, and that the stream class of each event class exists. Stream and event
/// classes are checked with [`verify_stream`] and [`verify_event`] when they are resolved.
pub(super) fn verify_trace(builder: &TraceClassBuilder) -> Result<(), BuildError> {
    for (id, events) in &builder.events {
        if let (false, Some(event)) = (builder.has_stream(*id), events.values().next()) {
            let message = format!("event class needs the stream class {id}, which does not exist");
            return Err(BuildError::at(event.origin, message));
        }
    }
    let Some(header) = builder.packet_header else {
        return Ok(());
    };
    verify_packet_header(builder, header)
        .map_err(|error| error.within(at(builder, header), "in the packet header"))
}

fn verify_packet_header(builder: &TraceClassBuilder, header: FieldId) -> Result<(), BuildError> {
    for id in with_role(builder, header, Role::MetadataUuid) {
        verify_uuid(builder, id)?;
    }
    verify_magic(builder, header)?;
    let has_stream_id = !with_role(builder, header, Role::StreamClassId).is_empty();
    if builder.streams.len() > 1 && !has_stream_id {
        let message = "no field with the stream class id role for more than one stream class";
        return Err(BuildError::at(builder.origin(header), message));
    }
    verify_unmapped(builder, header)?;
    verify_roles(builder, header, Scope::PacketHeader)
}

fn verify_uuid(builder: &TraceClassBuilder, id: FieldId) -> Result<(), BuildError> {
    let fault = |id: FieldId, what: &str| {
        Err(BuildError::at(builder.origin(id), what)
            .within(at(builder, id), "in the field with the metadata UUID role"))
    };
    match &builder.field(id).kind {
        FieldKind::Array(class) => {
            if class.length != Length::Static(16) {
                return fault(id, "expecting a static-length array of 16 elements");
            }
            match &builder.field(class.element).kind {
                FieldKind::Unsigned(bits, _) if bits.length == 8 => Ok(()),
                _ => fault(class.element, "expecting an unsigned integer of 8 bits"),
            }
        }
        FieldKind::String(class) if class.length == Length::Static(16) => Ok(()),
        FieldKind::Blob(class) if class.length == Length::Static(16) => Ok(()),
        _ => fault(id, "expecting 16 bytes of static length"),
    }
}

fn verify_magic(builder: &TraceClassBuilder, header: FieldId) -> Result<(), BuildError> {
    let fields = with_role(builder, header, Role::PacketMagicNumber);
    let [id] = fields[..] else {
        return match fields.first() {
            None => Ok(()),
            Some(_) => {
                let message = "more than one field with the packet magic number role";
                Err(BuildError::at(builder.origin(header), message))
            }
        };
    };
    let length = match &builder.field(id).kind {
        FieldKind::Unsigned(bits, _) => Some(bits.length),
        _ => None,
    };
    let first = builder
        .field(header)
        .members()
        .first()
        .map(|member| member.class);
    let message = if length.is_none() {
        "the field with the packet magic number role must have a fixed length"
    } else if first != Some(id) {
        "the field with the packet magic number role must be the first of the packet header"
    } else if length != Some(32) {
        "the field with the packet magic number role must have a length of 32 bits"
    } else {
        return Ok(());
    };
    Err(BuildError::at(builder.origin(id), message))
}

/// Checks the roles in the structures of a stream class.
pub(super) fn verify_stream(
    builder: &TraceClassBuilder,
    stream: &StreamClass,
) -> Result<(), BuildError> {
    let scopes = [
        (Scope::PacketContext, stream.packet_context),
        (Scope::EventHeader, stream.event_header),
        (Scope::EventCommonContext, stream.event_common_context),
    ];
    for (scope, root) in scopes {
        let Some(root) = root else { continue };
        verify_stream_scope(builder, stream, scope, root).map_err(|error| {
            let error = error.within(at(builder, root), format!("in the {}", scope.name()));
            error.within(Subject::Whole, format!("in the stream class {}", stream.id))
        })?;
    }
    Ok(())
}

fn verify_stream_scope(
    builder: &TraceClassBuilder,
    stream: &StreamClass,
    scope: Scope,
    root: FieldId,
) -> Result<(), BuildError> {
    if scope == Scope::EventHeader {
        let count = builder
            .events
            .get(&stream.id)
            .map_or(0, |events| events.len());
        if count > 1 && with_role(builder, root, Role::EventClassId).is_empty() {
            let message = "no field with the event class id role for more than one event class";
            return Err(BuildError::at(builder.origin(root), message));
        }
    }
    verify_roles(builder, root, scope)?;
    if scope == Scope::EventCommonContext {
        return verify_unmapped(builder, root);
    }
    let timed = [Role::ClockTimestamp, Role::PacketEndTimestamp];
    let first = timed
        .iter()
        .find_map(|role| with_role(builder, root, *role).first().copied());
    match first {
        Some(id) if stream.default_clock.is_none() => {
            let message = "a field with a timestamp role needs a stream class with a default clock";
            Err(BuildError::at(builder.origin(id), message))
        }
        _ => Ok(()),
    }
}

/// Checks an event class of `stream`.
pub(super) fn verify_event(
    builder: &TraceClassBuilder,
    stream: &StreamClass,
    event: &EventDraft,
) -> Result<(), BuildError> {
    verify_event_inner(builder, stream, event).map_err(|error| {
        let message = format!(
            "in the event class {} of stream class {}",
            event.class.id, stream.id
        );
        error.within(Subject::Whole, message)
    })
}

fn verify_event_inner(
    builder: &TraceClassBuilder,
    stream: &StreamClass,
    event: &EventDraft,
) -> Result<(), BuildError> {
    let scopes = [
        event.class.payload,
        event.class.specific_context,
        stream.event_common_context,
        stream.event_header,
    ];
    let is_empty = |root: &FieldId| is_empty(builder, *root);
    if !builder.allow_empty_events && scopes.iter().flatten().all(is_empty) {
        return Err(BuildError::new(
            Subject::Whole,
            "any event record would be empty",
        ));
    }
    let scopes = [
        (Scope::EventSpecificContext, event.class.specific_context),
        (Scope::EventPayload, event.class.payload),
    ];
    for (scope, root) in scopes {
        let Some(root) = root else { continue };
        verify_unmapped(builder, root)
            .and_then(|()| verify_roles(builder, root, scope))
            .map_err(|error| error.within(at(builder, root), format!("in the {}", scope.name())))?;
    }
    Ok(())
}

/// Roles that fields of a scope may have.
fn allowed_roles(scope: Scope) -> &'static [Role] {
    match scope {
        Scope::PacketHeader => {
            use Role::{MetadataUuid, PacketMagicNumber, StreamClassId, StreamId};
            &[PacketMagicNumber, MetadataUuid, StreamClassId, StreamId]
        }
        Scope::PacketContext => &[
            Role::PacketTotalLength,
            Role::PacketContentLength,
            Role::ClockTimestamp,
            Role::PacketEndTimestamp,
            Role::DiscardedEvents,
            Role::PacketSequenceNumber,
        ],
        Scope::EventHeader => &[Role::ClockTimestamp, Role::EventClassId],
        _ => &[],
    }
}

fn verify_roles(
    builder: &TraceClassBuilder,
    root: FieldId,
    scope: Scope,
) -> Result<(), BuildError> {
    let allowed = allowed_roles(scope)
        .iter()
        .fold(super::Roles::NONE, |set, role| set.with(*role));
    let wrong = find(builder, root, &mut |id| {
        !builder.field(id).roles.is_within(allowed)
    });
    match wrong.first() {
        None => Ok(()),
        Some(id) => {
            let message = format!(
                "the field has a role that is not allowed in the {}",
                scope.name()
            );
            Err(BuildError::at(builder.origin(*id), message))
        }
    }
}

/// Refuses integers that are mapped to a clock in a scope without a clock.
fn verify_unmapped(builder: &TraceClassBuilder, root: FieldId) -> Result<(), BuildError> {
    let mapped = find(builder, root, &mut |id| builder.mapped_clock(id).is_some());
    if mapped.is_empty() {
        return Ok(());
    }
    let message = "an integer cannot be mapped to a clock here";
    Err(BuildError::at(builder.origin(root), message))
}

/// True when a field never has any bits.
pub(super) fn is_empty(builder: &TraceClassBuilder, id: FieldId) -> bool {
    match &builder.field(id).kind {
        FieldKind::String(class) => class.length == Length::Static(0),
        FieldKind::Blob(class) => class.length == Length::Static(0),
        FieldKind::Array(class) => {
            class.length == Length::Static(0) || is_empty(builder, class.element)
        }
        FieldKind::Struct(class) => class.members.iter().all(|m| is_empty(builder, m.class)),
        FieldKind::Optional(class) => is_empty(builder, class.field),
        FieldKind::Variant(class) => {
            (0..class.options.len()).all(|index| is_empty(builder, class.options.field(index)))
        }
        _ => false,
    }
}

fn with_role(builder: &TraceClassBuilder, root: FieldId, role: Role) -> Vec<FieldId> {
    find(builder, root, &mut |id| builder.field(id).roles.has(role))
}

fn find(
    builder: &TraceClassBuilder,
    root: FieldId,
    wanted: &mut dyn FnMut(FieldId) -> bool,
) -> Vec<FieldId> {
    let mut found = Vec::new();
    let mut stack = vec![root];
    while let Some(id) = stack.pop() {
        if wanted(id) {
            found.push(id);
        }
        let start = stack.len();
        stack.extend(children(&builder.field(id).kind));
        stack[start..].reverse();
    }
    found
}

fn at(builder: &TraceClassBuilder, id: FieldId) -> Subject {
    Subject::Origin(builder.origin(id))
}
