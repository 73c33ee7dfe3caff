//! Which packets of a stream are which file.
//!
//! A stream has several files if a file was pushed again after it had changed, if it was rotated
//! while it was followed, if several files were pushed under one name, or if it is a copy of such a
//! stream.

use std::fmt;

use chunk_index::SourceFile;

use super::packet::{ExportStream, FileRange, StoredPacket};

/// The packets of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Version<'a> {
    /// The file, if it is known.
    pub(super) file: Option<&'a SourceFile>,
    pub(super) packets: &'a [StoredPacket],
    /// Sequence of the first packet, if the file begins in the middle of an epoch.
    begins_at: u64,
}

/// The files of a stream, oldest first.
pub(super) fn versions(stream: &ExportStream) -> Vec<Version<'_>> {
    let mut found = Vec::new();
    let (mut begin, mut begins_at) = (0, 0);
    let mut last: Option<FileRange> = None;
    for (at, packet) in stream.packets.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| stream.packets.get(at));
        let is_new_epoch =
            before.is_some_and(|before| before.position.epoch != packet.position.epoch);
        let is_other_file = match (last, packet.origin) {
            (Some(last), Some(origin)) => {
                last.file != origin.file || origin.offset < last.offset.saturating_add(last.bytes)
            }
            _ => false,
        };
        if is_new_epoch || is_other_file {
            found.push(version(stream, begin, at, begins_at));
            begin = at;
            begins_at = if is_new_epoch {
                0
            } else {
                packet.position.sequence
            };
            last = None;
        }
        last = packet.origin.or(last);
    }
    if begin < stream.packets.len() {
        found.push(version(stream, begin, stream.packets.len(), begins_at));
    }
    found
}

fn version(stream: &ExportStream, begin: usize, end: usize, begins_at: u64) -> Version<'_> {
    let packets = stream.packets.get(begin..end).unwrap_or_default();
    let origin = packets.iter().find_map(|packet| packet.origin);
    Version {
        file: origin.and_then(|origin| stream.files.get(origin.file)),
        packets,
        begins_at,
    }
}

/// What is missing of a file: the first place, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Missing {
    first: Option<String>,
    others: u64,
}

impl Missing {
    pub(super) fn add(&mut self, what: impl FnOnce() -> String) {
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some(what()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.first.as_deref().unwrap_or("nothing is missing"))?;
        match self.others {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more fault)"),
            others => write!(f, " (and {others} more faults)"),
        }
    }
}

impl Version<'_> {
    /// The packets that are not there: by their sequences, and by the bytes between the ranges of
    /// their file.
    pub(super) fn missing(&self) -> Missing {
        let mut missing = Missing::default();
        let mut next = self.begins_at;
        // Where the next packet begins in the file, as far as that is known.
        let mut end = Some(0);
        for packet in self.packets {
            let sequence = packet.position.sequence;
            let begin = packet.origin.map(|origin| origin.offset);
            match (end, begin) {
                (Some(end), Some(begin)) if end < begin => {
                    missing.add(|| format!("bytes {end} to {begin} of the file are missing"));
                }
                // Copies count their own packets, so a range says more than a sequence.
                (Some(_), Some(_)) => {}
                _ if next < sequence => {
                    let last = sequence - 1;
                    missing.add(|| {
                        if next == last {
                            format!("packet {next} is missing")
                        } else {
                            format!("packets {next} to {last} are missing")
                        }
                    });
                }
                _ => {}
            }
            next = sequence.saturating_add(1);
            let range = packet.origin;
            end = range.map(|range| range.offset.saturating_add(range.bytes));
        }
        missing
    }
}
