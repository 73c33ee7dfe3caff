//! The parts of the text of fields that are known before any packet is read.

use ctf::class::{DisplayBase, Encoding, FieldKind, Mappings, Roles, Scope, TraceClass};
use ctf::text::{
    push_binary, push_escaped, push_hexadecimal, push_octal, push_signed, push_unsigned,
};
use ctf::{NodeId, Procedure};

use super::style::NameChoice;

/// Enumeration values below this have precomputed labels.
const READY_LABELS: u64 = 32;

/// The format of a field's value.
#[derive(Clone, Debug)]
pub(super) enum Style {
    Plain,
    Unsigned {
        base: DisplayBase,
        bits: u32,
    },
    Signed {
        base: DisplayBase,
        bits: u32,
    },
    /// An enumeration: `labels` is an index into the layout's table.
    Enumeration {
        base: DisplayBase,
        bits: u32,
        labels: usize,
    },
    String(Encoding),
}

/// The text before a field's value, and the format of the value.
#[derive(Clone, Debug)]
pub(super) struct FieldLayout {
    /// False for values that Babeltrace does not print, because they only matter for decoding.
    pub(super) visible: bool,
    /// True for the element of an array, whose prefix is its index.
    pub(super) in_array: bool,
    /// True when names and indexes are printed.
    pub(super) is_named: bool,
    prefix: Prefix,
    pub(super) style: Style,
}

/// Capacity of a short prefix, which is copied with constant length.
const SHORT: usize = 32;

/// The text before a value. Long ones are rare.
#[derive(Clone, Copy, Debug)]
enum Prefix {
    Short([u8; SHORT], u8),
    /// Its range in the layout's literals.
    Long(usize, usize),
}

/// Labels of an enumeration: `( "A", "B" : container = `.
#[derive(Clone, Debug)]
struct Labels {
    class: ctf::class::FieldId,
    /// Ranges in the layout's literals for the values from 0.
    ready: Vec<(usize, usize)>,
}

/// The layout of all nodes of a procedure.
#[derive(Clone, Debug)]
pub(super) struct TextLayout {
    pub(super) nodes: Vec<FieldLayout>,
    literals: Vec<u8>,
    labels: Vec<Labels>,
}

impl TextLayout {
    pub(super) fn new(procedure: &Procedure, names: &NameChoice) -> Self {
        let mut layout = Self {
            nodes: Vec::new(),
            literals: Vec::new(),
            labels: Vec::new(),
        };
        let visible = visibility(procedure);
        let mut shown_members = vec![0_u32; procedure.nodes().len()];
        for (index, node) in procedure.nodes().iter().enumerate() {
            let parent = node.parent().map(|id| {
                &procedure
                    .trace_class()
                    .field(procedure.node(id).class())
                    .kind
            });
            let is_named = match node.scope() {
                Scope::EventPayload => names.payload,
                _ => names.context,
            };
            let mut prefix = Vec::new();
            if let (Some(name), Some(parent), true) =
                (node.display_name(), node.parent(), visible[index])
            {
                let shown = &mut shown_members[parent.index()];
                prefix.extend_from_slice(if *shown == 0 { b" " } else { b", " });
                *shown += 1;
                if is_named {
                    prefix.extend_from_slice(name.as_bytes());
                    prefix.extend_from_slice(b" = ");
                }
            }
            let prefix = layout.prefix(&prefix);
            let style = layout.style(procedure.trace_class(), node.class());
            layout.nodes.push(FieldLayout {
                visible: visible[index],
                in_array: matches!(parent, Some(FieldKind::Array(_))),
                is_named,
                prefix,
                style,
            });
        }
        layout
    }

    fn style(&mut self, trace: &TraceClass, id: ctf::class::FieldId) -> Style {
        let (base, bits, is_signed, is_enumeration) = match &trace.field(id).kind {
            FieldKind::Unsigned(bits, class) => (
                class.base,
                u32::from(bits.length),
                false,
                !class.mappings.is_empty(),
            ),
            FieldKind::VariableUnsigned(class) => {
                (class.base, 64, false, !class.mappings.is_empty())
            }
            FieldKind::Signed(bits, class) => (
                class.base,
                u32::from(bits.length),
                true,
                !class.mappings.is_empty(),
            ),
            FieldKind::VariableSigned(class) => (class.base, 64, true, !class.mappings.is_empty()),
            FieldKind::NullTerminatedString(encoding) => return Style::String(*encoding),
            FieldKind::String(class) => return Style::String(class.encoding),
            _ => return Style::Plain,
        };
        if is_enumeration {
            let labels = self.labels.len();
            let mut ready = Vec::new();
            for value in 0..READY_LABELS {
                let start = self.literals.len();
                push_labels(&mut self.literals, &trace.field(id).kind, value);
                ready.push((start, self.literals.len()));
            }
            self.labels.push(Labels { class: id, ready });
            return Style::Enumeration { base, bits, labels };
        }
        if is_signed {
            Style::Signed { base, bits }
        } else {
            Style::Unsigned { base, bits }
        }
    }

    fn prefix(&mut self, prefix: &[u8]) -> Prefix {
        let mut short = [0; SHORT];
        if let Some(start) = short.get_mut(..prefix.len()) {
            start.copy_from_slice(prefix);
            return Prefix::Short(short, u8::try_from(prefix.len()).unwrap_or(0));
        }
        let start = self.literals.len();
        self.literals.extend_from_slice(prefix);
        Prefix::Long(start, self.literals.len())
    }

    /// Appends the text before the value of `node`.
    #[inline]
    pub(super) fn push_prefix(&self, out: &mut Vec<u8>, node: &FieldLayout) {
        match &node.prefix {
            Prefix::Short(text, length) => {
                let end = out.len() + usize::from(*length);
                out.extend_from_slice(text);
                out.truncate(end);
            }
            Prefix::Long(start, end) => {
                out.extend_from_slice(&self.literals[*start..*end]);
            }
        }
    }

    /// The layout of the node `id`.
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &FieldLayout {
        &self.nodes[id.index()]
    }

    /// The base in which the elements of the array `id` are printed, when they are visible unsigned
    /// integers of eight bits without labels.
    #[inline]
    pub(super) fn octets(&self, id: NodeId) -> Option<DisplayBase> {
        // Contained nodes directly follow their container.
        let element = self.nodes.get(id.index() + 1)?;
        match element.style {
            Style::Unsigned { base, bits: 8 } if element.visible && element.in_array => {
                Some(base).filter(|_| element.is_named)
            }
            _ => None,
        }
    }

    /// Whether `field` is printed.
    pub(super) fn is_visible(&self, field: NodeId) -> bool {
        self.nodes[field.index()].visible
    }

    /// Appends the integer `raw` of a node with `style`.
    #[inline]
    pub(super) fn push_integer(
        &self,
        out: &mut Vec<u8>,
        style: &Style,
        trace: &TraceClass,
        raw: u64,
        is_signed: bool,
    ) {
        match *style {
            Style::Enumeration { base, bits, labels } => {
                let labels = &self.labels[labels];
                match labels.ready.get(usize::try_from(raw).unwrap_or(usize::MAX)) {
                    Some(range) => {
                        let ready = &self.literals[range.0..range.1];
                        out.extend_from_slice(ready);
                    }
                    None => push_labels(out, &trace.field(labels.class).kind, raw),
                }
                push_based(out, base, bits, raw, is_signed);
                out.extend_from_slice(b" )");
            }
            Style::Unsigned { base, bits } | Style::Signed { base, bits } => {
                push_based(out, base, bits, raw, is_signed);
            }
            Style::Plain | Style::String(_) => push_unsigned(out, raw),
        }
    }
}

fn push_label(out: &mut Vec<u8>, label: &str) {
    out.push(b'"');
    push_escaped(out, label.as_bytes());
    out.push(b'"');
}

fn push_labels(out: &mut Vec<u8>, kind: &FieldKind, raw: u64) {
    fn push_all<T: Copy + Ord>(out: &mut Vec<u8>, mappings: &Mappings<T>, value: T) {
        let mut found = mappings.names_of(value);
        match (found.next(), found.next()) {
            (None, _) => out.extend_from_slice(b"<unknown>"),
            (Some(label), None) => push_label(out, label),
            _ => {
                // Babeltrace prints labels in the order of its hash table, which is not stable.
                let mut labels: Vec<&str> = mappings.names_of(value).collect();
                labels.sort_unstable();
                for (index, label) in labels.into_iter().enumerate() {
                    out.extend_from_slice(if index == 0 { b"{ " } else { b", " });
                    push_label(out, label);
                }
                out.extend_from_slice(b" }");
            }
        }
    }
    out.extend_from_slice(b"( ");
    match kind {
        FieldKind::Unsigned(_, class) | FieldKind::VariableUnsigned(class) => {
            push_all(out, &class.mappings, raw);
        }
        FieldKind::Signed(_, class) | FieldKind::VariableSigned(class) => {
            push_all(out, &class.mappings, raw.cast_signed());
        }
        _ => {}
    }
    out.extend_from_slice(b" : container = ");
}

#[inline]
fn push_based(out: &mut Vec<u8>, base: DisplayBase, bits: u32, raw: u64, is_signed: bool) {
    match base {
        DisplayBase::Decimal if is_signed => push_signed(out, raw.cast_signed()),
        DisplayBase::Decimal => push_unsigned(out, raw),
        DisplayBase::Hexadecimal => {
            out.extend_from_slice(b"0x");
            push_hexadecimal(out, raw & low_bits(bits.next_multiple_of(4)));
        }
        DisplayBase::Octal => {
            let mask = if is_signed {
                low_bits(bits.next_multiple_of(3))
            } else {
                u64::MAX
            };
            out.push(b'0');
            push_octal(out, raw & mask);
        }
        DisplayBase::Binary => {
            out.extend_from_slice(b"0b");
            push_binary(out, raw, bits);
        }
    }
}

fn low_bits(bits: u32) -> u64 {
    u64::MAX
        .checked_shr(64_u32.saturating_sub(bits))
        .unwrap_or(0)
}

/// The nodes that Babeltrace prints. Headers are never printed; a value with a role is printed only
/// when another field depends on it; a container is printed when some of its content is.
pub(crate) fn visibility(procedure: &Procedure) -> Vec<bool> {
    let trace = procedure.trace_class();
    let nodes = procedure.nodes();
    let mut visible = vec![false; nodes.len()];
    let mut is_container = vec![false; nodes.len()];
    for node in nodes {
        if let Some(parent) = node.parent() {
            is_container[parent.index()] = true;
        }
    }
    // Contained nodes directly follow their container.
    for (index, node) in nodes.iter().enumerate().rev() {
        let class = trace.field(node.class());
        if matches!(node.scope(), Scope::PacketHeader | Scope::EventHeader) {
            continue;
        }
        if !is_container[index] && (class.roles == Roles::NONE || !class.slots.is_empty()) {
            visible[index] = true;
        }
        if let (true, Some(parent)) = (visible[index], node.parent()) {
            visible[parent.index()] = true;
        }
    }
    visible
}
