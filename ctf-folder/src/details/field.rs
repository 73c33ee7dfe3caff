//! The values of fields.

use ctf::class::{DisplayBase, Encoding, FieldKind};
use ctf::text::{to_utf8, until_null};
use ctf::{Datum, Fields, NodeId, Value};

use super::layout::Layout;
use super::number::{push_decimal, push_int, push_real, push_uint};
use super::text::Lines;

/// Writes a root structure: `NAME:` and its values.
pub(super) fn push_root(
    lines: &mut Lines,
    layout: &Layout,
    name: &str,
    root: NodeId,
    fields: Fields<'_>,
) {
    lines.name(name);
    if layout.children(root).is_empty() {
        lines.push(" Empty");
    }
    lines.deeper();
    let mut values = Values {
        lines,
        layout,
        arrays: Vec::new(),
    };
    for datum in fields {
        values.datum(&datum);
    }
    lines.back();
    lines.push("\n");
}

struct Values<'a> {
    lines: &'a mut Lines,
    layout: &'a Layout,
    /// The node of each open array, and the index of its next element.
    arrays: Vec<(NodeId, u64)>,
}

impl Values<'_> {
    fn datum(&mut self, datum: &Datum<'_>) {
        let node = datum.field.id();
        if !self.layout.is_visible(node) {
            return;
        }
        match datum.value {
            Value::StructEnd => {
                if !self.layout.children(node).is_empty() {
                    self.lines.back();
                }
            }
            Value::ArrayEnd => {
                self.arrays.pop();
                self.lines.back();
            }
            Value::VariantEnd | Value::OptionalEnd => {}
            _ => {
                self.prefix(datum);
                self.value(datum);
            }
        }
    }

    /// The name or index of a value, on a line of its own.
    fn prefix(&mut self, datum: &Datum<'_>) {
        let parent = datum.field.node().parent();
        if let Some(name) = datum.field.display_name() {
            self.lines.push("\n");
            self.lines.name(name);
        } else if let Some((array, index)) = self.arrays.last_mut()
            && parent == Some(*array)
        {
            let at = *index;
            *index += 1;
            self.lines.push("\n");
            self.lines.indent();
            self.lines.push("[");
            push_decimal(&mut self.lines.out, at);
            self.lines.push("]:");
        }
    }

    fn value(&mut self, datum: &Datum<'_>) {
        let node = datum.field.id();
        let out = &mut self.lines.out;
        match datum.value {
            Value::Unsigned(value) => {
                out.push(b' ');
                push_uint(out, value, base(datum));
            }
            Value::Signed(value) => {
                out.push(b' ');
                push_int(out, value, base(datum));
            }
            Value::Float(value) => {
                out.push(b' ');
                push_real(out, value);
            }
            Value::Bool(value) => self.lines.push(if value { " Yes" } else { " No" }),
            Value::BitArray(value) | Value::BitMap(value) => {
                out.push(b' ');
                push_uint(out, value, DisplayBase::Hexadecimal);
            }
            Value::Text(bytes) => {
                out.push(b' ');
                let encoding = encoding(datum);
                let text = until_null(bytes, encoding);
                match encoding {
                    Encoding::Utf8 => out.extend_from_slice(text),
                    _ => out.extend_from_slice(&to_utf8(text, encoding)),
                }
            }
            Value::Blob(bytes) => {
                out.push(b' ');
                let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.lines.push(&text);
            }
            Value::StructBegin if self.layout.children(node).is_empty() => {
                self.lines.push(" Empty");
            }
            Value::StructBegin => self.lines.deeper(),
            Value::ArrayBegin(length) => {
                if length == 0 {
                    self.lines.push(" Empty");
                } else {
                    self.lines.push(" Length ");
                    push_decimal(&mut self.lines.out, length);
                    self.lines.push(":");
                }
                self.lines.deeper();
                self.arrays.push((node, 0));
            }
            Value::OptionalBegin(false) => self.lines.push(" None"),
            _ => {}
        }
    }
}

fn base(datum: &Datum<'_>) -> DisplayBase {
    match &datum.field.class().kind {
        FieldKind::Unsigned(_, class) | FieldKind::VariableUnsigned(class) => class.base,
        FieldKind::Signed(_, class) | FieldKind::VariableSigned(class) => class.base,
        _ => DisplayBase::Decimal,
    }
}

fn encoding(datum: &Datum<'_>) -> Encoding {
    match &datum.field.class().kind {
        FieldKind::NullTerminatedString(encoding) => *encoding,
        FieldKind::String(class) => class.encoding,
        _ => Encoding::Utf8,
    }
}
