//! How much agents may store, each and together.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use parking_lot::RwLock;
use storage_format::AgentId;

use super::{documents::Documents, usage::Usage};
use crate::{Agents, QuotaDefaults, StorageError, counters::Counters, writer::Services};

/// The document with the quotas that were set for single agents.
const QUOTAS_FILE: &str = "quotas";
const FIRST_LINE: &str = "tracehold quotas 1";
/// An agent without a limit, whatever the default is.
const UNLIMITED: &str = "unlimited";

/// What an agent has, and what it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentUsage {
    /// Bytes of its packets in all storages; `None` while they are not known.
    pub stored_bytes: Option<u64>,
    /// Its quota; `None` for no limit.
    pub bytes_max: Option<u64>,
    /// Whether the quota was set for this agent.
    pub is_own: bool,
}

/// The quotas of agents.
#[derive(Debug)]
pub struct Quotas {
    pub(super) usage: Arc<Usage>,
    defaults: QuotaDefaults,
    own: RwLock<BTreeMap<AgentId, Option<u64>>>,
    changing: tokio::sync::Mutex<()>,
    documents: Documents,
    agents: Arc<Agents>,
    counters: Arc<Counters>,
}

impl Quotas {
    pub(super) fn new(services: &Services, documents: Documents) -> Self {
        let quotas = Self {
            usage: Arc::default(),
            defaults: services.config.quotas,
            own: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            documents,
            agents: Arc::clone(&services.agents),
            counters: Arc::clone(&services.counters),
        };
        quotas.note_quotas();
        quotas
    }

    /// What is stored is added up as long as there is a quota.
    fn note_quotas(&self) {
        let QuotaDefaults {
            all_bytes_max,
            agent_bytes_max,
        } = self.defaults;
        let has_default = all_bytes_max.or(agent_bytes_max).is_some();
        let has_own = self.own.read().values().any(Option::is_some);
        self.usage.set_has_quota(has_default || has_own);
    }

    /// Reads the quotas of single agents. A document that is damaged is moved out of the way: a
    /// server without it has the defaults, and one that does not start has nothing.
    pub(super) async fn load(&self) -> Result<(), StorageError> {
        let document = match self.documents.read(QUOTAS_FILE).await {
            Ok(None) => return Ok(()),
            Ok(Some(document)) => decode(&document),
            Err(error) if error.is_loss() => None,
            Err(error) => return Err(error),
        };
        match document {
            Some(own) => {
                *self.own.write() = own;
                self.note_quotas();
            }
            None => {
                let aside = self.documents.set_aside(QUOTAS_FILE).await?;
                tracing::error!(
                    aside = %aside.display(),
                    "the quotas of single agents cannot be read: all agents have the default until \
                     they are set again"
                );
            }
        }
        Ok(())
    }

    /// Refuses packets of an agent that has what it may have, or when all agents have.
    ///
    /// # Errors
    /// [`StorageError::QuotaUsed`]. What arrives between two looks at the storages may exceed the
    /// quota.
    pub fn check(&self, agent: &AgentId) -> Result<(), StorageError> {
        let AgentUsage {
            stored_bytes,
            bytes_max,
            ..
        } = self.of(agent);
        let all = (self.usage.total(), self.defaults.all_bytes_max);
        let of_agent = format!("agent `{agent}`");
        for (of, used) in [
            (&*of_agent, (stored_bytes, bytes_max)),
            ("all agents together", all),
        ] {
            if let (Some(stored), Some(max)) = used
                && stored >= max
            {
                self.counters.refused_quota.add(1);
                return Err(StorageError::QuotaUsed {
                    of: of.to_owned(),
                    stored,
                    max,
                });
            }
        }
        Ok(())
    }

    /// What an agent has and may have.
    #[must_use]
    pub fn of(&self, agent: &AgentId) -> AgentUsage {
        let own = self.own.read().get(agent).copied();
        AgentUsage {
            stored_bytes: self.usage.of(agent),
            bytes_max: own.unwrap_or(self.defaults.agent_bytes_max),
            is_own: own.is_some(),
        }
    }

    /// Lets what agents have stored be determined for some minutes, and waits for a short time
    /// until it is known. It is known all the time while there is a quota.
    pub async fn ask(&self) {
        self.usage.ask().await;
    }

    /// Bytes of the packets of all agents; `None` while they are not known yet.
    #[must_use]
    pub fn stored_bytes(&self) -> Option<u64> {
        self.usage.total()
    }

    /// Gives an agent a quota of its own, `Some(None)` for no limit, or the default again. Durable
    /// when it returns.
    ///
    /// # Errors
    /// When there is no such agent, or the document cannot be written.
    pub async fn set(
        &self,
        agent: &AgentId,
        quota: Option<Option<u64>>,
    ) -> Result<(), StorageError> {
        self.agents.get(agent)?;
        self.change(agent, quota).await
    }

    /// As [`Self::set`], of an agent that may be gone.
    pub(super) async fn change(
        &self,
        agent: &AgentId,
        quota: Option<Option<u64>>,
    ) -> Result<(), StorageError> {
        let _changing = self.changing.lock().await;
        let mut own = self.own.read().clone();
        let before = match quota {
            Some(quota) => own.insert(agent.clone(), quota),
            None => own.remove(agent),
        };
        if before == quota {
            return Ok(());
        }
        let document = encode(&own);
        self.documents.write(QUOTAS_FILE, document.into()).await?;
        *self.own.write() = own;
        self.note_quotas();
        Ok(())
    }
}

fn encode(own: &BTreeMap<AgentId, Option<u64>>) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (agent, quota) in own {
        // Writing to memory does not fail.
        let _ = match quota {
            Some(bytes) => writeln!(text, "{bytes} {agent}"),
            None => writeln!(text, "{UNLIMITED} {agent}"),
        };
    }
    text
}

fn decode(document: &[u8]) -> Option<BTreeMap<AgentId, Option<u64>>> {
    let mut lines = std::str::from_utf8(document).ok()?.lines();
    let is_known = lines.next()? == FIRST_LINE;
    let quota = |line: &str| {
        let (bytes, agent) = line.split_once(' ')?;
        let bytes = match bytes {
            UNLIMITED => None,
            digits => Some(digits.parse().ok()?),
        };
        Some((agent.parse().ok()?, bytes))
    };
    is_known.then(|| lines.map(quota).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_as_they_were_written() {
        let own = [("a", Some(0)), ("b", Some(u64::MAX)), ("c-d", None)];
        let own = BTreeMap::from(own.map(|(agent, quota)| (agent.parse().unwrap(), quota)));
        assert_eq!(decode(encode(&own).as_bytes()), Some(own));
        for other in [
            "",
            "tracehold quotas 2\n",
            "tracehold quotas 1\nx a\n",
            "\u{ff}",
        ] {
            assert_eq!(decode(other.as_bytes()), None, "{other:?}");
        }
    }
}
