//! The text of the fields of event records.

use super::array::{push_decimal_octets, push_hexadecimal_octets, push_index};
use super::layout::{FieldLayout, Style, TextLayout};
use ctf::class::{DisplayBase, Encoding, TraceClass};
use ctf::text::{
    push_byte, push_escaped, push_float, push_hexadecimal, push_unsigned, to_utf8, until_null,
};
use ctf::{Datum, Field, Fields, Value};

/// Writes the values of one root structure at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyWriter {
    /// The text of all events so far.
    pub(super) out: Vec<u8>,
    /// Index of the next element of each open array.
    arrays: Vec<u64>,
    /// True when the last optional is absent; its end follows directly.
    is_absent: bool,
}

/// The constants of a trace.
#[derive(Clone, Copy)]
pub(super) struct BodyContext<'p> {
    pub(super) layout: &'p TextLayout,
    pub(super) trace: &'p TraceClass,
}

impl BodyWriter {
    /// Writes a root structure.
    #[inline]
    pub(super) fn root(&mut self, context: BodyContext<'_>, fields: Fields<'_>) {
        self.out.push(b'{');
        self.values(context, fields);
        self.out.extend_from_slice(b" }");
    }

    #[inline]
    fn values(&mut self, context: BodyContext<'_>, mut fields: Fields<'_>) {
        while let Some(datum) = fields.next() {
            match datum.value {
                Value::Unsigned(value) => self.integer(context, datum.field, value, false),
                Value::Signed(value) => {
                    self.integer(context, datum.field, value.cast_unsigned(), true);
                }
                Value::Text(bytes) => self.text(context.layout, datum.field, bytes),
                Value::ArrayBegin(_) => {
                    self.begin(context.layout, datum.field, b"[");
                    self.arrays.push(0);
                    self.octets(context.layout, datum.field, &mut fields);
                }
                Value::ArrayEnd => {
                    self.arrays.pop();
                    self.end(context.layout, datum.field, b" ]");
                }
                Value::StructBegin => self.begin(context.layout, datum.field, b"{"),
                Value::StructEnd => self.end(context.layout, datum.field, b" }"),
                _ => self.rare(context.layout, &datum),
            }
        }
    }

    fn rare(&mut self, layout: &TextLayout, datum: &Datum<'_>) {
        let field = datum.field;
        match datum.value {
            Value::Float(value) => self.float(layout, field, value),
            Value::Bool(value) => self.begin(layout, field, if value { b"true" } else { b"false" }),
            Value::BitArray(value) => self.bit_array(layout, field, value),
            Value::BitMap(value) => self.bit_map(layout, field, value),
            Value::Blob(bytes) => self.blob(layout, field, bytes),
            Value::VariantBegin { .. } => self.begin(layout, field, b"{ "),
            Value::VariantEnd => self.end(layout, field, b" }"),
            Value::OptionalBegin(is_present) => {
                self.is_absent = !is_present;
                self.begin(layout, field, if is_present { b"{ " } else { b"<none>" });
            }
            Value::OptionalEnd => self.end_optional(layout, field),
            _ => {}
        }
    }

    /// Writes the text before the value of a field, when it is visible.
    #[inline]
    fn begin_value<'p>(
        &mut self,
        layout: &'p TextLayout,
        field: Field<'_>,
    ) -> Option<&'p FieldLayout> {
        let node = layout.node(field.id());
        if !node.visible {
            return None;
        }
        match self.arrays.last_mut() {
            Some(index) if node.in_array => {
                if node.is_named {
                    push_index(&mut self.out, *index);
                } else {
                    self.out
                        .extend_from_slice(if *index == 0 { b" " } else { b", " });
                }
                *index += 1;
            }
            _ => layout.push_prefix(&mut self.out, node),
        }
        Some(node)
    }

    /// Writes the text before the value of a field, and `text`, when it is visible.
    #[inline]
    fn begin(&mut self, layout: &TextLayout, field: Field<'_>, text: &[u8]) {
        if self.begin_value(layout, field).is_some() {
            self.out.extend_from_slice(text);
        }
    }

    #[inline]
    fn end(&mut self, layout: &TextLayout, field: Field<'_>, text: &[u8]) {
        if layout.node(field.id()).visible {
            self.out.extend_from_slice(text);
        }
    }

    /// Writes an integer, given as raw bits.
    #[inline]
    fn integer(&mut self, context: BodyContext<'_>, field: Field<'_>, raw: u64, is_signed: bool) {
        let Some(node) = self.begin_value(context.layout, field) else {
            return;
        };
        match node.style {
            // The frequent style is handled here, inlined.
            Style::Unsigned {
                base: DisplayBase::Decimal,
                ..
            } => push_unsigned(&mut self.out, raw),
            _ => context.layout.push_integer(
                &mut self.out,
                &node.style,
                context.trace,
                raw,
                is_signed,
            ),
        }
    }

    /// Writes all elements of the array that just began when they are bytes, as in buffers and
    /// addresses.
    #[inline]
    fn octets(&mut self, layout: &TextLayout, array: Field<'_>, fields: &mut Fields<'_>) {
        let push = match layout.octets(array.id()) {
            Some(DisplayBase::Hexadecimal) => push_hexadecimal_octets,
            Some(DisplayBase::Decimal) => push_decimal_octets,
            _ => return,
        };
        if let Some(octets) = fields.take_octets() {
            push(&mut self.out, octets);
        }
    }

    #[inline]
    fn text(&mut self, layout: &TextLayout, field: Field<'_>, bytes: &[u8]) {
        let Some(Style::String(encoding)) = self.begin_value(layout, field).map(|node| &node.style)
        else {
            return;
        };
        self.out.push(b'"');
        let text = until_null(bytes, *encoding);
        match encoding {
            Encoding::Utf8 => push_escaped(&mut self.out, text),
            encoding => push_escaped(&mut self.out, &to_utf8(text, *encoding)),
        }
        self.out.push(b'"');
    }

    fn blob(&mut self, layout: &TextLayout, field: Field<'_>, bytes: &[u8]) {
        if self.begin_value(layout, field).is_none() {
            return;
        }
        self.out.push(b'{');
        for &byte in bytes {
            self.out.push(b' ');
            push_byte(&mut self.out, byte);
        }
        self.out.extend_from_slice(b" }");
    }

    fn float(&mut self, layout: &TextLayout, field: Field<'_>, value: f64) {
        if self.begin_value(layout, field).is_some() {
            push_float(&mut self.out, value);
        }
    }

    fn end_optional(&mut self, layout: &TextLayout, field: Field<'_>) {
        if !std::mem::take(&mut self.is_absent) {
            self.end(layout, field, b" }");
        }
    }

    fn bit_array(&mut self, layout: &TextLayout, field: Field<'_>, value: u64) {
        if self.begin_value(layout, field).is_some() {
            self.out.extend_from_slice(b"0x");
            push_hexadecimal(&mut self.out, value);
        }
    }

    fn bit_map(&mut self, layout: &TextLayout, field: Field<'_>, value: u64) {
        if self.begin_value(layout, field).is_none() {
            return;
        }
        self.out.extend_from_slice(b"0x");
        push_hexadecimal(&mut self.out, value);
        let mut is_first = true;
        // Babeltrace prints flags sorted by name.
        let mut flags: Vec<&str> = field.active_flags(value).collect();
        flags.sort_unstable();
        for flag in flags {
            self.out
                .extend_from_slice(if is_first { b" { \"" } else { b", \"" });
            is_first = false;
            push_escaped(&mut self.out, flag.as_bytes());
            self.out.push(b'"');
        }
        if !is_first {
            self.out.extend_from_slice(b" }");
        }
    }
}
