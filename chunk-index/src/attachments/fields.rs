//! Fields of fixed width in attachments.

use super::AttachmentError;

/// Reads an attachment from its start to its end.
pub(super) struct FieldReader<'a> {
    name: &'static str,
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// Reads the version of the attachment `name` and refuses every version but `expected`.
    pub(super) fn open(
        name: &'static str,
        expected: u8,
        bytes: &'a [u8],
    ) -> Result<FieldReader<'a>, AttachmentError> {
        let (found, reader) = FieldReader::open_any(name, expected, bytes)?;
        if found == expected {
            Ok(reader)
        } else {
            Err(AttachmentError::Version {
                name,
                found,
                expected,
            })
        }
    }

    /// Reads the version of the attachment `name`, and refuses those after `newest`.
    pub(super) fn open_any(
        name: &'static str,
        newest: u8,
        bytes: &'a [u8],
    ) -> Result<(u8, FieldReader<'a>), AttachmentError> {
        let mut reader = FieldReader { name, rest: bytes };
        let found = reader.byte()?;
        if (1..=newest).contains(&found) {
            Ok((found, reader))
        } else {
            Err(AttachmentError::Version {
                name,
                found,
                expected: newest,
            })
        }
    }

    pub(super) fn damaged(&self, reason: &'static str) -> AttachmentError {
        AttachmentError::Damaged {
            name: self.name,
            reason,
        }
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], AttachmentError> {
        let taken = self.rest.split_at_checked(length);
        let (taken, rest) = taken.ok_or_else(|| self.damaged("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A column of `count` values of `width` bytes each.
    pub(super) fn column(
        &mut self,
        count: usize,
        width: usize,
    ) -> Result<&'a [u8], AttachmentError> {
        let length = count.checked_mul(width);
        self.bytes(length.ok_or_else(|| self.damaged("a column is too long"))?)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], AttachmentError> {
        let taken = self.rest.split_first_chunk();
        let (taken, rest) = taken.ok_or_else(|| self.damaged("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, AttachmentError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, AttachmentError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, AttachmentError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length or a count of 32 bits.
    pub(super) fn length(&mut self) -> Result<usize, AttachmentError> {
        let length = self.u32()?;
        usize::try_from(length).map_err(|_| self.damaged("a length is too large"))
    }

    /// Text of a length of 32 bits.
    pub(super) fn text(&mut self) -> Result<&'a [u8], AttachmentError> {
        let length = self.length()?;
        self.bytes(length)
    }

    /// Nothing follows the last field.
    pub(super) fn end(&self) -> Result<(), AttachmentError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.damaged("bytes follow its end"))
        }
    }
}

/// Appends a length or a count of 32 bits. Longer values are in no trace; one would be refused
/// when it is read.
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("an attachment is far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
}

/// Appends text and its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len());
    out.extend_from_slice(text);
}
