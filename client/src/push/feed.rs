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
use super::plan::{CutMethod, SourceFile};
use super::provenance::ProvenanceReporter;
use super::stored::StoredPart;
use crate::ClientError;
use crate::cutter::{Cut, Cutter, End};
use crate::http::PacketProvenance;

/// A packet in the queue to the sender.
#[derive(Debug)]
pub(super) struct QueuedPacket {
    pub(super) bytes: Bytes,
    /// Bytes of the file that this packet consumes.
    pub(super) advance: u64,
    /// Its share of the memory budget, released when the packet is acknowledged.
    pub(super) share: OwnedSemaphorePermit,
}

/// The result of cutting a complete file.
#[derive(Debug, Default)]
pub(super) struct CompleteFile {
    /// A note about the file for the user.
    pub(super) remark: Option<String>,
    /// What of it is damaged.
    pub(super) damage: Option<String>,
    /// The provenance of each packet, including those that an earlier push sent; empty if unknown.
    pub(super) packets: Vec<PacketProvenance>,
}

/// How cutting a file ended.
#[derive(Debug)]
pub(super) enum FeedEnd {
    /// The complete file was cut.
    Complete(CompleteFile),
    /// The file was followed.
    Followed {
        /// Reports the rest of the provenance when everything is acknowledged.
        reporter: Box<ProvenanceReporter>,
        /// Whether another file replaced it, as in log rotation.
        is_replaced: bool,
        /// A note about the file for the user.
        remark: Option<String>,
    },
}

/// Cuts a file and sends the packets to a channel, on its own thread.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) source: Arc<SourceFile>,
    /// The metadata of the file from which its epoch was derived.
    pub(super) metadata: Metadata,
    pub(super) packet_bytes: usize,
    /// First packet to send.
    pub(super) next: u64,
    /// The packets before it, if their lengths do not follow from the bytes of the file alone.
    pub(super) stored: Option<StoredPart>,
    pub(super) queue: Sender<QueuedPacket>,
    pub(super) budget: Arc<Semaphore>,
    pub(super) budget_bytes: u32,
    pub(super) runtime: Handle,
}

impl Feed {
    /// Cuts a complete file.
    pub(super) fn run(self) -> Result<FeedEnd, ClientError> {
        let path = &self.source.path;
        let (mut cutter, mut packets) = match &self.stored {
            None => (self.source.cutter(0, self.packet_bytes)?, Vec::new()),
            Some(stored) => (
                self.source.resuming_cutter(stored.bytes())?,
                stored.packets(),
            ),
        };
        let mut position = self.stored.as_ref().map_or(0, StoredPart::bytes);
        let mut receiver_gone = false;
        while let Some(cut) = cutter.next(End::Final)? {
            packets.push(PacketProvenance::following(packets.last(), position, &cut));
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
                "the server has {} packets of this file, which now has only {found}",
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
            damage: cutter.damage(),
            packets,
        }))
    }

    /// Cuts a growing file from a known point, until it is stopped or the file is replaced.
    pub(super) fn follow(
        self,
        mut reporter: ProvenanceReporter,
        point: CutPoint,
        follow: &Follow,
    ) -> Result<FeedEnd, ClientError> {
        reporter.recover(|offset| self.source.following_cutter(offset, self.packet_bytes));
        let ended = |reporter, is_replaced| FeedEnd::Followed {
            reporter: Box::new(reporter),
            is_replaced,
            remark: None,
        };
        let (mut cutter, mut position) = self.begin_following(&mut reporter, point)?;
        let mut sequence = self.next.max(point.sequence);
        let mut last_cut = Instant::now();
        loop {
            reporter.report_when_due(&self.runtime);
            if let Some(cut) = cutter.next(End::Growing)? {
                reporter.cut(sequence, position, &cut);
                sequence += 1;
                last_cut = Instant::now();
                if self.source.method == CutMethod::Ctf {
                    // Other metadata may cut these packets elsewhere when following resumes.
                    let offset = cut.position;
                    reporter.note_soon(CutPoint { sequence, offset })?;
                }
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
                (true, _) => {
                    return Ok(FeedEnd::Followed {
                        reporter: Box::new(reporter),
                        is_replaced: false,
                        remark: self.rest(position),
                    });
                }
                (false, true) => return Ok(ended(reporter, true)),
                (false, false) => std::thread::sleep(follow.poll_every),
            }
        }
    }

    /// A cutter of what follows the packets that the server has, and where that begins.
    fn begin_following(
        &self,
        reporter: &mut ProvenanceReporter,
        point: CutPoint,
    ) -> Result<(Box<dyn Cutter>, u64), ClientError> {
        let (mut sequence, mut position) = (point.sequence, point.offset);
        if let Some(stored) = &self.stored {
            let packets = stored.packets().into_iter();
            for packet in packets.skip_while(|it| it.sequence < sequence) {
                reporter.add(packet);
            }
            (sequence, position) = (self.next, stored.bytes());
        }
        let mut cutter = self.source.following_cutter(position, self.packet_bytes)?;
        // The server already has these packets, which were full when they were sent.
        while sequence < self.next {
            let Some(cut) = cutter.next(End::Growing)? else {
                return Err(ClientError::input(format!(
                    "the server has {} packets after the last recorded point, the file only {}; it \
                    is not the file that was followed before",
                    self.next - point.sequence,
                    sequence - point.sequence
                )));
            };
            reporter.cut(sequence, position, &cut);
            position = cut.position;
            sequence += 1;
        }
        Ok((cutter, position))
    }

    /// Says what of the file is not sent when following stops.
    fn rest(&self, position: u64) -> Option<String> {
        let length = fs::metadata(&self.source.path).ok()?.len();
        let rest = length.checked_sub(position).filter(|rest| *rest > 0)?;
        let path = self.source.path.display();
        Some(format!(
            "{path}: the last {rest} bytes are not sent, because nothing complete is there from \
             offset {position} on"
        ))
    }

    /// Whether another file now has the path. A file that shrank is an error: the bytes that were
    /// read before are gone.
    fn is_replaced(&self, position: u64) -> Result<bool, ClientError> {
        let path = &self.source.path;
        match fs::metadata(path) {
            Ok(now) => {
                let same = now.ino() == self.metadata.ino() && now.dev() == self.metadata.dev();
                if same && now.len() < position {
                    let what = "the file was truncated while it was followed";
                    return Err(ClientError::damaged(path.display().to_string(), what));
                }
                Ok(!same)
            }
            // During a rotation, there is briefly no file with this name.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(ClientError::file(path, error)),
        }
    }

    /// Waits for memory, then enqueues a packet. Returns false if the sender has stopped.
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
    /// The provenance of a packet that begins where the previous one ended. `position` is the end
    /// of the previous packet in the file.
    fn following(before: Option<&PacketProvenance>, position: u64, cut: &Cut) -> PacketProvenance {
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
