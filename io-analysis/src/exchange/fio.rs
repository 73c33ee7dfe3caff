//! fio's iolog version 3, which `fio --read_iolog` replays.
//!
//! After the line `fio version 3 iolog` each line is `time file action [offset length]`, the time
//! in µs from the start. A file is added and opened before its first use and closed at the end.

use std::fmt::Write as _;

use trace_kinds::rocksdb::NumberedStrings;

use crate::io::{Direction, IoAccess};
use crate::numbers::to_u32;

/// Writes an iolog incrementally.
///
/// fio replays lines in order of time, while traces are in the order in which operations *ended*.
/// The time of a line is therefore the start of the operation, or the time of the previous line if
/// that is later. Operations without an offset or with length 0 cannot be represented and are
/// skipped.
#[derive(Debug, Default)]
pub struct FioIolog {
    files: NumberedStrings,
    start_ns: Option<i64>,
    latest_us: u64,
    skipped: u64,
}

impl FioIolog {
    /// An iolog, with its first line in `out`.
    pub fn start(out: &mut String) -> Self {
        out.push_str("fio version 3 iolog\n");
        Self::default()
    }

    /// Appends the lines of one operation to `out`.
    pub fn put(&mut self, out: &mut String, access: &IoAccess<'_>) {
        let action = match (access.direction, access.offset, access.len) {
            (Direction::Read, Some(offset), Some(len @ 1..)) => Some(("read", offset, len)),
            (Direction::Write, Some(offset), Some(len @ 1..)) => Some(("write", offset, len)),
            (Direction::Sync, ..) => Some(("sync", 0, 0)),
            _ => None,
        };
        let Some((action, offset, len)) = action else {
            self.skipped += 1;
            return;
        };
        let start = *self.start_ns.get_or_insert(access.start_ns);
        let since = access.start_ns.saturating_sub(start).max(0) / 1000;
        self.latest_us = self.latest_us.max(since.unsigned_abs());
        let (time, known) = (self.latest_us, self.files.len());
        let name = file_token(access.file);
        if self.files.intern(name.as_bytes()) as usize == known {
            write!(out, "{time} {name} add\n{time} {name} open\n")
                .expect("writing to a string cannot fail");
        }
        writeln!(out, "{time} {name} {action} {offset} {len}")
            .expect("writing to a string cannot fail");
    }

    /// Appends the lines that close the files.
    pub fn finish(&self, out: &mut String) {
        for number in 0..to_u32(self.files.len()) {
            let name = String::from_utf8_lossy(self.files.get(number).unwrap_or_default());
            writeln!(out, "{} {name} close", self.latest_us)
                .expect("writing to a string cannot fail");
        }
    }

    /// Operations that an iolog cannot express.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// A file name without white space, which separates the fields of a line.
fn file_token(file: &[u8]) -> String {
    if file.is_empty() {
        return "unknown".to_owned();
    }
    let text = String::from_utf8_lossy(file);
    text.chars()
        .map(|c| {
            if c.is_whitespace() || c.is_control() {
                '_'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_iolog() {
        let access = |start_ns, direction, file: &'static str, offset, len| IoAccess {
            start_ns,
            latency_ns: 1,
            operation: b"x",
            direction,
            file: file.as_bytes(),
            class: "sst",
            cause: b"",
            offset,
            len,
            failed: false,
            request: None,
        };
        let mut out = String::new();
        let mut iolog = FioIolog::start(&mut out);
        for access in [
            access(1_000_000, Direction::Other, "a", None, None),
            access(5_000_000, Direction::Read, "a b", Some(4096), Some(512)),
            access(5_009_000, Direction::Write, "c", Some(0), Some(7)),
            access(5_002_000, Direction::Read, "a b", Some(0), Some(1)),
            access(5_003_000, Direction::Read, "a b", Some(0), Some(0)),
            access(5_020_999, Direction::Sync, "c", None, None),
        ] {
            iolog.put(&mut out, &access);
        }
        iolog.finish(&mut out);
        let expected = "fio version 3 iolog\n0 a_b add\n0 a_b open\n0 a_b read 4096 512\n\
                        9 c add\n9 c open\n9 c write 0 7\n9 a_b read 0 1\n20 c sync 0 0\n\
                        20 a_b close\n20 c close\n";
        assert_eq!((out.as_str(), iolog.skipped()), (expected, 2));
    }
}
