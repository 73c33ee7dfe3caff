//! The metadata of CTF traces that are followed: a tracer appends to it when programs with other
//! events start.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;

use super::plan::{PlannedAgent, read_metadata};
use crate::ClientError;
use crate::http::Client;

/// Length and time of the last change of a file.
type Stamp = Option<(u64, SystemTime)>;

/// Sends the metadata of agents again when its file has changed.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// The agents, and what of their metadata was sent.
    agents: Vec<(PlannedAgent, Stamp)>,
}

impl Renewal {
    /// Also renews the metadata of these agents. It may have changed while it was sent first.
    pub(super) fn add(&mut self, agents: &[PlannedAgent]) {
        let added = agents.iter().map(|agent| (agent.clone(), None));
        self.agents.extend(added);
    }

    /// Sends what has changed. What cannot be read or sent now is sent by the next pass.
    ///
    /// Packets that need the new metadata may arrive earlier: they are stored, and decoded when it
    /// comes.
    ///
    /// # Errors
    /// The first failure.
    pub(super) async fn pass(&mut self, client: &Client) -> Result<(), ClientError> {
        let mut failure = None;
        for (agent, sent) in &mut self.agents {
            let Some(path) = agent.metadata.as_deref() else {
                continue;
            };
            // A trace whose folder was moved away has the metadata that was sent.
            let now = stamp(path);
            if now.is_none() || now == *sent {
                continue;
            }
            match send(client, agent, path).await {
                Ok(()) => *sent = now,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()?))
}

async fn send(client: &Client, agent: &PlannedAgent, path: &Path) -> Result<(), ClientError> {
    let text = match read_metadata(path) {
        Err(ClientError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(());
        }
        read => Bytes::from(read?),
    };
    client
        .set_agent_metadata(agent.id.as_str(), text, true)
        .await
}
