use std::io;
use std::ops::Range;

/// Distributes received bytes to one buffer per wanted range.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    wanted: &'a [Range<u64>],
    buffers: Vec<Vec<u8>>,
    /// Bytes of the wanted ranges that have not arrived.
    missing: u64,
}

impl<'a> Collector<'a> {
    /// `wanted` is sorted and does not overlap.
    pub(super) fn new(wanted: &'a [Range<u64>]) -> Self {
        let lengths = wanted
            .iter()
            .map(|range| range.end.saturating_sub(range.start));
        Self {
            wanted,
            // Grown as bytes arrive, so that a range beyond the end of the file costs no memory.
            buffers: vec![Vec::new(); wanted.len()],
            missing: lengths.sum(),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Adds bytes at `offset`. Those of one range must arrive in order, which holds because a
    /// response returns the bytes of a part in order and no part ends inside a wanted range.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let first = self.wanted.partition_point(|range| range.end <= offset);
        for (range, buffer) in self.wanted[first..].iter().zip(&mut self.buffers[first..]) {
            if range.start >= end {
                break;
            }
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from >= to {
                continue;
            }
            if from != range.start + buffer.len() as u64 {
                let what = format!("the bytes at offset {from} arrived out of order");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            let within = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            if buffer.is_empty() {
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                buffer.try_reserve_exact(length)?;
            }
            buffer.extend_from_slice(&bytes[within(from)..within(to)]);
            self.missing -= to - from;
        }
        Ok(())
    }

    /// The bytes of each wanted range.
    pub(super) fn finish(self) -> io::Result<Vec<Vec<u8>>> {
        match self.missing {
            0 => Ok(self.buffers),
            missing => {
                let what = format!("{missing} bytes are past the end of the file");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"0123456789abcdefghij";

    fn check(pieces: &[Range<usize>], expected: Result<(), io::ErrorKind>) {
        let wanted = [2..5, 5..6, 9..9, 12..15];
        let mut collector = Collector::new(&wanted);
        let mut outcome = Ok(());
        for piece in pieces {
            let taken = collector.add(piece.start as u64, &FILE[piece.clone()]);
            outcome = outcome.and(taken);
        }
        let found = outcome.and_then(|()| collector.finish());
        match expected {
            Ok(()) => {
                let bytes =
                    |range: &Range<u64>| FILE[range.start as usize..range.end as usize].to_vec();
                assert_eq!(found.unwrap(), wanted.iter().map(bytes).collect::<Vec<_>>());
            }
            Err(kind) => assert_eq!(found.unwrap_err().kind(), kind),
        }
    }

    #[test]
    fn any_pieces_that_hold_the_ranges_will_do() {
        check(&[2..6, 12..15], Ok(()));
        check(&[12..15, 2..5, 5..6], Ok(()));
        check(std::slice::from_ref(&(0..20)), Ok(()));
        check(&[0..3, 3..4, 4..13, 13..20], Ok(()));
        check(
            std::slice::from_ref(&(2..6)),
            Err(io::ErrorKind::UnexpectedEof),
        );
        check(&[2..6, 12..14], Err(io::ErrorKind::UnexpectedEof));
        check(&[3..6, 12..15], Err(io::ErrorKind::InvalidData));
        check(&[2..6, 12..15, 2..3], Err(io::ErrorKind::InvalidData));
    }
}
