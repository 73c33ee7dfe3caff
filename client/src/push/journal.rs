use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use storage_format::checksum::crc32c;

use crate::ClientError;
use crate::http::PushTarget;

/// Where the packets of a followed file begin that are not where cutting alone would put them.
///
/// A followed file is cut early whenever it pauses, which depends on time and not on its bytes.
/// Each such point is written down, and synced, before the packet is sent: `SEQUENCE OFFSET` on a
/// line says that this packet begins at this offset of the file. From a point on, cutting is
/// deterministic again up to the next one. Which packets arrived is known by the server alone.
///
/// The first line, `inode NUMBER`, names the file: a file system that counts its times in ticks of
/// some milliseconds can give two files of one name the same time of creation, and so the same
/// epoch.
///
/// `told SEQUENCE BYTES CHECKSUM` says that the server was reported where the packets before this one
/// came from, when so much of the file had been pushed.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    unreported: Vec<CutPoint>,
    reported: Option<ReportedPrefix>,
}

/// How far it was reported where packets came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportedPrefix {
    /// Sequence of the first packet of which it was not.
    pub(super) sequence: u64,
    /// Bytes of the file that had been pushed.
    pub(super) bytes: u64,
    /// CRC32C of these.
    pub(super) checksum: u32,
}

/// Places of packets that were not reported of, beyond which nothing is cut again to tell of it.
const UNREPORTED_MAX: usize = 4096;

/// Where to go on.
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
    /// Whether the journal kept for `epoch` is that of another file than the one with this inode.
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

    /// Opens the journal of a file pushed to `target` under `epoch`, and gives the point from which
    /// packet `next` is reached by cutting. Later points, of packets that never arrived, are
    /// forgotten.
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
                    "the server has {next} packets of {} already, but where they ended is not \
                     written down on this machine ({} is missing); push the complete file \
                     without --follow, or follow it into another storage",
                    target.stream,
                    path.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        };
        let points = text.split_inclusive('\n').filter_map(parse);
        let points = points.filter(|point| point.sequence <= next);
        let kept: Vec<CutPoint> = std::iter::once(START).chain(points).collect();
        let last = *kept.last().expect("the start is always there");
        let mut reported = text.split_inclusive('\n').filter_map(parse_reported);
        let reported = reported.rfind(|reported| reported.sequence <= next);
        let points = kept.iter().skip(1).map(line);
        let lines: String = std::iter::once(format!("inode {inode}\n"))
            .chain(points)
            .chain(reported.as_ref().map(reported_line))
            .collect();
        let fresh = path.with_extension("tmp");
        let file = File::create(&fresh).map_err(failed)?;
        let mut journal = Self {
            path,
            file,
            unreported: unreported(&kept, reported.map_or(0, |reported| reported.sequence)),
            reported,
        };
        journal.append(&lines)?;
        let renamed = fs::rename(&fresh, &journal.path);
        renamed.map_err(|error| ClientError::file(&journal.path, error))?;
        Ok((journal, last))
    }

    /// Writes a point down, for good.
    pub(super) fn note(&mut self, point: CutPoint) -> Result<(), ClientError> {
        self.append(&line(&point))
    }

    /// Writes down how far it was reported where packets came from.
    pub(super) fn append_reported(&mut self, reported: ReportedPrefix) -> Result<(), ClientError> {
        self.append(&reported_line(&reported))
    }

    /// The points from which the packets are cut that were there when the journal was opened, and
    /// not reported of; the last is where to go on. And what was reported last.
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

/// The points from the last one that does not lie behind packet `next` on.
fn unreported(points: &[CutPoint], next: u64) -> Vec<CutPoint> {
    let first = points.partition_point(|point| point.sequence <= next);
    let first = first.saturating_sub(1);
    points[first.max(points.len().saturating_sub(UNREPORTED_MAX))..].to_vec()
}

/// A point from its line; a line torn by a crash is of a packet that was never sent.
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
        assert!(!is_of_another(7, INODE + 1), "there is none yet");
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
    fn places_of_packets_that_arrived_are_kept() {
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
            "the other was forgotten"
        );
        assert_eq!(open(folder.path(), 2).unwrap().1, point(0, 0));
    }

    #[test]
    fn what_was_told_is_kept_and_tells_from_where_to_cut_again() {
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
        // The server lost what it was reported of: nothing is taken for reported.
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
