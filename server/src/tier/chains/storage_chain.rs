//! The chain of one storage, as those who wait for it and the task that appends see it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use storage_core::StorageError;
use storage_format::chain_payload::ChainedProvenance;
use storage_format::{LeafId, StorageId};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::StreamKey;

/// The leaves of streams in which there may be packets that the chain does not have.
pub(super) type Grown = BTreeMap<StreamKey, BTreeSet<LeafId>>;

/// Provenance that the chain does not have, in the order in which it was reported.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// The number of the report.
    pub(super) number: u64,
    pub(super) stream: StreamKey,
    pub(super) provenance: ChainedProvenance,
}

/// Why a chain is not appended to from here any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Another node has the storage, or the bucket has it sealed.
    Superseded(String),
    /// The chain has packets that the disk has lost.
    Lacking(String),
    /// The storage was deleted.
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Nobody knows yet whether this node may append.
    Opening,
    Open,
    Closed,
    Ended(Ending),
}

/// Why nothing is appended at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// Whether waiting is of no use: an object is damaged.
    pub(super) is_lasting: bool,
}

#[derive(Debug)]
struct Shared {
    stage: Stage,
    grown: Grown,
    /// The number of the last packet of each stream that the chain has.
    reached: HashMap<StreamKey, u64>,
    reports: VecDeque<Report>,
    /// How many reports there were, also those that the chain has.
    reported: u64,
    /// Why the store did not do what was asked last, if it did not.
    failure: Option<Failure>,
    /// Whether the description of the storage or of an agent may have changed.
    is_redescribed: bool,
    /// How many finalizations wait for the end of the chain.
    closing: usize,
}

impl Shared {
    fn has_work(&self) -> bool {
        !self.grown.is_empty() || !self.reports.is_empty() || self.is_redescribed
    }
}

/// The chain of one storage.
#[derive(Debug)]
pub(super) struct StorageChain {
    pub(super) id: StorageId,
    shared: Mutex<Shared>,
    /// Wakes the task.
    work: Notify,
    /// Wakes those who wait for it.
    changed: watch::Sender<()>,
    task: Mutex<Option<AbortHandle>>,
}

impl StorageChain {
    pub(super) fn new(id: StorageId) -> Self {
        Self {
            id,
            shared: Mutex::new(Shared {
                stage: Stage::Opening,
                grown: Grown::new(),
                reached: HashMap::new(),
                reports: VecDeque::new(),
                reported: 0,
                failure: None,
                is_redescribed: true,
                closing: 0,
            }),
            work: Notify::new(),
            changed: watch::Sender::new(()),
            task: Mutex::default(),
        }
    }

    pub(super) fn keep(&self, task: AbortHandle) {
        *self.task.lock() = Some(task);
    }

    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    /// Notes that a leaf has new packets.
    pub(super) fn grow(&self, stream: StreamKey, leaf: LeafId) {
        self.shared
            .lock()
            .grown
            .entry(stream)
            .or_default()
            .insert(leaf);
        self.work.notify_one();
    }

    /// Lets the task look whether descriptions have changed.
    pub(super) fn redescribe(&self) {
        self.shared.lock().is_redescribed = true;
        self.work.notify_one();
    }

    /// Whether descriptions are to be looked at.
    pub(super) fn take_redescribed(&self) -> bool {
        std::mem::take(&mut self.shared.lock().is_redescribed)
    }

    /// Everything that has grown, to be looked at; what is left of it is noted again.
    pub(super) fn take_grown(&self) -> Grown {
        std::mem::take(&mut self.shared.lock().grown)
    }

    pub(super) fn put_back(&self, grown: Grown) {
        let mut shared = self.shared.lock();
        for (stream, leaves) in grown {
            shared.grown.entry(stream).or_default().extend(leaves);
        }
    }

    /// Waits until the chain has provenance, which is appended while somebody waits for it.
    pub(super) async fn report(
        &self,
        stream: StreamKey,
        provenance: ChainedProvenance,
    ) -> Result<(), StorageError> {
        let reporting = Reporting::begin(self, stream, provenance);
        let number = reporting.number;
        self.until_it_has(|shared| !shared.reports.iter().any(|report| report.number == number))
            .await
    }

    fn add_report(&self, stream: StreamKey, provenance: ChainedProvenance) -> u64 {
        let mut shared = self.shared.lock();
        let number = shared.reported;
        shared.reported += 1;
        shared.reports.push_back(Report {
            number,
            stream,
            provenance,
        });
        drop(shared);
        self.work.notify_one();
        number
    }

    /// The number of the next report.
    pub(super) fn reported(&self) -> u64 {
        self.shared.lock().reported
    }

    /// The oldest report from `number` on that the chain does not have. It stays until
    /// [`StorageChain::forget_reports`].
    pub(super) fn next_report(&self, number: u64) -> Option<Report> {
        let shared = self.shared.lock();
        let mut reports = shared.reports.iter();
        reports.find(|report| report.number >= number).cloned()
    }

    /// Forgets the reports before `next`, which the chain has.
    pub(super) fn forget_reports(&self, next: u64) {
        let mut shared = self.shared.lock();
        shared.reports.retain(|report| report.number >= next);
        drop(shared);
        self.tell();
    }

    /// The last number of a stream that the chain has.
    pub(super) fn last(&self, stream: &StreamKey) -> Option<u64> {
        self.shared.lock().reached.get(stream).copied()
    }

    /// Waits for packets to append, or for a finalization that needs the end.
    pub(super) async fn work(&self) {
        loop {
            let work = self.work.notified();
            {
                let shared = self.shared.lock();
                if shared.has_work() || shared.closing > 0 {
                    return;
                }
            }
            work.await;
        }
    }

    /// Whether the chain may be closed now.
    pub(super) fn is_closing(&self) -> bool {
        let shared = self.shared.lock();
        shared.closing > 0 && !shared.has_work()
    }

    /// The node owns the storage; the chain has the packets up to `reached`, and `grown` may have
    /// more.
    pub(super) fn open(&self, reached: HashMap<StreamKey, u64>, grown: Vec<(StreamKey, LeafId)>) {
        {
            let mut shared = self.shared.lock();
            shared.reached = reached;
            for (stream, leaf) in grown {
                shared.grown.entry(stream).or_default().insert(leaf);
            }
            shared.stage = Stage::Open;
        }
        self.tell();
    }

    /// It is not known any more whether this node may append.
    pub(super) fn doubt(&self) {
        let mut shared = self.shared.lock();
        if shared.stage == Stage::Open {
            shared.stage = Stage::Opening;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.shared.lock().stage == Stage::Open
    }

    pub(super) fn is_owned(&self) -> bool {
        matches!(self.shared.lock().stage, Stage::Open | Stage::Closed)
    }

    /// Notes whether the store did what was asked.
    pub(super) fn note(&self, failure: Option<Failure>) {
        let is_lasting = failure.as_ref().is_some_and(|failure| failure.is_lasting);
        self.shared.lock().failure = failure;
        if is_lasting {
            self.tell();
        }
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.shared.lock().failure.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.shared.lock().stage, Stage::Ended(_))
    }

    /// The chain has these packets, too.
    pub(super) fn reach(&self, reached: Vec<(StreamKey, u64)>) {
        self.shared.lock().reached.extend(reached);
        self.tell();
    }

    pub(super) fn close(&self) {
        self.shared.lock().stage = Stage::Closed;
        self.tell();
    }

    pub(super) fn end(&self, ending: Ending) {
        self.shared.lock().stage = Stage::Ended(ending);
        self.tell();
    }

    fn tell(&self) {
        self.changed.send_replace(());
    }

    /// Waits until `done` has an answer.
    async fn until<T>(&self, done: impl Fn(&Shared) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(answer) = done(&self.shared.lock()) {
                return answer;
            }
            // The sender is in this chain.
            let _ = changed.changed().await;
        }
    }

    /// Waits until it is known whether this node may append, for some time; whether it is.
    pub(super) async fn opened(&self, patience: Duration) -> bool {
        let known = self.until(|shared| match shared.stage {
            Stage::Opening => self.lasting(shared).map(|_| false),
            _ => Some(true),
        });
        tokio::time::timeout(patience, known).await.unwrap_or(false)
    }

    /// Waits until the chain has a packet.
    pub(super) async fn reached(
        &self,
        stream: &StreamKey,
        number: u64,
    ) -> Result<(), StorageError> {
        self.until_it_has(|shared| {
            let last = shared.reached.get(stream);
            last.is_some_and(|last| *last >= number)
        })
        .await
    }

    async fn until_it_has(&self, has: impl Fn(&Shared) -> bool) -> Result<(), StorageError> {
        self.until(|shared| {
            if has(shared) {
                return Some(Ok(()));
            }
            match &shared.stage {
                Stage::Opening | Stage::Open => self.lasting(shared),
                Stage::Closed => Some(Err(StorageError::NotReplicated {
                    storage: self.id,
                    reason: "its chain is closed: finalize the storage".to_owned(),
                })),
                Stage::Ended(ending) => Some(Err(self.refusal(ending))),
            }
        })
        .await
    }

    /// Asks for the end of the chain, and waits for it.
    pub(super) async fn closed(&self) -> Result<(), StorageError> {
        let _asking = Asking::begin(self);
        self.until(|shared| match &shared.stage {
            Stage::Opening | Stage::Open => self.lasting(shared),
            Stage::Closed => Some(Ok(())),
            Stage::Ended(ending) => Some(Err(self.refusal(ending))),
        })
        .await
    }

    /// The answer to those who would wait in vain.
    fn lasting(&self, shared: &Shared) -> Option<Result<(), StorageError>> {
        let failure = shared
            .failure
            .as_ref()
            .filter(|failure| failure.is_lasting)?;
        Some(Err(StorageError::NotReplicated {
            storage: self.id,
            reason: failure.reason.clone(),
        }))
    }

    fn refusal(&self, ending: &Ending) -> StorageError {
        let storage = self.id;
        match ending {
            Ending::Superseded(reason) => StorageError::Superseded {
                storage,
                reason: reason.clone(),
            },
            Ending::Lacking(reason) => StorageError::NotReplicated {
                storage,
                reason: reason.clone(),
            },
            Ending::Deleted => StorageError::StorageNotFound(storage),
        }
    }
}

/// A report that waits; when it gives up, it is not appended any more, and takes no memory.
struct Reporting<'a> {
    chain: &'a StorageChain,
    number: u64,
}

impl<'a> Reporting<'a> {
    fn begin(chain: &'a StorageChain, stream: StreamKey, provenance: ChainedProvenance) -> Self {
        let number = chain.add_report(stream, provenance);
        Self { chain, number }
    }
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        let mut shared = self.chain.shared.lock();
        shared.reports.retain(|report| report.number != self.number);
    }
}

/// A finalization that waits; when it gives up, the chain stays open.
struct Asking<'a>(&'a StorageChain);

impl<'a> Asking<'a> {
    fn begin(chain: &'a StorageChain) -> Self {
        {
            let mut shared = chain.shared.lock();
            shared.closing += 1;
            shared.is_redescribed = true;
        }
        chain.work.notify_one();
        Self(chain)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().closing -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stream: &str) -> StreamKey {
        ("one".parse().unwrap(), stream.parse().unwrap())
    }

    fn chain() -> StorageChain {
        StorageChain::new(StorageId::from_bytes([1; 16]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_waits_for_its_packet_and_no_other() {
        let chain = chain();
        let left = key("left");
        let brief = Duration::from_millis(10);
        for stage in ["opening", "open"] {
            if stage == "open" {
                chain.open(HashMap::from([(key("left"), 3)]), Vec::new());
            }
            let waiting = chain.reached(&left, 4);
            assert!(tokio::time::timeout(brief, waiting).await.is_err());
        }
        chain.reached(&left, 3).await.unwrap();
        let told = async {
            tokio::time::sleep(brief).await;
            chain.reach(vec![(key("right"), 9)]);
            tokio::time::sleep(brief).await;
            chain.reach(vec![(key("left"), 4)]);
        };
        let (waited, ()) = tokio::join!(chain.reached(&left, 4), told);
        waited.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_acknowledged_behind_the_end() {
        let left = key("left");
        let closed = chain();
        closed.open(HashMap::from([(key("left"), 3)]), Vec::new());
        closed.close();
        closed.reached(&left, 3).await.unwrap();
        let refused = closed.reached(&left, 4).await.unwrap_err();
        assert!(matches!(refused, StorageError::NotReplicated { .. }));
        closed.closed().await.unwrap();

        let superseded = chain();
        superseded.end(Ending::Superseded("node two has it".to_owned()));
        for refused in [
            superseded.reached(&left, 0).await.unwrap_err(),
            superseded.closed().await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), "storage_taken_over");
            assert!(refused.to_string().contains("node two"), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_until_the_chain_has_it() {
        let chain = chain();
        chain.open(HashMap::new(), Vec::new());
        let provenance = || ChainedProvenance {
            epoch: 1,
            sidecar: bytes::Bytes::from_static(b"sidecar"),
        };
        let brief = Duration::from_millis(10);
        let waiting = chain.report(key("left"), provenance());
        assert!(tokio::time::timeout(brief, waiting).await.is_err());
        // Nobody waits for it any more.
        assert!(chain.next_report(0).is_none());
        let appended = async {
            tokio::time::sleep(brief).await;
            let number = chain.next_report(0).unwrap().number;
            // What has been reported meanwhile is not in that record.
            let later = chain.add_report(key("left"), provenance());
            chain.forget_reports(number + 1);
            assert_eq!(chain.next_report(0).unwrap().number, later);
        };
        let (waited, ()) = tokio::join!(chain.report(key("left"), provenance()), appended);
        waited.unwrap();
        let _asking = Asking::begin(&chain);
        chain.take_redescribed();
        assert!(!chain.is_closing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalization_that_gives_up_leaves_the_chain_open() {
        let chain = chain();
        chain.open(HashMap::new(), Vec::new());
        let brief = Duration::from_millis(10);
        assert!(tokio::time::timeout(brief, chain.closed()).await.is_err());
        assert!(!chain.is_closing());
        assert!(chain.take_redescribed());
        assert!(tokio::time::timeout(brief, chain.work()).await.is_err());
    }
}
