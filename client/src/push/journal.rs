use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use storage_format::checksum::crc32c;

use crate::ClientError;
use crate::http::PushTarget;

/// The cut points of a followed file that do not follow from its bytes.
///
/// A followed file is also cut whenever it pauses, which depends on time. Each such cut point is
/// written and synced before the packet is sent: the line `SEQUENCE OFFSET` says that this packet
/// begins at this offset. From a cut point, cutting is deterministic up to the next one. Only the
/// server knows which packets have arrived.
///
/// The first line, `inode NUMBER`, identifies the file: on a file system with coarse timestamps,
/// two files with the same name can have the same creation time, and so the same epoch.
///
/// `told SEQUENCE BYTES CHECKSUM` says that the provenance of the packets before this sequence has
/// been reported, when this many bytes of the file had been pushed.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    unreported: Vec<CutPoint>,
    reported: Option<ReportedPrefix>,
}

/// How far provenance has been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportedPrefix {
    /// First packet whose provenance has not been reported.
    pub(super) sequence: u64,
    /// Bytes of the file that had been pushed.
    pub(super) bytes: u64,
    /// CRC32C of these bytes.
    pub(super) checksum: u32,
}

/// Maximum number of cut points from which packets are cut again to report their provenance.
const UNREPORTED_MAX: usize = 4096;

/// The beginning of a packet in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CutPoint {
    /// Sequence of the packet that begins at the offset.
    pub(super) sequence: u64,
    /// Offset in the file.
    pub(super) offset: u64,
}

const START: CutPoint = CutPoint {
    sequence: 0,
    offset: 0,
};

impl Journal {
    /// Whether the journal for `epoch` belongs to a file with another inode.
    pub(super) fn is_of_another_file(
        folder: &Path,
        target: &PushTarget,
        server: &str,
        epoch: u64,
        inode: u64,
    ) -> Result<bool, ClientError> {
        let path = path_of(folder, target, server, epoch);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(inode_of(&text).is_some_and(|noted| noted != inode)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(ClientError::file(&path, error)),
        }
    }

    /// Opens the journal of a file pushed to `target` under `epoch`, and returns the last cut point
    /// at or before packet `next`. Later cut points, of packets that never arrived, are removed.
    pub(super) fn open(
        folder: &Path,
        target: &PushTarget,
        server: &str,
        epoch: u64,
        inode: u64,
        next: u64,
    ) -> Result<(Self, CutPoint), ClientError> {
        let path = path_of(folder, target, server, epoch);
        let failed = |error| ClientError::file(&path, error);
        fs::create_dir_all(folder).map_err(|error| ClientError::file(folder, error))?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && next == 0 => String::new(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ClientError::input(format!(
                    "the server already has {next} packets of {}, but this host has no record of \
                    where they ended ({} is missing); push the complete file without --follow, or \
                    follow it into another storage",
                    target.stream,
                    path.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        };
        let points = text.split_inclusive('\n').filter_map(parse);
        let points = points.filter(|point| point.sequence <= next);
        let points_to_next: Vec<CutPoint> = std::iter::once(START).chain(points).collect();
        let last = *points_to_next.last().expect("the start is always there");
        let mut reported = text.split_inclusive('\n').filter_map(parse_reported);
        let reported = reported.rfind(|reported| reported.sequence <= next);
        let points = points_to_next.iter().skip(1).map(line);
        let lines: String = std::iter::once(format!("inode {inode}\n"))
            .chain(points)
            .chain(reported.as_ref().map(reported_line))
            .collect();
        let fresh = path.with_extension("tmp");
        let file = File::create(&fresh).map_err(failed)?;
        let mut journal = Self {
            path,
            file,
            unreported: unreported(
                &points_to_next,
                reported.map_or(0, |reported| reported.sequence),
            ),
            reported,
        };
        journal.append(&lines)?;
        let renamed = fs::rename(&fresh, &journal.path);
        renamed.map_err(|error| ClientError::file(&journal.path, error))?;
        Ok((journal, last))
    }

    /// Appends a cut point and syncs.
    pub(super) fn note(&mut self, point: CutPoint) -> Result<(), ClientError> {
        self.append(&line(&point))
    }

    /// Appends a cut point without waiting for the disk. If a crash of the host loses it, the
    /// packet is cut again from an earlier one.
    pub(super) fn note_soon(&mut self, point: CutPoint) -> Result<(), ClientError> {
        let written = self.file.write_all(line(&point).as_bytes());
        written.map_err(|error| ClientError::file(&self.path, error))
    }

    /// Appends how far provenance has been reported, and syncs.
    pub(super) fn append_reported(&mut self, reported: ReportedPrefix) -> Result<(), ClientError> {
        self.append(&reported_line(&reported))
    }

    /// The cut points from which the packets without reported provenance are cut again, and the
    /// last report. The last cut point is where cutting continues.
    pub(super) fn unreported(&self) -> (Vec<CutPoint>, Option<ReportedPrefix>) {
        (self.unreported.clone(), self.reported)
    }

    fn append(&mut self, text: &str) -> Result<(), ClientError> {
        let written = self.file.write_all(text.as_bytes());
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|error| ClientError::file(&self.path, error))
    }
}

fn path_of(folder: &Path, target: &PushTarget, server: &str, epoch: u64) -> PathBuf {
    let key = format!("{server} {target:?} {epoch}");
    let name = format!("{:08x}-{}.places", crc32c(key.as_bytes()), target.stream);
    folder.join(name)
}

fn inode_of(text: &str) -> Option<u64> {
    text.lines().next()?.strip_prefix("inode ")?.parse().ok()
}

fn line(point: &CutPoint) -> String {
    format!("{} {}\n", point.sequence, point.offset)
}

fn reported_line(reported: &ReportedPrefix) -> String {
    let ReportedPrefix {
        sequence,
        bytes,
        checksum,
    } = reported;
    format!("told {sequence} {bytes} {checksum}\n")
}

fn parse_reported(line: &str) -> Option<ReportedPrefix> {
    let words = line.strip_prefix("told ")?.strip_suffix('\n')?;
    let mut words = words.split(' ');
    let reported = ReportedPrefix {
        sequence: words.next()?.parse().ok()?,
        bytes: words.next()?.parse().ok()?,
        checksum: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(reported)
}

/// The cut points starting with the last one at or before packet `next`.
fn unreported(points: &[CutPoint], next: u64) -> Vec<CutPoint> {
    let first = points.partition_point(|point| point.sequence <= next);
    let first = first.saturating_sub(1);
    points[first.max(points.len().saturating_sub(UNREPORTED_MAX))..].to_vec()
}

/// Parses a cut point. A line torn by a crash belongs to a packet that was never sent.
fn parse(line: &str) -> Option<CutPoint> {
    let (sequence, offset) = line.strip_suffix('\n')?.split_once(' ')?;
    Some(CutPoint {
        sequence: sequence.parse().ok()?,
        offset: offset.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: u64 = 12;

    fn target() -> PushTarget {
        PushTarget {
            storage: None,
            agent: "a".to_owned(),
            stream: "s".to_owned(),
        }
    }

    fn open(folder: &Path, next: u64) -> Result<(Journal, CutPoint), ClientError> {
        Journal::open(folder, &target(), "http://h", 7, INODE, next)
    }

    #[test]
    fn a_journal_knows_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let is_of_another = |epoch, inode| {
            let folder = folder.path();
            Journal::is_of_another_file(folder, &target(), "http://h", epoch, inode).unwrap()
        };
        assert!(!is_of_another(7, INODE + 1), "no journal yet");
        let (mut journal, _) = open(folder.path(), 0).unwrap();
        let point = CutPoint {
            sequence: 1,
            offset: 9,
        };
        journal.note(point).unwrap();
        drop(open(folder.path(), 1).unwrap());
        assert!(is_of_another(7, INODE + 1) && !is_of_another(7, INODE));
        assert!(
            !is_of_another(8, INODE + 1),
            "another epoch, another journal"
        );
    }

    #[test]
    fn cut_points_of_stored_packets_are_retained() {
        let folder = tempfile::tempdir().unwrap();
        let point = |sequence, offset| CutPoint { sequence, offset };
        let (mut journal, start) = open(folder.path(), 0).unwrap();
        assert_eq!(start, point(0, 0));
        journal.note(point(3, 300)).unwrap();
        journal.note(point(9, 900)).unwrap();
        assert_eq!(open(folder.path(), 9).unwrap().1, point(9, 900));
        assert_eq!(open(folder.path(), 8).unwrap().1, point(3, 300));
        assert_eq!(
            open(folder.path(), 20).unwrap().1,
            point(3, 300),
            "the later one was removed"
        );
        assert_eq!(open(folder.path(), 2).unwrap().1, point(0, 0));
    }

    #[test]
    fn unreported_packets_are_cut_again() {
        let folder = tempfile::tempdir().unwrap();
        let point = |sequence, offset| CutPoint { sequence, offset };
        let (mut journal, _) = open(folder.path(), 0).unwrap();
        assert_eq!(journal.unreported(), (vec![START], None));
        let reported = |sequence| ReportedPrefix {
            sequence,
            bytes: sequence * 100,
            checksum: 5,
        };
        journal.note(point(3, 300)).unwrap();
        journal.append_reported(reported(5)).unwrap();
        journal.note(point(9, 900)).unwrap();
        journal.note(point(12, 1200)).unwrap();
        for _ in 0..2 {
            let (journal, last) = open(folder.path(), 12).unwrap();
            let points = vec![point(3, 300), point(9, 900), point(12, 1200)];
            assert_eq!(journal.unreported(), (points, Some(reported(5))));
            assert_eq!(last, point(12, 1200));
        }
        // The server lost packets whose provenance was reported: report all of them again.
        let (journal, _) = open(folder.path(), 4).unwrap();
        assert_eq!(journal.unreported(), (vec![START, point(3, 300)], None));
    }

    #[test]
    fn without_a_journal_nothing_is_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(folder.path(), 4).unwrap_err().to_string();
        assert!(
            error.contains("4 packets") && error.contains("without --follow"),
            "{error}"
        );
    }
}
