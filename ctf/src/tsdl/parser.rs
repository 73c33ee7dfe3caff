//! Root blocks: `trace`, `env`, `clock`, `stream`, `event`, `callsite` and aliases.

use super::attribute::{Attribute, AttributeValue, check_duplicates, fault};
use super::scanner::Scanner;
use super::scope::{FrameKind, Frames};
use crate::class::{
    BuildError, ByteOrder, ClockClass, ClockOrigin, EnvironmentValue, EventClass, FieldId,
    FieldKind, MajorVersion, StreamClass, Subject, TraceClassBuilder,
};
use crate::metadata::leniency::Leniency;
use std::collections::HashMap;

/// Parser of one text. Byte orders of fields depend on the `trace` block, which can be anywhere:
/// a first pass only finds its byte order, and then parsing starts again.
pub(super) struct Parser<'t> {
    pub(super) scanner: Scanner<'t>,
    pub(super) frames: Frames,
    pub(super) builder: TraceClassBuilder,
    pub(super) byte_order: Option<ByteOrder>,
    pub(super) depth: u32,
    pub(super) environment: Option<HashMap<String, EnvironmentValue>>,
    /// Warnings: byte offset and message.
    pub(super) warnings: Vec<(u32, String)>,
    pub(super) leniency: Leniency,
    /// The `stream_id` of each `event` block that has one, with its offset.
    named_streams: Vec<(u64, u32)>,
    /// There is a `stream` block.
    has_stream: bool,
    text: &'t [u8],
    /// The `trace` block was parsed when its byte order was known.
    trace_found: bool,
}

/// The content of a block, except aliases.
struct Block<const N: usize> {
    attributes: Vec<Attribute>,
    scopes: [Option<FieldId>; N],
}

/// Names that begin the structure of a scope.
struct ScopeName {
    first: &'static str,
    second: Option<&'static str>,
    /// A different second name is a fault; otherwise another scope may have the same first name.
    decided: bool,
}

const PACKET_HEADER: ScopeName = scope_name("packet", Some("header"), true);
const PACKET_CONTEXT: ScopeName = scope_name("packet", Some("context"), true);
const EVENT_HEADER: ScopeName = scope_name("event", Some("header"), false);
const EVENT_CONTEXT: ScopeName = scope_name("event", Some("context"), false);
const SPECIFIC_CONTEXT: ScopeName = scope_name("context", None, true);
const PAYLOAD: ScopeName = scope_name("fields", None, true);

const fn scope_name(first: &'static str, second: Option<&'static str>, decided: bool) -> ScopeName {
    ScopeName {
        first,
        second,
        decided,
    }
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t [u8], leniency: Leniency, depth_max: u32) -> Self {
        Self {
            scanner: Scanner::new(text),
            frames: Frames::new(leniency),
            builder: new_builder(text, depth_max),
            byte_order: None,
            depth: 0,
            environment: None,
            warnings: Vec::new(),
            leniency,
            named_streams: Vec::new(),
            has_stream: false,
            text,
            trace_found: false,
        }
    }

    /// Parses the text and adds all classes to the builder.
    pub(super) fn parse(&mut self) -> Result<(), BuildError> {
        loop {
            self.scanner.skip_semicolons();
            if self.scanner.is_done() {
                break;
            }
            self.root_block()?;
        }
        if !self.trace_found {
            return Err(BuildError::new(Subject::Whole, "missing `trace` block"));
        }
        if self.leniency == Leniency::Lenient {
            self.check_named_streams()?;
            if !self.named_streams.iter().any(|(stream, _)| *stream == 0) {
                self.builder.move_events_to_only_stream()?;
            }
        }
        Ok(())
    }

    /// Checks that an event names no stream where no block describes any, as Babeltrace does. That
    /// it names one of several is checked later.
    fn check_named_streams(&self) -> Result<(), BuildError> {
        match self.named_streams.first() {
            Some((stream, at)) if !self.has_stream => fault(
                *at,
                format!("event class needs the stream class {stream}, which does not exist"),
            ),
            _ => Ok(()),
        }
    }

    fn root_block(&mut self) -> Result<(), BuildError> {
        let at = self.scanner.offset();
        if self.alias_declaration()? {
            return Ok(());
        }
        let Some(word) = self.scanner.peek_identifier() else {
            return fault(at, ROOT_EXPECTED);
        };
        let parse = match word {
            "event" => Self::event_block,
            "stream" => Self::stream_block,
            "trace" => Self::trace_block,
            "env" => Self::environment_block,
            "clock" => Self::clock_block,
            "callsite" => Self::callsite_block,
            _ => return fault(at, ROOT_EXPECTED),
        };
        self.scanner.word(word);
        parse(self, at).map_err(|error| context(error, at, format!("in the `{word}` block")))
    }

    /// `{`, attributes, scopes and aliases, `}`, `;`. The keyword was consumed.
    fn block<const N: usize>(&mut self, names: [ScopeName; N]) -> Result<Block<N>, BuildError> {
        self.frames.push(FrameKind::Block);
        self.expect("{")?;
        let mut block = Block {
            attributes: Vec::new(),
            scopes: [None; N],
        };
        'items: loop {
            self.scanner.skip_semicolons();
            if self.scanner.punctuation("}") {
                break;
            }
            for (name, slot) in names.iter().zip(&mut block.scopes) {
                if let Some(class) = self.scope_structure(name)? {
                    if slot.is_some() {
                        let at = self.scanner.offset();
                        return fault(at, format!("duplicate scope `{}`", name.first));
                    }
                    *slot = Some(class);
                    continue 'items;
                }
            }
            if N > 0 && self.alias_declaration()? {
                continue;
            }
            if N > 0 && self.skip_unknown_scope()? {
                continue;
            }
            let attribute = self.attribute()?;
            block.attributes.push(attribute);
        }
        self.expect(";")?;
        self.frames.pop();
        Ok(block)
    }

    /// `name := TYPE;` with an unknown name, which is skipped in lenient mode.
    fn skip_unknown_scope(&mut self) -> Result<bool, BuildError> {
        let before = self.scanner;
        let at = self.scanner.offset();
        let is_scope = self.leniency == Leniency::Lenient
            && self.scanner.identifier().is_some()
            && self.scanner.punctuation(":=");
        if is_scope {
            self.any_type()?;
            self.expect(";")?;
            self.warnings.push((at, "unknown scope ignored".to_owned()));
        } else {
            self.scanner = before;
        }
        Ok(is_scope)
    }

    /// `first[.second] := STRUCT;`
    fn scope_structure(&mut self, name: &ScopeName) -> Result<Option<FieldId>, BuildError> {
        let before = self.scanner;
        self.scanner.skip();
        let at = self.scanner.offset();
        if !self.scanner.word(name.first) {
            return Ok(None);
        }
        let within = |error| context(error, at, format!("in the `{}` scope", name.first));
        if let Some(second) = name.second {
            self.expect(".").map_err(within)?;
            if !self.scanner.word(second) {
                if name.decided {
                    let found = self.scanner.offset();
                    return fault(found, format!("expecting `{second}`")).map_err(within);
                }
                self.scanner = before;
                return Ok(None);
            }
        }
        self.structure_of_scope().map(Some).map_err(within)
    }

    fn structure_of_scope(&mut self) -> Result<FieldId, BuildError> {
        self.expect(":=")?;
        self.scanner.skip();
        let at = self.scanner.offset();
        self.frames.push(FrameKind::Block);
        let class = self.any_type()?;
        self.frames.pop();
        let Some(class) = class else {
            return fault(at, "expecting a type or the name of an alias");
        };
        if !matches!(self.builder.field(class).kind, FieldKind::Struct(_)) {
            return fault(at, "expecting a structure");
        }
        self.expect(";")?;
        Ok(class)
    }

    fn trace_block(&mut self, at: u32) -> Result<(), BuildError> {
        if self.trace_found {
            return fault(self.scanner.offset(), "duplicate `trace` block");
        }
        let block = self.block([PACKET_HEADER])?;
        check_duplicates(&block.attributes)?;
        let (mut major, mut minor, mut byte_order, mut uuid) = (None, None, None, None);
        for attribute in &block.attributes {
            match attribute.name.as_str() {
                "major" => major = Some(self.version(attribute, 1)?),
                "minor" => minor = Some(self.version(attribute, 8)?),
                "byte_order" => match attribute.byte_order()? {
                    Some(order) => byte_order = Some(order),
                    None => {
                        return fault(attribute.value_at, "the byte order cannot be native here");
                    }
                },
                "uuid" => {
                    let text = attribute.string()?;
                    if text.len() != 36 {
                        return fault(attribute.value_at, format!("malformed UUID `{text}`"));
                    }
                    uuid = Some(attribute.uuid()?);
                }
                _ => self.unknown(attribute)?,
            }
        }
        for (name, missing) in [("major", major.is_none()), ("minor", minor.is_none())] {
            if missing {
                return fault(at, format!("missing attribute `{name}`"));
            }
        }
        if byte_order.is_none() {
            return fault(at, "missing attribute `byte_order`");
        }
        if self.byte_order.is_none() {
            *self = Self {
                byte_order,
                ..Self::new(self.text, self.leniency, self.builder.depth_max)
            };
            return Ok(());
        }
        self.trace_found = true;
        self.builder.uuid = uuid;
        self.builder.byte_order = byte_order;
        self.builder.packet_header = block.scopes[0];
        Ok(())
    }

    fn version(&self, attribute: &Attribute, expected: u64) -> Result<u64, BuildError> {
        let value = attribute.unsigned()?;
        if value == expected {
            return Ok(value);
        }
        let message = format!(
            "unsupported {} version {value}: expecting {expected}",
            attribute.name
        );
        fault(attribute.value_at, message)
    }

    /// Warns about an unknown attribute, or rejects it.
    pub(super) fn unknown(&mut self, attribute: &Attribute) -> Result<(), BuildError> {
        let message = format!("unknown attribute `{}`", attribute.name);
        if self.leniency == Leniency::Strict {
            return fault(attribute.name_at, message);
        }
        self.warnings
            .push((attribute.name_at, message + " is ignored"));
        Ok(())
    }

    fn environment_block(&mut self, _: u32) -> Result<(), BuildError> {
        if self.environment.is_some() {
            return fault(self.scanner.offset(), "duplicate `env` block");
        }
        let block = self.block([])?;
        check_duplicates(&block.attributes)?;
        let mut entries = HashMap::new();
        for attribute in block.attributes {
            let value = match &attribute.value {
                AttributeValue::Identifier(_) | AttributeValue::Clock(_) => {
                    return fault(
                        attribute.value_at,
                        "expecting an integer constant or a string",
                    );
                }
                AttributeValue::String(text) => EnvironmentValue::String(text.as_str().into()),
                _ => EnvironmentValue::Integer(attribute.signed()?),
            };
            let key = attribute.name.as_str().into();
            self.builder.environment.push((key, value.clone()));
            entries.insert(attribute.name, value);
        }
        self.environment = Some(entries);
        Ok(())
    }

    fn callsite_block(&mut self, _: u32) -> Result<(), BuildError> {
        self.block([]).map(|_| ())
    }

    fn clock_block(&mut self, at: u32) -> Result<(), BuildError> {
        let block = self.block([])?;
        if self.byte_order.is_none() {
            return Ok(());
        }
        check_duplicates(&block.attributes)?;
        let mut clock = ClockClass::new("");
        clock.origin = ClockOrigin::Unknown;
        for attribute in &block.attributes {
            self.clock_attribute(&mut clock, attribute)?;
        }
        if clock.id.is_empty() {
            return fault(at, "missing attribute `name`");
        }
        if self.builder.find_clock(&clock.id).is_some() {
            return fault(at, format!("duplicate `clock` block named `{}`", clock.id));
        }
        if !clock.normalize_offset() {
            return fault(at, "the offset of the clock does not fit 64 bits");
        }
        self.builder.add_clock(clock);
        Ok(())
    }

    fn clock_attribute(
        &mut self,
        clock: &mut ClockClass,
        attribute: &Attribute,
    ) -> Result<(), BuildError> {
        match attribute.name.as_str() {
            "name" => {
                clock.id = attribute.name()?.into();
                clock.name = Some(clock.id.clone());
            }
            "description" => clock.description = Some(attribute.string()?.into()),
            "uuid" => clock.uuid = Some(attribute.uuid()?),
            "freq" => {
                clock.frequency = attribute.unsigned()?;
                if clock.frequency == 0 {
                    return fault(attribute.value_at, "the frequency of a clock cannot be 0");
                }
            }
            "precision" => clock.precision = Some(attribute.unsigned()?),
            "offset_s" => clock.offset_seconds = attribute.signed()?,
            "offset" => clock.offset_cycles = attribute.unsigned()?,
            "absolute" => {
                let epoch = attribute.boolean()?;
                clock.origin = if epoch {
                    ClockOrigin::UnixEpoch
                } else {
                    ClockOrigin::Unknown
                };
            }
            _ => self.unknown(attribute)?,
        }
        Ok(())
    }

    fn stream_block(&mut self, at: u32) -> Result<(), BuildError> {
        let block = self.block([PACKET_CONTEXT, EVENT_HEADER, EVENT_CONTEXT])?;
        if self.byte_order.is_none() {
            return Ok(());
        }
        check_duplicates(&block.attributes)?;
        let mut stream = StreamClass::new(0);
        for attribute in &block.attributes {
            match attribute.name.as_str() {
                "id" => stream.id = attribute.unsigned()?,
                _ => self.unknown(attribute)?,
            }
        }
        let id = stream.id;
        self.has_stream = true;
        [
            stream.packet_context,
            stream.event_header,
            stream.event_common_context,
        ] = block.scopes;
        if self.builder.add_stream(stream) {
            return Ok(());
        }
        fault(at, format!("duplicate `stream` block with id {id}"))
    }

    fn event_block(&mut self, at: u32) -> Result<(), BuildError> {
        let block = self.block([SPECIFIC_CONTEXT, PAYLOAD])?;
        if self.byte_order.is_none() {
            return Ok(());
        }
        check_duplicates(&block.attributes)?;
        let mut event = EventClass::new(0, None);
        let mut stream = 0;
        for attribute in &block.attributes {
            match attribute.name.as_str() {
                "id" => event.id = attribute.unsigned()?,
                "stream_id" => {
                    stream = attribute.unsigned()?;
                    self.named_streams.push((stream, at));
                }
                "loglevel" => event.log_level = Some(attribute.signed()?),
                "model.emf.uri" => event.emf_uri = Some(attribute.string()?.into()),
                "name" => event.identity.name = Some(attribute.name()?.into()),
                _ => self.unknown(attribute)?,
            }
        }
        let id = event.id;
        [event.specific_context, event.payload] = block.scopes;
        if self.builder.add_event(stream, event, at) {
            return Ok(());
        }
        fault(
            at,
            format!("duplicate `event` block with id {id} in stream class {stream}"),
        )
    }
}

const ROOT_EXPECTED: &str = "expecting an alias (`typealias`, `typedef`, `enum NAME`, \
     `struct NAME`, `variant NAME`) or a block (`trace`, `env`, `clock`, `stream`, `event`); is a \
     `;` missing after the `}` before?";

pub(super) fn context(error: BuildError, at: u32, message: impl Into<String>) -> BuildError {
    error.within(Subject::Origin(at), message)
}

/// Aliases multiply fields, so the number of fields is limited in proportion to the length of the
/// text.
fn new_builder(text: &[u8], depth_max: u32) -> TraceClassBuilder {
    let mut builder = TraceClassBuilder::new(MajorVersion::V1);
    builder.depth_max = depth_max;
    builder.limit_fields(crate::class::FIELD_COUNT_BASE.saturating_add(text.len()));
    builder
}
