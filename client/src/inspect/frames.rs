//! Reads the frames of a data file one after another.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use storage_format::checksum::{crc32c, crc32c_append};
use storage_format::frame::{self, FrameHeader, FrameLocation};
use storage_format::{FormatError, FormatErrorKind};

use super::READ_BYTES;

/// What a data file contains at the position of a frame.
pub(super) enum NextFrame {
    Intact(FrameHeader),
    /// The header is intact, the payload is damaged.
    DamagedPayload(FrameHeader, FormatError),
    Damaged(FormatError),
    /// Zeros, or the end of the file.
    End,
}

/// Reads a data file from front to back, with the checksum of its headers.
pub(super) struct FrameReader {
    file: BufReader<File>,
    offset: u64,
    /// CRC32C of the bytes since the last batch header, without payloads.
    pub(super) headers_checksum: u32,
    buffer: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(mut file: File, offset: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            file: BufReader::with_capacity(READ_BYTES, file),
            offset,
            headers_checksum: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Offset of the next byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn seek(&mut self, offset: u64) -> io::Result<()> {
        // `BufReader::seek` would discard the buffer.
        let distance = offset.wrapping_sub(self.offset).cast_signed();
        self.file.seek_relative(distance)?;
        self.offset = offset;
        Ok(())
    }

    /// The next `length` bytes, fewer at the end of the file; they are headers or padding.
    pub(super) fn headers(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        (&mut self.file)
            .take(length as u64)
            .read_to_end(&mut bytes)?;
        self.headers_checksum = crc32c_append(self.headers_checksum, &bytes);
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    /// Reads the next frame, which is at `place` in its leaf. Offsets in errors are those in the
    /// file.
    pub(super) fn next(&mut self, place: FrameLocation) -> io::Result<NextFrame> {
        let start = self.offset;
        let bytes = self.headers(frame::HEADER_BYTES)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(NextFrame::End);
        }
        let header = match FrameHeader::decode(&bytes, place) {
            Ok(header) => header,
            Err(error) => {
                let offset = error.offset - place.offset + start;
                return Ok(NextFrame::Damaged(FormatError { offset, ..error }));
            }
        };
        let payload = self.offset;
        let (computed, missing) = self.payload(header.stored_size)?;
        let needed = u64::from(header.stored_size);
        if missing > 0 {
            let available = needed - missing;
            let kind = FormatErrorKind::Truncated { needed, available };
            return Ok(NextFrame::Damaged(payload_error(payload, kind)));
        }
        let padding = header.frame_bytes() - frame::HEADER_BYTES as u64 - needed;
        self.headers(usize::try_from(padding).unwrap_or(usize::MAX))?;
        let stored = header.stored_checksum;
        if computed == stored {
            return Ok(NextFrame::Intact(header));
        }
        let kind = FormatErrorKind::Checksum { stored, computed };
        let error = payload_error(payload, kind);
        Ok(NextFrame::DamagedPayload(header, error))
    }

    /// Reads a payload: its CRC32C and how many of its bytes are missing.
    fn payload(&mut self, size: u32) -> io::Result<(u32, u64)> {
        let (mut left, mut checksum) = (size as usize, crc32c(&[]));
        while left > 0 {
            let length = left.min(self.buffer.len());
            let read = self.file.read(&mut self.buffer[..length])?;
            if read == 0 {
                break;
            }
            checksum = crc32c_append(checksum, &self.buffer[..read]);
            left -= read;
        }
        self.offset += u64::from(size) - left as u64;
        Ok((checksum, left as u64))
    }
}

fn payload_error(offset: u64, kind: FormatErrorKind) -> FormatError {
    FormatError {
        what: "frame payload",
        offset,
        kind,
    }
}
