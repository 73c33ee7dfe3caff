use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use storage_format::checksum::crc32c_append;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::journal::{CutPoint, Journal, ReportedPrefix};
use crate::ClientError;
use crate::cutter::{Cut, Cutter, End};
use crate::http::{Client, GrownFrom, PacketProvenance, ProvenanceReport, PushTarget, Receipt};

/// Maximum number of packets per report.
pub(super) const REPORTED_PACKETS_MAX: usize = 4096;

/// Bytes of the packets in a report, as JSON; a server takes a MiB by default.
const REPORT_BYTES_MAX: usize = 900_000;

/// The longest start of `packets` that fits in a report. Each report costs the server as much as
/// all before it have packets, so that few are better.
pub(super) fn reported_at_once(packets: &[PacketProvenance]) -> usize {
    let digits = |number: u64| {
        number
            .checked_ilog10()
            .map_or(1, |digits| digits as usize + 1)
    };
    // Two brackets and five commas.
    let length = |packet: &PacketProvenance| packet.numbers().map(digits).iter().sum::<usize>() + 7;
    let mut left = REPORT_BYTES_MAX;
    let fits = |packet: &&PacketProvenance| {
        left.checked_sub(length(packet))
            .inspect(|rest| left = *rest)
            .is_some()
    };
    packets.iter().take_while(fits).count()
}

const READ_BYTES: usize = 256 << 10;

/// What the server has acknowledged of a stream.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// First packet that is not acknowledged.
    next: u64,
    /// Storages that packets were written to, with the lowest number of an unreported packet.
    storages: BTreeMap<Uuid, Option<u64>>,
}

impl Acknowledged {
    /// The state before packet `next` is pushed to `target`.
    pub(super) fn before(target: &PushTarget, next: u64) -> Self {
        Self {
            next,
            storages: target.storage.map(|id| (id, None)).into_iter().collect(),
        }
    }

    /// Adds the receipts of packets before `next`.
    pub(super) fn add(&mut self, target: &PushTarget, receipts: &[Receipt], next: u64) {
        self.next = next;
        for receipt in receipts {
            let reported = receipt.more.get("storage").and_then(|id| id.as_str());
            let reported = reported.and_then(|id| id.parse().ok());
            let (Some(id), Some(number)) = (reported.or(target.storage), receipt.number) else {
                continue;
            };
            let lowest = self.storages.entry(id).or_default();
            *lowest = Some(lowest.map_or(number, |lowest| lowest.min(number)));
        }
    }

    /// The storages that packets were written to.
    pub(super) fn storages(&self) -> Vec<Uuid> {
        self.storages.keys().copied().collect()
    }
}

/// A prefix of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Prefix {
    bytes: u64,
    checksum: u32,
}

/// Reports the provenance of the packets of a followed file, periodically and at the end.
///
/// The file grows, so a report describes the prefix that was pushed: its length and checksum. The
/// journal records how far provenance has been reported, so that reporting can resume.
#[derive(Debug)]
pub(super) struct ProvenanceReporter {
    client: Client,
    target: PushTarget,
    epoch: u64,
    path: PathBuf,
    file: File,
    has_lines: bool,
    acknowledged: Arc<Mutex<Acknowledged>>,
    journal: Journal,
    /// The prefix that was read for its checksum.
    prefix: Prefix,
    /// The prefix in the last report.
    reported: Option<Prefix>,
    /// Packets that were cut and not reported yet.
    pending: VecDeque<PacketProvenance>,
    /// Number of lines before the next packet.
    line: u64,
    /// Whether an earlier push sent some of the pending packets, so their numbers are unknown.
    is_first: bool,
    every: Duration,
    last: Instant,
    /// Why reporting has stopped.
    failure: Option<String>,
}

/// The parameters of a [`ProvenanceReporter`].
#[derive(Debug)]
pub(super) struct ReporterSpec {
    pub(super) client: Client,
    pub(super) target: PushTarget,
    pub(super) epoch: u64,
    /// The followed file.
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// Whether the file is text.
    pub(super) has_lines: bool,
    pub(super) acknowledged: Arc<Mutex<Acknowledged>>,
    pub(super) journal: Journal,
    /// Interval between reports.
    pub(super) every: Duration,
}

impl ProvenanceReporter {
    /// Opens the file a second time, to compute checksums.
    pub(super) fn open(spec: ReporterSpec) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(&spec.path, error);
        let path = std::fs::canonicalize(&spec.path).map_err(failed)?;
        let file = File::open(&path).map_err(failed)?;
        let is_it = file.metadata().map_err(failed)?.ino() == spec.inode;
        let failure = (!is_it).then(|| "it was replaced by another file".to_owned());
        Ok(Self {
            client: spec.client,
            target: spec.target,
            epoch: spec.epoch,
            path,
            file,
            has_lines: spec.has_lines,
            acknowledged: spec.acknowledged,
            journal: spec.journal,
            prefix: Prefix::default(),
            reported: None,
            pending: VecDeque::new(),
            line: 0,
            is_first: true,
            every: spec.every,
            last: Instant::now(),
            failure,
        })
    }

    /// Cuts the packets again that were pushed and not reported. Ends at the last cut point.
    pub(super) fn recover(
        &mut self,
        cutter_at: impl Fn(u64) -> Result<Box<dyn Cutter>, ClientError>,
    ) {
        let recovered = self.try_recover(cutter_at);
        self.record_failure(recovered.map_err(|error| error.to_string()));
    }

    fn try_recover(
        &mut self,
        cutter_at: impl Fn(u64) -> Result<Box<dyn Cutter>, ClientError>,
    ) -> Result<(), ClientError> {
        let (points, reported) = self.journal.unreported();
        let first = points.first().copied().unwrap_or_default();
        self.line = self.read_to(first.offset)?;
        if let Some(reported) = reported.filter(|reported| reported.bytes >= first.offset) {
            self.read_to(reported.bytes)?;
            let is_same = self.prefix.checksum == reported.checksum;
            self.reported = is_same.then_some(self.prefix);
        }
        for (point, next) in points.iter().zip(points.iter().skip(1)) {
            let mut cutter = cutter_at(point.offset)?;
            let mut position = point.offset;
            for sequence in point.sequence..next.sequence.saturating_sub(1) {
                let Some(cut) = cutter.next(End::Growing)? else {
                    return Err(ClientError::input("the file differs from what was pushed"));
                };
                self.cut(sequence, position, &cut);
                position = cut.position;
            }
            let length = next.offset.saturating_sub(position);
            let lines = if self.has_lines {
                self.lines_in(position, next.offset)?
            } else {
                0
            };
            self.add(PacketProvenance {
                sequence: next.sequence.saturating_sub(1),
                offset: position,
                bytes: length,
                first_line: 0,
                lines,
            });
        }
        Ok(())
    }

    /// Adds a packet that was cut at `position`.
    pub(super) fn cut(&mut self, sequence: u64, position: u64, cut: &Cut) {
        self.add(PacketProvenance {
            sequence,
            offset: position,
            bytes: cut.position.saturating_sub(position),
            first_line: 0,
            lines: cut.text.map_or(0, |text| text.lines),
        });
    }

    /// Adds the packet that follows those added before, whose lines it continues.
    pub(super) fn add(&mut self, packet: PacketProvenance) {
        let first_line = self.line;
        self.line += packet.lines;
        if self.failure.is_none() {
            self.pending.push_back(PacketProvenance {
                first_line,
                ..packet
            });
        }
    }

    /// Records a cut point in the journal.
    pub(super) fn note(&mut self, point: CutPoint) -> Result<(), ClientError> {
        self.journal.note(point)
    }

    /// Records a cut point that follows from the bytes of the file and its metadata.
    pub(super) fn note_soon(&mut self, point: CutPoint) -> Result<(), ClientError> {
        self.journal.note_soon(point)
    }

    /// Reports the acknowledged packets if a report is due.
    pub(super) fn report_when_due(&mut self, runtime: &Handle) {
        let is_due =
            self.pending.len() >= REPORTED_PACKETS_MAX || self.last.elapsed() >= self.every;
        if is_due && !self.pending.is_empty() {
            self.last = Instant::now();
            self.report(runtime);
        }
    }

    /// Reports the rest. Returns the reason if reporting failed.
    pub(super) fn finish(mut self, runtime: &Handle) -> Option<String> {
        self.report(runtime);
        self.failure
    }

    fn report(&mut self, runtime: &Handle) {
        let reported = match self.failure {
            None => self.try_report(runtime),
            Some(_) => return,
        };
        self.record_failure(reported.map_err(|error| error.to_string()));
    }

    fn record_failure(&mut self, done: Result<(), String>) {
        if let Err(reason) = done {
            self.failure.get_or_insert(reason);
            self.pending.clear();
        }
    }

    fn try_report(&mut self, runtime: &Handle) -> Result<(), ClientError> {
        let (next, mut storages) = {
            let shared = self.acknowledged.lock();
            let mut shared = shared.unwrap_or_else(PoisonError::into_inner);
            let storages = shared.storages.clone();
            shared
                .storages
                .values_mut()
                .for_each(|lowest| *lowest = None);
            (shared.next, storages)
        };
        let count = self
            .pending
            .partition_point(|origin| origin.sequence < next);
        let reported: Vec<PacketProvenance> = self.pending.drain(..count).collect();
        let Some(last) = reported.last() else {
            return Ok(());
        };
        if std::mem::take(&mut self.is_first) {
            storages.values_mut().for_each(|lowest| *lowest = None);
        }
        self.read_to(last.offset + last.bytes)?;
        for (storage, lowest) in storages {
            let mut grown_from = self.reported;
            for packets in reported.chunks(REPORTED_PACKETS_MAX) {
                let spec = self.origin(packets, lowest, grown_from);
                let PushTarget { agent, stream, .. } = &self.target;
                let sent = self.client.report_provenance(storage, agent, stream, &spec);
                runtime.block_on(sent)?;
                grown_from = Some(self.prefix);
            }
        }
        self.reported = Some(self.prefix);
        self.journal.append_reported(ReportedPrefix {
            sequence: last.sequence + 1,
            bytes: self.prefix.bytes,
            checksum: self.prefix.checksum,
        })
    }

    fn origin(
        &self,
        packets: &[PacketProvenance],
        lowest: Option<u64>,
        grown_from: Option<Prefix>,
    ) -> ProvenanceReport {
        ProvenanceReport {
            epoch: self.epoch,
            path: self.path.display().to_string(),
            file_bytes: self.prefix.bytes,
            modified: None,
            checksum: Some(u64::from(self.prefix.checksum)),
            grown_from: grown_from
                .filter(|before| *before != self.prefix)
                .map(|before| GrownFrom {
                    file_bytes: before.bytes,
                    checksum: before.checksum,
                }),
            first_number: lowest.unwrap_or(0),
            packets: packets.iter().map(PacketProvenance::numbers).collect(),
        }
    }

    /// Reads the file up to `end` and returns the number of line ends.
    fn read_to(&mut self, end: u64) -> Result<u64, ClientError> {
        let (mut lines, mut prefix) = (0, self.prefix);
        self.read_range(prefix.bytes, end, |piece| {
            prefix.checksum = crc32c_append(prefix.checksum, piece);
            prefix.bytes += piece.len() as u64;
            lines += memchr::memchr_iter(b'\n', piece).count() as u64;
        })?;
        self.prefix = prefix;
        Ok(lines)
    }

    fn lines_in(&self, begin: u64, end: u64) -> Result<u64, ClientError> {
        let mut lines = 0;
        self.read_range(begin, end, |piece| {
            lines += memchr::memchr_iter(b'\n', piece).count() as u64;
        })?;
        Ok(lines)
    }

    fn read_range(
        &self,
        mut begin: u64,
        end: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), ClientError> {
        let mut buffer = vec![0; READ_BYTES];
        while begin < end {
            let left = usize::try_from(end - begin).unwrap_or(usize::MAX);
            let length = left.min(READ_BYTES);
            let read = self.file.read_at(&mut buffer[..length], begin);
            let read = read.and_then(|read| match read {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                read => Ok(read),
            });
            let read = read.map_err(|error| ClientError::file(&self.path, error))?;
            take(&buffer[..read]);
            begin += read as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_in_the_body_that_a_server_takes() {
        for number in [0, 9, 10, 1 << 20, u64::MAX] {
            let packet = PacketProvenance {
                sequence: number,
                offset: number,
                bytes: number,
                first_line: number,
                lines: number,
            };
            let packets = vec![packet; 80_000];
            let at_once = reported_at_once(&packets);
            let numbers: Vec<_> = packets.iter().map(PacketProvenance::numbers).collect();
            let length = |count: usize| serde_json::to_vec(&numbers[..count]).unwrap().len();
            assert!(length(at_once) <= REPORT_BYTES_MAX + 1, "{number}");
            assert!(length(at_once + 1) > REPORT_BYTES_MAX, "{number}");
        }
        assert_eq!(reported_at_once(&[]), 0);
    }
}
