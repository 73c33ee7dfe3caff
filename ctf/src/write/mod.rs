//! Writing traces: metadata and packets of event records with typed fields.
//!
//! A [`Schema`] defines the event records of a stream. It provides metadata in both dialects, CTF 2
//! and, for readers that do not support it yet, TSDL (CTF 1.8); both describe the same packets,
//! which a [`PacketWriter`] writes. The layout of a packet, all little-endian and byte-aligned:
//!
//! | part | fields |
//! | --- | --- |
//! | packet header | magic number u32, UUID of the metadata 16 bytes, stream class id u32, stream id u64 |
//! | packet context | total length u64, content length u64 (bits), time at begin u64, time at end u64, discarded event records u64, sequence number u64 |
//! | event record | class id u16, time u64, then its fields |

mod metadata;
mod packet;

use uuid::Uuid;

use crate::class::ClockClass;
pub use packet::{FieldValue, PacketWriter};

/// Why a schema or an event record cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A name that TSDL cannot express.
    #[error(
        "{name:?} is not a field name: use ASCII letters, digits and underscores, beginning with a letter"
    )]
    FieldName {
        /// The name.
        name: String,
    },
    /// A name of an event record class or a label with a quote, a backslash or a control character.
    #[error("{name:?} contains a quote, a backslash or a control character")]
    Quoted {
        /// The name.
        name: String,
    },
    /// Two fields of an event record class have the same name.
    #[error("duplicate field {name:?}")]
    FieldTwice {
        /// The name.
        name: String,
    },
    /// An integer type must have 8, 16, 32 or 64 bits.
    #[error("integers of {bits} bits are not supported: use 8, 16, 32 or 64")]
    Bits {
        /// The bits.
        bits: u8,
    },
    /// More event record classes than ids.
    #[error("more than 65,536 event record classes")]
    TooManyEvents,
    /// The schema has no such event record class.
    #[error("event record class {id} does not exist")]
    UnknownEvent {
        /// Its id.
        id: u16,
    },
    /// The number of values differs from the number of fields.
    #[error("{given} values for an event record class with {expected} fields")]
    ValueCount {
        /// Values given.
        given: usize,
        /// Fields of the class.
        expected: usize,
    },
    /// A value that its field cannot represent.
    #[error("the value of field {field:?} does not fit its type")]
    Value {
        /// The field.
        field: String,
    },
    /// Time went backwards.
    #[error("time {time} is before {before}, the time of the last event record")]
    Time {
        /// Cycles of this event record.
        time: u64,
        /// Cycles of the one before.
        before: u64,
    },
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned {
        /// Its bits.
        bits: u8,
    },
    /// Unsigned integer that is displayed in hexadecimal.
    Hexadecimal {
        /// Its bits.
        bits: u8,
    },
    /// Signed integer of 8, 16, 32 or 64 bits.
    Signed {
        /// Its bits.
        bits: u8,
    },
    /// Unsigned integer whose values have names.
    Enumeration {
        /// Its bits.
        bits: u8,
        /// Names with their values.
        labels: Vec<(String, u64)>,
    },
    /// True or false, in a byte. An integer for readers of TSDL, which has no booleans.
    Bool,
    /// IEEE 754 double precision.
    Float,
    /// UTF-8 text without a null.
    Text,
    /// Bytes.
    Bytes,
}

/// A class of event records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSchema {
    name: String,
    fields: Vec<(String, FieldType)>,
}

/// The identity of an event record class in its schema: its numeric id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u16);

/// The event records of a trace with one stream class.
///
/// ```
/// use ctf::write::{FieldType, FieldValue, PacketWriter, Schema};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ctf::class::ClockClass::new("monotonic");
/// let mut schema = Schema::new(uuid::Uuid::from_u128(7), clock);
/// let read = schema.event("read", [
///     ("path", FieldType::Text),
///     ("bytes", FieldType::Unsigned { bits: 64 }),
/// ])?;
/// let mut writer = PacketWriter::new(&schema, 0);
/// writer.event(read, 1_000, &[FieldValue::Text("/etc/hosts"), FieldValue::Unsigned(187)])?;
/// let packet = writer.finish(0);
///
/// let procedure = ctf::Procedure::new(ctf::parse_metadata(&schema.metadata())?)?;
/// let plan = ctf::Plan::everything(&procedure);
/// let mut reader = ctf::EventReader::new(&plan, &packet);
/// reader.next_packet()?;
/// let event = reader.next_event()?.expect("one event record was written");
/// assert_eq!(event.name(), Some("read"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    uuid: Uuid,
    clock: ClockClass,
    environment: Vec<(String, String)>,
    events: Vec<EventSchema>,
}

impl Schema {
    /// A schema without event records, whose packets carry `uuid` and count time with `clock`.
    pub fn new(uuid: Uuid, clock: ClockClass) -> Self {
        Self {
            uuid,
            clock,
            environment: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds an entry to the environment of the trace.
    ///
    /// # Errors
    ///
    /// [`WriteError::FieldName`] for a key that is not a name, [`WriteError::Quoted`] for a value
    /// that cannot be quoted.
    pub fn environment(&mut self, key: &str, value: &str) -> Result<(), WriteError> {
        is_field_name(key)?;
        is_quotable(value)?;
        self.environment.push((key.into(), value.into()));
        Ok(())
    }

    /// Adds a class of event records.
    ///
    /// # Errors
    ///
    /// When a name or a type cannot be written, or there are too many classes.
    pub fn event<'n>(
        &mut self,
        name: &str,
        fields: impl IntoIterator<Item = (&'n str, FieldType)>,
    ) -> Result<EventId, WriteError> {
        let id = u16::try_from(self.events.len()).map_err(|_| WriteError::TooManyEvents)?;
        is_quotable(name)?;
        let mut checked: Vec<(String, FieldType)> = Vec::new();
        for (name, field) in fields {
            is_field_name(name)?;
            is_writable(&field)?;
            if checked.iter().any(|(other, _)| other == name) {
                return Err(WriteError::FieldTwice { name: name.into() });
            }
            checked.push((name.into(), field));
        }
        self.events.push(EventSchema {
            name: name.into(),
            fields: checked,
        });
        Ok(EventId(id))
    }

    /// The metadata as CTF 2.
    pub fn metadata(&self) -> Vec<u8> {
        metadata::json(self)
    }

    /// The metadata as TSDL, for readers of CTF 1.8.
    pub fn tsdl(&self) -> String {
        metadata::tsdl(self)
    }
}

fn is_field_name(name: &str) -> Result<(), WriteError> {
    let mut bytes = name.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if starts && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Ok(())
    } else {
        Err(WriteError::FieldName { name: name.into() })
    }
}

fn is_quotable(name: &str) -> Result<(), WriteError> {
    let bad = |letter: char| letter == '"' || letter == '\\' || letter.is_control();
    if name.contains(bad) {
        Err(WriteError::Quoted { name: name.into() })
    } else {
        Ok(())
    }
}

fn is_writable(field: &FieldType) -> Result<(), WriteError> {
    let bits = match field {
        FieldType::Unsigned { bits }
        | FieldType::Hexadecimal { bits }
        | FieldType::Signed { bits } => *bits,
        FieldType::Enumeration { bits, labels } => {
            labels
                .iter()
                .try_for_each(|(label, _)| is_quotable(label))?;
            *bits
        }
        _ => 8,
    };
    if matches!(bits, 8 | 16 | 32 | 64) {
        Ok(())
    } else {
        Err(WriteError::Bits { bits })
    }
}

#[cfg(test)]
mod tests;
