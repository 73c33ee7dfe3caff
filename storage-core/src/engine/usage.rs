//! How many bytes each agent has stored.
//!
//! An open storage knows it from its tree. That of a finalized storage is loaded once and never
//! changes, so it is remembered, in a document that may be deleted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use storage_format::{AgentId, StorageId, storage_file::StorageState};

use super::{documents::Documents, registry::Registry, trees::TreeLoader};
use crate::{StorageError, counters::Counters, storage::Storage};

/// The document with what is known of finalized storages.
const USAGE_FILE: &str = "agent-usage";
const FIRST_LINE: &str = "tracehold agent usage 1";

/// Bytes of packets as stored, by agent.
pub(super) type ByAgent = BTreeMap<AgentId, u64>;

/// What was found the last time.
#[derive(Debug, Default)]
pub(super) struct Usage(RwLock<Option<Arc<HashMap<AgentId, u64>>>>);

impl Usage {
    /// Bytes of an agent; `None` before the first look.
    pub(super) fn of(&self, agent: &AgentId) -> Option<u64> {
        let known = self.0.read();
        let known = known.as_ref()?;
        Some(known.get(agent).copied().unwrap_or(0))
    }

    /// Bytes of all agents.
    pub(super) fn total(&self) -> Option<u64> {
        let known = self.0.read();
        let known = known.as_ref()?;
        Some(
            known
                .values()
                .fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        )
    }
}

/// Looks again and again.
pub(super) struct UsageTask {
    pub(super) usage: Arc<Usage>,
    pub(super) registry: Arc<Registry>,
    pub(super) trees: Arc<TreeLoader>,
    pub(super) documents: Documents,
    pub(super) counters: Arc<Counters>,
}

impl UsageTask {
    pub(super) async fn run(self, interval: Duration) {
        let mut finalized = self.read().await;
        loop {
            tokio::time::sleep(interval).await;
            self.look(&mut finalized).await;
        }
    }

    /// Adds up what all storages contain.
    async fn look(&self, finalized: &mut HashMap<StorageId, ByAgent>) {
        let mut sums: HashMap<AgentId, u64> = HashMap::new();
        let (mut unknown, mut has_changed): (u64, bool) = (0, false);
        let storages = self.registry.all();
        for storage in &storages {
            let found = match finalized.get(&storage.id) {
                Some(known) => Some(known.clone()),
                None => self.of_storage(storage).await,
            };
            let Some(found) = found else {
                unknown = unknown.saturating_add(1);
                continue;
            };
            for (agent, bytes) in &found {
                let sum = sums.entry(agent.clone()).or_default();
                *sum = sum.saturating_add(*bytes);
            }
            if storage.state() == StorageState::Finalized && !finalized.contains_key(&storage.id) {
                finalized.insert(storage.id, found);
                has_changed = true;
            }
            tokio::task::yield_now().await;
        }
        let left: HashSet<StorageId> = storages.iter().map(|storage| storage.id).collect();
        let known = finalized.len();
        finalized.retain(|id, _| left.contains(id));
        self.counters.usage_unknown_storages.set(unknown);
        *self.usage.0.write() = Some(Arc::new(sums));
        if has_changed || finalized.len() != known {
            let written = self.documents.write(USAGE_FILE, encode(finalized).into());
            if let Err(error) = written.await {
                tracing::warn!(%error, "what agents have stored is added up again at the next start");
            }
        }
    }

    /// What a storage contains; `None` while that is not known.
    async fn of_storage(&self, storage: &Arc<Storage>) -> Option<ByAgent> {
        let (was, is_ready) = (storage.state(), storage.readiness.is_ready());
        if !is_ready {
            return None;
        }
        if was == StorageState::Finalized {
            self.trees.load_whole(storage).await.ok()?;
            // What is found now is remembered.
            if TreeLoader::lacks_part(storage) {
                return None;
            }
        }
        match &*storage.tree.read() {
            Some(tree) => Some(tree.bytes_by_agent()),
            None if was == StorageState::Created => Some(ByAgent::new()),
            None => None,
        }
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
}
