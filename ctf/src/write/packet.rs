//! Writing the packets of a schema.

use super::{EventId, FieldType, Schema, WriteError};
use crate::integer::u64_from;

const MAGIC: u32 = 0xc1fc_1fc1;
/// Offsets of the packet context's fields, in bytes.
const CONTEXT: usize = 4 + 16 + 4 + 8;
const TOTAL: usize = CONTEXT;
const CONTENT: usize = CONTEXT + 8;
const BEGIN: usize = CONTEXT + 16;
const END: usize = CONTEXT + 24;
const DISCARDED: usize = CONTEXT + 32;
const SEQUENCE: usize = CONTEXT + 40;
const PREAMBLE: usize = CONTEXT + 48;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'v> {
    /// For unsigned, hexadecimal and enumeration fields.
    Unsigned(u64),
    /// For signed fields.
    Signed(i64),
    /// For booleans.
    Bool(bool),
    /// For floating-point numbers.
    Float(f64),
    /// For text.
    Text(&'v str),
    /// For bytes.
    Bytes(&'v [u8]),
}

/// Writes the packets of one stream.
#[derive(Clone, Debug)]
pub struct PacketWriter<'s> {
    schema: &'s Schema,
    stream: u64,
    sequence: u64,
    begin: Option<u64>,
    last: u64,
    bytes: Vec<u8>,
}

impl<'s> PacketWriter<'s> {
    /// A writer of the stream with the id `stream`.
    pub fn new(schema: &'s Schema, stream: u64) -> Self {
        Self {
            schema,
            stream,
            sequence: 0,
            begin: None,
            last: 0,
            bytes: Vec::new(),
        }
    }

    /// Bytes of the packet so far; 0 without an event record.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True without an event record in the packet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends an event record at `time`, in cycles of the schema's clock.
    ///
    /// # Errors
    ///
    /// When the values do not match the fields of the class, or time went backwards. The packet is
    /// then unchanged.
    pub fn event(
        &mut self,
        event: EventId,
        time: u64,
        values: &[FieldValue<'_>],
    ) -> Result<(), WriteError> {
        let class = self.schema.events.get(usize::from(event.0));
        let class = class.ok_or(WriteError::UnknownEvent { id: event.0 })?;
        if values.len() != class.fields.len() {
            let (given, expected) = (values.len(), class.fields.len());
            return Err(WriteError::ValueCount { given, expected });
        }
        if time < self.last {
            return Err(WriteError::Time {
                time,
                before: self.last,
            });
        }
        let before = self.bytes.len();
        if before == 0 {
            self.bytes.resize(PREAMBLE, 0);
        }
        self.bytes.extend_from_slice(&event.0.to_le_bytes());
        self.bytes.extend_from_slice(&time.to_le_bytes());
        for ((name, field), value) in class.fields.iter().zip(values) {
            if self.value(field, *value).is_none() {
                self.bytes.truncate(before);
                return Err(WriteError::Value {
                    field: name.clone(),
                });
            }
        }
        self.begin.get_or_insert(time);
        self.last = time;
        Ok(())
    }

    /// Appends the bytes of a value; `None` when it does not match its type.
    fn value(&mut self, field: &FieldType, value: FieldValue<'_>) -> Option<()> {
        match (field, value) {
            (
                FieldType::Unsigned { bits }
                | FieldType::Hexadecimal { bits }
                | FieldType::Enumeration { bits, .. },
                FieldValue::Unsigned(value),
            ) => {
                let fits = *bits == 64 || value >> bits == 0;
                self.integer(fits.then_some(value)?, *bits);
            }
            (FieldType::Signed { bits }, FieldValue::Signed(value)) => {
                let unused = 64 - u32::from(*bits);
                let fits = value << unused >> unused == value;
                self.integer(fits.then_some(value)?.cast_unsigned(), *bits);
            }
            (FieldType::Bool, FieldValue::Bool(value)) => self.bytes.push(value.into()),
            (FieldType::Float, FieldValue::Float(value)) => {
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            (FieldType::Text, FieldValue::Text(text)) if !text.as_bytes().contains(&0) => {
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.push(0);
            }
            (FieldType::Bytes, FieldValue::Bytes(bytes)) => {
                let length = u32::try_from(bytes.len()).ok()?;
                self.bytes.extend_from_slice(&length.to_le_bytes());
                self.bytes.extend_from_slice(bytes);
            }
            _ => return None,
        }
        Some(())
    }

    fn integer(&mut self, value: u64, bits: u8) {
        let bytes = value.to_le_bytes();
        // A slice of constant length is one write instead of a call.
        match bits {
            8 => self.bytes.push(bytes[0]),
            16 => self.bytes.extend_from_slice(&[bytes[0], bytes[1]]),
            32 => self.bytes.extend_from_slice(&bytes[..4]),
            64 => self.bytes.extend_from_slice(&bytes),
            bits => self
                .bytes
                .extend_from_slice(&bytes[..usize::from(bits / 8)]),
        }
    }

    /// Completes the packet and returns it. `discarded` is the number of event records that the
    /// stream has lost so far. The packet can be empty, to report losses.
    pub fn finish(&mut self, discarded: u64) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            bytes.resize(PREAMBLE, 0);
        }
        let bits = u64_from(bytes.len()) * 8;
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..20].copy_from_slice(self.schema.uuid.as_bytes());
        // The stream class is 0, as its bytes already are.
        bytes[24..32].copy_from_slice(&self.stream.to_le_bytes());
        let context = [
            (TOTAL, bits),
            (CONTENT, bits),
            (BEGIN, self.begin.take().unwrap_or(self.last)),
            (END, self.last),
            (DISCARDED, discarded),
            (SEQUENCE, self.sequence),
        ];
        for (at, value) in context {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        self.sequence += 1;
        bytes
    }
}
