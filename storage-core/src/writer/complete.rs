//! Sends frames to the I/O thread, inserts durable packets into the tree, and replies.

use storage_format::{frame::FrameHeader, index_part::PacketEntry};

use super::{Appending, FoundRepeat, Job, Serialized, Writer, stream::InFlight};
use crate::{
    Receipt, StorageError,
    clock::now_ns,
    io_thread::{Appended, IoThreadError, IoThreadRequest},
    tree::Found,
};
use storage_format::LeafId;
use tokio::sync::oneshot;

impl Writer {
    /// Sends frames to the I/O thread; frames after a refused packet are refused here.
    pub(super) async fn on_serialized(&mut self, serialized: Serialized) {
        let Serialized {
            stream,
            leaf,
            count,
            frames,
            request,
        } = serialized;
        let id = self.new_id();
        let frames = match frames {
            Ok(frames) => frames,
            Err(reason) => return self.fail_serialized(stream, leaf, count, reason).await,
        };
        assert_eq!(frames.len(), count, "every packet becomes one frame");
        crate::fault_point!(async "ingest.serialized");
        let headers: Vec<_> = frames.iter().map(|frame| frame.header).collect();
        if self.streams.get(stream).is_failing {
            return self
                .fail_job(stream, leaf, count, &IoThreadError::Aborted)
                .await;
        }
        let Some(spec) = self.leaves.get(&leaf).cloned() else {
            return;
        };
        if self.is_refusing {
            if !self.jobs.is_empty() {
                return self
                    .fail_job(stream, leaf, count, &IoThreadError::Aborted)
                    .await;
            }
            self.is_refusing = false;
            let storage = self.storage.id;
            // An I/O thread that has ended refuses the append below.
            let _ = self
                .services
                .io_thread
                .send(IoThreadRequest::Resume { storage })
                .await;
        }
        self.jobs.push_back(Job {
            id,
            stream,
            leaf,
            count,
            headers,
            result: None,
        });
        let (reply, appended) = oneshot::channel();
        // When the I/O thread has ended, the reply is dropped with the request, which is the
        // answer.
        let _ = self
            .services
            .io_thread
            .send(IoThreadRequest::Append {
                spec: std::sync::Arc::clone(&self.log),
                leaf: spec,
                frames,
                request,
                reply,
            })
            .await;
        let (io_thread, storage) = (self.services.io_thread.clone(), self.storage.clone());
        self.appending.push(Box::pin(async move {
            let result = match io_thread.reply(appended).await {
                Some(result) => result,
                None => Err(io_thread.lost_reply(&storage.poison).await),
            };
            (id, result)
        }));
    }

    /// Refuses the packets of a job that the serializers failed. Frames that are with the I/O
    /// thread finish first, because outcomes come in order.
    async fn fail_serialized(&mut self, stream: usize, leaf: LeafId, count: usize, reason: String) {
        self.storage.poison.set(&reason);
        let error = IoThreadError::Poisoned(reason);
        if self.jobs.is_empty() {
            return self.fail_job(stream, leaf, count, &error).await;
        }
        let id = self.new_id();
        self.jobs.push_back(Job {
            id,
            stream,
            leaf,
            count,
            headers: Vec::new(),
            result: Some(Err(error)),
        });
    }

    /// Records the outcome of a job, and completes jobs in order.
    pub(super) async fn on_appended(&mut self, (id, result): Appending) {
        let at = self.jobs.partition_point(|job| job.id < id);
        if let Some(job) = self.jobs.get_mut(at).filter(|job| job.id == id) {
            job.result = Some(result);
        }
        while let Some(job) = self.jobs.pop_front_if(|job| job.result.is_some()) {
            match job.result {
                Some(Ok(appended)) => {
                    self.complete_job(job.stream, job.leaf, &job.headers, &appended);
                }
                Some(Err(error)) => {
                    self.is_refusing = true;
                    self.fail_job(job.stream, job.leaf, job.count, &error).await;
                }
                None => return,
            }
        }
    }

    fn complete_job(
        &mut self,
        stream: usize,
        leaf: LeafId,
        headers: &[FrameHeader],
        appended: &Appended,
    ) {
        assert_eq!(
            headers.len(),
            appended.offsets.len(),
            "every frame that is durable has an offset"
        );
        crate::fault_point!("commit.durable");
        let pairs = || headers.iter().zip(&appended.offsets);
        if let Some(tree) = &mut *self.storage.tree.write() {
            tree.remove_announced(leaf, headers.len());
            tree.insert(
                leaf,
                pairs().map(|(header, &at)| PacketEntry::of_frame(header, at)),
                &appended.extent,
                appended.tail,
            );
            if let Some((position, tail)) = appended.log {
                tree.reach(position, tail);
            }
        }
        self.is_at_batch_end = appended.log.is_some();
        if let (Some(replica), Some(spec)) = (self.services.replica.get(), self.leaves.get(&leaf)) {
            replica.written(self.storage.id, leaf, &spec.header.path);
        }
        let mut raw_bytes: u64 = 0;
        let mut stored_bytes: u64 = 0;
        for (header, &offset) in pairs() {
            let state = self.streams.get(stream);
            let Some(packet) = state.in_flight.pop_front() else {
                break;
            };
            assert_eq!(
                packet.position, header.position,
                "packets of a stream become durable in the order in which they were numbered"
            );
            state.durable_next = packet.position.next();
            assert!(
                state.durable_next <= state.next,
                "durable packets were accepted before"
            );
            raw_bytes = raw_bytes.saturating_add(u64::from(header.raw_size));
            stored_bytes = stored_bytes.saturating_add(u64::from(header.stored_size));
            let descriptor = PacketEntry::of_frame(header, offset)
                .descriptor(&appended.extent)
                .expect("a written frame has a valid location");
            self.report(&packet, |packet, is_duplicate| {
                Ok(Receipt {
                    leaf,
                    position: packet.position,
                    number: header.number,
                    is_duplicate,
                    descriptor,
                    events: header.facts.events,
                })
            });
        }
        let count = headers.len() as u64;
        crate::fault_point!("commit.reported");
        self.storage.counts.finished(count, raw_bytes, now_ns());
        self.streams.get(stream).count_durable(headers);
        let counters = &self.services.counters;
        counters.packets_durable.add(count);
        counters.raw_bytes.add(raw_bytes);
        counters.stored_bytes.add(stored_bytes);
        self.after_job(stream);
    }

    async fn fail_job(&mut self, at: usize, leaf: LeafId, count: usize, error: &IoThreadError) {
        if let Some(tree) = &mut *self.storage.tree.write() {
            tree.remove_announced(leaf, count);
        }
        if let IoThreadError::Poisoned(reason) = error {
            // Nobody who waits for a reply finds a storage that still seems to be written.
            self.storage.mark_failed(reason);
        }
        let storage = self.storage.id;
        let stream = self.streams.get(at);
        stream.is_failing = true;
        let count = count.min(stream.in_flight.len());
        stream.count_failed(count as u64);
        let packets: Vec<_> = stream.in_flight.drain(..count).collect();
        let bytes = packets.iter().map(|p| u64::from(p.summary.size)).sum();
        self.storage.counts.failed(count as u64, bytes, now_ns());
        self.services.counters.packets_failed.add(count as u64);
        for packet in packets {
            self.report(&packet, |_, _| Err(refusal(error, storage)));
        }
        if let IoThreadError::Poisoned(reason) = error {
            self.fail_storage(reason).await;
        }
        self.after_job(at);
    }

    /// A stream without packets in flight resumes after its durable packets.
    fn after_job(&mut self, at: usize) {
        let stream = self.streams.get(at);
        if stream.in_flight.is_empty() && std::mem::take(&mut stream.is_failing) {
            stream.next = stream.durable_next;
        }
    }

    /// Reports the outcome of a packet to every push that waits for it.
    fn report(
        &mut self,
        packet: &InFlight,
        result: impl Fn(&InFlight, bool) -> Result<Receipt, StorageError>,
    ) {
        let repeats = packet.repeats.iter().map(|&waiter| (waiter, true));
        for ((group, slot), is_duplicate) in std::iter::once((packet.owner, false)).chain(repeats) {
            if is_duplicate {
                self.count_repeat();
            }
            self.record_outcome(group, slot, result(packet, is_duplicate));
        }
    }

    fn record_outcome(&mut self, group: u64, slot: usize, result: Result<Receipt, StorageError>) {
        let Some(open) = self.groups.get_mut(&group) else {
            return;
        };
        open.record(slot, result);
        if open.is_complete() {
            self.finish_group(group);
        }
    }

    pub(super) fn finish_group(&mut self, group: u64) {
        if let Some(group) = self.groups.remove(&group) {
            group.finish();
        }
    }

    fn count_repeat(&self) {
        self.services.counters.packets_repeated.add(1);
        self.storage
            .counts
            .repeated
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn repeat_receipt(&self, found: &Found) -> Result<Receipt, StorageError> {
        let entry = &found.entry;
        Ok(Receipt {
            leaf: found.leaf,
            position: entry.position,
            number: entry.number,
            is_duplicate: true,
            descriptor: self.storage.descriptor(found)?,
            events: entry.facts.events,
        })
    }

    /// Replies to a duplicate of a durable packet.
    pub(super) fn on_found(&mut self, (group, slot, found): FoundRepeat) {
        let result = found.and_then(|found| match found {
            Some(found) => self.repeat_receipt(&found),
            None => Err(StorageError::Stopping),
        });
        if result.is_ok() {
            self.count_repeat();
        }
        self.record_outcome(group, slot, result);
    }
}

pub(super) fn refusal(error: &IoThreadError, storage: storage_format::StorageId) -> StorageError {
    match error {
        IoThreadError::Full { path } => StorageError::DiskFull { path: path.clone() },
        IoThreadError::Exhausted {
            operation,
            path,
            errno,
        } => StorageError::Exhausted {
            operation,
            path: path.clone(),
            source: (*errno).into(),
        },
        IoThreadError::FilesUsedUp => StorageError::FilesUsedUp { storage },
        IoThreadError::Aborted => StorageError::EarlierRefused,
        IoThreadError::Poisoned(reason) => StorageError::NotWritten {
            storage,
            reason: reason.clone(),
        },
        IoThreadError::Stopped => StorageError::Stopping,
    }
}
