//! libCacheSim's `oracleGeneral` format: requests to objects, each with the number of the next one.
//!
//! A request is 24 bytes, little-endian: time in seconds u32, object u64, size u32, number of the
//! next request to the same object i64, or -1 if there is none. Requests are numbered from 0.
//!
//! A request is written with -1 and patched when the next one arrives. The latest requests are in
//! memory, which most patches concern; an older one is patched in the file.

use crate::numbers::to_usize;
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes of a request.
const REQUEST_BYTES: usize = 24;

/// Offset of the number of the next request.
const NEXT_AT: usize = 16;

/// Maximum number of requests in memory: 24 MiB.
const WINDOW_REQUESTS: usize = 1 << 20;

/// The state of an object.
#[derive(Debug, Clone, Copy)]
struct Object {
    latest: Option<u64>,
    size: u32,
}

/// Writes requests to `out`, beginning at its current position.
#[derive(Debug)]
pub struct OracleGeneral<W> {
    out: W,
    start: u64,
    objects: Vec<Object>,
    /// Requests not yet written.
    window: Vec<u8>,
    /// The number of the first request in the window.
    window_from: u64,
    first_second: Option<u64>,
    skipped: u64,
}

impl<W: Write + Seek> OracleGeneral<W> {
    /// Creates a writer.
    ///
    /// # Errors
    ///
    /// If the position of `out` cannot be determined.
    pub fn start(mut out: W) -> io::Result<Self> {
        let start = out.stream_position()?;
        Ok(Self {
            out,
            start,
            objects: Vec::new(),
            window: Vec::new(),
            window_from: 0,
            first_second: None,
            skipped: 0,
        })
    }

    /// Adds a request to `object` at `second`. Object numbers must be dense.
    ///
    /// A `size` of 0 means unknown; the size in previous requests to the object is then used. If no
    /// size is known yet, the request is skipped.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn put(&mut self, second: u64, object: u32, size: u64) -> io::Result<()> {
        let index = object as usize;
        if index >= self.objects.len() {
            self.objects.resize(
                index + 1,
                Object {
                    latest: None,
                    size: 0,
                },
            );
        }
        if size > 0 {
            self.objects[index].size = u32::try_from(size).unwrap_or(u32::MAX);
        }
        let Object { latest, size } = self.objects[index];
        if size == 0 {
            self.skipped += 1;
            return Ok(());
        }
        let number = self.window_from + (self.window.len() / REQUEST_BYTES) as u64;
        if let Some(latest) = latest {
            self.patch(latest, number)?;
        }
        self.objects[index].latest = Some(number);
        let first = *self.first_second.get_or_insert(second);
        let time = u32::try_from(second.saturating_sub(first)).unwrap_or(u32::MAX);
        self.window.extend_from_slice(&time.to_le_bytes());
        self.window
            .extend_from_slice(&u64::from(object).to_le_bytes());
        self.window.extend_from_slice(&size.to_le_bytes());
        self.window.extend_from_slice(&(-1i64).to_le_bytes());
        if self.window.len() >= WINDOW_REQUESTS * REQUEST_BYTES {
            // Half of them stay in memory, so that few patches go to the file.
            self.write_out(WINDOW_REQUESTS / 2)?;
        }
        Ok(())
    }

    /// Writes the rest. Returns the number of requests, and of skipped ones.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<(u64, u64)> {
        self.write_out(self.window.len() / REQUEST_BYTES)?;
        self.out.flush()?;
        Ok((self.window_from, self.skipped))
    }

    fn patch(&mut self, request: u64, next: u64) -> io::Result<()> {
        let next = i64::try_from(next).unwrap_or(i64::MAX).to_le_bytes();
        if let Some(index) = request.checked_sub(self.window_from) {
            let at = to_usize(index) * REQUEST_BYTES + NEXT_AT;
            self.window[at..at + next.len()].copy_from_slice(&next);
            return Ok(());
        }
        let at = self.start + request * REQUEST_BYTES as u64 + NEXT_AT as u64;
        self.out.seek(SeekFrom::Start(at))?;
        self.out.write_all(&next)
    }

    fn write_out(&mut self, requests: usize) -> io::Result<()> {
        let at = self.start + self.window_from * REQUEST_BYTES as u64;
        self.out.seek(SeekFrom::Start(at))?;
        self.out
            .write_all(&self.window[..requests * REQUEST_BYTES])?;
        self.window.drain(..requests * REQUEST_BYTES);
        self.window_from += requests as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn requests(bytes: &[u8]) -> Vec<(u32, u64, u32, i64)> {
        let request = |bytes: &[u8]| {
            let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            (u32_at(0), u64_at(4), u32_at(12), u64_at(16) as i64)
        };
        assert_eq!(bytes.len() % REQUEST_BYTES, 0);
        bytes.chunks(REQUEST_BYTES).map(request).collect()
    }

    #[test]
    fn each_request_has_the_number_of_the_next() {
        let mut out = Cursor::new(Vec::new());
        let mut oracle = OracleGeneral::start(&mut out).unwrap();
        for (second, object, size) in [(7, 0, 0), (7, 1, 10), (8, 0, 5), (9, 1, 0), (9, 1, 12)] {
            oracle.put(second, object, size).unwrap();
        }
        assert_eq!(oracle.finish().unwrap(), (4, 1));
        assert_eq!(
            requests(out.get_ref()),
            [(0, 1, 10, 2), (1, 0, 5, -1), (2, 1, 10, 3), (2, 1, 12, -1)]
        );
    }

    #[test]
    fn requests_that_are_not_in_memory_are_patched_in_the_file() {
        let mut out = Cursor::new(Vec::new());
        let mut oracle = OracleGeneral::start(&mut out).unwrap();
        let count = WINDOW_REQUESTS as u64 + 10;
        for number in 0..count {
            oracle.put(0, (number % (count - 5)) as u32, 1).unwrap();
        }
        assert_eq!(oracle.finish().unwrap(), (count, 0));
        let requests = requests(out.get_ref());
        for (number, request) in requests.iter().enumerate() {
            let expected = if number < 5 {
                (count - 5) as i64 + number as i64
            } else {
                -1
            };
            assert_eq!(request.3, expected, "{number}");
        }
    }
}
