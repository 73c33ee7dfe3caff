//! Lines of the audit log, each of which seals all lines before it.

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::{Digest, from_hex, sha256, to_hex};

/// No line is longer; a longer one is damage.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What precedes the seal at the end of a line, and what follows it.
const SEAL_BEGIN: &str = ",\"seal\":\"";
const SEAL_END: &str = "\"}";

/// The last line so far: what the next one continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// The number of the last line; the first one has 1.
    pub number: u64,
    /// Its seal; zero before the first line.
    pub seal: Digest,
}

/// A line, without its seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// Counted from 1 over all files.
    number: u64,
    /// RFC 3339.
    time: String,
    /// What happened.
    #[serde(flatten)]
    what: What,
}

/// What a line reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum What {
    /// A file begins; it continues after the line with this seal.
    Begin {
        /// The seal of the last line of the file before.
        after: String,
    },
    /// A request changed something.
    Act(Act),
}

/// A request that changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// `token ID (NAME)`, `user NAME` of a proxy, or `anyone` on a server without tokens.
    pub caller: String,
    /// The method of the request.
    pub method: String,
    /// Its path.
    pub path: String,
    /// The query string, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default)]
    pub query: Option<String>,
    /// That of the answer; 0 if the client left before there was one.
    pub status: u16,
    /// The address of what was made, if something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default)]
    pub made: Option<String>,
    /// The id of the request, as in the server's log.
    pub request: String,
}

/// Why a file is not what was written.
#[derive(Debug, Error)]
pub enum AuditDamage {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A line is not one.
    #[error("line {line}: it is no line of an audit log, or is longer than 64 KiB")]
    NoLine {
        /// Counted from 1 in the file.
        line: u64,
    },
    /// A line does not follow the one before.
    #[error(
        "line {line}: its number is {found}, but {wanted} follows: lines are missing, repeated or in \
         another order"
    )]
    Number {
        /// Counted from 1 in the file.
        line: u64,
        /// The number of the line.
        found: u64,
        /// The number after the one before.
        wanted: u64,
    },
    /// A line was changed, or one before it.
    #[error("line {line}: its seal does not match: this line or the one before was changed")]
    Seal {
        /// Counted from 1 in the file.
        line: u64,
    },
    /// The file does not continue the one before.
    #[error("it does not continue the file before: lines or whole files are missing between them")]
    Apart,
    /// The last line has no end.
    #[error("line {line}: it is incomplete: the file was cut, or the server ended while it wrote")]
    Cut {
        /// Counted from 1 in the file.
        line: u64,
        /// The bytes before that line.
        bytes: u64,
    },
    /// The file has no line.
    #[error("it is empty")]
    Empty,
}

/// Writes the line after `end`, with its seal, and returns where the log ends then.
#[must_use]
pub fn next_line(end: End, time: String, what: What) -> (Vec<u8>, End) {
    let line = Line {
        number: end.number.saturating_add(1),
        time,
        what,
    };
    let mut text = serde_json::to_string(&line).expect("a line can be written as JSON");
    text.pop();
    let next = End {
        number: line.number,
        seal: seal(&end.seal, text.as_bytes()),
    };
    text.push_str(SEAL_BEGIN);
    text.push_str(&to_hex(&next.seal));
    text.push_str(SEAL_END);
    text.push('\n');
    (text.into_bytes(), next)
}

/// The seal of a line: of its text, and of the seal before.
fn seal(before: &Digest, text: &[u8]) -> Digest {
    sha256(&[before, text].concat())
}

impl End {
    /// The seal as text.
    #[must_use]
    pub fn seal_text(&self) -> String {
        to_hex(&self.seal)
    }
}

impl AuditDamage {
    /// Whether a server that runs may be about to mend it: it writes a line or changes files.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreadable(error) => error.kind() == io::ErrorKind::NotFound,
            Self::Apart | Self::Cut { .. } | Self::Empty => true,
            Self::NoLine { .. } | Self::Number { .. } | Self::Seal { .. } => false,
        }
    }
}

/// Reads a file to its end. `before` is the end of the file before, if that is known.
///
/// # Errors
/// The first damage.
pub fn verify(file: impl BufRead, before: Option<End>) -> Result<End, AuditDamage> {
    match read(file, before) {
        (Some(end), None) => Ok(end),
        (_, damage) => Err(damage.unwrap_or(AuditDamage::Empty)),
    }
}

/// Reads a file to its end or to its first damage, and returns the last line that is intact.
pub fn read(file: impl BufRead, before: Option<End>) -> (Option<End>, Option<AuditDamage>) {
    let mut end = None;
    let damage = read_lines(file, before, &mut end).err();
    (end, damage)
}

fn read_lines(
    mut file: impl BufRead,
    before: Option<End>,
    end: &mut Option<End>,
) -> Result<(), AuditDamage> {
    let (mut line, mut bytes) = (0, 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        let count = io::Read::take(&mut file, limit).read_until(b'\n', &mut text)?;
        if count == 0 {
            return Ok(());
        }
        line += 1;
        if text.pop() != Some(b'\n') {
            if count == LINE_BYTES_MAX {
                return Err(AuditDamage::NoLine { line });
            }
            return Err(AuditDamage::Cut { line, bytes });
        }
        *end = Some(verify_line(&text, line, *end, before)?);
        bytes += count as u64;
    }
}

fn verify_line(
    text: &[u8],
    line: u64,
    end: Option<End>,
    before: Option<End>,
) -> Result<End, AuditDamage> {
    let no_line = || AuditDamage::NoLine { line };
    let text = std::str::from_utf8(text).map_err(|_| no_line())?;
    let (sealed, rest) = text.rsplit_once(SEAL_BEGIN).ok_or_else(no_line)?;
    let found = rest.strip_suffix(SEAL_END).and_then(from_hex);
    let found: Digest = found.ok_or_else(no_line)?;
    let read: Line = serde_json::from_str(&format!("{sealed}}}")).map_err(|_| no_line())?;
    let end = match (end, &read.what) {
        (Some(end), _) => end,
        (None, What::Begin { after }) => {
            let seal: Digest = from_hex(after).ok_or_else(no_line)?;
            let number = read.number.checked_sub(1).ok_or_else(no_line)?;
            let begin = End { number, seal };
            if before.is_some_and(|before| before != begin) {
                return Err(AuditDamage::Apart);
            }
            begin
        }
        (None, What::Act(_)) => return Err(no_line()),
    };
    let wanted = end.number.saturating_add(1);
    if read.number != wanted {
        let found = read.number;
        return Err(AuditDamage::Number {
            line,
            found,
            wanted,
        });
    }
    if seal(&end.seal, sealed.as_bytes()) != found {
        return Err(AuditDamage::Seal { line });
    }
    Ok(End {
        number: read.number,
        seal: found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(path: &str) -> What {
        What::Act(Act {
            caller: "anyone".to_owned(),
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: None,
            status: 201,
            made: None,
            request: "r".to_owned(),
        })
    }

    /// A file of five lines that continues `end`, by line.
    fn file(mut end: End) -> (Vec<Vec<u8>>, End) {
        let begin = What::Begin {
            after: to_hex(&end.seal),
        };
        let mut lines = Vec::new();
        for what in [
            begin,
            act("/a"),
            act("/b\",\"seal\":\""),
            act("/c"),
            act("/d"),
        ] {
            let (line, next) = next_line(end, "2026-01-01T00:00:00Z".to_owned(), what);
            lines.push(line);
            end = next;
        }
        (lines, end)
    }

    #[test]
    fn what_was_written_is_intact_also_over_several_files() {
        let (first, end) = file(End::default());
        assert_eq!(end.number, 5);
        assert_eq!(verify(&first.concat()[..], None).unwrap(), end);
        assert_eq!(
            verify(&first.concat()[..], Some(End::default())).unwrap(),
            end
        );
        let (second, last) = file(end);
        assert_eq!(verify(&second.concat()[..], Some(end)).unwrap(), last);
        assert_eq!(verify(&second.concat()[..], None).unwrap(), last);
        let apart = verify(&second.concat()[..], Some(End::default()));
        assert!(matches!(apart, Err(AuditDamage::Apart)));
    }

    #[test]
    fn every_removed_repeated_or_swapped_line_is_found() {
        let (lines, _) = file(End::default());
        for at in 0..lines.len() - 1 {
            let mut removed = lines.clone();
            removed.remove(at);
            assert!(verify(&removed.concat()[..], None).is_err(), "without {at}");
            let mut repeated = lines.clone();
            repeated.insert(at, lines[at].clone());
            assert!(verify(&repeated.concat()[..], None).is_err(), "twice {at}");
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            assert!(verify(&swapped.concat()[..], None).is_err(), "swapped {at}");
        }
    }

    #[test]
    fn every_changed_byte_and_every_cut_within_a_line_is_found() {
        let (lines, end) = file(End::default());
        let bytes = lines.concat();
        for at in 0..bytes.len() {
            for flip in [1, 0x20] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                assert!(verify(&changed[..], None).is_err(), "byte {at}");
            }
            let is_between = bytes[..at].ends_with(b"\n");
            assert_eq!(
                verify(&bytes[..at], None).is_ok(),
                is_between,
                "cut at {at}"
            );
        }
        // A cut between lines is found only by who knows the end.
        let shorter = verify(&lines[..4].concat()[..], None).unwrap();
        assert_ne!(shorter, end);
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let endless = io::BufReader::new(io::Read::take(io::repeat(b'x'), 1 << 30));
        let refused = verify(endless, None);
        assert!(matches!(refused, Err(AuditDamage::NoLine { line: 1 })));
        assert!(matches!(verify(&b""[..], None), Err(AuditDamage::Empty)));
    }
}
