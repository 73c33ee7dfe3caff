use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::journal::CutPoint;
use super::options::Follow;
use super::plan::SourceFile;
use super::provenance::ProvenanceReporter;
use crate::ClientError;
use crate::cutter::{Cut, End};
use crate::http::PacketProvenance;

/// A packet on its way to the sender.
#[derive(Debug)]
pub(super) struct QueuedPacket {
    pub(super) bytes: Bytes,
    /// Bytes of the file that this packet uses up.
    pub(super) advance: u64,
    /// Its share of the memory for packets; given back when the packet is acknowledged.
    pub(super) share: OwnedSemaphorePermit,
}

/// What is known of a file that was cut to its end.
#[derive(Debug, Default)]
pub(super) struct CompleteFile {
    /// Something worth telling about the file.
    pub(super) remark: Option<String>,
    /// Where each packet came from, those that an earlier push sent included; empty where that is
    /// not known.
    pub(super) packets: Vec<PacketProvenance>,
}

/// How the feed of a file ended.
#[derive(Debug)]
pub(super) enum FeedEnd {
    /// All of it was cut.
    Complete(CompleteFile),
    /// It was followed.
    Followed {
        /// What is to be told once everything is acknowledged.
        reporter: Box<ProvenanceReporter>,
        /// Another file has taken its name, as log rotation does.
        is_replaced: bool,
    },
}

/// Cuts a file and hands the packets to a channel. Runs on a thread of its own.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) source: Arc<SourceFile>,
    /// The file as it was when its epoch was told.
    pub(super) metadata: Metadata,
    pub(super) packet_bytes: usize,
    /// First packet to be sent.
    pub(super) next: u64,
    pub(super) queue: Sender<QueuedPacket>,
    pub(super) budget: Arc<Semaphore>,
    pub(super) budget_bytes: u32,
    pub(super) runtime: Handle,
}

impl Feed {
    /// Feeds a complete file.
    pub(super) fn run(self) -> Result<FeedEnd, ClientError> {
        let path = &self.source.path;
        let mut cutter = self.source.cutter(0, self.packet_bytes)?;
        let (mut packets, mut position, mut receiver_gone) = (Vec::new(), 0, false);
        while let Some(cut) = cutter.next(End::Final)? {
            packets.push(PacketProvenance::behind(packets.last(), position, &cut));
            if packets.len() as u64 <= self.next {
                position = cut.position;
            } else if !self.enqueue(cut, &mut position) {
                receiver_gone = true;
                break;
            }
        }
        let found = packets.len() as u64;
        if found < self.next && !receiver_gone {
            let what = format!(
                "the server has {} packets of this file, but it has only {found}",
                self.next
            );
            return Err(ClientError::damaged(path.display().to_string(), what));
        }
        let now = fs::metadata(path).map_err(|error| ClientError::file(path, error))?;
        if now.len() != self.metadata.len() || now.mtime_nsec() != self.metadata.mtime_nsec() {
            let what =
                "the file changed while it was being pushed; push it again, or with --follow";
            return Err(ClientError::damaged(path.display().to_string(), what));
        }
        Ok(FeedEnd::Complete(CompleteFile {
            remark: cutter.remark(),
            packets,
        }))
    }

    /// Feeds a file that grows, from a known point on, until it shall stop or it is replaced.
    pub(super) fn follow(
        self,
        mut reporter: ProvenanceReporter,
        point: CutPoint,
        follow: &Follow,
    ) -> Result<FeedEnd, ClientError> {
        let cutter_at = |offset| self.source.cutter(offset, self.packet_bytes);
        reporter.recover(cutter_at);
        let ended = |reporter, is_replaced| FeedEnd::Followed {
            reporter: Box::new(reporter),
            is_replaced,
        };
        let mut cutter = cutter_at(point.offset)?;
        let (mut sequence, mut position) = (point.sequence, point.offset);
        // Packets that were full when they were sent.
        while sequence < self.next {
            let Some(cut) = cutter.next(End::Growing)? else {
                return Err(ClientError::input(format!(
                    "the server has {} packets from the last known point on, the file only {}; it \
                     is not the file that was followed before",
                    self.next - point.sequence,
                    sequence - point.sequence
                )));
            };
            reporter.cut(sequence, position, &cut);
            position = cut.position;
            sequence += 1;
        }
        let mut last_cut = Instant::now();
        loop {
            reporter.report_when_due(&self.runtime);
            if let Some(cut) = cutter.next(End::Growing)? {
                reporter.cut(sequence, position, &cut);
                sequence += 1;
                last_cut = Instant::now();
                if !self.enqueue(cut, &mut position) {
                    return Ok(ended(reporter, false));
                }
                continue;
            }
            let stopped = follow.stop.load(Ordering::Relaxed);
            let replaced = self.is_replaced(position)?;
            if stopped || replaced || last_cut.elapsed() >= follow.flush_after {
                let end = if replaced { End::Final } else { End::Pause };
                last_cut = Instant::now();
                while let Some(cut) = cutter.next(end)? {
                    reporter.cut(sequence, position, &cut);
                    sequence += 1;
                    let offset = cut.position;
                    reporter.note(CutPoint { sequence, offset })?;
                    if !self.enqueue(cut, &mut position) {
                        return Ok(ended(reporter, false));
                    }
                    if end == End::Pause {
                        break;
                    }
                }
            }
            match (stopped, replaced) {
                (true, _) => return Ok(ended(reporter, false)),
                (false, true) => return Ok(ended(reporter, true)),
                (false, false) => std::thread::sleep(follow.poll_every),
            }
        }
    }

    /// Whether the path leads to another file by now. One that is shorter than what was read of it
    /// is an error: what stood there can neither be cut again nor told from what stands there now.
    fn is_replaced(&self, position: u64) -> Result<bool, ClientError> {
        let path = &self.source.path;
        match fs::metadata(path) {
            Ok(now) => {
                let same = now.ino() == self.metadata.ino() && now.dev() == self.metadata.dev();
                if same && now.len() < position {
                    let what = "the file became shorter while it was followed";
                    return Err(ClientError::damaged(path.display().to_string(), what));
                }
                Ok(!same)
            }
            // Between two names of a rotation there is no file for a moment.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(ClientError::file(path, error)),
        }
    }

    /// Waits for memory and hands a packet over; false when the sender has given up.
    fn enqueue(&self, cut: Cut, position: &mut u64) -> bool {
        let length = u32::try_from(cut.bytes.len()).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.budget).acquire_many_owned(length.min(self.budget_bytes));
        let share = self.runtime.block_on(share);
        let packet = QueuedPacket {
            bytes: cut.bytes,
            advance: cut.position.saturating_sub(*position),
            share: share.expect("the budget is never closed"),
        };
        *position = cut.position;
        self.queue.blocking_send(packet).is_ok()
    }
}

impl PacketProvenance {
    /// Where a packet came from: it begins where the one before ended. `position` is where that
    /// one ended in the file.
    fn behind(before: Option<&PacketProvenance>, position: u64, cut: &Cut) -> PacketProvenance {
        let (sequence, offset, first_line) = before.map_or((0, 0, 0), |before| {
            (
                before.sequence + 1,
                before.offset + before.bytes,
                before.first_line + before.lines,
            )
        });
        let (bytes, lines) = match cut.text {
            Some(text) => (text.bytes, text.lines),
            None => (cut.position.saturating_sub(position), 0),
        };
        PacketProvenance {
            sequence,
            offset,
            bytes,
            first_line,
            lines,
        }
    }
}
