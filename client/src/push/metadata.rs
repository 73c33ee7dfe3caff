//! The metadata of CTF traces that are followed: a tracer appends to it when programs with other
//! events start.

use std::fs;
use std::time::Duration;

use bytes::Bytes;

use super::plan::{PlannedAgent, read_metadata};
use crate::http::Client;

/// Sends the metadata of the agents again whenever its file has changed, until it is aborted.
///
/// Packets that need the new metadata may arrive earlier: they are stored, and decoded when it
/// comes. What cannot be read or sent now is sent after the next change.
pub(super) async fn renew(client: Client, agents: Vec<PlannedAgent>, every: Duration) {
    let stamp = |agent: &PlannedAgent| {
        let found = fs::metadata(agent.metadata.as_ref()?).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    let mut known: Vec<_> = agents.iter().map(stamp).collect();
    loop {
        tokio::time::sleep(every).await;
        for (agent, known) in agents.iter().zip(&mut known) {
            let now = stamp(agent);
            if now == *known {
                continue;
            }
            let Some(Ok(text)) = agent.metadata.as_deref().map(read_metadata) else {
                continue;
            };
            let sent = client.set_agent_metadata(agent.id.as_str(), Bytes::from(text), true);
            if sent.await.is_ok() {
                *known = now;
            }
        }
    }
}
