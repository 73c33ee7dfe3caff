//! The text of the fields of event records, from the elements of their packet.

use super::number::{push_float, push_hexadecimal, push_unsigned};
use super::plan::{NodeText, Plan, Style};
use super::strings::{push_escaped, to_utf8, until_null};
use ctf::class::{Encoding, Scope};
use ctf::{Element, Field, Procedure};

/// Writes elements as text. It keeps the packet context of the current packet, which stands in
/// the line of each of its events.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyWriter {
    out: Vec<u8>,
    packet_context: Vec<u8>,
    /// Index of the next element of each open array.
    arrays: Vec<u64>,
    /// The optional that was begun last is not there: its end follows directly.
    is_absent: bool,
    /// In a header, of which nothing is shown.
    in_header: bool,
    in_packet_context: bool,
    /// Where the text of the packet context begins.
    packet_context_start: usize,
    /// Something of the current event was written.
    has_scope: bool,
    string: Option<Text>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    String(Encoding),
    /// The null character was found: what follows is not shown, but the closing quote is.
    Ended,
    Blob,
    /// Nothing of it is shown.
    Hidden,
}

impl BodyWriter {
    /// The text so far; the texts of events follow each other.
    pub(super) fn text(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn push(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    pub(super) fn clear(&mut self) {
        self.out.clear();
    }

    /// Forgets what was open when a packet could not be decoded any further.
    pub(super) fn abandon(&mut self, length: usize) {
        self.out.truncate(length);
        self.arrays.clear();
        (self.is_absent, self.in_header, self.in_packet_context) = (false, false, false);
        self.string = None;
    }

    pub(super) fn begin_packet(&mut self) {
        self.packet_context.clear();
    }

    /// Begins an event record.
    #[inline]
    pub(super) fn begin_record(&mut self) {
        self.has_scope = !self.packet_context.is_empty();
        self.out.extend_from_slice(&self.packet_context);
    }

    #[inline]
    pub(super) fn begin_scope(&mut self, scope: Scope) {
        self.in_header = matches!(scope, Scope::PacketHeader | Scope::EventHeader);
        self.in_packet_context = scope == Scope::PacketContext;
        self.packet_context_start = self.out.len();
    }

    #[inline]
    pub(super) fn end_scope(&mut self) {
        if self.in_packet_context {
            self.packet_context.clear();
            self.packet_context
                .extend_from_slice(&self.out[self.packet_context_start..]);
            self.out.truncate(self.packet_context_start);
        }
        (self.in_header, self.in_packet_context) = (false, false);
    }

    /// Writes one element of a field.
    #[inline]
    pub(super) fn element(&mut self, element: &Element<'_>, plan: &Plan, procedure: &Procedure) {
        if self.in_header {
            return;
        }
        match *element {
            Element::FixedUnsigned(field, value) | Element::VariableUnsigned(field, value) => {
                self.integer(plan, procedure, field, (value, false));
            }
            Element::FixedSigned(field, value) | Element::VariableSigned(field, value) => {
                self.integer(plan, procedure, field, (value.cast_unsigned(), true));
            }
            Element::RawData(bytes) => self.raw_data(bytes),
            Element::NullTerminatedStringBegin(field)
            | Element::StaticStringBegin(field, _)
            | Element::DynamicStringBegin(field, _) => self.begin_string(plan, field),
            Element::NullTerminatedStringEnd(_)
            | Element::StaticStringEnd(_)
            | Element::DynamicStringEnd(_) => self.end_string(),
            Element::StructBegin(field) => self.begin_struct(plan, field),
            Element::StructEnd(field) => self.end(plan, field, b" }"),
            Element::StaticArrayBegin(field, _) | Element::DynamicArrayBegin(field, _) => {
                self.begin(plan, field, b"[");
                self.arrays.push(0);
            }
            Element::StaticArrayEnd(field) | Element::DynamicArrayEnd(field) => {
                self.arrays.pop();
                self.end(plan, field, b" ]");
            }
            _ => self.rare(element, plan),
        }
    }

    fn rare(&mut self, element: &Element<'_>, plan: &Plan) {
        match *element {
            Element::FixedFloat(field, value) => self.float(plan, field, value),
            Element::FixedBool(field, value) => {
                self.begin(plan, field, if value { b"true" } else { b"false" });
            }
            Element::FixedBitArray(field, value) => self.bit_array(plan, field, value),
            Element::FixedBitMap(field, value) => self.bit_map(plan, field, value),
            Element::StaticBlobBegin(field, _) | Element::DynamicBlobBegin(field, _) => {
                let is_shown = self.begin_value(plan, field).is_some();
                self.string = Some(if is_shown { Text::Blob } else { Text::Hidden });
                if is_shown {
                    self.out.push(b'{');
                }
            }
            Element::StaticBlobEnd(field) | Element::DynamicBlobEnd(field) => {
                self.string = None;
                self.end(plan, field, b" }");
            }
            Element::UnsignedVariantBegin(field, _) | Element::SignedVariantBegin(field, _) => {
                self.begin(plan, field, b"{ ");
            }
            Element::UnsignedVariantEnd(field) | Element::SignedVariantEnd(field) => {
                self.end(plan, field, b" }");
            }
            Element::BoolOptionalBegin(field, is_there)
            | Element::UnsignedOptionalBegin(field, is_there, _)
            | Element::SignedOptionalBegin(field, is_there, _) => {
                self.begin_optional(plan, field, is_there);
            }
            Element::BoolOptionalEnd(field)
            | Element::UnsignedOptionalEnd(field)
            | Element::SignedOptionalEnd(field) => self.end_optional(plan, field),
            _ => {}
        }
    }

    /// Writes what comes before the value of a field, when it is shown.
    #[inline]
    fn begin_value<'p>(&mut self, plan: &'p Plan, field: Field<'_>) -> Option<&'p NodeText> {
        let node = plan.node(field.id());
        if !node.visible {
            return None;
        }
        if node.in_array {
            self.begin_element();
        } else {
            self.out.extend_from_slice(plan.prefix(node));
        }
        Some(node)
    }

    /// Writes what comes before the value of a field, and `text`, when it is shown.
    #[inline]
    fn begin(&mut self, plan: &Plan, field: Field<'_>, text: &[u8]) {
        if self.begin_value(plan, field).is_some() {
            self.out.extend_from_slice(text);
        }
    }

    /// Writes an integer: its raw bits and whether it is signed.
    #[inline]
    fn integer(
        &mut self,
        plan: &Plan,
        procedure: &Procedure,
        field: Field<'_>,
        (raw, is_signed): (u64, bool),
    ) {
        if let Some(node) = self.begin_value(plan, field) {
            let trace = procedure.trace_class();
            plan.push_integer(&mut self.out, &node.style, trace, raw, is_signed);
        }
    }

    fn float(&mut self, plan: &Plan, field: Field<'_>, value: f64) {
        if self.begin_value(plan, field).is_some() {
            push_float(&mut self.out, value);
        }
    }

    fn bit_array(&mut self, plan: &Plan, field: Field<'_>, value: u64) {
        if self.begin_value(plan, field).is_some() {
            self.out.extend_from_slice(b"0x");
            push_hexadecimal(&mut self.out, value);
        }
    }

    #[inline]
    fn begin_element(&mut self) {
        if let Some(index) = self.arrays.last_mut() {
            self.out
                .extend_from_slice(if *index == 0 { b" [" } else { b", [" });
            push_unsigned(&mut self.out, *index);
            self.out.extend_from_slice(b"] = ");
            *index += 1;
        }
    }

    #[inline]
    fn end(&mut self, plan: &Plan, field: Field<'_>, text: &[u8]) {
        if plan.node(field.id()).visible {
            self.out.extend_from_slice(text);
        }
    }

    #[inline]
    fn begin_struct(&mut self, plan: &Plan, field: Field<'_>) {
        let is_root = field.node().parent().is_none();
        let node = plan.node(field.id());
        if is_root && node.visible {
            if self.has_scope && !self.in_packet_context {
                self.out.extend_from_slice(b", ");
            }
            self.has_scope |= !self.in_packet_context;
        }
        self.begin(plan, field, b"{");
    }

    #[inline]
    fn begin_string(&mut self, plan: &Plan, field: Field<'_>) {
        self.string = Some(
            match self.begin_value(plan, field).map(|node| &node.style) {
                Some(Style::String(encoding)) => {
                    self.out.push(b'"');
                    Text::String(*encoding)
                }
                _ => Text::Hidden,
            },
        );
    }

    #[inline]
    fn raw_data(&mut self, bytes: &[u8]) {
        match self.string {
            Some(Text::String(Encoding::Utf8)) => {
                let text = until_null(bytes, Encoding::Utf8);
                push_escaped(&mut self.out, text);
                if text.len() < bytes.len() {
                    self.string = Some(Text::Ended);
                }
            }
            Some(Text::String(_)) => self.bytes.extend_from_slice(bytes),
            Some(Text::Blob) => {
                for byte in bytes {
                    let digits = b"0123456789abcdef";
                    let high = digits[usize::from(byte >> 4)];
                    self.out
                        .extend_from_slice(&[b' ', high, digits[usize::from(byte & 0xf)]]);
                }
            }
            Some(Text::Ended | Text::Hidden) | None => {}
        }
    }

    #[inline]
    fn end_string(&mut self) {
        match self.string.take() {
            Some(Text::Ended | Text::String(Encoding::Utf8)) => self.out.push(b'"'),
            Some(Text::String(encoding)) => {
                let text = to_utf8(until_null(&self.bytes, encoding), encoding);
                push_escaped(&mut self.out, &text);
                self.bytes.clear();
                self.out.push(b'"');
            }
            Some(Text::Blob | Text::Hidden) | None => {}
        }
    }

    fn bit_map(&mut self, plan: &Plan, field: Field<'_>, value: u64) {
        if self.begin_value(plan, field).is_none() {
            return;
        }
        self.out.extend_from_slice(b"0x");
        push_hexadecimal(&mut self.out, value);
        let mut is_first = true;
        // Babeltrace keeps flags by name.
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

    fn begin_optional(&mut self, plan: &Plan, field: Field<'_>, is_there: bool) {
        self.is_absent = !is_there;
        self.begin(plan, field, if is_there { b"{ " } else { b"<none>" });
    }

    fn end_optional(&mut self, plan: &Plan, field: Field<'_>) {
        if !std::mem::take(&mut self.is_absent) {
            self.end(plan, field, b" }");
        }
    }
}
