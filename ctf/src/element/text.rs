//! The text form of elements: one line each, indented by nesting.

use std::fmt::{self, Write};

use super::{Element, ElementReader, Field, PacketInfo};
use crate::class::ByteOrder;
use crate::decoding::{DecodeError, DecodeFault};
use crate::text::push_float;

/// Writes elements as text.
///
/// A line consists of the bit offset, two spaces per level, a tag and, after colons, the member
/// name and the value. `{` opens a level, `}` closes it. Bytes of strings are written unchanged
/// when they are printable ASCII other than `$`, otherwise as `$` and two hexadecimal digits; bytes
/// of BLOBs are always hexadecimal.
#[derive(Clone, Debug, Default)]
pub struct ElementText {
    level: usize,
    in_blob: bool,
}

impl ElementText {
    /// A writer at level 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the line of `element`, the last one that `reader` returned.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn element(
        &mut self,
        out: &mut impl Write,
        reader: &ElementReader<'_>,
        element: &Element<'_>,
    ) -> fmt::Result {
        if is_end(element) {
            self.level = self.level.saturating_sub(1);
            self.in_blob = false;
        }
        write!(out, "{:6} ", reader.offset())?;
        for _ in 0..self.level {
            out.write_str("  ")?;
        }
        if is_end(element) {
            return out.write_str("}\n");
        }
        match element {
            Element::PacketInfo => packet_info(out, reader.packet_info())?,
            element => self.line(out, element)?,
        }
        if is_begin(element) {
            self.level += 1;
            out.write_str(" {")?;
        }
        out.write_char('\n')
    }

    /// Writes the line of the error that ended the elements.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn error(&self, out: &mut impl Write, error: &DecodeError) -> fmt::Result {
        write!(out, "{:6} ", error.offset)?;
        reason(out, &error.fault)?;
        out.write_char('\n')
    }

    fn line(&mut self, out: &mut impl Write, element: &Element<'_>) -> fmt::Result {
        match *element {
            Element::PacketBegin => out.write_char('P'),
            Element::ContentBegin => out.write_str("PC"),
            Element::RecordBegin => out.write_str("ER"),
            Element::ScopeBegin(scope) => write!(out, "SC:{}", scope.index()),
            Element::MagicNumber(value) => write!(out, "PMN:{value}"),
            Element::MetadataUuid(uuid) => write!(out, "MSU:{uuid}"),
            Element::ClockValue(cycles) => write!(out, "DCV:{cycles}"),
            Element::StreamInfo(info) => {
                out.write_str("DSI")?;
                optional(out, ":T", info.class.map(|class| class.id))?;
                optional(out, ":I", info.id)
            }
            Element::EventInfo(None) => out.write_str("ERI"),
            Element::EventInfo(Some(class)) => {
                write!(out, "ERI:T{}", class.id)?;
                optional(out, ":#", class.identity.name.as_deref())
            }
            Element::FixedBitArray(field, value) => datum(out, "FLBA", field, value),
            Element::FixedBitMap(field, value) => bit_map(out, field, value),
            Element::FixedBool(field, value) => datum(out, "FLB", field, value),
            Element::FixedSigned(field, value) => datum(out, "FLSI", field, value),
            Element::FixedUnsigned(field, value) => datum(out, "FLUI", field, value),
            Element::FixedFloat(field, value) => datum(out, "FLFPN", field, SixDigits(value)),
            Element::VariableSigned(field, value) => datum(out, "VLSI", field, value),
            Element::VariableUnsigned(field, value) => datum(out, "VLUI", field, value),
            Element::NullTerminatedStringBegin(field) => tag(out, "NTS", field),
            Element::RawData(bytes) => self.raw(out, bytes),
            Element::StaticArrayBegin(field, _) => tag(out, "SLA", field),
            Element::DynamicArrayBegin(field, _) => tag(out, "DLA", field),
            Element::StaticStringBegin(field, _) => tag(out, "SLS", field),
            Element::DynamicStringBegin(field, _) => tag(out, "DLS", field),
            Element::StaticBlobBegin(field, _) => self.blob(out, "SLB", field),
            Element::DynamicBlobBegin(field, _) => self.blob(out, "DLB", field),
            Element::StructBegin(field) => tag(out, "ST", field),
            Element::SignedVariantBegin(field, value) => datum(out, "VS", field, value),
            Element::UnsignedVariantBegin(field, value) => datum(out, "VU", field, value),
            Element::BoolOptionalBegin(field, is_present) => {
                datum(out, "OB", field, enabled(is_present))
            }
            Element::SignedOptionalBegin(field, is_present, value) => datum(
                out,
                "OS",
                field,
                format_args!("{}:{value}", enabled(is_present)),
            ),
            Element::UnsignedOptionalBegin(field, is_present, value) => datum(
                out,
                "OU",
                field,
                format_args!("{}:{value}", enabled(is_present)),
            ),
            // Ends were written by `element`.
            _ => Ok(()),
        }
    }

    fn blob(&mut self, out: &mut impl Write, name: &str, field: Field<'_>) -> fmt::Result {
        self.in_blob = true;
        datum(out, name, field, field.media_type().unwrap_or_default())
    }

    fn raw(&self, out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
        write!(out, "RD:{}:", bytes.len())?;
        for &byte in bytes {
            if self.in_blob {
                write!(out, "{byte:02x}")?;
            } else if (b' '..=b'~').contains(&byte) && byte != b'$' {
                out.write_char(char::from(byte))?;
            } else {
                write!(out, "${byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn is_begin(element: &Element<'_>) -> bool {
    matches!(
        element,
        Element::PacketBegin
            | Element::ContentBegin
            | Element::RecordBegin
            | Element::ScopeBegin(_)
            | Element::NullTerminatedStringBegin(_)
            | Element::StaticArrayBegin(..)
            | Element::DynamicArrayBegin(..)
            | Element::StaticStringBegin(..)
            | Element::DynamicStringBegin(..)
            | Element::StaticBlobBegin(..)
            | Element::DynamicBlobBegin(..)
            | Element::StructBegin(_)
            | Element::SignedVariantBegin(..)
            | Element::UnsignedVariantBegin(..)
            | Element::BoolOptionalBegin(..)
            | Element::SignedOptionalBegin(..)
            | Element::UnsignedOptionalBegin(..)
    )
}

fn is_end(element: &Element<'_>) -> bool {
    matches!(
        element,
        Element::PacketEnd
            | Element::ContentEnd
            | Element::RecordEnd
            | Element::ScopeEnd(_)
            | Element::NullTerminatedStringEnd(_)
            | Element::StaticArrayEnd(_)
            | Element::DynamicArrayEnd(_)
            | Element::StaticStringEnd(_)
            | Element::DynamicStringEnd(_)
            | Element::StaticBlobEnd(_)
            | Element::DynamicBlobEnd(_)
            | Element::StructEnd(_)
            | Element::SignedVariantEnd(_)
            | Element::UnsignedVariantEnd(_)
            | Element::BoolOptionalEnd(_)
            | Element::SignedOptionalEnd(_)
            | Element::UnsignedOptionalEnd(_)
    )
}

fn tag(out: &mut impl Write, name: &str, field: Field<'_>) -> fmt::Result {
    out.write_str(name)?;
    optional(out, ":", field.display_name())
}

fn datum(
    out: &mut impl Write,
    name: &str,
    field: Field<'_>,
    value: impl fmt::Display,
) -> fmt::Result {
    tag(out, name, field)?;
    write!(out, ":{value}")
}

fn optional(out: &mut impl Write, before: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => write!(out, "{before}{value}"),
        None => Ok(()),
    }
}

fn packet_info(out: &mut impl Write, info: &PacketInfo) -> fmt::Result {
    out.write_str("PI")?;
    optional(out, ":T", info.total_length)?;
    optional(out, ":C", info.content_length)?;
    optional(out, ":E", info.end_clock)?;
    optional(out, ":S", info.sequence)?;
    optional(out, ":D", info.discarded_events)
}

fn bit_map(out: &mut impl Write, field: Field<'_>, value: u64) -> fmt::Result {
    datum(out, "FLBM", field, value)?;
    for (index, flag) in field.active_flags(value).enumerate() {
        out.write_char(if index == 0 { ':' } else { ',' })?;
        out.write_str(flag)?;
    }
    Ok(())
}

fn enabled(is_present: bool) -> &'static str {
    if is_present { "enabled" } else { "disabled" }
}

/// A number with six significant digits, as C's `%g` formats it.
struct SixDigits(f64);

impl fmt::Display for SixDigits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        push_float(&mut text, self.0);
        out.write_str(&String::from_utf8_lossy(&text))
    }
}

/// The fault as one sentence, in the words that the text form prescribes.
fn reason(out: &mut impl Write, fault: &DecodeFault) -> fmt::Result {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    match *fault {
        DecodeFault::UnknownStreamClass { id } => {
            write!(
                out,
                "Data stream type ID {id} doesn't select an existing data stream type."
            )
        }
        DecodeFault::UnknownEventClass { id } => {
            write!(
                out,
                "Event record type ID {id} doesn't select an existing event record type."
            )
        }
        DecodeFault::MagicNumber { found } => {
            write!(out, "Invalid packet magic number {found:#x}.")
        }
        DecodeFault::TotalLengthNotBytes { total } => {
            write!(
                out,
                "Expected packet total length ({total}) is not a multiple of 8."
            )
        }
        DecodeFault::TotalLengthBelowContent { total, content } => write!(
            out,
            "Expected packet total length ({total}) is less than expected packet content length \
             ({content})."
        ),
        DecodeFault::TotalLengthBelowPosition { total, position } => write!(
            out,
            "Expected packet total length ({total}) is less than current position in packet \
             ({position})."
        ),
        DecodeFault::ContentLengthBelowPosition { content, position } => write!(
            out,
            "Expected packet content length ({content}) is less than current position in packet \
             ({position})."
        ),
        DecodeFault::BeyondContent { needed, remaining } => write!(
            out,
            "Cannot read {needed} bit{} at this point: would move beyond the content of the \
             current packet ({remaining} bit{} remaining).",
            plural(needed),
            plural(remaining)
        ),
        DecodeFault::EndOfData { needed } => write!(
            out,
            "Cannot read {needed} bit{} at this point: reaching end of data source.",
            plural(needed)
        ),
        DecodeFault::ByteOrderChange { from, to } => write!(
            out,
            "Changing byte order within a byte from {} to {}.",
            endian(from),
            endian(to)
        ),
        DecodeFault::InvalidUnsignedSelector { value } => {
            write!(
                out,
                "Selector value {value} doesn't select a valid variant option."
            )
        }
        DecodeFault::InvalidSignedSelector { value } => {
            write!(
                out,
                "Selector value {value} doesn't select a valid variant option."
            )
        }
        DecodeFault::OversizedInteger => out.write_str("Oversized variable-length integer."),
        DecodeFault::TooManyValues { limit } => {
            write!(out, "Event record with more than {limit} values.")
        }
        DecodeFault::ClockOverflow { cycles } => {
            write!(out, "Clock value {cycles} exceeds 64 bits of nanoseconds.")
        }
        DecodeFault::NoProgress => out.write_str("Endless data without a single bit."),
    }
}

fn endian(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "little-endian",
        ByteOrder::Big => "big-endian",
    }
}
