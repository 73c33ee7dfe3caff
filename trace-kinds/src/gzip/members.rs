//! The text of gzip members, read as a stream.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Decompresses members one after another. Zero bytes after a member are padding.
pub(crate) struct MembersText<R> {
    member: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> MembersText<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            member: Some(GzDecoder::new(BufReader::with_capacity(READ_BYTES, source))),
        }
    }
}

/// Whether something follows the zero bytes at the current position, which are skipped.
fn skip_padding(source: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = source.fill_buf()?;
        let (known, zeros) = (
            bytes.len(),
            bytes.iter().take_while(|byte| **byte == 0).count(),
        );
        source.consume(zeros);
        if zeros < known || known == 0 {
            return Ok(known > 0);
        }
    }
}

impl<R: Read> Read for MembersText<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let length = member.read(target)?;
            if length > 0 || target.is_empty() {
                return Ok(length);
            }
            let ended = self.member.take().map(GzDecoder::into_inner);
            if let Some(mut source) = ended
                && skip_padding(&mut source)?
            {
                self.member = Some(GzDecoder::new(source));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_are_read_across_padding() {
        let (one, two, none) = (member(b"one"), member(b"two"), member(b""));
        let zeros = vec![0; 100_000];
        for (parts, expected) in [
            (vec![&one], Ok("one")),
            (vec![&one, &two], Ok("onetwo")),
            (vec![&one, &zeros, &two, &zeros], Ok("onetwo")),
            (vec![&none, &zeros, &none, &two], Ok("two")),
            (
                vec![&one, &zeros, &b"end".to_vec()],
                Err(ErrorKind::UnexpectedEof),
            ),
            (
                vec![&one, &zeros, &b"no member at all".to_vec()],
                Err(ErrorKind::InvalidInput),
            ),
            (
                vec![&one, &two[..9].to_vec()],
                Err(ErrorKind::UnexpectedEof),
            ),
        ] {
            let bytes: Vec<u8> = parts.into_iter().flatten().copied().collect();
            let mut text = String::new();
            let read = MembersText::new(&bytes[..]).read_to_string(&mut text);
            let found = read.map(|_| text.as_str()).map_err(|error| error.kind());
            assert_eq!(found, expected, "{}", bytes.len());
        }
    }
}
