//! The classes of a trace.

use ctf::class::{
    ArrayClass, ClockClass, ClockOrigin, Dependency, DisplayBase, EnvironmentValue, EventClass,
    FieldKind, IntRange, Length, Mappings, OptionalClass, Role, Scope, SelectorRanges, StreamClass,
    VariantClass, VariantOptions,
};
use ctf::{NodeId, Procedure};

use super::layout::{EventRoots, Layout, StreamRoots};
use super::number::{push_decimal, push_int, push_uint};
use super::options::DetailsOptions;
use super::text::{Lines, plural};

/// Names of the log levels by their number.
const LOG_LEVELS: [&str; 15] = [
    "Emergency",
    "Alert",
    "Critical",
    "Error",
    "Warning",
    "Notice",
    "Info",
    "Debug (system)",
    "Debug (program)",
    "Debug (process)",
    "Debug (module)",
    "Debug (unit)",
    "Debug (function)",
    "Debug (line)",
    "Debug",
];

/// What the packets of a stream class contain.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one line of the text"
)]
pub(super) struct PacketTimes {
    pub(super) has_begin: bool,
    pub(super) has_end: bool,
    has_discarded_events: bool,
    has_sequence: bool,
}

impl PacketTimes {
    pub(super) fn of(procedure: &Procedure, stream: &StreamClass) -> Self {
        let trace = procedure.trace_class();
        let context = stream.packet_context;
        let members = context.map_or(&[][..], |context| trace.field(context).members());
        let has = |role| {
            members
                .iter()
                .any(|member| trace.field(member.class).roles.has(role))
        };
        let has_clock = stream.default_clock.is_some();
        Self {
            has_begin: has_clock && has(Role::ClockTimestamp),
            has_end: has_clock && has(Role::PacketEndTimestamp),
            has_discarded_events: has(Role::DiscardedEvents),
            has_sequence: has(Role::PacketSequenceNumber),
        }
    }

    /// Whether discarded events and packets have times.
    pub(super) fn has_both(self) -> bool {
        self.has_begin && self.has_end
    }
}

/// What is left to write of the classes that are open. Classes can nest more deeply than functions
/// may call themselves.
enum Rest<'a> {
    Class(NodeId),
    Member(NodeId),
    Option {
        variant: &'a VariantClass,
        has_selector: bool,
        node: NodeId,
    },
    /// The field of an array or optional, and what it is called.
    Content(&'static str, NodeId),
    /// The end of a class with classes in it.
    End,
}

/// Writes classes.
pub(super) struct ClassWriter<'a> {
    pub(super) procedure: &'a Procedure,
    pub(super) layout: &'a Layout,
    pub(super) options: DetailsOptions,
    pub(super) lines: &'a mut Lines,
}

impl<'a> ClassWriter<'a> {
    pub(super) fn trace_class(&mut self) {
        let trace = self.procedure.trace_class().clone();
        self.lines.push("Trace class");
        if trace.stream_classes().is_empty() {
            self.lines.push("\n");
            return;
        }
        self.lines.push(":\n");
        self.lines.deeper();
        for (index, stream) in trace.stream_classes().iter().enumerate() {
            let layout = self.layout;
            self.stream_class(stream, layout.stream(index));
        }
        self.lines.back();
    }

    fn stream_class(&mut self, stream: &StreamClass, roots: &StreamRoots) {
        self.lines.indent();
        self.lines.push("Stream class");
        if let (true, Some(name)) = (
            self.options.with_stream_class_name,
            stream.identity.name.as_deref(),
        ) {
            self.lines.push(&format!(" `{name}`"));
        }
        self.lines.push(" (ID ");
        push_decimal(&mut self.lines.out, stream.id);
        self.lines.push("):\n");
        self.lines.deeper();
        let times = PacketTimes::of(self.procedure, stream);
        self.lines.flag("Supports packets", true);
        let begin = "Packets have beginning default clock snapshot";
        self.lines.flag(begin, times.has_begin);
        let end = "Packets have end default clock snapshot";
        self.lines.flag(end, times.has_end);
        let losses = [
            ("events", "Discarded events", times.has_discarded_events),
            ("packets", "Discarded packets", times.has_sequence),
        ];
        for (what, subject, is_supported) in losses {
            let supports = format!("Supports discarded {what}");
            self.lines.flag(&supports, is_supported);
            if is_supported {
                let have = format!("{subject} have default clock snapshots");
                self.lines.flag(&have, times.has_both());
            }
        }
        if let Some(clock) = stream.default_clock {
            self.lines.name("Default clock class");
            self.lines.push("\n");
            self.lines.deeper();
            let trace = self.procedure.trace_class().clone();
            self.clock_class(trace.clock_class(clock));
            self.lines.back();
        }
        self.root("Packet context field class", roots.packet_context);
        self.root("Event common context field class", roots.common_context);
        for (event, roots) in stream.event_classes().iter().zip(&roots.events) {
            self.event_class(event, roots);
        }
        self.lines.back();
    }

    fn clock_class(&mut self, clock: &ClockClass) {
        let text = |value: i64| {
            let mut text = Vec::new();
            push_int(&mut text, value, DisplayBase::Decimal);
            String::from_utf8_lossy(&text).into_owned()
        };
        let unsigned = |value: u64| {
            let mut text = Vec::new();
            push_decimal(&mut text, value);
            String::from_utf8_lossy(&text).into_owned()
        };
        if let Some(name) = &clock.name {
            self.lines.line("Name", name);
        }
        if let Some(description) = &clock.description {
            self.lines.line("Description", description);
        }
        let frequency = unsigned(clock.frequency);
        self.lines.line("Frequency (Hz)", &frequency);
        let precision = unsigned(clock.precision.unwrap_or(0));
        self.lines.line("Precision (cycles)", &precision);
        self.lines.line("Offset (s)", &text(clock.offset_seconds));
        let cycles = unsigned(clock.offset_cycles);
        self.lines.line("Offset (cycles)", &cycles);
        // Babeltrace knows that the clocks of LTTng do, although the metadata does not say it.
        let tracer = self
            .procedure
            .trace_class()
            .environment_entry("tracer_name");
        let is_lttng =
            matches!(tracer, Some(EnvironmentValue::String(name)) if name.starts_with("lttng"));
        let is_epoch = is_lttng || clock.origin == ClockOrigin::UnixEpoch;
        self.lines.flag("Origin is Unix epoch", is_epoch);
        if let (true, Some(uuid)) = (self.options.with_uuid, clock.uuid) {
            self.lines.line("UUID", &uuid.to_string());
        }
    }

    fn event_class(&mut self, event: &EventClass, roots: &EventRoots) {
        self.lines.indent();
        self.lines.push("Event class");
        if let Some(name) = &event.identity.name {
            self.lines.push(&format!(" `{name}`"));
        }
        self.lines.push(" (ID ");
        push_decimal(&mut self.lines.out, event.id);
        self.lines.push("):\n");
        self.lines.deeper();
        let level = event
            .log_level
            .and_then(|level| usize::try_from(level).ok());
        if let Some(level) = level.and_then(|level| LOG_LEVELS.get(level)) {
            self.lines.line("Log level", level);
        }
        if let Some(uri) = &event.emf_uri {
            self.lines.line("EMF URI", uri);
        }
        self.root("Specific context field class", roots.specific_context);
        self.root("Payload field class", roots.payload);
        self.lines.back();
    }

    fn root(&mut self, name: &str, root: Option<NodeId>) {
        let Some(root) = root else { return };
        self.lines.name(name);
        self.lines.push(" ");
        self.field_class(root);
        self.lines.push("\n");
    }

    fn field_class(&mut self, root: NodeId) {
        let mut rest = vec![Rest::Class(root)];
        while let Some(next) = rest.pop() {
            let node = match next {
                Rest::End => {
                    self.lines.back();
                    continue;
                }
                Rest::Class(node) => node,
                Rest::Member(node) => {
                    self.lines.push("\n");
                    let name = self.procedure.node(node).display_name();
                    self.lines.name(name.unwrap_or_default());
                    self.lines.push(" ");
                    node
                }
                Rest::Option {
                    variant,
                    has_selector,
                    node,
                } => {
                    let index = self.procedure.node(node).option();
                    let index = index.and_then(|index| usize::try_from(index).ok());
                    self.lines.push("\n");
                    self.option(variant, index.unwrap_or_default(), has_selector);
                    node
                }
                Rest::Content(name, node) => {
                    self.lines.name(name);
                    self.lines.push(" ");
                    node
                }
            };
            self.class(node, &mut rest);
        }
    }

    /// Writes a class without the classes in it, which are left to write.
    fn class(&mut self, node: NodeId, rest: &mut Vec<Rest<'a>>) {
        let procedure = self.procedure;
        match &procedure.field_class(node).kind {
            FieldKind::Unsigned(bits, class) => {
                self.integer("Unsigned", bits.length, class.base, &class.mappings, &|v| {
                    // Babeltrace prints the bounds of ranges as signed numbers.
                    v.cast_signed()
                });
            }
            FieldKind::VariableUnsigned(class) => {
                self.integer("Unsigned", 64, class.base, &class.mappings, &|v| {
                    v.cast_signed()
                });
            }
            FieldKind::Signed(bits, class) => {
                self.integer("Signed", bits.length, class.base, &class.mappings, &|v| v);
            }
            FieldKind::VariableSigned(class) => {
                self.integer("Signed", 64, class.base, &class.mappings, &|v| v);
            }
            FieldKind::Float(class) if class.bits.length == 32 => {
                self.lines.push("Single-precision real");
            }
            FieldKind::Float(_) => self.lines.push("Double-precision real"),
            FieldKind::NullTerminatedString(_) | FieldKind::String(_) => self.lines.push("String"),
            FieldKind::Bool(_) => self.lines.push("Boolean"),
            FieldKind::BitArray(_) => self.lines.push("Bit array"),
            FieldKind::BitMap(_) => self.lines.push("Bit array with flags"),
            FieldKind::Blob(_) => self.lines.push("BLOB"),
            FieldKind::Struct(_) => self.structure(node, rest),
            FieldKind::Array(class) => self.array(node, class, rest),
            FieldKind::Optional(class) => self.optional(node, class, rest),
            FieldKind::Variant(class) => self.variant(node, class, rest),
        }
    }

    fn integer<T: Copy + Ord>(
        &mut self,
        sign: &str,
        bits: u8,
        base: DisplayBase,
        mappings: &Mappings<T>,
        bound: &dyn Fn(T) -> i64,
    ) {
        let what = if mappings.is_empty() {
            "integer"
        } else {
            "enumeration"
        };
        let base = match base {
            DisplayBase::Binary => 2,
            DisplayBase::Octal => 8,
            DisplayBase::Decimal => 10,
            DisplayBase::Hexadecimal => 16,
        };
        let text = format!("{sign} {what} ({bits}-bit, Base {base}");
        self.lines.push(&text);
        if mappings.is_empty() {
            self.lines.push(")");
            return;
        }
        let mut sorted: Vec<_> = mappings.as_slice().iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        self.lines.push(", ");
        push_decimal(&mut self.lines.out, sorted.len() as u64);
        self.lines
            .push(&format!(" mapping{}):", plural(sorted.len())));
        self.lines.deeper();
        for mapping in sorted {
            self.lines.push("\n");
            self.lines.name(&mapping.name);
            self.ranges(mapping.ranges.ranges(), bound);
        }
        self.lines.back();
    }

    /// ` [LOWER, UPPER]` for each range.
    fn ranges<T: Copy + Ord>(&mut self, ranges: &[IntRange<T>], bound: &dyn Fn(T) -> i64) {
        for range in ranges {
            self.lines.push(" [");
            push_int(
                &mut self.lines.out,
                bound(range.lower),
                DisplayBase::Decimal,
            );
            if range.lower != range.upper {
                self.lines.push(", ");
                push_int(
                    &mut self.lines.out,
                    bound(range.upper),
                    DisplayBase::Decimal,
                );
            }
            self.lines.push("]");
        }
    }

    fn structure(&mut self, node: NodeId, rest: &mut Vec<Rest<'a>>) {
        let layout = self.layout;
        let members = layout.children(node);
        self.lines.push("Structure (");
        push_decimal(&mut self.lines.out, members.len() as u64);
        self.lines
            .push(&format!(" member{})", plural(members.len())));
        if members.is_empty() {
            return;
        }
        self.lines.push(":");
        self.lines.deeper();
        rest.push(Rest::End);
        rest.extend(members.iter().rev().copied().map(Rest::Member));
    }

    fn content(&mut self, name: &'static str, node: NodeId, rest: &mut Vec<Rest<'a>>) {
        let content = self.layout.children(node).iter().rev();
        rest.push(Rest::End);
        rest.extend(content.map(|node| Rest::Content(name, *node)));
    }

    fn array(&mut self, node: NodeId, class: &ArrayClass, rest: &mut Vec<Rest<'a>>) {
        match &class.length {
            Length::Static(length) => {
                self.lines.push("Static array (Length ");
                push_decimal(&mut self.lines.out, *length);
                self.lines.push(")");
            }
            Length::Dynamic(dependency) => match self.path(node, dependency) {
                Some(path) => {
                    let with = "Dynamic array (with length field) (Length field path ";
                    self.lines.push(&format!("{with}{path})"));
                }
                None => self.lines.push("Dynamic array (no length field)"),
            },
        }
        self.lines.push(":\n");
        self.lines.deeper();
        self.content("Element", node, rest);
    }

    fn optional(&mut self, node: NodeId, class: &OptionalClass, rest: &mut Vec<Rest<'a>>) {
        let selector = match &class.enabled {
            SelectorRanges::Bool => "boolean",
            SelectorRanges::Unsigned(_) => "unsigned integer",
            SelectorRanges::Signed(_) => "signed integer",
        };
        match self.path(node, &class.selector) {
            Some(path) => {
                let text = format!("Option ({selector} selector) (Selector field path {path})");
                self.lines.push(&text);
            }
            None => self.lines.push("Option (no selector)"),
        }
        self.lines.push(":\n");
        self.lines.deeper();
        match &class.enabled {
            SelectorRanges::Bool => self.lines.flag("Selector is reversed", false),
            SelectorRanges::Unsigned(set) => {
                self.lines.name("Selector ranges");
                self.ranges(set.ranges(), &|value| value.cast_signed());
                self.lines.push("\n");
            }
            SelectorRanges::Signed(set) => {
                self.lines.name("Selector ranges");
                self.ranges(set.ranges(), &|value| value);
                self.lines.push("\n");
            }
        }
        self.content("Content", node, rest);
    }

    fn variant(&mut self, node: NodeId, variant: &'a VariantClass, rest: &mut Vec<Rest<'a>>) {
        let path = self.path(node, &variant.selector);
        let selector = match (&path, &variant.options) {
            (None, _) => "no",
            (Some(_), VariantOptions::Unsigned(_)) => "unsigned integer",
            (Some(_), VariantOptions::Signed(_)) => "signed integer",
        };
        let layout = self.layout;
        let options = layout.children(node);
        self.lines.push(&format!("Variant ({selector} selector) ("));
        push_decimal(&mut self.lines.out, options.len() as u64);
        self.lines
            .push(&format!(" option{}", plural(options.len())));
        if let Some(path) = &path {
            self.lines.push(&format!(", Selector field path {path}"));
        }
        self.lines.push(")");
        if options.is_empty() {
            return;
        }
        self.lines.push(":");
        self.lines.deeper();
        let has_selector = path.is_some();
        rest.push(Rest::End);
        rest.extend(options.iter().rev().map(|option| Rest::Option {
            variant,
            has_selector,
            node: *option,
        }));
    }

    /// The name of an option and, with a selector, its ranges.
    fn option(&mut self, class: &VariantClass, index: usize, has_selector: bool) {
        match &class.options {
            VariantOptions::Unsigned(options) => {
                let option = &options[index];
                self.lines
                    .name(option.display_name.as_deref().unwrap_or_default());
                if has_selector {
                    self.ranges(option.ranges.ranges(), &|value| value.cast_signed());
                }
            }
            VariantOptions::Signed(options) => {
                let option = &options[index];
                self.lines
                    .name(option.display_name.as_deref().unwrap_or_default());
                if has_selector {
                    self.ranges(option.ranges.ranges(), &|value| value);
                }
            }
        }
        self.lines.push(if has_selector { ": " } else { " " });
    }

    /// The way to a length or selector: `[Event payload: 1, <current>]`.
    fn path(&self, node: NodeId, dependency: &Dependency) -> Option<String> {
        let (scope, steps) = self.layout.path(self.procedure, node, dependency)?;
        let scope = match scope {
            Scope::PacketContext => "Packet context",
            Scope::EventCommonContext => "Event common context",
            Scope::EventSpecificContext => "Event specific context",
            Scope::EventPayload => "Event payload",
            Scope::PacketHeader | Scope::EventHeader => return None,
        };
        let steps = steps.into_iter().map(|step| match step {
            Some(index) => {
                let mut text = Vec::new();
                push_uint(&mut text, index as u64, DisplayBase::Decimal);
                String::from_utf8_lossy(&text).into_owned()
            }
            None => "<current>".to_owned(),
        });
        Some(format!(
            "[{scope}: {}]",
            steps.collect::<Vec<_>>().join(", ")
        ))
    }
}
