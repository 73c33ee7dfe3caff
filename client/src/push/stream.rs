use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage_format::checksum::crc32c;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::epoch::{Edition, is_cut_differently, next_epoch, source_epoch};
use super::feed::{Feed, FeedEnd, QueuedPacket};
use super::finalized::FINALIZED;
use super::journal::Journal;
use super::options::PushOptions;
use super::plan::{CutMethod, SourceFile};
use super::provenance::{
    Acknowledged, ProvenanceReporter, REPORTED_PACKETS_MAX, ReporterSpec, reported_at_once,
};
use super::report::{PushEvent, StreamReport, Watch};
use super::stored::StoredPart;
use crate::ClientError;
use crate::cutter::CtfCutter;
use crate::http::{Client, PacketProvenance, ProvenanceReport, PushTarget, Receipt, Receipts};

/// Maximum bytes of packets per request, unless a single packet is longer.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum packets per request.
const BATCH_PACKETS_MAX: usize = 4096;
/// Capacity of the queue between the cutting thread and the sender. The memory budget bounds bytes.
const QUEUED_PACKETS_MAX: usize = 1024;

/// The push of one file.
pub(super) struct StreamPush {
    pub(super) client: Client,
    pub(super) source: Arc<SourceFile>,
    pub(super) options: PushOptions,
    pub(super) budget: Arc<Semaphore>,
    pub(super) watch: Watch,
}

impl StreamPush {
    pub(super) async fn run(self) -> Result<StreamReport, ClientError> {
        let result = self.push_versions().await;
        if let Err(error) = &result {
            (self.watch)(PushEvent::Failed {
                source: Arc::clone(&self.source),
                what: error.to_string(),
            });
        }
        result
    }

    /// Pushes the file, and each file that replaces it while it is followed.
    async fn push_versions(&self) -> Result<StreamReport, ClientError> {
        if self.options.follow.is_some() && !self.source.method.can_follow() {
            let what = format!("{} cannot be followed", self.source.path.display());
            return Err(ClientError::input(format!(
                "{what}; only text, CTF traces, RocksDB traces and raw files can be cut while they \
                 grow"
            )));
        }
        let mut is_first = true;
        loop {
            let (report, is_replaced) = self.push_version(is_first).await?;
            if !is_replaced {
                return Ok(report);
            }
            is_first = false;
            (self.watch)(PushEvent::Ended(report));
        }
    }

    /// Pushes the file at the path. Returns whether another file has replaced it.
    async fn push_version(&self, is_first: bool) -> Result<(StreamReport, bool), ClientError> {
        let source = &self.source;
        let metadata = fs::metadata(&source.path);
        let metadata = metadata.map_err(|error| ClientError::file(&source.path, error))?;
        let edition = match self.options.follow {
            Some(_) => Edition::Growing,
            None => Edition::Complete,
        };
        let epoch = source_epoch(&metadata, edition, source.method, self.cutting().await?)
            .map_err(|error| ClientError::file(&source.path, error))?;
        let target = PushTarget {
            storage: self.options.storage,
            agent: source.agent.to_string(),
            stream: source.stream.to_string(),
        };
        let epoch = self.epoch_of_file(epoch, &metadata, &target)?;
        let next = self.next_packet(&target, epoch, is_first).await?;
        let (stored, next) = self.stored(&target, epoch, next).await?;
        (self.watch)(PushEvent::Begun {
            source: Arc::clone(source),
            sequence: next,
        });
        let (queue, receiver) = channel(QUEUED_PACKETS_MAX);
        let feed = Feed {
            source: Arc::clone(source),
            metadata,
            packet_bytes: self.options.packet_bytes,
            next,
            stored,
            queue,
            budget: Arc::clone(&self.budget),
            budget_bytes: self.options.in_flight_bytes_max,
            runtime: Handle::current(),
        };
        let acknowledged = Arc::new(Mutex::new(Acknowledged::before(&target, next)));
        let cutting = self.cut(feed, &target, epoch, &acknowledged)?;
        let mut report = self.empty_report(&target, epoch, next);
        let sent = self
            .send(&target, receiver, &mut report, &acknowledged)
            .await;
        // The cutting thread ends when the receiver is dropped.
        let end = match cutting.await {
            Ok(end) => end,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        sent?;
        let is_replaced = matches!(
            end,
            Ok(FeedEnd::Followed {
                is_replaced: true,
                ..
            })
        );
        let storages = locked(&acknowledged).storages();
        if let Err(reason) = self
            .report_rest(end?, &target, &storages, &mut report)
            .await
        {
            // The packets are stored; their provenance can be reported by pushing again.
            let what = format!("the provenance of its packets is not stored: {reason}");
            report.remark = Some(match report.remark.take() {
                Some(remark) => format!("{remark}; {what}"),
                None => what,
            });
        }
        Ok((report, is_replaced))
    }

    /// The first packet of this version of the file that the server does not have.
    async fn next_packet(
        &self,
        target: &PushTarget,
        epoch: u64,
        is_first: bool,
    ) -> Result<u64, ClientError> {
        let known = self.client.next_sequence(target).await?;
        match known.epoch {
            same if same == epoch => return Ok(known.sequence),
            other if is_cut_differently(other, epoch) => return Err(cut_differently(&self.source)),
            older if is_first && (1..epoch).contains(&older) => {
                (self.watch)(PushEvent::NewVersion(Arc::clone(&self.source)));
            }
            _ => {}
        }
        Ok(0)
    }

    /// What the epoch says about how the file is cut, besides the method. A storage knows the
    /// packets that it has of a CTF trace, which [`StoredPart`] asks for. The buffer does not:
    /// there, a file that other metadata cuts to other packets must not be resumed.
    async fn cutting(&self) -> Result<u64, ClientError> {
        let is_checked = self.options.storage.is_some() || self.options.follow.is_some();
        if self.source.method != CutMethod::Ctf || is_checked {
            return Ok(self.options.packet_bytes as u64);
        }
        let path = self.source.path.clone();
        match spawn_blocking(move || CtfCutter::lengths(&path)).await {
            Ok(lengths) => {
                let lengths = lengths?.into_iter().flat_map(u64::to_le_bytes);
                Ok(crc32c(&lengths.collect::<Vec<u8>>()).into())
            }
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// What the storage has of a CTF trace that was pushed before, whose metadata may be another
    /// one now, and the first packet to send. An agent that may not read sends the last packet
    /// again: the server refuses it if it is another one by this metadata.
    async fn stored(
        &self,
        target: &PushTarget,
        epoch: u64,
        next: u64,
    ) -> Result<(Option<StoredPart>, u64), ClientError> {
        let storage = match target.storage {
            Some(storage) if next > 0 && self.source.method == CutMethod::Ctf => storage,
            _ => return Ok((None, next)),
        };
        let known = (epoch, next);
        let found = StoredPart::find(&self.client, (storage, target), known, &self.source.path);
        let found = found.await?;
        let is_checked = found.is_some() || self.client.storage(storage).await?.state == FINALIZED;
        Ok((found, if is_checked { next } else { next - 1 }))
    }

    /// The report before anything is sent.
    fn empty_report(&self, target: &PushTarget, epoch: u64, next: u64) -> StreamReport {
        StreamReport {
            path: self.source.path.clone(),
            agent: target.agent.clone(),
            stream: target.stream.clone(),
            kind: self.source.kind,
            epoch,
            resumed_at: next,
            packets: 0,
            bytes: 0,
            events: Some(0),
            unreadable_records: 0,
            duplicates: 0,
            not_durable: 0,
            not_recorded: 0,
            damage: None,
            remark: None,
        }
    }

    /// Reports the provenance that has not been reported yet. The error is the reason as text.
    async fn report_rest(
        &self,
        end: FeedEnd,
        target: &PushTarget,
        storages: &[Uuid],
        report: &mut StreamReport,
    ) -> Result<(), String> {
        match end {
            FeedEnd::Complete(whole) => {
                report.remark = whole.remark;
                report.damage = whole.damage;
                let reported =
                    self.report_provenance(target, storages, report.epoch, &whole.packets);
                reported.await.map_err(|error| error.to_string())
            }
            FeedEnd::Followed {
                reporter, remark, ..
            } => {
                report.remark = remark;
                let runtime = Handle::current();
                match spawn_blocking(move || reporter.finish(&runtime)).await {
                    Ok(failure) => failure.map_or(Ok(()), Err),
                    Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
                }
            }
        }
    }

    /// Reports the provenance of the packets to the storages that they were written to.
    async fn report_provenance(
        &self,
        target: &PushTarget,
        storages: &[Uuid],
        epoch: u64,
        packets: &[PacketProvenance],
    ) -> Result<(), ClientError> {
        if storages.is_empty() || packets.is_empty() {
            return Ok(());
        }
        let path = self.source.path.clone();
        let path = fs::canonicalize(&path).unwrap_or(path);
        let whole = path.clone();
        let identity = spawn_blocking(move || query_engine::identity(&whole, true)).await;
        let identity = match identity {
            Ok(identity) => identity.map_err(|error| ClientError::file(&path, error))?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        // The server looks for the packets of a report behind those of the one before.
        let mut first_numbers = vec![0; storages.len()];
        let (mut rest, mut is_small) = (packets, false);
        'reports: while !rest.is_empty() {
            let count = if is_small {
                rest.len().min(REPORTED_PACKETS_MAX)
            } else {
                reported_at_once(rest)
            };
            let (packets, after) = rest.split_at(count);
            let mut origin = ProvenanceReport {
                epoch,
                path: path.display().to_string(),
                file_bytes: identity.length,
                modified: identity.modified,
                checksum: identity.checksum,
                grown_from: None,
                first_number: 0,
                packets: packets.iter().map(PacketProvenance::numbers).collect(),
            };
            for (storage, first_number) in storages.iter().zip(&mut first_numbers) {
                let (agent, stream) = (&target.agent, &target.stream);
                origin.first_number = *first_number;
                let reported = self
                    .client
                    .report_provenance(*storage, agent, stream, &origin);
                match reported.await {
                    Ok(kept) => *first_number = kept.next_number.unwrap_or(*first_number),
                    // The server is set to take less than by default.
                    Err(ClientError::Refused(problem)) if problem.status == 413 && !is_small => {
                        is_small = true;
                        continue 'reports;
                    }
                    Err(error) => return Err(error),
                }
            }
            rest = after;
        }
        Ok(())
    }

    /// The epoch of a followed file: `epoch`, or the next one that no other file has used.
    fn epoch_of_file(
        &self,
        mut epoch: u64,
        metadata: &fs::Metadata,
        target: &PushTarget,
    ) -> Result<u64, ClientError> {
        let Some(follow) = &self.options.follow else {
            return Ok(epoch);
        };
        let (server, inode) = (self.client.server().to_string(), metadata.ino());
        while Journal::is_of_another_file(&follow.journals, target, &server, epoch, inode)? {
            epoch = next_epoch(epoch);
        }
        Ok(epoch)
    }

    fn cut(
        &self,
        feed: Feed,
        target: &PushTarget,
        epoch: u64,
        acknowledged: &Arc<Mutex<Acknowledged>>,
    ) -> Result<JoinHandle<Result<FeedEnd, ClientError>>, ClientError> {
        let Some(follow) = self.options.follow.clone() else {
            return Ok(spawn_blocking(move || feed.run()));
        };
        let server = self.client.server().to_string();
        let (inode, next) = (feed.metadata.ino(), feed.next);
        let opened = Journal::open(&follow.journals, target, &server, epoch, inode, next);
        let (journal, point) = opened?;
        let reporter = ReporterSpec {
            client: self.client.clone(),
            target: target.clone(),
            epoch,
            path: self.source.path.clone(),
            inode,
            has_lines: self.source.method == CutMethod::Lines,
            acknowledged: Arc::clone(acknowledged),
            journal,
            every: follow.report_every,
        };
        Ok(spawn_blocking(move || {
            feed.follow(ProvenanceReporter::open(reporter)?, point, &follow)
        }))
    }

    /// Sends the queued packets. A batch is everything that is in the queue.
    async fn send(
        &self,
        target: &PushTarget,
        mut queue: Receiver<QueuedPacket>,
        report: &mut StreamReport,
        acknowledged: &Mutex<Acknowledged>,
    ) -> Result<(), ClientError> {
        let mut batch = Vec::new();
        let mut shares = Vec::new();
        while let Some(first) = queue.recv().await {
            let mut next = Some(first);
            let (mut bytes, mut advance) = (0, 0);
            while let Some(packet) = next {
                bytes += packet.bytes.len();
                advance += packet.advance;
                batch.push(packet.bytes);
                shares.push(packet.share);
                let is_full = bytes >= BATCH_BYTES_MAX || batch.len() >= BATCH_PACKETS_MAX;
                next = if is_full { None } else { queue.try_recv().ok() };
            }
            let sequence = report.resumed_at + report.packets;
            let pushed = self
                .client
                .push(target, report.epoch, sequence, &batch)
                .await;
            let Receipts {
                receipts,
                unreadable_records,
            } = pushed.map_err(|error| explained(error, &self.source))?;
            report.unreadable_records += unreadable_records;
            report.packets += batch.len() as u64;
            report.bytes += bytes as u64;
            let count = |is: fn(&Receipt) -> bool| {
                receipts.iter().filter(|receipt| is(receipt)).count() as u64
            };
            report.events = report.events.zip(events(&receipts)).map(|(a, b)| a + b);
            report.duplicates += count(|receipt| receipt.duplicate);
            report.not_durable += count(|receipt| !receipt.durable);
            if target.storage.is_none() {
                let has_storage = |receipt: &Receipt| receipt.more.contains_key("storage");
                let lost = receipts.iter().filter(|receipt| !has_storage(receipt));
                report.not_recorded += lost.count() as u64;
            }
            let next = report.resumed_at + report.packets;
            locked(acknowledged).add(target, &receipts, next);
            (self.watch)(PushEvent::Advanced { bytes: advance });
            batch.clear();
            shares.clear();
        }
        Ok(())
    }
}

/// Events of packets, each of which may have receipts of several storages.
fn events(receipts: &[Receipt]) -> Option<u64> {
    let of_packets = receipts.chunk_by(|a, b| a.sequence == b.sequence);
    of_packets.map(|of_packet| of_packet.first()?.events).sum()
}

fn locked(acknowledged: &Mutex<Acknowledged>) -> MutexGuard<'_, Acknowledged> {
    acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cut_differently(source: &SourceFile) -> ClientError {
    if source.method == CutMethod::Ctf {
        return ClientError::input(format!(
            "{} was already pushed with other metadata, by which its packets end elsewhere, or by \
            another version of this program; push the folder under another name with --agent",
            source.path.display()
        ));
    }
    ClientError::input(format!(
        "{} was already pushed with another packet size or another version of this program; \
        use the same --packet-bytes, or push it as another stream with --stream",
        source.path.display()
    ))
}

/// Explains a stale epoch, and packets that end elsewhere than those of an earlier push.
fn explained(error: ClientError, source: &SourceFile) -> ClientError {
    match error {
        ClientError::Refused(mut problem) if problem.code == "epoch_stale" => {
            problem.remedy = format!(
                "stream {} already has a newer version of {}; push this one as another stream with \
                --stream",
                source.stream,
                source.path.display()
            );
            ClientError::Refused(problem)
        }
        ClientError::Refused(mut problem) if problem.code == "packet_conflict" => {
            problem.remedy = format!(
                "{} was cut into other packets when it was pushed before, because its metadata was \
                another one; push the folder under another name with --agent, or into another \
                storage",
                source.path.display()
            );
            ClientError::Refused(problem)
        }
        other => other,
    }
}
