//! What is known of the text of a field before any packet is read.

use ctf::class::{DisplayBase, Encoding, FieldKind, Mappings, Roles, Scope, TraceClass};
use ctf::text::{
    push_binary, push_escaped, push_hexadecimal, push_octal, push_signed, push_unsigned,
};
use ctf::{NodeId, Procedure};

/// Enumeration values below this have their labels ready.
const READY_LABELS: u64 = 32;

/// How the value of a field is written.
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
    /// With labels: an index into the plan's table.
    Enumeration {
        base: DisplayBase,
        bits: u32,
        labels: u32,
    },
    String(Encoding),
}

/// The text around a field.
#[derive(Clone, Debug)]
pub(super) struct NodeText {
    /// False for what Babeltrace does not show: values that only matter for decoding.
    pub(super) visible: bool,
    /// The element of an array: its prefix has its index.
    pub(super) in_array: bool,
    prefix: Prefix,
    pub(super) style: Style,
}

/// Bytes of a prefix that is copied as a whole.
const SHORT: usize = 32;

/// The text before a value: a name is rarely long.
#[derive(Clone, Copy, Debug)]
enum Prefix {
    Short([u8; SHORT], u8),
    /// Where it is in the plan's literals.
    Long(u32, u32),
}

/// Labels of an enumeration: `( "A", "B" : container = `.
#[derive(Clone, Debug)]
struct Labels {
    class: ctf::class::FieldId,
    /// For values from 0.
    ready: Vec<(u32, u32)>,
}

/// Text of all nodes of a procedure.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: Vec<NodeText>,
    literals: Vec<u8>,
    labels: Vec<Labels>,
}

impl Plan {
    pub(super) fn new(procedure: &Procedure) -> Self {
        let mut plan = Self {
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
            let mut prefix = Vec::new();
            if let (Some(name), Some(parent), true) =
                (node.display_name(), node.parent(), visible[index])
            {
                let shown = &mut shown_members[parent.index()];
                prefix.extend_from_slice(if *shown == 0 { b" " } else { b", " });
                *shown += 1;
                prefix.extend_from_slice(name.as_bytes());
                prefix.extend_from_slice(b" = ");
            }
            let prefix = plan.keep(&prefix);
            let style = plan.style(procedure.trace_class(), node.class());
            plan.nodes.push(NodeText {
                visible: visible[index],
                in_array: matches!(parent, Some(FieldKind::Array(_))),
                prefix,
                style,
            });
        }
        plan
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
            let labels = self.labels.len() as u32;
            let mut ready = Vec::new();
            for value in 0..READY_LABELS {
                let start = self.literals.len() as u32;
                push_labels(&mut self.literals, &trace.field(id).kind, value);
                ready.push((start, self.literals.len() as u32));
            }
            self.labels.push(Labels { class: id, ready });
            return Style::Enumeration { base, bits, labels };
        }
        match is_signed {
            true => Style::Signed { base, bits },
            false => Style::Unsigned { base, bits },
        }
    }

    fn keep(&mut self, prefix: &[u8]) -> Prefix {
        let mut short = [0; SHORT];
        if let Some(start) = short.get_mut(..prefix.len()) {
            start.copy_from_slice(prefix);
            return Prefix::Short(short, prefix.len() as u8);
        }
        let start = self.literals.len() as u32;
        self.literals.extend_from_slice(prefix);
        Prefix::Long(start, self.literals.len() as u32)
    }

    /// Appends the text before the value of `node`.
    #[inline]
    pub(super) fn push_prefix(&self, out: &mut Vec<u8>, node: &NodeText) {
        match &node.prefix {
            Prefix::Short(text, length) => {
                let end = out.len() + usize::from(*length);
                out.extend_from_slice(text);
                out.truncate(end);
            }
            Prefix::Long(start, end) => {
                out.extend_from_slice(&self.literals[*start as usize..*end as usize]);
            }
        }
    }

    /// The node `id`.
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &NodeText {
        &self.nodes[id.index()]
    }

    /// How the elements of the array `id` are written when they are unsigned integers of eight
    /// bits that are shown and have no labels.
    #[inline]
    pub(super) fn octets(&self, id: NodeId) -> Option<DisplayBase> {
        // The nodes inside a node follow it.
        let element = self.nodes.get(id.index() + 1)?;
        match element.style {
            Style::Unsigned { base, bits: 8 } if element.visible && element.in_array => Some(base),
            _ => None,
        }
    }

    /// Whether `field` of an event record is shown.
    pub(super) fn is_shown(&self, field: NodeId) -> bool {
        self.nodes[field.index()].visible
    }

    /// Writes the integer `raw` of a node with `style`.
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
                let labels = &self.labels[labels as usize];
                match labels.ready.get(usize::try_from(raw).unwrap_or(usize::MAX)) {
                    Some(range) => {
                        let ready = &self.literals[range.0 as usize..range.1 as usize];
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
                // Babeltrace keeps labels by name.
                let mut labels: Vec<&str> = mappings.names_of(value).collect();
                labels.sort_unstable();
                for (index, label) in labels.into_iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    push_label(out, label);
                }
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

/// Which nodes Babeltrace shows. Headers are never shown; a value with a role is shown only when
/// another field needs it; what contains something is shown when some of it is.
fn visibility(procedure: &Procedure) -> Vec<bool> {
    let trace = procedure.trace_class();
    let nodes = procedure.nodes();
    let mut visible = vec![false; nodes.len()];
    let mut is_container = vec![false; nodes.len()];
    for node in nodes {
        if let Some(parent) = node.parent() {
            is_container[parent.index()] = true;
        }
    }
    // The nodes inside a node follow it.
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
