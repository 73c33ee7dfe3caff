//! Values one behind another, between the threads that decode events and the sink of a format.
//!
//! ```text
//! tag u8 | payload
//! 0 none | 1 text: length u32, bytes | 2 i64 | 3 u64 | 4 f64 | 5 bool: u8
//! ```
//!
//! These bytes never leave the process but for rows that wait in a temporary file of it.

use std::io;

use query_language::Value;

/// Appends a value, or that there is none.
pub(super) fn write_cell(value: Option<Value<'_>>, out: &mut Vec<u8>) {
    let (tag, word) = match value {
        None => return out.push(0),
        Some(Value::Str(text)) => {
            // Longer text than this is in no packet; it would be cut, not read wrongly.
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

/// Reads the values of a row one after another.
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
    /// When the row ends before, which means that a temporary file was damaged.
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

    /// What stands behind the values read so far.
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
        "rows that waited in a temporary file came back damaged",
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
        assert!(cells.next().is_err(), "0x77 is no tag");
        assert!(Cells::new(&[1, 9, 0, 0, 0, b'x']).next().is_err());
        assert!(Cells::new(&[]).next().is_err());
    }
}
