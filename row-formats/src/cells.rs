//! The values of a row, encoded between the threads that decode events and the sink of a format.
//!
//! ```text
//! tag u8 | payload
//! 0 none | 1 text: length u32, bytes | 2 i64 | 3 u64 | 4 f64 | 5 bool: u8
//! ```
//!
//! Only the process that wrote these bytes reads them, also from its temporary files.

use std::io;

use query_language::Value;

/// Appends a value, or the tag for a missing one.
pub(super) fn write_cell(value: Option<Value<'_>>, out: &mut Vec<u8>) {
    let (tag, word) = match value {
        None => return out.push(0),
        Some(Value::Str(text)) => {
            // No packet has text of 4 GiB; it would be cut, not read wrongly.
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            out.push(1);
            out.extend_from_slice(&length.to_le_bytes());
            return out.extend_from_slice(&text[..length as usize]);
        }
        Some(Value::Bool(value)) => return out.extend_from_slice(&[5, u8::from(value)]),
        Some(Value::Int(value)) => (2, value.to_le_bytes()),
        Some(Value::Uint(value)) => (3, value.to_le_bytes()),
        Some(Value::Float(value)) => (4, value.to_le_bytes()),
    };
    out.push(tag);
    out.extend_from_slice(&word);
}

/// Reads the values of a row in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells<'r>(&'r [u8]);

impl<'r> Cells<'r> {
    pub(super) fn new(row: &'r [u8]) -> Cells<'r> {
        Cells(row)
    }

    /// The next value.
    ///
    /// # Errors
    ///
    /// When the row ends too early or has an unknown tag: a temporary file is damaged.
    pub(super) fn next(&mut self) -> io::Result<Option<Value<'r>>> {
        let [tag] = self.array()?;
        Ok(Some(match tag {
            0 => return Ok(None),
            1 => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                let (text, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
                self.0 = rest;
                Value::Str(text)
            }
            2 => Value::Int(i64::from_le_bytes(self.array()?)),
            3 => Value::Uint(u64::from_le_bytes(self.array()?)),
            4 => Value::Float(f64::from_le_bytes(self.array()?)),
            5 => Value::Bool(self.array::<1>()? != [0]),
            _ => return Err(damaged()),
        }))
    }

    /// The bytes after the values read so far.
    pub(super) fn rest(self) -> &'r [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a temporary file of rows is damaged; run the query again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let values = [
            None,
            Some(Value::Str(b"")),
            Some(Value::Str(b"\xff text")),
            Some(Value::Int(i64::MIN)),
            Some(Value::Uint(u64::MAX)),
            Some(Value::Float(-0.5)),
            Some(Value::Bool(true)),
            Some(Value::Bool(false)),
        ];
        let mut row = Vec::new();
        values.iter().for_each(|value| write_cell(*value, &mut row));
        row.push(0x77);
        let mut cells = Cells::new(&row);
        for value in values {
            assert_eq!(cells.next().unwrap(), value);
        }
        assert_eq!(cells.rest(), [0x77]);
        assert!(cells.next().is_err(), "0x77 is not a tag");
        assert!(Cells::new(&[1, 9, 0, 0, 0, b'x']).next().is_err());
        assert!(Cells::new(&[]).next().is_err());
    }
}
