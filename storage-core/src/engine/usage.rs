//! How many bytes each agent has stored.
//!
//! They are added up only while a quota needs them, or somebody asks. An open storage has the sums
//! in its tree. Those of a finalized storage are in its index parts and never change, so they are
//! remembered, in a document that may be deleted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use io_trace::Cause;
use parking_lot::Mutex;
use storage_format::{AgentId, StorageId, paths::FileRole, storage_file::StorageState};
use tokio::sync::{Notify, watch};

use super::{blocking::Blocking, documents::Documents, registry::Registry};
use crate::{StorageError, counters::Counters, recovery::load_parts, storage::Storage};

/// The document with what is known of finalized storages.
const USAGE_FILE: &str = "agent-usage";
const FIRST_LINE: &str = "tracehold agent usage 1";
/// How long sums are kept up to date after somebody asked for them.
const ASKED_DURATION: Duration = Duration::from_secs(600);
/// How long somebody who asks waits for the first sums.
const FIRST_LOOK_WAIT: Duration = Duration::from_secs(2);
/// The document is written again when this part of it has changed, so that what is written in all
/// is in proportion to what changes.
const UNSAVED_PART: usize = 4;
/// A document of this many storages is small.
const SMALL_COUNT: usize = 256;

/// Bytes of packets as stored, by agent.
pub(super) type ByAgent = BTreeMap<AgentId, u64>;

type Sums = Arc<HashMap<AgentId, u64>>;

/// What was found the last time.
#[derive(Debug, Default)]
pub(super) struct Usage {
    sums: watch::Sender<Option<Sums>>,
    /// Whether there is a quota.
    has_quota: AtomicBool,
    asked: Mutex<Option<Instant>>,
    wake: Notify,
}

impl Usage {
    /// Bytes of an agent; `None` before the first look.
    pub(super) fn of(&self, agent: &AgentId) -> Option<u64> {
        let known = self.sums.borrow();
        let known = known.as_ref()?;
        Some(known.get(agent).copied().unwrap_or(0))
    }

    /// Bytes of all agents.
    pub(super) fn total(&self) -> Option<u64> {
        let known = self.sums.borrow();
        let known = known.as_ref()?;
        Some(
            known
                .values()
                .fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        )
    }

    pub(super) fn set_has_quota(&self, has_quota: bool) {
        let had_quota = self.has_quota.swap(has_quota, Ordering::Relaxed);
        if has_quota && !had_quota {
            // It holds from the next look on.
            self.wake.notify_one();
        }
    }

    /// Lets the sums be kept up to date for a while, and waits for the first ones, not for long.
    pub(super) async fn ask(&self) {
        *self.asked.lock() = Some(Instant::now());
        let mut sums = self.sums.subscribe();
        if sums.borrow().is_none() {
            self.wake.notify_one();
            // Without them they are not known yet.
            let _ = tokio::time::timeout(FIRST_LOOK_WAIT, sums.wait_for(Option::is_some)).await;
        }
    }

    fn is_wanted(&self) -> bool {
        let asked = *self.asked.lock();
        self.has_quota.load(Ordering::Relaxed)
            || asked.is_some_and(|asked| asked.elapsed() < ASKED_DURATION)
    }
}

/// What is known of finalized storages.
#[derive(Debug, Default)]
struct Finalized {
    storages: HashMap<StorageId, ByAgent>,
    /// Their sums.
    sums: HashMap<AgentId, u64>,
    /// Storages that came or went since the document was written.
    unsaved: usize,
}

impl Finalized {
    fn of(storages: HashMap<StorageId, ByAgent>) -> Self {
        let mut finalized = Self::default();
        for (id, found) in storages {
            finalized.add(id, found);
        }
        finalized.unsaved = 0;
        finalized
    }

    fn add(&mut self, id: StorageId, found: ByAgent) {
        add(&mut self.sums, &found);
        self.storages.insert(id, found);
        self.unsaved = self.unsaved.saturating_add(1);
    }

    fn retain(&mut self, left: &HashSet<StorageId>) {
        let Self {
            storages,
            sums,
            unsaved,
        } = self;
        storages.retain(|id, found| {
            let is_left = left.contains(id);
            if !is_left {
                *unsaved = unsaved.saturating_add(1);
                for (agent, bytes) in found {
                    if let Some(sum) = sums.get_mut(agent) {
                        *sum = sum.saturating_sub(*bytes);
                    }
                }
            }
            is_left
        });
    }

    /// Whether the document is to be written: what it lacks is found again by a start.
    fn is_due(&self) -> bool {
        let count = self.storages.len();
        let is_enough = self.unsaved.saturating_mul(UNSAVED_PART) >= count;
        self.unsaved > 0 && (is_enough || count <= SMALL_COUNT)
    }
}

fn add(sums: &mut HashMap<AgentId, u64>, found: &ByAgent) {
    for (agent, bytes) in found {
        let sum = sums.entry(agent.clone()).or_default();
        *sum = sum.saturating_add(*bytes);
    }
}

/// Looks again and again.
pub(super) struct UsageTask {
    pub(super) usage: Arc<Usage>,
    pub(super) registry: Arc<Registry>,
    pub(super) blocking: Blocking,
    pub(super) documents: Documents,
    pub(super) counters: Arc<Counters>,
}

impl UsageTask {
    pub(super) async fn run(self, interval: Duration) {
        let mut finalized = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.usage.wake.notified() => {}
            }
            if !self.usage.is_wanted() {
                // What is not kept up to date is not known.
                self.usage.sums.send_replace(None);
                self.counters.usage_unknown_storages.set(0);
                continue;
            }
            let known = match finalized.take() {
                Some(known) => known,
                None => Finalized::of(self.read().await),
            };
            finalized = Some(self.look(known).await);
        }
    }

    /// Adds up what all storages contain.
    async fn look(&self, mut finalized: Finalized) -> Finalized {
        let mut others: HashMap<AgentId, u64> = HashMap::new();
        let (mut unknown, mut known): (u64, usize) = (0, 0);
        let storages = self.registry.all();
        for storage in &storages {
            if finalized.storages.contains_key(&storage.id) {
                known = known.saturating_add(1);
                continue;
            }
            let was_finalized = storage.state() == StorageState::Finalized;
            match self.of_storage(storage, was_finalized).await {
                Some(found) if was_finalized => {
                    finalized.add(storage.id, found);
                    known = known.saturating_add(1);
                }
                Some(found) => add(&mut others, &found),
                None => unknown = unknown.saturating_add(1),
            }
        }
        if known < finalized.storages.len() {
            let left = storages.iter().map(|storage| storage.id).collect();
            finalized.retain(&left);
        }
        for (agent, bytes) in &finalized.sums {
            let sum = others.entry(agent.clone()).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        self.counters.usage_unknown_storages.set(unknown);
        self.usage.sums.send_replace(Some(Arc::new(others)));
        if finalized.is_due() {
            let document = encode(&finalized.storages);
            match self.documents.write(USAGE_FILE, document.into()).await {
                Ok(()) => finalized.unsaved = 0,
                Err(error) => {
                    tracing::warn!(%error, "what agents have stored is added up again at the next start");
                }
            }
        }
        finalized
    }

    /// What a storage contains; `None` while that is not known.
    async fn of_storage(&self, storage: &Arc<Storage>, is_finalized: bool) -> Option<ByAgent> {
        if !storage.readiness.is_ready() {
            return None;
        }
        if let Some(tree) = &*storage.tree.read()
            && !(is_finalized && tree.has_lost_part())
        {
            return Some(tree.bytes_by_agent().clone());
        }
        if !is_finalized {
            return (storage.state() == StorageState::Created).then(ByAgent::new);
        }
        // Not as a reader would: the trees of readers stay in memory, and nothing is rebuilt.
        let parts = storage.info().files.into_iter();
        let parts = parts.filter(|file| file.role == FileRole::Index);
        let names: Vec<String> = parts.map(|file| file.name).collect();
        if names.is_empty() {
            return Some(ByAgent::new());
        }
        let (folder, id) = (storage.folder.clone(), storage.id);
        let load = move || load_parts(&folder, id, &names);
        let tree = self.blocking.run(Cause::Manage, load).await.ok()??;
        Some(tree.bytes_by_agent().clone())
    }

    async fn read(&self) -> HashMap<StorageId, ByAgent> {
        match self.documents.read(USAGE_FILE).await {
            Ok(document) => decode(&document.unwrap_or_default()),
            // It is derived.
            Err(StorageError::Damaged { .. }) => HashMap::new(),
            Err(error) => {
                tracing::warn!(%error, "what agents have stored is added up again");
                HashMap::new()
            }
        }
    }
}

fn encode(finalized: &HashMap<StorageId, ByAgent>) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (storage, agents) in finalized {
        // Writing to memory does not fail. A storage without packets has a line, too.
        let _ = writeln!(text, "{storage}");
        for (agent, bytes) in agents {
            let _ = writeln!(text, "{storage} {bytes} {agent}");
        }
    }
    text
}

/// Lines that cannot be read are skipped: what they say is found again.
fn decode(document: &[u8]) -> HashMap<StorageId, ByAgent> {
    let mut finalized: HashMap<StorageId, ByAgent> = HashMap::new();
    let text = String::from_utf8_lossy(document);
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return finalized;
    }
    for line in lines {
        let mut words = line.splitn(3, ' ');
        let Some(storage) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        let agents = finalized.entry(storage).or_default();
        let bytes = words.next().and_then(|word| word.parse().ok());
        let agent = words.next().and_then(|word| word.parse().ok());
        if let (Some(bytes), Some(agent)) = (bytes, agent) {
            agents.insert(agent, bytes);
        }
    }
    finalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_remembered() {
        let id = |number| StorageId::from_bytes([number; 16]);
        let agents = [("a", 5), ("b.c", u64::MAX)];
        let agents = agents.map(|(agent, bytes)| (agent.parse().unwrap(), bytes));
        let finalized = HashMap::from([(id(1), ByAgent::from(agents)), (id(2), ByAgent::new())]);
        assert_eq!(decode(encode(&finalized).as_bytes()), finalized);
        for other in ["", "tracehold agent usage 2\n", "x"] {
            assert_eq!(decode(other.as_bytes()), HashMap::new());
        }
    }

    #[test]
    fn sums_follow_the_storages_that_come_and_go() {
        let agent: AgentId = "a".parse().unwrap();
        let id = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            StorageId::from_bytes(bytes)
        };
        let found = |bytes| ByAgent::from([(agent.clone(), bytes)]);
        let mut finalized = Finalized::default();
        let mut written: usize = 0;
        let storages = 20_000;
        for number in 0..storages {
            finalized.add(id(number), found(number));
            if finalized.is_due() {
                written += finalized.storages.len();
                finalized.unsaved = 0;
            }
        }
        assert_eq!(finalized.sums[&agent], storages * (storages - 1) / 2);
        let in_proportion = 10 * usize::try_from(storages).unwrap();
        assert!(written < in_proportion, "{written} lines were written");
        finalized.retain(&(0..10).map(id).collect());
        assert_eq!((finalized.sums[&agent], finalized.storages.len()), (45, 10));
        assert!(finalized.is_due());
    }
}
