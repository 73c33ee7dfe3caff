use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes};
use memchr::memmem;

/// Maximum size of the preamble, delimiter and header lines before a part.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// A piece of a `multipart/byteranges` body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of the file at `offset`.
    Data { offset: u64, bytes: Bytes },
    /// The closing delimiter; anything after it is ignored.
    End,
}

/// An incremental parser of a `multipart/byteranges` body.
///
/// The header of a part contains its length, so the bytes of a part are neither searched nor
/// copied. Only delimiters and headers are buffered, and their size is bounded.
#[derive(Debug)]
pub(super) struct Multipart {
    /// `--` and the boundary.
    delimiter: Vec<u8>,
    input: VecDeque<Bytes>,
    head: Vec<u8>,
    /// The rest of the current part.
    part: Range<u64>,
    ended: bool,
}

impl Multipart {
    pub(super) fn new(boundary: &str) -> Self {
        Self {
            delimiter: format!("--{boundary}").into_bytes(),
            input: VecDeque::new(),
            head: Vec::new(),
            part: 0..0,
            ended: false,
        }
    }

    /// The boundary in a `Content-Type` of `multipart/byteranges`.
    pub(super) fn boundary(content_type: &str) -> Option<&str> {
        let mut parameters = content_type.split(';').map(str::trim);
        let media = parameters.next()?;
        if !media.eq_ignore_ascii_case("multipart/byteranges") {
            return None;
        }
        let value = parameters.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("boundary")
                .then_some(value)
        })?;
        let value = value.trim().trim_matches('"');
        (!value.is_empty()).then_some(value)
    }

    /// Adds received bytes.
    pub(super) fn feed(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.input.push_back(bytes);
        }
    }

    /// The next piece; `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, String> {
        while self.part.is_empty() {
            if self.ended {
                return Ok(Some(Piece::End));
            }
            if !self.gather_head()? {
                return Ok(None);
            }
        }
        let Some(front) = self.input.front_mut() else {
            return Ok(None);
        };
        let left = usize::try_from(self.part.end - self.part.start).unwrap_or(usize::MAX);
        let bytes = front.split_to(front.len().min(left));
        if front.is_empty() {
            self.input.pop_front();
        }
        let offset = self.part.start;
        self.part.start += bytes.len() as u64;
        Ok(Some(Piece::Data { offset, bytes }))
    }

    /// Buffers input up to the end of the header lines or to the closing delimiter. Returns false
    /// if the input ends before that.
    fn gather_head(&mut self) -> Result<bool, String> {
        while let Some(mut front) = self.input.pop_front() {
            let before = self.head.len();
            let taken = front.len().min(HEAD_BYTES_MAX - before);
            self.head.extend_from_slice(&front[..taken]);
            if let Some(end) = self.head_end()? {
                // Bytes after the head belong to the part and go back to the input.
                front.advance(end.saturating_sub(before).min(taken));
                if !front.is_empty() {
                    self.input.push_front(front);
                }
                self.head.clear();
                return Ok(true);
            }
            if self.head.len() == HEAD_BYTES_MAX {
                return Err(format!(
                    "no part of the multipart response begins within {HEAD_BYTES_MAX} bytes"
                ));
            }
        }
        Ok(false)
    }

    /// The length of a complete head. Sets the range of the part that follows it.
    fn head_end(&mut self) -> Result<Option<usize>, String> {
        let Some(delimiter) = memmem::find(&self.head, &self.delimiter) else {
            return Ok(None);
        };
        let after = &self.head[delimiter + self.delimiter.len()..];
        if after.len() < 2 {
            return Ok(None);
        }
        if after.starts_with(b"--") {
            self.ended = true;
            return Ok(Some(self.head.len()));
        }
        let Some(length) = memmem::find(after, b"\r\n\r\n") else {
            return Ok(None);
        };
        self.part = part_range(&after[..length])?;
        Ok(Some(self.head.len() - after.len() + length + 4))
    }
}

/// The range in the header lines of a part.
fn part_range(lines: &[u8]) -> Result<Range<u64>, String> {
    let lines = String::from_utf8_lossy(lines);
    let value = lines.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim()
            .eq_ignore_ascii_case("content-range")
            .then_some(value)
    });
    let value = value.ok_or("a part of the multipart response has no Content-Range")?;
    content_range(value).ok_or_else(|| format!("invalid Content-Range {value:?}"))
}

/// The half-open range of `bytes FIRST-LAST/TOTAL`.
pub(super) fn content_range(value: &str) -> Option<Range<u64>> {
    let (unit, rest) = value.trim().split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (range, _total) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let end = last.checked_add(1)?;
    (first < end).then_some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        b"preamble\r\n--B\r\nContent-Type: x/y\r\nContent-Range: bytes 5-9/100\r\n\r\n\
        --B\r\n\r\n--B  \r\ncontent-range:bytes 20-20/*\r\n\r\nx\r\n--B--\r\nepilogue";

    /// All pieces, with adjacent data joined.
    fn parse(body: &[u8], step: usize) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let mut parser = Multipart::new("B");
        let mut parts: Vec<(u64, Vec<u8>)> = Vec::new();
        for chunk in body.chunks(step) {
            parser.feed(Bytes::copy_from_slice(chunk));
            while let Some(piece) = parser.next()? {
                match piece {
                    Piece::End => return Ok(parts),
                    Piece::Data { offset, bytes } => match parts.last_mut() {
                        Some((at, data)) if *at + data.len() as u64 == offset => {
                            data.extend_from_slice(&bytes);
                        }
                        _ => parts.push((offset, bytes.to_vec())),
                    },
                }
            }
        }
        Err("cut off".to_owned())
    }

    #[test]
    fn the_parts_do_not_depend_on_chunking() {
        let expected = vec![(5, b"--B\r\n".to_vec()), (20, b"x".to_vec())];
        for step in 1..=BODY.len() {
            assert_eq!(parse(BODY, step).as_ref(), Ok(&expected), "{step}");
        }
    }

    #[test]
    fn invalid_parts_are_refused() {
        for (body, reason) in [
            (&b"--B\r\nA: b\r\n\r\n"[..], "no Content-Range"),
            (
                b"--B\r\nContent-Range: bytes 9-5/10\r\n\r\n",
                "invalid Content-Range",
            ),
            (
                b"--B\r\nContent-Range: lines 1-5/10\r\n\r\n",
                "invalid Content-Range",
            ),
            (
                b"--B\r\nContent-Range: bytes 0-18446744073709551615/*\r\n\r\n",
                "invalid Content-Range",
            ),
            (&[b'x'; 10_000], "begins within"),
            (&BODY[..BODY.len() - 13], "cut off"),
        ] {
            let error = parse(body, 7).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_boundary_is_found() {
        for (value, expected) in [
            ("multipart/byteranges; boundary=abc", Some("abc")),
            (
                "Multipart/ByteRanges;charset=x; Boundary=\"a b\"",
                Some("a b"),
            ),
            ("multipart/form-data; boundary=abc", None),
            ("multipart/byteranges; boundary=", None),
            ("multipart/byteranges", None),
        ] {
            assert_eq!(Multipart::boundary(value), expected, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end_in_pieces_or_an_error(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
            at in 0..BODY.len(),
            step in 1..50usize,
        ) {
            // Arbitrary bytes, and a body with arbitrary bytes inserted.
            let _ = parse(&bytes, step);
            let mixed = [&BODY[..at], &bytes, &BODY[at..]].concat();
            if let Ok(parts) = parse(&mixed, step) {
                let total: usize = parts.iter().map(|(_, data)| data.len()).sum();
                proptest::prop_assert!(total <= mixed.len());
            }
        }
    }
}
